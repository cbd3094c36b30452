"""The others forget who has left: nothing waits for it, no link leads to it, nobody knows it as a member."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from mqctl.admin import AdminError
from mqctl.errors import CommandError
from mqctl.fanout import on_each
from mqctl.nodes import Node, open_admin
from mqctl.output import counted
from mqctl.scaledown.cluster_look import NOT_FOUND
from mqctl.world import World

AGAIN_S: Final = 0.5
PATIENCE_S: Final = 60.0

Lacks = Callable[[Node, dict[str, Any]], list[str]]  # what a node lacks, by its topology


def wait_for_answers(world: World, nodes: Sequence[Node], ids: Collection[str]) -> None:
    """Until no node has anything of which these have not said whether they have it: it could come twice otherwise."""

    def unanswered(node: Node, topology: dict[str, Any]) -> list[str]:
        return _unanswered(node, topology, ids)

    _until_nothing(world, nodes, unanswered, "it stays as it is; the same command with --resume")


def still_unanswered(world: World, nodes: Sequence[Node], ids: Collection[str]) -> list[str]:
    """The same as one look: who has such a thing, or does not say. Empty: nobody."""
    return _said(world, nodes, lambda node, topology: _unanswered(node, topology, ids))


def _unanswered(node: Node, topology: dict[str, Any], ids: Collection[str]) -> list[str]:
    return [
        f"{node.name} waits for the answer to {counted(row['unanswered'], 'message')} that it sent to "
        f"{row['node'] or row['node_id']}, to which its link is {row['state']}"
        for row in topology["links"]
        if row["node_id"] in ids and row["unanswered"]
    ]


def forget(world: World, nodes: Sequence[Node], ids: Sequence[str]) -> int:
    """Have each node forget these, which are stopped; how many messages that waited for them are routed anew."""

    def one(node: Node) -> int:
        with open_admin(world, node) as session:
            count = 0
            for node_id in ids:
                try:
                    count += session.call("cluster-forget", 600.0, node_id=node_id)["messages"]
                except AdminError as error:
                    if error.condition != NOT_FOUND:  # it knew nothing of it, or has forgotten it already
                        raise
            return count

    deadline_s = world.monotonic_s() + PATIENCE_S
    while True:
        answers = [answer for _, answer in on_each(nodes, one)]
        faults = [each.what for each in answers if isinstance(each, CommandError)]
        if not faults:
            return sum(each for each in answers if isinstance(each, int))
        # A link may take a moment to notice that its other end is gone.
        if world.monotonic_s() > deadline_s:
            raise CommandError("; ".join(faults), "the same command with --resume")
        world.sleep_s(AGAIN_S)


def require_forgotten(world: World, nodes: Sequence[Node], ids: Collection[str]) -> None:
    """No member, no link, no queue for it is left anywhere. Raises CommandError that names what is."""

    def left(node: Node, topology: dict[str, Any]) -> list[str]:
        members = [row for row in topology["members"] if row["node_id"] in ids]
        links = [row for row in topology["links"] if row["node_id"] in ids]
        said = [f"{node.name} knows {row['node'] or row['node_id']} as a member" for row in members]
        said += [
            f"{node.name} has a link to {row['node'] or row['node_id']} ({row['state']}), for which "
            f"{counted(row['queues'], 'queue')} with {counted(row['depth'], 'message')} wait"
            for row in links
        ]
        return said + [f"{node.name} is linked from {one}" for one in topology["inbound"] if one in ids]

    _until_nothing(world, nodes, left, "mqctl topology, mqctl cluster forget --force")


def _until_nothing(world: World, nodes: Sequence[Node], lacks: Lacks, attempt: str) -> None:
    deadline_s = world.monotonic_s() + PATIENCE_S
    while said := _said(world, nodes, lacks):
        if world.monotonic_s() > deadline_s:
            raise CommandError("; ".join(said), attempt)
        world.sleep_s(AGAIN_S)


def _said(world: World, nodes: Sequence[Node], lacks: Lacks) -> list[str]:
    """Of each node, by its topology; and who does not tell it."""

    def one(node: Node) -> list[str]:
        with open_admin(world, node) as session:
            return lacks(node, session.call("topology"))

    said: list[str] = []
    for _, answer in on_each(nodes, one):
        said += [answer.what] if isinstance(answer, CommandError) else answer
    return said
