"""`mqctl cluster forget`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from mqctl import completion, confirmation, operation
from mqctl.brokers.node_names import called, names_of, node_id_of
from mqctl.brokers.requests import PLACE, AskOptions, act, nodes_and_cluster
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.fanout import on_each
from mqctl.inventory import InventoryCluster
from mqctl.nodes import Node, open_admin
from mqctl.output import Column, Rows, counted, write
from mqctl.world import World

COLUMNS = (*PLACE, Column("node_id"), Column("action"), Column("messages", is_number=True))


@dataclass(frozen=True, kw_only=True)
class Options(AskOptions):
    """Which node, and what becomes of messages for it."""

    node: Annotated[
        str,
        typer.Argument(
            help="The node that does not come back: its name (mqctl topology), or its id.",
            autocompletion=completion.nodes,
        ),
    ]
    dead_letter: Annotated[
        bool, typer.Option("--dead-letter", help="Messages for it become dead letters, and are not routed anew.")
    ] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
    force: Annotated[bool, typer.Option("--force", help="Also while an operation holds the cluster.")] = False


def run(world: World, options: Options) -> int:
    """Have all brokers give up a node that does not come back, and route messages for it anew.

    Copies for subscriptions of that node end with it. Refused while an operation holds the cluster (`mqctl operation
    show`), which may have stopped that node itself, unless by `--force`. Exit code 3 if a broker other than that node
    does not answer or knows nothing of it.
    """
    action = "dead-letter" if options.dead_letter else "reroute"
    members, cluster = nodes_and_cluster(world, options)
    if cluster is not None and not options.force:
        _require_free(world, cluster)
    answers = list(on_each(members, lambda one: _topology(world, one)))
    names = names_of(answer for _, answer in answers if not isinstance(answer, CommandError))
    node_id = node_id_of(options.node, names)
    name = names.get(node_id, "")
    # Nobody expects an answer of the node that is gone.
    nodes = [node for node, answer in answers if not (isinstance(answer, CommandError) and called(node.name) == name)]
    whom = f"{name} ({node_id})" if name else node_id
    confirmation.yes(world, f"Have {counted(len(nodes), 'broker')} forget node {whom}?", is_sure=options.yes)
    rows: list[dict[str, Any]] = []
    for node, answer in on_each(nodes, lambda one: act(world, one, "cluster-forget", node_id=node_id, action=action)):
        if isinstance(answer, CommandError):
            world.note(f"mqctl: {answer.what}")
        else:
            rows.append({"host": node.host, "instance": node.instance, **answer})
    write(Rows("mqctl.cluster-forget/1", COLUMNS, rows), options.shape, world.data)
    return Exit.DONE if len(rows) == len(nodes) else Exit.DEGRADED


def _require_free(world: World, cluster: InventoryCluster) -> None:
    """What an operation has stopped is away for a moment, and what it has drained is not routed anew."""
    try:
        operation.require_free(world, cluster)
    except CommandError as held:
        attempt = f"{held.attempt}; --force, where that operation waits for the node and will not see it again"
        raise CommandError(held.what, attempt) from None


def _topology(world: World, node: Node) -> dict[str, Any]:
    with open_admin(world, node) as session:
        topology: dict[str, Any] = session.call("topology")
        return topology
