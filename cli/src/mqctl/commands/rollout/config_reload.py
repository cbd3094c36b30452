"""`mqctl config reload`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from mqctl.brokers.requests import PLACE, ActOptions, act, nodes_meant, the_node
from mqctl.errors import CommandError, UsageError
from mqctl.exits import Exit
from mqctl.fanout import on_each
from mqctl.nodes import Node
from mqctl.output import Column, Format, Rows, write
from mqctl.world import World

COLUMNS = (Column("option"), Column("before"), Column("after"), Column("state"))
RESTART = "needs restart"


@dataclass(frozen=True, kw_only=True)
class Options(ActOptions):
    """Which node."""

    all: Annotated[bool, typer.Option("--all", help="All nodes.")] = False


def run(world: World, options: Options) -> int:
    """Have a broker read its options and users again, and show what changed and what waits for a restart.

    Where its files have a fault, it changes nothing and names them all. Exit code 3 if something waits for a restart.
    """
    if options.all and options.host:
        raise UsageError("--all and --host exclude each other", "mqctl config reload --all")
    nodes = nodes_meant(world, options) if options.all else [the_node(world, options)]
    rows: list[dict[str, Any]] = []
    faults: list[CommandError] = []
    for node, answer in on_each(nodes, lambda one: act(world, one, "config-reload")):
        if isinstance(answer, CommandError):
            faults.append(answer)
            continue
        for remark in answer.get("remarks", ()):
            world.note(f"{node.name}: {remark}")
        changed = list(rows_of(answer, options.shape.format))
        if not changed:
            world.note(f"{node.name}: nothing has changed")
        rows += [_place(node) | row for row in changed]
    _write(world, options, rows)
    return _verdict(world, rows, faults, len(nodes))


def _write(world: World, options: Options, rows: list[dict[str, Any]]) -> None:
    if rows or options.shape.format is not Format.TABLE:
        write(Rows("mqctl.config-reload/1", (*PLACE, *COLUMNS), rows), options.shape, world.data)


def _verdict(world: World, rows: list[dict[str, Any]], faults: list[CommandError], count: int) -> Exit:
    if len(faults) == 1 == count:
        raise faults[0]
    for fault in faults:
        world.note(f"mqctl: {fault.what}")
    if faults:
        raise CommandError(f"{len(faults)} of {count} nodes did not reload", "mqctl status")
    if any(row["state"] == RESTART for row in rows):
        by_hand = "systemctl restart mqbroker@INSTANCE, which moves messages away where scale-down is enabled"
        world.note(f"what needs a restart holds after: mqctl rollout, or {by_hand}")
        return Exit.DEGRADED
    return Exit.DONE


def rows_of(answer: Mapping[str, Any], format_: Format) -> Iterator[dict[str, Any]]:
    """One row for each option and user that differs; values as TOML has them, but as they are in JSON."""

    def shown(value: Any) -> Any:
        return value if format_ is Format.JSON or value is None else json.dumps(value)

    for one in answer["changed"]:
        yield _row(one["option"], shown(one["old"]), shown(one["new"]), "changed")
    for state, names in answer["users"].items():
        for name in names:
            yield _row(f"user {name}", None, None, state)
    for one in answer["restart"]:
        yield _row(one["option"], shown(one["running"]), shown(one["file"]), RESTART)


def _row(option: str, before: Any, after: Any, state: str) -> dict[str, Any]:
    return {"option": option, "before": before, "after": after, "state": state}


def _place(node: Node) -> dict[str, str]:
    return {"host": node.host, "instance": node.instance}
