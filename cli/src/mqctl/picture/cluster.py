"""What a picture of clusters shows: nodes, and links between them, out of what brokers say. Pure.

A node is known by its id. A name is the inventory's, since brokers of several hosts may have the same one. Who did
not answer is drawn as well, and so is who is only told of: a picture without them would look whole.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

PictureRow = Mapping[str, Any]
UP = "up"


class DrawingClass(enum.StrEnum):
    """How a node or a link is drawn; the values are classes of the picture's style."""

    FINE = "fine"
    WAITING = "waiting"
    BROKEN = "broken"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class NodePicture:
    """`lines` stand below the name; `note` is for who points at it."""

    key: str
    name: str
    look: DrawingClass
    lines: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class LinkPicture:
    """One direction. `depth` are messages that wait for it, the first of them for `lag_ms`."""

    source: str
    target: str
    connection: str
    state: str
    depth: int = 0
    lag_ms: int = 0
    why: str = ""

    @property
    def look(self) -> DrawingClass:
        """Not up is broken, however little waits."""
        return DrawingClass.BROKEN if self.state != UP else DrawingClass.WAITING if self.depth else DrawingClass.FINE

    @property
    def short(self) -> str:
        """What stands at the link: how many messages wait for it, or its state."""
        return f"{self.depth:,} wait" if self.depth else self.state


@dataclass(frozen=True, slots=True)
class ClusterPicture:
    """Nodes in the order in which they are drawn, and the links between them."""

    name: str
    nodes: tuple[NodePicture, ...]
    links: tuple[LinkPicture, ...]


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What one node of the inventory said; `fault` where it said nothing. `address` is where it was asked."""

    name: str
    address: str = ""
    fault: str = ""
    status: PictureRow | None = None
    topology: PictureRow | None = None
    connections: Sequence[PictureRow] = ()


def cluster_of(name: str, answers: Sequence[NodeAnswer]) -> ClusterPicture:
    """One cluster, as its nodes see it."""
    members = {row["node_id"]: row for each in answers if each.topology for row in each.topology["members"]}
    asked = {str(each.topology["node_id"]): each for each in answers if each.topology}
    nodes = [_running(key, each, members) for key, each in asked.items()]
    silent = [_silent(each) for each in answers if each.topology is None]
    strangers = [_stranger(key, row) for key, row in members.items() if key not in asked]
    links = [link for key, each in asked.items() if each.topology for link in _links(key, each.topology["links"])]
    silent, strangers = _matched(silent, strangers, {each.name: each.address for each in answers})
    known = {node.key for node in (*nodes, *silent, *strangers)}
    by_place = {str(row["connector"]): key for key, row in members.items()}
    links = [link if link.target in known else replace(link, target=by_place.get(link.target, link.target))
             for link in links]  # fmt: skip
    places = dict.fromkeys(link.target for link in links if link.target not in known)
    unknown = [NodePicture(place, _place(place), DrawingClass.UNKNOWN, ("not reached yet",)) for place in places]
    drawn = sorted((*nodes, *silent, *strangers, *unknown), key=lambda node: (_natural(node.name), node.key))
    order = {node.key: number for number, node in enumerate(drawn)}
    links.sort(key=lambda link: (order[link.source], order[link.target], link.connection))
    return ClusterPicture(name, tuple(drawn), tuple(links))


def _running(key: str, answer: NodeAnswer, members: Mapping[str, PictureRow]) -> NodePicture:
    status = answer.status or {}
    own = members.get(key)
    clients = sum(row["container_id"] not in members for row in answer.connections)
    lines = (
        _place(str(own["connector"])) if own and own["connector"] else "no cluster connection",
        f"{_counted(clients, 'client')}, {_counted(int(status.get('queues', 0)), 'queue')}",
        _counted(int(status.get("messages", 0)), "message"),
    )
    return NodePicture(
        key, answer.name, DrawingClass.FINE, lines, f"node {key}, release {status.get('version', 'unknown')}"
    )


def _silent(answer: NodeAnswer) -> NodePicture:
    return NodePicture(
        f"{answer.name} {answer.address}", answer.name, DrawingClass.BROKEN, ("does not answer",), answer.fault
    )


def _stranger(key: str, row: PictureRow) -> NodePicture:
    place = _place(str(row["connector"] or row["node"]))
    return NodePicture(key, place, DrawingClass.UNKNOWN, ("others tell of it",), f"node {key}, called {row['node']}")


def _matched(
    silent: Sequence[NodePicture], strangers: Sequence[NodePicture], addresses: Mapping[str, str]
) -> tuple[list[NodePicture], list[NodePicture]]:
    """Who does not answer is one of those that others tell of: the one at its address, or the only one that is left."""
    left, placed = list(strangers), []
    for node in silent:
        same = [one for one in left if addresses[node.name] and one.name.rpartition(":")[0] == addresses[node.name]]
        is_the_last_pair = len(silent) == len(strangers) == 1
        match = same[0] if same else left[0] if is_the_last_pair else None
        if match is not None:
            left.remove(match)
            node = replace(node, key=match.key, lines=(match.name, *node.lines))
        placed.append(node)
    return placed, left


def _links(source: str, rows: Sequence[PictureRow]) -> list[LinkPicture]:
    return [
        LinkPicture(
            source, row["node_id"] or row["connector"], row["connection"], row["state"], row["depth"], row["lag_ms"],
            row["why"] or "",
        )
        for row in rows
    ]  # fmt: skip


def _place(uri: str) -> str:
    """`amqp://198.51.100.11:5673?…` without what says nothing here."""
    return uri.partition("://")[2].partition("?")[0] or uri


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _natural(name: str) -> list[tuple[int, str]]:
    """mq2 before mq10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name) if part]
