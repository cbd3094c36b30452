"""`mqctl health`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Annotated, Any

import typer

from mqctl import inventory
from mqctl.brokers import canary, node_state
from mqctl.brokers.requests import AskOptions
from mqctl.errors import CommandError, UsageError
from mqctl.exits import Exit
from mqctl.fanout import on_each
from mqctl.nodes import Node, choose, nodes_of, open_admin, shell
from mqctl.output import Column, Rows, counted, write
from mqctl.ssh import shell as remote
from mqctl.world import World

COLUMNS = (
    Column("host"),
    Column("instance"),
    Column("health"),
    Column("state"),
    Column("failing"),
    Column("why"),
)
# Asked of the node by HTTP, on its host. What it says of itself over the admin socket it says without that too.
CHECKS = ("disk-space", "journal", "listeners", "memory", "node-id")
CANARY_S = 5.0
CORDONED = "cordoned"  # what such a node says of its state
NodePlaces = Mapping[tuple[str, str], tuple[str, int]]


@dataclass(frozen=True, kw_only=True)
class Options(AskOptions):
    """Which nodes, and for how long."""

    watch: Annotated[bool, typer.Option("--watch", help="Look again and again, and show what has changed.")] = False
    until_healthy: Annotated[bool, typer.Option("--until-healthy", help="Look again until all are healthy.")] = False
    interval: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.1, max=3600)] = 2.0
    timeout: Annotated[
        int, typer.Option(help="Seconds after which --watch and --until-healthy end; 0: never.", min=0)
    ] = 300
    answer_time: Annotated[int, typer.Option(help="Seconds that a host may take to answer.", min=1, max=600)] = 15


def run(world: World, options: Options) -> int:
    """Show whether every node is healthy: it runs, takes messages, and no check of its health fails.

    With --watch and --until-healthy a canary also has to cross each of its links (`mqctl cluster canary`).

    Exit code 0 if all are, 3 if not; with --until-healthy 4 if the time is up before they are.
    """
    nodes = nodes_of(world, options)
    if options.host:
        nodes = [choose(nodes, options.host)]
    if not nodes:
        raise UsageError("there is no node", "mqctl dev up" if options.dev else "mqctl inventory check")
    places = _places(world, options)
    start_s = world.monotonic_s()
    shown: list[dict[str, Any]] = []
    while True:
        rows = look_at_all(world, nodes, places, options)
        is_healthy = all(row["health"] == "healthy" for row in rows)
        left_s = options.timeout - (world.monotonic_s() - start_s) if options.timeout else options.interval
        is_last = _is_last(options, is_healthy=is_healthy, is_time_up=left_s <= 0)
        if rows != shown and (options.watch or is_last):
            write(Rows("mqctl.health/1", COLUMNS, rows), options.shape, world.data)
            world.data.file.flush()
            shown = rows
        if is_last:
            return _verdict(world, options, rows)
        world.sleep_s(min(options.interval, max(0.0, left_s)))


def _is_last(options: Options, *, is_healthy: bool, is_time_up: bool) -> bool:
    if options.until_healthy and is_healthy:
        return True
    return is_time_up if options.watch or options.until_healthy else True


def _verdict(world: World, options: Options, rows: Sequence[dict[str, Any]]) -> Exit:
    ill = [row for row in rows if row["health"] != "healthy"]
    if not ill:
        return Exit.DONE
    if not options.until_healthy:
        return Exit.DEGRADED
    world.note(f"{len(ill)} of {counted(len(rows), 'node')} not healthy after {options.timeout} s")
    return Exit.RUNNING


def _places(world: World, options: Options) -> dict[tuple[str, str], tuple[str, int]]:
    """(host, instance) -> address and port of its checks, where the inventory has them served."""
    if options.dev:
        return {}
    places = {}
    for host in inventory.load(world, options).hosts:
        variables = inventory.variables_of(host)
        for one in variables.mq_instances if variables.mq_metrics_port else ():
            address = str(variables.mq_metrics_local_bind_address)
            places[(host.name, one.name)] = (address, variables.mq_metrics_port + one.port_offset)
    return places


def look_at_all(world: World, nodes: Sequence[Node], places: NodePlaces, options: Options) -> list[dict[str, Any]]:
    """A row for each node, whatever became of its host."""
    looks = on_each(nodes, lambda one: look(world, one, places.get((one.host, one.instance)), options))
    return [row_of(node, outcome) for node, outcome in looks]


def look(world: World, node: Node, place: tuple[str, int] | None, options: Options) -> dict[str, Any]:
    """What one node says: its state, and every check that fails with its reason. Who waits has canaries sent too."""
    answer_s = options.answer_time
    seen = node_state.look(world, node, answer_s)
    if seen["state"] != "running":
        return {"state": seen["state"], "checks": [("running", str(seen.get("note") or ""))]}
    with open_admin(world, node, answer_s) as session:
        facts = session.call("health")
        failing = of_facts(facts)
        if options.watch or options.until_healthy:
            links = [trouble for row in canary.crossed(session, CANARY_S) if (trouble := canary.trouble(row))]
            failing += [("links", "; ".join(links))] if links else []
    if place is not None and node.access is not None:
        failing += _served(world, node, place, answer_s)
    return {"state": "running", "checks": failing, "warnings": warnings_of(facts)}


def of_facts(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What is wrong by what the node says of itself."""
    failing = []
    if facts.get("state") not in ("active", CORDONED):
        failing.append(("running", f"the broker is {facts.get('state')}"))
    elif facts.get("grants_credit") is False and not facts.get("holds_back"):
        failing.append(("disk-space", "publishers get no credit: the disk is full, or takes no writes"))
    if facts.get("holds_back"):
        failing.append(("memory", "publishers get no credit: messages hold all of global-max-size-bytes"))
    if facts.get("has_yielded"):
        # An older release does not say why it is the one to yield.
        why = facts.get("yielded_why") or "another broker with this node id goes on: no links to the cluster"
        failing.append(("node-id", str(why)))
    return failing


