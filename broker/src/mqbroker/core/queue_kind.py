"""What a new queue is: its name, and what the settings of its address say of it."""

from __future__ import annotations

from typing import Any

from mqbroker.base.errors import Refused
from mqbroker.config.slices import AddressSettings
from mqbroker.core.address import ANYCAST
from mqbroker.core.queue import Queue, QueueKind

NAME_SIZE_MAX = 1024


def kind_of(name: str, address: str, settings: AddressSettings, **changes: Any) -> QueueKind:
    """A queue as the settings of its address want it."""
    values: dict[str, Any] = {
        "routing": ANYCAST,
        "max_consumers": settings.default_max_consumers,
        "exclusive": settings.default_exclusive_queue,
        "last_value": settings.default_last_value_queue,
        "non_destructive": settings.default_non_destructive,
        "ring_size": settings.default_ring_size,
        "consumers_before_dispatch": settings.default_consumers_before_dispatch,
        "delay_before_dispatch_ms": settings.default_delay_before_dispatch,
        "group_rebalance": settings.default_group_rebalance,
        "group_buckets": settings.default_group_buckets,
        "purge_on_no_consumers": settings.default_purge_on_no_consumers,
    }
    return QueueKind(name, address, **(values | changes))


def check_name(what: str, name: str) -> None:
    """`what` is named like this. Raises Refused."""
    if not name or len(name) > NAME_SIZE_MAX:
        raise Refused("amqp:invalid-field", f"a queue's {what} has 1 to {NAME_SIZE_MAX} characters")


def check_consumers(queue: Queue, common_max: int) -> None:
    """Whether one more consumer is let in. Raises Refused."""
    count = len(queue.consumers) + queue.arriving_count
    own = queue.kind.max_consumers
    if 0 <= own <= count:
        why = f"queue {queue.kind.name!r} has {count} consumers, which is its max-consumers"
        raise Refused("amqp:resource-limit-exceeded", why)
    if count >= common_max:
        why = f"queue {queue.kind.name!r} has {count} consumers, which is consumers-per-queue-max"
        raise Refused("amqp:resource-limit-exceeded", why)
