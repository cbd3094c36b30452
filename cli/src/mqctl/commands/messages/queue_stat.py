"""`mqctl queue stat`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from mqctl.brokers.requests import PLACE, AskOptions, ListOperation, gather
from mqctl.exits import Exit
from mqctl.output import Column, Rows, write
from mqctl.world import World

COLUMNS = (
    Column("queue"),
    Column("address", wide_only=True),
    Column("consumers", is_number=True),
    Column("messages", is_number=True),
    Column("ready", is_number=True),
    Column("delivering", is_number=True),
    Column("scheduled", is_number=True),
    Column("paged", is_number=True, wide_only=True),
    Column("added", is_number=True),
    Column("acknowledged", is_number=True),
    Column("expired", is_number=True, wide_only=True),
    Column("killed", is_number=True, wide_only=True),
    Column("added_per_s", is_number=True),
    Column("acknowledged_per_s", is_number=True),
    Column("paused", wide_only=True),
)
NAMES = {
    "name": "queue", "message_count": "messages", "ready_count": "ready", "delivering_count": "delivering",
    "scheduled_count": "scheduled", "paged_count": "paged", "consumer_count": "consumers", "messages_added": "added",
    "messages_acknowledged": "acknowledged", "messages_expired": "expired", "messages_killed": "killed",
}  # fmt: skip
SUMMED = (
    "consumers", "messages", "ready", "delivering", "scheduled", "paged", "added", "acknowledged", "expired", "killed",
)  # fmt: skip
RATES = {"added": "added_per_s", "acknowledged": "acknowledged_per_s"}
SINCE = "counted_from_ms"  # another one is of another queue of that name, or of another run of the broker


@dataclass(frozen=True, kw_only=True)
class Options(AskOptions):
    """Which queues, and over what time."""

    queue: Annotated[str, typer.Argument(help="Only queues whose name has this in it.")] = ""
    sum: Annotated[bool, typer.Option("--sum", help="One row for each queue, summed over the nodes that have it.")] = (
        False
    )
    interval: Annotated[
        float, typer.Option(help="Seconds between two looks, for rates; 0: one look.", min=0, max=3600)
    ] = 1.0


def run(world: World, options: Options) -> int:
    """Show the counts of the queues of all nodes, and how quickly they change: per node, or summed with --sum.

    Exit code 3 if a node is silent.
    """
    listing = ListOperation(
        "mqctl.queue-stat/1", "queues", "queues", COLUMNS, NAMES, keep=lambda row: options.queue in row["name"]
    )
    told: set[str] = set()
    rows, is_whole = gather(world, options, listing, told)
    if options.interval:
        before, started_s = rows, world.monotonic_s()
        world.sleep_s(options.interval)
        rows, is_still_whole = gather(world, options, listing, told)
        is_whole = is_whole and is_still_whole
        add_rates(before, rows, world.monotonic_s() - started_s)
    shown = Rows(listing.schema, (*PLACE, *COLUMNS), rows, {"is_whole": is_whole})
    if options.sum:
        columns = (COLUMNS[0], Column("nodes", is_number=True), *COLUMNS[1:])
        shown = Rows("mqctl.queue-sum/1", columns, summed(rows), {"is_whole": is_whole})
    write(shown, options.shape, world.data)
    return Exit.DONE if is_whole else Exit.DEGRADED


def add_rates(before: list[dict[str, Any]], rows: list[dict[str, Any]], duration_s: float) -> None:
    """What came and went in between, for queues that were there both times and count from the same start."""
    known = {(row["host"], row["instance"], row["queue"]): row for row in before}
    for row in rows:
        old = known.get((row["host"], row["instance"], row["queue"]))
        if old is None or duration_s <= 0 or not _goes_on(old, row):
            continue
        row.update({rate: round((row[name] - old[name]) / duration_s, 1) for name, rate in RATES.items()})


def _goes_on(old: dict[str, Any], row: dict[str, Any]) -> bool:
    """Older brokers do not say since when they count: of theirs only totals that fell are known to have begun anew."""
    return row.get(SINCE) == old.get(SINCE) and all(row[name] >= old[name] for name in RATES)


def summed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each queue of an address. A rate is there where every node has one; one pause is a pause."""
    queues: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        queues.setdefault((row["queue"], row["address"]), []).append(row)
    sums = []
    for (queue, address), parts in sorted(queues.items()):
        one: dict[str, Any] = {"queue": queue, "address": address, "nodes": len(parts)}
        one |= {name: sum(part[name] for part in parts) for name in SUMMED}
        for rate in RATES.values():
            if all(part.get(rate) is not None for part in parts):
                one[rate] = round(sum(part[rate] for part in parts), 1)
        sums.append(one | {"paused": any(part["paused"] for part in parts)})
    return sums
