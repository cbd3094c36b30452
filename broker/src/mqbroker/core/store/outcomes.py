"""What the outcomes of deliveries do to the messages (AMQP 1.0 §3.4)."""

from __future__ import annotations

from typing import Any, Final

from mqbroker.base.look import LOOK
from mqbroker.core.queue.backlog import Segment
from mqbroker.core.queue.queue import Consumer, Queue
from mqbroker.core.store.store import Store
from mqbroker.wire.performatives import Accepted, Modified, Rejected

_FINAL: Final = (Accepted, Rejected)


def is_final(outcome: Any) -> bool:
    """Whether the messages leave their queue. Settled without one, on a link without a default, counts as accepted."""
    return outcome is None or isinstance(outcome, _FINAL)


def makes_dead_letters(store: Store, queue: Queue, segment: Segment, outcome: Any) -> bool:
    """Whether each of the messages is moved by itself: rejected, or delivered in vain for the last time."""
    if not isinstance(outcome, Modified):
        return isinstance(outcome, Rejected)
    attempts_max = store.settings.of(queue.kind.address).max_delivery_attempts
    return bool(outcome.delivery_failed) and 0 < attempts_max <= segment.deliveries + 1


def apply_outcome(store: Store, queue: Queue, segment: Segment, outcome: Any, consumer: Consumer | None = None) -> bool:
    """Give messages that are in delivery their outcome. True: who is told of it must wait for this step's append.

    `consumer`: whose deliveries they are; what it cannot use is not offered to it again (§3.4.5, undeliverable-here).
    """
    is_durable = segment.run.section.is_durable and queue.journal_id != 0
    if isinstance(outcome, Rejected):
        store.dead_letters.reject(queue, segment, cause_of(outcome))
    elif is_final(outcome):
        store.settle(queue, segment)
    else:
        is_failure = isinstance(outcome, Modified) and bool(outcome.delivery_failed)
        if isinstance(outcome, Modified) and outcome.undeliverable_here and consumer is not None:
            queue.dispatcher.bar(segment, consumer)
        store.give_back(queue, segment, was_delivered=is_failure)
    LOOK.has_touched = True
    store.dirty[queue] = None
    return is_durable and is_final(outcome)


def cause_of(outcome: Rejected) -> str:
    """Why a consumer rejected a message, in one line."""
    error = outcome.error
    return f"rejected: {error.condition} {error.description or ''}".strip() if error is not None else "rejected"
