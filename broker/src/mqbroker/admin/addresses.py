"""Addresses: what they are bound to, what went through them, and which settings hold there."""

from __future__ import annotations

from typing import Any

from mqbroker.admin.arguments import argument
from mqbroker.admin.queues import attributes_of
from mqbroker.base.errors import Refused
from mqbroker.core.address import Address
from mqbroker.node.broker import Broker
from mqbroker.node.inputs import AdminRequest


def show_all(broker: Broker, request: AdminRequest) -> None:
    """`addresses`: one object each, by name."""
    rows = [_described(each) for _, each in sorted(broker.store.addresses.items())]
    broker.reply(request.id, {"addresses": rows})


def show(broker: Broker, request: AdminRequest) -> None:
    """`address-show`: one address with its queues in full."""
    name = argument(request, "name", str)
    found = broker.store.addresses.get(name)
    if found is None:
        raise Refused("amqp:not-found", f"address-show: there is no address {name!r}")
    queues = sorted(found.queues, key=lambda queue: queue.kind.name)
    broker.reply(request.id, _described(found) | {"queues": [attributes_of(queue) for queue in queues]})


def show_settings(broker: Broker, request: AdminRequest) -> None:
    """`address-settings-show`: every setting that holds at an address, and which match says so (empty: built in).

    The address need not exist.
    """
    name = argument(request, "address", str)
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
        "routing_types": [name for name, bound in kinds if bound],
        "queues": sorted(queue.kind.name for queue in queues),
        "message_count": sum(queue.message_count for queue in queues),
        "paged_count": sum(queue.paged_count for queue in queues),
        "paging": any(queue.pages is not None for queue in queues),
        "routed": address.routed_total,
        "unrouted": address.unrouted_total,
    }
