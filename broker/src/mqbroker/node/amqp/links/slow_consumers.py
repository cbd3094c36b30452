"""Consumers that take less than they should while messages wait for them: noticed, or their connection is closed.

A consumer is judged from one check of its queue to the next, and only by what it could help: the queue had messages to
hand out all the time, and the consumer could take none at either check, because its credit was used up or its peer did
not read. Who gets nothing more as this node sends its clients away is not slow. What counts is what it has settled,
with whatever outcome. Source: Artemis's manual, "Detecting Slow Consumers".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from mqbroker.amqp import frame_costs
from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level
from mqbroker.core.queue.queue import Client, Queue

if TYPE_CHECKING:
    from mqbroker.config.slices import AddressSettings
    from mqbroker.node.values.base_broker import BaseBroker

NS_PER_S: Final = 1_000_000_000
UNIT_S: Final = {
    "MESSAGES_PER_SECOND": 1, "MESSAGES_PER_MINUTE": 60, "MESSAGES_PER_HOUR": 3600, "MESSAGES_PER_DAY": 86_400,
}  # fmt: skip
KILL: Final = "KILL"


class Progress(NamedTuple):
    """A consumer at a check: messages that it has settled, whether it could take none, whether it was told of."""

    settled_count: int
    is_stuck: bool
    is_told: bool = False


class Watch:
    """The checks of the consumers of one queue. It has a deadline."""

    __slots__ = ("_before", "_checked_ns", "_slow", "due_ns", "queue", "scheduled_ns")

    judges_others: ClassVar[bool] = True

    def __init__(self, slow: SlowConsumers, queue: Queue) -> None:
        self._slow = slow
        self.queue = queue
        self._before: dict[Client, Progress] = {}
        self._checked_ns = 0
        self.due_ns = 0
        self.scheduled_ns = 0

    def on_time(self, now_ns: int) -> None:
        """Judge all consumers of the queue, and look again when the period is over."""
        queue, settings = self.queue, self._slow.settings_of(self.queue)
        consumers = [each.client for each in queue.consumers if each.client is not None and not each.is_browser]
        LOOK.has_touched = True
        if queue.is_deleted or not consumers or settings.slow_consumer_threshold < 0:
            self.due_ns = 0
            self._slow.forget(queue)
            return
        self.due_ns = now_ns + settings.slow_consumer_check_period * NS_PER_S
        was_waiting, queue.ran_empty = not queue.ran_empty, not queue.ready_count
        elapsed_ns, self._checked_ns = now_ns - self._checked_ns, now_ns
        before, self._before = self._before, {}
        for consumer in consumers:
            is_stuck = not consumer.is_departing and consumer.capacity() == 0
            now = Progress(consumer.settled_count, is_stuck)
            then = before.get(consumer)
            if then is not None and was_waiting and then.is_stuck and now.is_stuck:
                count = now.settled_count - then.settled_count
                unit_ns = UNIT_S[settings.slow_consumer_threshold_measurement_unit] * NS_PER_S
                if count * unit_ns < settings.slow_consumer_threshold * elapsed_ns:
                    if not then.is_told:
                        self._slow.tell(consumer, count, settings)
                    now = now._replace(is_told=True)
            self._before[consumer] = now


class SlowConsumers:
    """The watches of all queues that have consumers, at addresses that want it."""

    def __init__(self, broker: BaseBroker) -> None:
        self._broker = broker
        self._watches: dict[Queue, Watch] = {}

    def settings_of(self, queue: Queue) -> AddressSettings:
        """What holds at the address of a queue now."""
        return self._broker.store.settings.of(queue.kind.address)

    def watch(self, queue: Queue) -> None:
        """A queue has a consumer: check it from now on, if its settings say so."""
        settings = self.settings_of(queue)
        if settings.slow_consumer_threshold < 0 or queue in self._watches or queue.is_deleted:
            return
        LOOK.has_touched = True
        watch = self._watches[queue] = Watch(self, queue)
        watch.due_ns = self._broker.at.monotonic_ns + settings.slow_consumer_check_period * NS_PER_S
        self._broker.timers.add(watch)

    def watch_all(self) -> Iterator[int]:
        """Settings have changed. Each queue is a piece, and yields what it cost, in units of amqp/frame_costs.py."""
        for queue in list(self._broker.store.queues.values()):
            if queue.consumers:
                self.watch(queue)
            yield frame_costs.LOOKED_AT

    def forget(self, queue: Queue) -> None:
        """The queue has no consumers to check any more."""
        LOOK.has_touched = True
        self._watches.pop(queue, None)

    def tell(self, consumer: Client, count: int, settings: AddressSettings) -> None:
        """A consumer is slow: `count` messages in the period; what its settings say is done."""
        name = consumer.queue.kind.name
        period_s, policy = settings.slow_consumer_check_period, settings.slow_consumer_policy
        self._broker.notice(Level.WARNING, "consumer-slow", conn=consumer.conn, peer=consumer.far, queue=name,
                            settled=count, period_s=period_s, policy=policy)  # fmt: skip
        if policy == KILL:
            why = f"a consumer of queue {name!r} settled {count} messages in {period_s} s: slow-consumer-threshold"
            consumer.close("amqp:connection:forced", why)
