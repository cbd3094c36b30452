"""`mqctl topology`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer
from mqbroker.base.text import printable

from mqctl import inventory
from mqctl.brokers.requests import PLACE, AskOptions, nodes_meant
from mqctl.errors import CommandError, UsageError
from mqctl.exits import Exit
from mqctl.fanout import on_each
from mqctl.nodes import Node, nodes_in, open_admin
from mqctl.output import Column, Rows, write
from mqctl.picture.cluster import ClusterPicture, DrawingClass, NodeAnswer, cluster_of
from mqctl.picture.svg import svg
from mqctl.progress import counting
from mqctl.world import World

COLUMNS = (
    Column("connection"),
    Column("node"),
    Column("connector"),
    Column("state"),
    Column("since_ms", is_number=True),
    Column("bindings", is_number=True),
    Column("consumers", is_number=True),
    Column("depth", is_number=True),
    Column("unanswered", is_number=True),
    Column("lag_ms", is_number=True),
    Column("why"),
    Column("node_id", wide_only=True),
    Column("attempts", is_number=True, wide_only=True),
    Column("queues", is_number=True, wide_only=True),
)


@dataclass(frozen=True, kw_only=True)
class Options(AskOptions):
    """Which nodes, and how their links are shown."""

    dot: Annotated[bool, typer.Option("--dot", help="As a graph for Graphviz; links that are not up are dashed.")] = (
        False
    )
    svg: Annotated[str, typer.Option("--svg", help="As a picture, into this file; - is standard output.")] = ""


def run(world: World, options: Options) -> int:
    """Show the links of each broker to the other nodes of its cluster, and what waits there.

    Where several brokers have one name, `node` is the inventory's. Pictures show all clusters of the inventory, or the
    one of --cluster. Exit code 3 if a node does not answer.
    """
    if options.dot and options.svg:
        raise UsageError("--dot and --svg are two pictures", "mqctl topology --svg FILE")
    if not options.dot and not options.svg:
        return _list(world, options)
    meant = _meant(world, options)
    if not any(nodes for _, nodes, _ in meant):
        raise UsageError("there is no node", "mqctl dev up" if options.dev else "mqctl inventory check")
    clusters = [cluster_of(name, ask(world, nodes, addresses)) for name, nodes, addresses in meant]
    if options.dot:
        for line in graph(clusters):
            world.data.file.write(printable(line) + "\n")
    else:
        _draw(world, options.svg, svg(clusters))
    is_whole = not any(node.look is DrawingClass.BROKEN for one in clusters for node in one.nodes)
    return Exit.DONE if is_whole else Exit.DEGRADED


def _list(world: World, options: Options) -> int:
    answers = ask(world, nodes_meant(world, options), {})
    names = {each.topology["node_id"]: each.name for each in answers if each.topology}
    rows = []
    for each in answers:
        if each.topology:
            host, _, instance = each.name.partition("/")
            place = {"host": host, "instance": instance or "default"}
            rows += [{**place, **row, "node": names.get(row["node_id"], row["node"])} for row in each.topology["links"]]
    is_whole = not any(each.fault for each in answers)
    write(Rows("mqctl.topology/1", (*PLACE, *COLUMNS), rows, {"is_whole": is_whole}), options.shape, world.data)
    return Exit.DONE if is_whole else Exit.DEGRADED


def _meant(world: World, options: Options) -> list[tuple[str, list[Node], dict[str, str]]]:
    """Clusters by name, with their nodes and the addresses where those are asked."""
    if options.dev or options.host:
        return [("dev" if options.dev else options.host, nodes_meant(world, options), {})]
    clusters = inventory.load_all(world, options)
    if options.cluster or not clusters:
        clusters = [inventory.choose(clusters, options.cluster)]
    return [
        (
            one.name,
            nodes_in(one),
            {host.name: str(host.variables.get("ansible_host", host.name)) for host in one.hosts},
        )
        for one in clusters
    ]


def ask(world: World, nodes: Sequence[Node], addresses: Mapping[str, str]) -> list[NodeAnswer]:
    """What each node says of the cluster and of itself; a node that says nothing is told of on standard error."""
    answers = []
    with counting(world, "hosts asked", len(nodes)) as advance:
        for node, said in on_each(nodes, lambda one: _ask(world, one), lambda _: advance(1)):
            answer = NodeAnswer(node.name, addresses.get(node.host, ""))
            if isinstance(said, CommandError):
                world.note(f"mqctl: {said.what}")
                answers.append(replace(answer, fault=said.what))
            else:
                topology, status, connections = said
                answers.append(replace(answer, topology=topology, status=status, connections=connections))
    return answers


def _ask(world: World, node: Node) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    with open_admin(world, node) as session:
        return session.call("topology"), session.call("status"), session.call("connections")["connections"]


def graph(clusters: Sequence[ClusterPicture]) -> Iterator[str]:
    """The lines of a directed graph in the language of Graphviz."""
    yield "digraph cluster {"
    for cluster in clusters:
        names = {node.key: json.dumps(node.name, ensure_ascii=False) for node in cluster.nodes}
        for node in cluster.nodes:
            yield f"  {names[node.key]};"
        for link in cluster.links:
            label = link.state if not link.depth else f"{link.state}, {link.depth} wait"
            style = "dashed" if link.look is DrawingClass.BROKEN else "solid"
            yield f"  {names[link.source]} -> {names[link.target]} [label={json.dumps(label)}, style={style}];"
    yield "}"


def _draw(world: World, target: str, picture: str) -> None:
    if target == "-":
        world.data.file.write(picture)
        return
    path = world.cwd / target
    try:
        path.write_text(picture, encoding="utf-8")
    except OSError as fault:
        raise CommandError(f"{path} cannot be written: {fault.strerror}", "mqctl topology --svg ELSEWHERE") from None
    world.note(f"wrote {path}")
