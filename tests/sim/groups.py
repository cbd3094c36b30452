"""Groups of messages in histories of clusters: each is consumed at one node, and in the order in which it was sent.

That holds through crashes and lost links, as long as no node leaves the cluster: one that stops cleanly, or is given
up, hands its groups on (`UNSTEADY`).
"""

from __future__ import annotations

from typing import Any, Final

from mqbroker.wire.sections import Properties

from tests.sim.clients import Consumer, Producer
from tests.sim.world import SimNode, World
from tests.support.checker import History, id_in

QUEUE: Final = "node0-grouped"
GROUPS: Final = ("g0", "g1", "g2")
UNSTEADY: Final = {"cluster-member-gone", "bridge-stopped", "node-lost", "group-not-kept"}


class Book:
    """What consumers got of groups, in the order in which they got it for the first time."""

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, None]] = {}
        self.violations: list[str] = []
        self.count = 0
        self._seen: set[str] = set()
        self._last: dict[tuple[str, str], int] = {}  # (group, producer) -> number

    def got(self, node: str, group: str, message_id: str, delivery_count: int) -> None:
        """A consumer at a node got a message, perhaps again."""
        if message_id in self._seen:
            return
        self._seen.add(message_id)
        self.count += 1
        self.nodes.setdefault(group, {})[node] = None
        producer, _, number = message_id.rpartition("-")
        last = self._last.get((group, producer), 0)
        if delivery_count == 0 and int(number) < last:
            self.violations.append(f"group order: {message_id} of {group} came to {node} after number {last}")
        self._last[group, producer] = max(last, int(number))

    def found(self) -> list[str]:
        """What is wrong in a history in which no node left."""
        split = [
            f"group split: {group} was consumed at {', '.join(nodes)}"
            for group, nodes in self.nodes.items()
            if len(nodes) > 1
        ]
        return split + self.violations


class GroupProducer(Producer):
    """All its messages are of one group, which others send as well."""

    group: str

    def __init__(self, world: World, node: SimNode, name: str, history: History, group: str) -> None:
        self.group = group
        super().__init__(world, node, name, history, QUEUE, 30)

    def said(self) -> dict[str, Any]:
        return {"properties": Properties(group_id=self.group)}


class GroupConsumer(Consumer):
    """Notes in the book what it gets."""

    def __init__(
        self, place: tuple[World, SimNode], name: str, history: History, book: Book, *, is_drain: bool = False
    ) -> None:
        self._book = book
        super().__init__(*place, name, history, QUEUE, is_drain=is_drain)

    def note(self, body: bytes, delivery_count: int) -> str | None:
        """It got a message; its producer's name says the group."""
        message_id = super().note(body, delivery_count)
        if message_id is not None and (known := id_in(body)):
            self._book.got(self.node.name, known.split("-")[2], known, delivery_count)
        return message_id
