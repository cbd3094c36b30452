"""Queues: shown, made, deleted, paused."""

from __future__ import annotations

from typing import Any

from mqbroker.admin import listing
from mqbroker.admin.arguments import check_is_not_declared, check_may_drop, flag, number, queue_named, text
from mqbroker.base.errors import Refused
from mqbroker.core.address.address import FULLY_QUALIFIED
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.queue.kinds import kind_of
from mqbroker.core.queue.queue import Queue, QueueKind
from mqbroker.node.broker import eviction
from mqbroker.node.broker.broker import Broker
from mqbroker.node.values.inputs import AdminRequest

ROUTING_TYPES = ("anycast", "multicast")
NUMBER_MAX = 2**53
# What a user may choose of a queue, by the names that QueueKind has too. Of most numbers -1 says: none, or no bound.
CHOICES = (
    number("max_consumers", None, (-1, NUMBER_MAX)),
    flag("exclusive", None),
    flag("last_value", None),
    text("last_value_key", None),
    flag("non_destructive", None),
    number("ring_size", None, (-1, NUMBER_MAX)),
    number("consumers_before_dispatch", None, (0, NUMBER_MAX)),
    number("delay_before_dispatch_ms", None, (-1, NUMBER_MAX)),
    flag("group_rebalance", None),
    number("group_buckets", None, (-1, NUMBER_MAX)),
    text("group_first_key", None),
    flag("purge_on_no_consumers", None),
    text("selector", None),
    flag("paused", None),
)


def attributes_of(queue: Queue) -> dict[str, Any]:
    """What lists show of a queue."""
    return {
        "name": queue.kind.name,
        "address": queue.kind.address,
        "routing_type": queue.kind.routing,
        "durable": queue.kind.is_durable,
        "paused": queue.is_paused,
        "message_count": queue.message_count,
        "ready_count": queue.ready_count,
        "delivering_count": queue.delivering_count,
        "scheduled_count": queue.scheduled_count,
        "paged_count": queue.paged_count,
        "consumer_count": queue.takers_count,
        "counted_from_ms": queue.counted_from_ms,
        "messages_added": queue.added_total,
        "messages_acknowledged": queue.acknowledged_total,
        "messages_expired": queue.expired_total,
        "messages_killed": queue.killed_total,
        "messages_replaced": queue.replaced_total,
    }


def show_all(broker: Broker, request: AdminRequest) -> None:
    """`queues`: one object each, by name."""
    queues = sorted(broker.store.queues.values(), key=lambda queue: queue.kind.name)
    listing.answer(broker, request, queues, _rows_of)


def _rows_of(queue: Queue) -> list[dict[str, Any]]:
    return [] if queue.is_deleted else [attributes_of(queue)]


def show(broker: Broker, request: AdminRequest) -> None:
    """`queue-show`: one queue with everything that makes it what it is."""
    queue = queue_named(broker, request)
    kind = {each.name: getattr(queue.kind, each.name) for each in CHOICES}
    rest = {
        "auto_created": queue.kind.auto_created,
        "configured": queue.kind.configured,
        "moved_from": queue.kind.moved_from,
        "container": queue.kind.container,
        "no_local": queue.kind.no_local,
        "made_by": queue.kind.maker,
        "paused": queue.is_paused,
    }
    broker.reply(request.id, attributes_of(queue) | kind | rest)


def create(broker: Broker, request: AdminRequest) -> None:
    """`queue-create`: what is not said is as the settings of the address say."""
    name: str = request.arguments["name"]
    address: str = name if request.arguments["address"] is None else request.arguments["address"]
    if FULLY_QUALIFIED in name or FULLY_QUALIFIED in address:
        why = f"no name has {FULLY_QUALIFIED}, which parts address and queue where clients name both; use address"
        raise Refused("amqp:invalid-field", f"queue-create: {why}")
    routing, is_durable = request.arguments["routing_type"], request.arguments["durable"]
    changes = _choices(request) | {"routing": routing, "is_durable": is_durable}
    kind = kind_of(name, address, broker.store.settings.of(address), **changes)
    queue = broker.store.create_queue(kind, BROKER)
    _reply_when_safe(broker, request, kind, attributes_of(queue))


def _choices(request: AdminRequest) -> dict[str, Any]:
    meant = {each.name: request.arguments[each.name] for each in CHOICES}
    said = {name: value for name, value in meant.items() if value is not None}
    if said.get("last_value_key"):
        said.setdefault("last_value", True)
    return said


def pause(broker: Broker, request: AdminRequest) -> None:
    """`queue-pause`: nothing is handed out any more; what is in delivery may be settled."""
    _set_paused(broker, request, True)


def resume(broker: Broker, request: AdminRequest) -> None:
    """`queue-resume`: it hands out again, unless its address is paused."""
    _set_paused(broker, request, False)


def _set_paused(broker: Broker, request: AdminRequest, is_paused: bool) -> None:
    queue = queue_named(broker, request)
    has_changed = queue.kind.paused != is_paused
    if has_changed:
        broker.store.pause(queue, is_paused=is_paused)
    # The queues of a paused address hand out nothing, whatever is said of them.
    result = {"name": queue.kind.name, "paused": queue.is_paused, "changed": has_changed}
    if has_changed:
        _reply_when_safe(broker, request, queue.kind, result)
    else:
        broker.store.decisions.wait_for_earlier(broker.reply, request.id, result)


def _reply_when_safe(broker: Broker, request: AdminRequest, kind: QueueKind, result: dict[str, Any]) -> None:
    if kind.is_durable:
        broker.store.decisions.wait(broker.reply, request.id, result)
    else:
        broker.reply(request.id, result)


# -- delete -----------------------------------------------------------------------------------------------------------


def delete(broker: Broker, request: AdminRequest) -> None:
    """`queue-delete`: with all its messages. `force` detaches who consumes from it, else that is a refusal."""
    queue = queue_named(broker, request)
    check_may_drop(request, queue)
    check_is_not_declared(broker, request, queue)
    broker.turns.part_consumers(queue)
    queue = queue_named(broker, request)  # if it was not to go with them
    is_forced: bool = request.arguments["force"]
    if not is_forced and queue.consumers:
        why = f"queue {queue.kind.name!r} has {len(queue.consumers)} consumers; close them, or use force"
        raise Refused("amqp:precondition-failed", f"queue-delete: {why}")
    if not is_forced:
        _delete(broker, request, queue)
        return
    evict(broker, queue)
    # Consumers that were let in and wait for the disk are told of by decisions that are before this one.
    broker.store.decisions.wait_for_earlier(_delete_now, broker, request, queue)


def _delete_now(broker: Broker, request: AdminRequest, queue: Queue) -> None:
    if queue.is_deleted:
        broker.reply_error(request.id, "amqp:not-found", f"queue {queue.kind.name!r} was deleted meanwhile")
        return
    evict(broker, queue)
    try:
        _delete(broker, request, queue)
    except Refused as refused:
        broker.reply_error(request.id, refused.condition, refused.description)


def _delete(broker: Broker, request: AdminRequest, queue: Queue) -> None:
    dropped = broker.store.delete_queue(queue, BROKER)
    _reply_when_safe(broker, request, queue.kind, {"name": queue.kind.name, "messages": dropped})


def evict(broker: Broker, queue: Queue) -> None:
    """Detach everybody who consumes from the queue, or is about to; what they had is in the queue again."""
    eviction.evict(broker, queue, f"an administrator deletes queue {queue.kind.name!r}")
