"""The receipt of a node that has left: every message is accounted for, or the difference is named. Pure.

Counted are durable messages: no others would outlive a crash of either node. The broker adds up; here it is added up
once more, from its figures alone, so that neither has to be trusted:

    before + came = consumed + moved + left        at the node that leaves
    moved = arrived, and their digests are equal   at the nodes that took them, but for what one that was forgotten took
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mqctl.output import Column
from mqctl.scaledown.pauses import told_of

SCHEMA: Final = "mqctl.scale-down/1"
HEIR: Final = ("node_id", "node", "moved", "paused_there")  # of each node that took some, or has the queue for it
COLUMNS: Final = (
    Column("host"),
    Column("instance"),
    Column("queue"),
    Column("before", is_number=True),
    Column("of_before"),
    Column("came", is_number=True),
    Column("consumed", is_number=True),
    Column("moved", is_number=True),
    Column("arrived", is_number=True),
    Column("left", is_number=True),
    Column("of_left"),
    Column("to"),
    Column("address", wide_only=True),
    Column("moved_digest", wide_only=True),
    Column("arrived_digest", wide_only=True),
    Column("balances"),
)

KINDS: Final = ("delivering", "scheduled", "paged", "large")  # of what was there, and of what is left but for the last


def shown(rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    """The columns for people: kinds where there is anything of a kind."""
    return [one for one in COLUMNS if not one.name.startswith("of_") or any(row.get(one.name) for row in rows)]


def differences(receipt: Mapping[str, Any] | None, *, is_forced: bool = False) -> list[str]:
    """All that does not balance; nothing where everything does. `is_forced`: what could not move may be left."""
    if not receipt:
        return ["the broker has no receipt"]
    said = [str(each) for each in receipt.get("difference", ())]
    for row in receipt.get("queues", ()):
        said += [f"queue {row['queue']}: {text}" for text in _of_queue(row, is_forced=is_forced)]
    if not receipt.get("balances") and not said:
        said.append("the broker says that it does not balance, and does not say why")
    return list(dict.fromkeys(said))


def _of_queue(row: Mapping[str, Any], *, is_forced: bool) -> list[str]:
    before, said = int(row["before"]["messages"]), []
    had, went = before + row["came"], row["consumed"] + row["moved"] + row["left"]
    if had != went:
        said.append(
            f"{before} before and {row['came']} that came are {had}, but {row['consumed']} consumed, {row['moved']} "
            f"moved and {row['left']} left are {went}"
        )
    # Of a queue from which nothing went the other node is not asked.
    arrived, confirmed = row["arrived"], row["moved"] - row.get("unconfirmed", 0)
    if confirmed != (arrived or 0):
        said.append(f"{confirmed} moved and {'nobody knows how many' if arrived is None else arrived} arrived")
    elif arrived is not None and row["moved_digest"] != row["arrived_digest"]:
        said.append(f"as many arrived as moved ({row['moved']}), but not the same messages")
    if row["left"] and not is_forced:
        said.append(f"{row['left']} are left")
    return said


def rows_of(host: str, instance: str, to: str, receipt: Mapping[str, Any], *, is_forced: bool) -> list[dict[str, Any]]:
    """A row for each queue of a receipt."""
    return [
        {
            **{name: row[name] for name in ("queue", "address", "came", "consumed", "moved", "left", "arrived")},
            **{name: row[name] for name in ("moved_digest", "arrived_digest")},
            "host": host,
            "instance": instance,
            "to": _targets(row, to),
            "unconfirmed": row.get("unconfirmed", 0),
            "paused": row.get("paused", False),
            "heirs": [{name: one.get(name) for name in HEIR} for one in row.get("heirs", ())],
            "before": row["before"]["messages"],
            "kinds": dict(row["before"]),
            "of_before": _kinds(row["before"]),
            "kinds_left": dict(row.get("after", {})),
            "of_left": _kinds(row.get("after", {})),
            "balances": not _of_queue(row, is_forced=is_forced),
        }
        for row in receipt.get("queues", ())
    ]


def _kinds(counts: Mapping[str, Any]) -> str:
    return ", ".join(f"{counts[kind]} {kind}" for kind in KINDS if counts.get(kind))


def _targets(row: Mapping[str, Any], to: str) -> str:
    """Who took it, in their order, where one after the other did."""
    names = [str(each["node"] or each["node_id"]) for each in row.get("heirs", ()) if each["moved"]]
    return ", ".join(dict.fromkeys(names)) or to


def unaccounted(queues: Sequence[Mapping[str, Any]], document: Mapping[str, Any], instance: str) -> list[str]:
    """Of what the journal of a stopped broker holds, what its receipt does not say. A queue that was allowed to stay
    and has no row may hold what was in it then, and anything where an earlier release did not say how much that was."""
    rows = {row["queue"]: row["left"] for row in document["rows"] if row["instance"] == instance}
    stays = {one["queue"]: one.get("messages") for one in document.get("stays", ()) if one["instance"] == instance}
    allowed = {**stays, **rows}
    return [
        f"queue {one['name']}: {one['messages']} messages, {bound} by the receipt"
        for one in queues
        if (bound := allowed.get(one["name"], 0)) is not None and one["messages"] > bound
    ]


def who(document: Mapping[str, Any]) -> str:
    """Whom a receipt is of, as it is said on the command line: a host, or one of its instances that leaves alone."""
    return "/".join([document["host"], *document.get("instances", ())])


def page(document: Mapping[str, Any]) -> str:
    """The receipt for people, as a page of text."""
    rows: Sequence[Mapping[str, Any]] = document["rows"]
    names = [one.name for one in shown(rows) if not one.wide_only and one.name not in ("host", "instance")]
    cells = [[name.replace("_", " ") for name in names], *([_cell(row.get(name)) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    is_number = {one.name for one in COLUMNS if one.is_number}
    lines = [
        "  ".join(
            cell.rjust(width) if name in is_number else cell.ljust(width)
            for name, cell, width in zip(names, row, widths, strict=True)
        ).rstrip()
        for row in cells
    ]
    others: Sequence[Mapping[str, Any]] = document.get("others", ())
    total = {
        name: sum(row[name] or 0 for row in rows) for name in ("before", "came", "consumed", "moved", "arrived", "left")
    }
    return "\n".join(
        [
            f"Receipt: {who(document)} leaves cluster {document['cluster']}",
            f"made {document['at']}; node {', '.join(document['node_ids'])}",
            "",
            *lines,
            "",
            f"{total['before']} before + {total['came']} came = {total['consumed']} consumed + {total['moved']} moved "
            f"+ {total['left']} left; {total['arrived']} arrived",
            _verdict(document),
            *(f"  {one}" for one in document["differences"]),
            *(
                f"Not confirmed: {row['unconfirmed']} of queue {row['queue']} were taken by a node that was forgotten "
                "before it could be asked for a digest."
                for row in rows
                if row.get("unconfirmed")
            ),
            *(f"For {one['node'] or one['node_id']}: {one['before']} before, {one['left']} left." for one in others),
            *([f"May come twice: {document['unanswered']}"] if document.get("unanswered") else []),
            *(f"Stays in the archive: queue {one['queue']}: {one['why']}" for one in document.get("stays", ())),
            *told_of(who(document), rows, ()),
            "",
            "Durable messages are counted; others moved as well.",
            "before: what was in the queue when it began to drain; came: from clients and other nodes since then;",
            "consumed: taken by clients here, or expired, since then; moved: on disk at the other node, and answered.",
            "",
        ]
    )


def _verdict(document: Mapping[str, Any]) -> str:
    if void := document.get("void"):
        return f"IT IS VOID: messages came after it was made, or may have: {void}"
    return "It balances." if not document["differences"] else "IT DOES NOT BALANCE:"


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return "" if value is None else str(value)