def warnings_of(facts: Mapping[str, Any]) -> list[str]:
    """What somebody should look at, though the node is well."""
    warnings = []
    if facts.get("state") == CORDONED:
        warnings.append("warning: it is cordoned: it lets no client in (mqctl undrain)")
    if facts.get("has_rival") and not facts.get("has_yielded"):
        warnings.append("warning: another broker, which yields, runs with this node id")
    return warnings


def _served(world: World, node: Node, place: tuple[str, int], answer_s: int) -> list[tuple[str, str]]:
    """What is wrong by the checks that the broker serves on its host."""
    assert node.access is not None
    program = resources.files("mqctl.remote").joinpath("health.py").read_bytes()
    command = [node.access.python, "-", place[0], str(place[1]), *CHECKS]
    result = remote.run(shell(world, node.access), command, program, answer_s)
    try:
        if result.code != 0:
            raise ValueError(result.complaint)
        return [(str(one["check"]), str(one["why"])) for one in json.loads(result.out) if one["ok"] is not True]
    except (ValueError, LookupError, TypeError) as fault:
        raise CommandError(f"{node.name}: its checks cannot be read: {fault}", "mqctl status") from None


def row_of(node: Node, outcome: dict[str, Any] | CommandError) -> dict[str, Any]:
    """One row; a check that fails twice, in both ways to ask, counts once."""
    row: dict[str, Any] = {"host": node.host, "instance": node.instance}
    if isinstance(outcome, CommandError):
        state = node_state.row_of(node, outcome)
        return row | {"health": "unknown", "state": state["state"], "failing": [], "why": state["note"]}
    failing = dict(reversed(outcome["checks"]))
    return row | {
        "health": "degraded" if failing else "healthy", "state": outcome["state"], "failing": sorted(failing),
        "why": "; ".join([failing[name] for name in sorted(failing)] + outcome.get("warnings", [])),
    }  # fmt: skip
