"""Commands that ask brokers one operation: all nodes for a list, one node for something to be done.

Invariant: nothing is changed on a node that the user did not mean: where there are several, one has to be named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from mqctl import completion, inventory
from mqctl.declare import ReaderOptions
from mqctl.errors import CommandError, UsageError
from mqctl.exits import Exit
from mqctl.fanout import on_each
from mqctl.nodes import Node, NodeCommandOptions, choose, nodes_in, nodes_of, open_admin
from mqctl.output import Column, Rows, write
from mqctl.progress import counting
from mqctl.world import World

PLACE = (Column("host"), Column("instance"))
LONG_WORK_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class AskOptions(ReaderOptions, NodeCommandOptions):
    """Which nodes are asked, of commands that only look."""

    host: Annotated[
        str, typer.Option(help="Only this node: a host, or host/instance.", autocompletion=completion.nodes)
    ] = ""


@dataclass(frozen=True, kw_only=True)
class ActOptions(ReaderOptions, NodeCommandOptions):
    """Which node is changed, of commands that act on one."""

    host: Annotated[
        str,
        typer.Option(
            help="The node: a host, or host/instance; needed where there are several.", autocompletion=completion.nodes
        ),
    ] = ""


@dataclass(frozen=True, slots=True)
class ListOperation:
    """A list of rows: the operation, the name of the list in its answer, and how its fields are called here."""

    schema: str
    operation: str
    key: str
    columns: Sequence[Column]
    names: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    keep: Callable[[Mapping[str, Any]], bool] = lambda row: True


def nodes_meant(world: World, options: AskOptions | ActOptions) -> list[Node]:
    """All nodes, or the one that --host names."""
    return nodes_and_cluster(world, options)[0]


def nodes_and_cluster(
    world: World, options: AskOptions | ActOptions
) -> tuple[list[Node], inventory.InventoryCluster | None]:
    """The same, and their cluster; None of brokers of `mqctl dev`."""
    cluster = None if options.dev else inventory.load(world, options)
    nodes = nodes_of(world, options) if cluster is None else nodes_in(cluster)
    return [choose(nodes, options.host)] if options.host else nodes, cluster


def show(world: World, options: AskOptions, listing: ListOperation) -> int:
    """Ask all nodes and write what they say. Exit code 3 if a node does not answer."""
    rows, is_whole = gather(world, options, listing)
    columns = (*PLACE, *listing.columns)
    write(Rows(listing.schema, columns, rows, {"is_whole": is_whole}), options.shape, world.data)
    return Exit.DONE if is_whole else Exit.DEGRADED


def gather(
    world: World, options: AskOptions, listing: ListOperation, told: set[str] | None = None
) -> tuple[list[dict[str, Any]], bool]:
    """The rows of all nodes, and whether they are all. What is in `told` was told before, and is not told again."""
    nodes = nodes_meant(world, options)
    rows: list[dict[str, Any]] = []
    is_whole, told = True, set() if told is None else told
    with counting(world, "hosts asked", len(nodes)) as advance:
        for node, answer in on_each(nodes, lambda one: _ask(world, one, listing), lambda _: advance(1)):
            trouble = ""
            if isinstance(answer, CommandError):
                trouble = answer.what
            elif not answer.get("is_whole", True):
                trouble = f"{node.name}: the list is cut at {len(answer[listing.key])} rows; narrow it"
            if trouble:
                is_whole = False
            if trouble and trouble not in told:
                told.add(trouble)
                world.note(f"mqctl: {trouble}")
            if isinstance(answer, CommandError):
                continue
            rows += [row_of(node, one, listing.names) for one in answer[listing.key] if listing.keep(one)]
    return rows, is_whole


def _ask(world: World, node: Node, listing: ListOperation) -> dict[str, Any]:
    with open_admin(world, node) as session:
        answer: dict[str, Any] = session.call(listing.operation, **listing.arguments)
    return answer


def row_of(node: Node, fields: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """One object of a node as a row: some fields under our names, the rest as the broker has them."""
    renamed = {names.get(name, name): value for name, value in fields.items()}
    return {"host": node.host, "instance": node.instance, **renamed}


def the_node(world: World, options: ActOptions) -> Node:
    """The one node that is meant."""
    return the_only_node(world, options, options.host)


def the_only_node(world: World, options: NodeCommandOptions, name: str) -> Node:
    """The node of that name; without a name there must be no choice."""
    return only(nodes_of(world, options), name)


def only(nodes: Sequence[Node], name: str) -> Node:
    """The node of that name of these; without a name there must be no choice."""
    if not name and len(nodes) > 1:
        raise UsageError(f"there are {len(nodes)} nodes and no --host", f"--host {nodes[0].name}")
    return choose(nodes, name)


def act(world: World, node: Node, operation: str, /, **arguments: Any) -> dict[str, Any]:
    """Have one node do something, however long it takes; arguments that are None are left out."""
    said = {name: value for name, value in arguments.items() if value is not None}
    with open_admin(world, node) as session:
        answer: dict[str, Any] = session.call(operation, LONG_WORK_S, **said)
    return answer


def report(world: World, options: ActOptions, node: Node, rows: Rows) -> int:
    """Write what a node did, as rows with its host and instance; the exit code."""
    rows.columns = (*PLACE, *rows.columns)
    rows.rows = [{"host": node.host, "instance": node.instance, **row} for row in rows.rows]
    write(rows, options.shape, world.data)
    return Exit.DONE
