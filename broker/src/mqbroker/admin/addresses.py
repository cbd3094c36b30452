"""Addresses: what they are bound to, what went through them, which settings hold there; made, paused, deleted."""

from __future__ import annotations

from typing import Any

from mqbroker.admin import listing
from mqbroker.admin.arguments import is_owed
from mqbroker.admin.queues import ROUTING_TYPES, attributes_of, evict
from mqbroker.base.errors import Refused
from mqbroker.core.address.address import Address
from mqbroker.core.address.permissions import BROKER
from mqbroker.node.broker.broker import Broker
from mqbroker.node.broker.eviction import evict_producers, producers_at
from mqbroker.node.values.inputs import AdminRequest


def show_all(broker: Broker, request: AdminRequest) -> None:
    """`addresses`: one object each, by name. bytes: of what it holds, in memory and paged, null where nothing bounds
    it."""
    addresses = broker.store.addresses

    def rows_of(each: Address) -> list[dict[str, Any]]:
        return [_described(each)] if addresses.get(each.name) is each else []

    listing.answer(broker, request, [each for _, each in sorted(addresses.items())], rows_of)


def show(broker: Broker, request: AdminRequest) -> None:
    """`address-show`: one address with its queues in full."""
    address = _address_named(broker, request)
    queues = sorted(address.queues, key=lambda queue: queue.kind.name)
    broker.reply(request.id, _described(address) | {"queues": [attributes_of(queue) for queue in queues]})


def show_settings(broker: Broker, request: AdminRequest) -> None:
    """`address-settings-show`: every setting that holds at an address, and which match says so (empty: built in).

    The address need not exist.
    """
    name: str = request.arguments["address"]
    settings = broker.store.settings
    said_by = {option: match for match, values in settings.said(name) for option in values}
    held = settings.of(name)
    rows = [
        {"setting": option.replace("_", "-"), "value": getattr(held, option), "match": said_by.get(option, "")}
        for option in held.__slots__
    ]
    broker.reply(
        request.id, {"address": name, "matches": [match for match, _ in settings.said(name)], "settings": rows}
    )


def _described(address: Address) -> dict[str, Any]:
    queues = address.queues
    kinds = [("anycast", address.anycast), ("multicast", address.multicast)]
    return {
        "name": address.name,
        "routing_types": [name for name, bound in kinds if bound or name in address.routing_types],
        "auto_created": not address.routing_types and not address.is_configured,
        "configured": address.is_configured,
        "paused": address.is_paused,
        "queues": sorted(queue.kind.name for queue in queues),
        "message_count": sum(queue.message_count for queue in queues),
        "paged_count": sum(queue.paged_count for queue in queues),
        "bytes": None if address.meter is None else address.meter.size_bytes + address.meter.paged[0],
        "paging": any(queue.pages is not None for queue in queues),
        "can_page": all(queue.kind.may_page for queue in queues),
        "routed": address.routed_total,
        "unrouted": address.unrouted_total,
    }


def _address_named(broker: Broker, request: AdminRequest) -> Address:
    name: str = request.arguments["name"]
    address = broker.store.addresses.get(name)
    if address is None:
        raise Refused("amqp:not-found", f"{request.operation}: there is no address {name!r}")
    return address


# -- create and pause -------------------------------------------------------------------------------------------------


def create(broker: Broker, request: AdminRequest) -> None:
    """`address-create`: without a queue. It stays until it is deleted, and only queues of its routing types come."""
    name, said = request.arguments["name"], request.arguments["routing_types"]
    if not said or any(each not in ROUTING_TYPES for each in said):
        what = f"address-create: routing_types are anycast, multicast, or both, not {said!r}"
        raise Refused("amqp:invalid-field", what)
    address = broker.store.address_records.create(name, tuple(each for each in ROUTING_TYPES if each in said))
    broker.store.decisions.wait(broker.reply, request.id, _described(address))


def pause(broker: Broker, request: AdminRequest) -> None:
    """`address-pause`: its queues hand out nothing any more, nor do those that come later."""
    _set_paused(broker, request, True, is_kept=request.arguments["persist"])


def resume(broker: Broker, request: AdminRequest) -> None:
    """`address-resume`: queues that were paused by themselves stay so."""
    _set_paused(broker, request, False, is_kept=True)


def _set_paused(broker: Broker, request: AdminRequest, is_paused: bool, *, is_kept: bool) -> None:
    address = _address_named(broker, request)
    result = {"name": address.name, "paused": is_paused, "changed": address.is_paused != is_paused}
    if broker.store.address_records.pause(address, is_paused, is_kept=is_kept):
        broker.store.decisions.wait(broker.reply, request.id, result)
    else:
        broker.store.decisions.wait_for_earlier(broker.reply, request.id, result)


# -- delete -----------------------------------------------------------------------------------------------------------


def delete(broker: Broker, request: AdminRequest) -> None:
    """`address-delete`: `force` deletes its queues and detaches who uses it, else these are a refusal; a queue that
    drains and holds messages is one in any case."""
    address = _address_named(broker, request)
    if request.arguments["force"]:
        _check_owes_nothing(address)
        _evict(broker, address)
        # Consumers that were let in and wait for the disk are told of by decisions that are before this one.
        broker.store.decisions.wait_for_earlier(_delete_now, broker, request, address)
        return
    producers = list(producers_at(broker, address))
    if address.queues or producers:
        why = f"{len(address.queues)} queues and {len(producers)} producers; delete and close them, or use force"
        raise Refused("amqp:precondition-failed", f"address-delete: address {address.name!r} has {why}")
    _delete(broker, request, address)


def _delete_now(broker: Broker, request: AdminRequest, address: Address) -> None:
    if broker.store.addresses.get(address.name) is not address:
        broker.reply_error(request.id, "amqp:not-found", f"address {address.name!r} was deleted meanwhile")
        return
    _evict(broker, address)
    held = [
        queue.kind.name for queue in address.queues
        if queue.consumers or queue.arriving_count or queue.delivering_count
    ]  # fmt: skip
    if held:  # looked at before, so that all queues go or none; a queue that has begun to drain has a consumer
        why = f"address-delete: queue {held[0]!r} is in use, by a transaction for example; try again"
        broker.reply_error(request.id, "amqp:precondition-failed", why)
        return
    _delete(broker, request, address)


def _check_owes_nothing(address: Address) -> None:
    """Raises Refused where a queue holds messages for another node, which would never get them."""
    for queue in address.queues:
        if is_owed(queue):
            why = f"queue {queue.kind.name!r} holds messages for node {queue.kind.forwards_to}"
            raise Refused("amqp:precondition-failed", f"address-delete: {why}, which would never get them")


def _delete(broker: Broker, request: AdminRequest, address: Address) -> None:
    queues = sorted(address.queues, key=lambda queue: queue.kind.name)
    dropped = sum([broker.store.delete_queue(queue, BROKER) for queue in queues])
    is_told = broker.store.address_records.delete(address) or any(queue.kind.is_durable for queue in queues)
    result = {"name": address.name, "queues": [queue.kind.name for queue in queues], "messages": dropped}
    if is_told:
        broker.store.decisions.wait(broker.reply, request.id, result)
    else:
        broker.reply(request.id, result)


def _evict(broker: Broker, address: Address) -> None:
    """Detach everybody who consumes there or sends there."""
    for queue in address.queues:
        evict(broker, queue)
    evict_producers(broker, address, f"an administrator deletes address {address.name!r}")
