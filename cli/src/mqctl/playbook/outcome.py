"""What a run of a playbook came to: a row for each host, and what its nodes do after it."""

from __future__ import annotations

from collections.abc import Sequence

from mqctl.brokers.node_state import look, row_of
from mqctl.brokers.verification import verify
from mqctl.declare import ReaderOptions
from mqctl.exits import Exit
from mqctl.fanout import on_each
from mqctl.inventory import Host, InventoryCluster
from mqctl.nodes import Node
from mqctl.output import Column, OutputShape, Rows, counted, write
from mqctl.playbook.events import PlayProgress
from mqctl.playbook.run import Interrupted, Play, run_play, verdict
from mqctl.world import World

COLUMNS = (
    Column("host"),
    Column("state"),
    Column("ok", is_number=True),
    Column("changed", is_number=True),
    Column("changes", wide_only=True),
    Column("note"),
)
INTERRUPTED_LOOK_S = 5


def carry_out(
    world: World, options: ReaderOptions, cluster: InventoryCluster, hosts: Sequence[Host], play: Play
) -> Exit:
    """Run the playbook on the hosts, say how each fared, and look at its nodes."""
    try:
        state = run_play(world, cluster, play)
    except Interrupted as interrupted:
        _complete(cluster, interrupted.state, play)
        return report_interrupted(world, cluster, interrupted.state, options.shape, play)
    _complete(cluster, state, play)
    code = report(world, state, options.shape)
    if play.is_check or code is Exit.FAILED:
        return code
    try:
        return max(code, verify(world, cluster, [one for one in hosts if _went_well(state, one)]))
    except KeyboardInterrupt:
        world.note("interrupted: the hosts are done, and not every node was looked at; see: mqctl status")
        raise


def _complete(cluster: InventoryCluster, state: PlayProgress, play: Play) -> None:
    """Hosts that were left out have a row as well, and count as not reached."""
    state.leave_out(play.left_out)
    state.put_in_order(host.name for host in cluster.hosts)


def report(world: World, state: PlayProgress, shape: OutputShape) -> Exit:
    """Write how each host fared, a row for each; the exit code that follows from it."""
    rows = [
        {
            "host": one.name,
            "state": one.state,
            "ok": one.ok,
            "changed": one.changed,
            "changes": one.changes,
            "note": one.note,
        }
        for one in state.hosts.values()
    ]
    changed = sum(one.changed for one in state.hosts.values())
    write(Rows("mqctl.run/1", COLUMNS, rows, {"changed": changed}), shape, world.data)
    return verdict(state)


def report_interrupted(
    world: World, cluster: InventoryCluster, state: PlayProgress, shape: OutputShape, play: Play
) -> Exit:
    """How far each host has come, and what its brokers do now where a task was under way. Another Ctrl-C ends this."""
    report(world, state, shape)
    touched = [one for one in cluster.hosts if one.name in state.hosts and state.hosts[one.name].state == "interrupted"]
    nodes = [Node(host.name, instance, host.access) for host in touched for instance in host.instances]
    for node, outcome in on_each(nodes, lambda one: look(world, one, INTERRUPTED_LOOK_S)):
        row = row_of(node, outcome)
        note = f", {row['note']}" if row["note"] else ""
        world.note(f"{node.name}: its broker is {row['state']} now{note}")
    count = sum(one.state == "ok" for one in state.hosts.values())
    again = play.command or f"mqctl {play.name}"
    world.note(f"interrupted: {count} of {counted(len(state.hosts), 'host')} done; {again} again goes on")
    return Exit.INTERRUPTED


def _went_well(state: PlayProgress, host: Host) -> bool:
    return host.name in state.hosts and state.hosts[host.name].state == "ok"
