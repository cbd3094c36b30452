"""An administrator of queues that page: looks at messages, moves some, and purges what is not there."""

from __future__ import annotations

from typing import Any

from mqbroker.node.values.effects import AdminReply

from tests.sim.clients import Consumer
from tests.sim.world import SimNode
from tests.support.checker import History

MOVED = "-moved"
SELECTORS = ("", "JMSDeliveryMode = 'PERSISTENT'", "JMSDeliveryMode = 'NON_PERSISTENT'")


class Keeper:
    """Asks one node now and then for something that goes through all of a queue."""

    def __init__(self, history: History, queues: list[str]) -> None:
        self._history = history
        self._queues = queues

    def act(self, node: SimNode) -> None:
        """One of them."""
        if node.is_up:
            rng = node.world.rng
            rng.choice((self.move, self.move, self.purge, self.browse))(node, rng.choice(self._queues))

    def move(self, node: SimNode, queue: str) -> None:
        """Some messages, or all, to a queue that nobody consumes from before the drain."""
        rng = node.world.rng
        said = {"queue": queue, "address": queue + MOVED, "selector": rng.choice(SELECTORS)}
        node.ask("messages-move", said | {"count_max": rng.choice((-1, -1, 7))}, _no_matter)

    def purge(self, node: SimNode, queue: str) -> None:
        """What no message is: none may be gone for it."""

        def answered(reply: AdminReply) -> None:
            if reply.result is not None and reply.result["purged"]:
                self._history.violations.append(f"lost: a purge of nothing purged {reply.result}")

        node.ask("queue-purge", {"name": queue, "selector": "JMSPriority > 8"}, answered)

    def browse(self, node: SimNode, queue: str, place: str = "ready:0:0") -> None:
        """All messages, answer by answer."""

        def answered(reply: AdminReply) -> None:
            if reply.result is not None and reply.result["next"] is not None:
                self.browse(node, queue, reply.result["next"])

        said: dict[str, Any] = {"queue": queue, "from": place, "limit": node.world.rng.choice((3, 50))}
        node.ask("browse", said, answered)


class MovedDrain(Consumer):
    """Takes what was moved; how often it was delivered before, and in which order it came, does not matter."""

    def note(self, body: bytes, delivery_count: int) -> str | None:
        return self.history.receive_moved(self.name, self.queue.removesuffix(MOVED), body)


def _no_matter(reply: AdminReply) -> None:
    """Done, refused, or ended by the end of the node: nothing may be lost or doubled by any of it."""
