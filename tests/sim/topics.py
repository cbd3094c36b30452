"""Subscriptions of a topic that durable subscribers have at several nodes: each gets every message once.

A message is owed to the subscriptions that the node of its publisher knew from before it was sent until it was
accepted. Each subscription has a history of its own, so the checker is the one of queues.
"""

from __future__ import annotations

from dataclasses import replace

from mqbroker.amqp import events as told
from mqbroker.amqp.session import Session
from mqbroker.wire.performatives import Attach, Source, Target
from mqbroker.wire.types import Symbol

from tests.sim.clients import Consumer, Producer
from tests.sim.world import SimNode, World
from tests.support.checker import History

TOPIC = Symbol("topic")


class Subscription:
    """One durable subscription: where it is, and what came of it."""

    def __init__(self, node: SimNode, topic: str, name: str) -> None:
        self.node = node
        self.topic = topic
        self.name = name
        self.history = History(is_several_nodes=True)

    def at(self, node: SimNode) -> Subscription:
        """The same one, which another node has by now, or is about to."""
        same = Subscription(node, self.topic, self.name)
        same.history = self.history
        return same

    @property
    def queue(self) -> str:
        """Of the node that has it."""
        return f"{self.name}.{self.name}"

    def known_at(self, node: SimNode) -> object | None:
        """What a node has of it: the queue, or a binding elsewhere; another object once it was forgotten between."""
        if not node.is_up:
            return None
        store = node.broker.store
        if node is self.node:
            return store.queues.get(self.queue)
        remotes = store.remotes.by_name.values()
        return next((each.binding for each in remotes if each.binding.queue == self.queue), None)


class Publisher(Producer):
    """Sends to a topic, when all subscriptions are known where it does so."""

    def __init__(self, world: World, node: SimNode, name: str, subscriptions: list[Subscription], count: int) -> None:
        self.subscriptions = subscriptions
        self._owed: dict[str, list[object | None]] = {}
        super().__init__(world, node, name, History(is_several_nodes=True), subscriptions[0].topic, count)

    def _known(self) -> list[object | None]:
        return [each.known_at(self.node) for each in self.subscriptions]

    def attach(self, session: Session) -> None:
        target = Target(address=self.queue, capabilities=(TOPIC,))
        self.link = session.attach_sender(
            Attach(name=self.name, handle=0, role=False, snd_settle_mode=1 if self.is_settled else 0, source=Source(),
                   target=target, initial_delivery_count=0)
        )  # fmt: skip
        self.link.send_settled = self.is_settled

    def _send(self) -> None:
        before = self.number
        known = self._known()
        if None not in known:
            super()._send()
        for number in range(before + 1, self.number + 1):
            message_id = f"{self.name}-{number}"
            self._owed[message_id] = known
            for each in self.subscriptions:
                each.history.send(message_id, replace(self.history.sent[message_id]))

    def on_event(self, event: object) -> None:
        super().on_event(event)
        if isinstance(event, told.Settled):
            now = self._known()
            for taken in event.taken:
                self._answered(taken.token, now)

    def _answered(self, message_id: str, now: list[object | None]) -> None:
        outcome = self.history.sent[message_id].outcome
        for each, before, still in zip(self.subscriptions, self._owed[message_id], now, strict=True):
            if outcome != "accepted" or before is still:
                each.history.outcome(message_id, outcome, self.node.epoch)


class Subscriber(Consumer):
    """Takes what one subscription keeps."""

    def __init__(self, world: World, subscription: Subscription, *, is_drain: bool = False) -> None:
        self.subscription = subscription
        super().__init__(
            world, subscription.node, subscription.name, subscription.history, subscription.topic, is_drain=is_drain
        )

    def attach(self, session: Session) -> None:
        source = Source(
            address=self.queue, durable=2, expiry_policy=Symbol("never"), capabilities=(TOPIC,)
        )  # fmt: skip
        self.link = session.attach_receiver(
            Attach(name=self.name, handle=0, role=True, rcv_settle_mode=self.mode, source=source, target=Target())
        )
        self.link.window = self.window


def owed(subscriptions: list[Subscription], left: int) -> list[str]:
    """What the checker says of each subscription."""
    return [
        f"subscription {each.name} at {each.node.name}: {violation}"
        for each in subscriptions
        for violation in each.history.check_drained(left)
    ]
