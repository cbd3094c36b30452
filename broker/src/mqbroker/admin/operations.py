"""The operations of the admin protocol. Each takes a node and a request, and answers it exactly once, now or later.

    status   {}                                          what the node is and holds
    queues   {}                                          one object a queue
    queue-create {name, address?, routing_type?, durable?}
    connections  {}                                      one object a connection
    send     {address, messages: [{body | body_base64, durable?, priority?, ttl_ms?, properties?,
              application_properties?}]}
    receive  {address, count_max?, wait_ms?}             {messages, tag}
    settle   {tag, outcome: accepted | released | modified | rejected}
    stop     {}                                          stop gracefully
    metrics  {per_object?}                               families of metrics and their values (admin/metrics.py)
    health   {}                                          what the checks of health look at (admin/health.py)

Arguments are checked here: a wrong one is an error that names it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any

from mqbroker import __version__
from mqbroker.admin import health, metrics
from mqbroker.base.errors import PeerFault, Refused
from mqbroker.base.notice import Level
from mqbroker.base.time import NS_PER_MS
from mqbroker.core.queue import Queue, QueueKind
from mqbroker.node.broker import Broker
from mqbroker.node.inputs import AdminRequest, Stop
from mqbroker.wire.sections import Header, Properties, build_message

SEND_COUNT_MAX = 10_000
RECEIVE_WAIT_MS_MAX = 60_000
OUTCOMES = ("accepted", "released", "modified", "rejected")
# Nothing may be journalled behind the journal's end.
WHILE_STOPPING = ("status", "queues", "connections", "stop", "health", "metrics")


def perform(broker: Broker, request: AdminRequest) -> None:
    """Carry out a request; whatever is wrong with it becomes its answer."""
    handler = OPERATIONS.get(request.operation)
    if handler is None:
        known = ", ".join(sorted(OPERATIONS))
        broker.reply_error(request.id, "amqp:not-found", f"unknown operation {request.operation!r}; there are: {known}")
        return
    if broker.is_stopping and request.operation not in WHILE_STOPPING:
        broker.reply_error(request.id, "amqp:connection:forced", f"{request.operation}: the broker stops")
        return
    try:
        handler(broker, request)
    except (Refused, PeerFault) as error:
        broker.reply_error(request.id, error.condition, error.description)


def _argument(request: AdminRequest, name: str, kind: type, default: Any = None) -> Any:
    value = request.arguments.get(name, default)
    if value is None:
        raise Refused("amqp:invalid-field", f"{request.operation}: argument {name!r} is missing")
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise Refused("amqp:invalid-field", f"{request.operation}: argument {name!r} must be {kind.__name__}")
    return value


def _status(broker: Broker, request: AdminRequest) -> None:
    store = broker.store
    broker.reply(
        request.id,
        {
            "node": broker.options.node.name,
            "node_id": broker.node_id,
            "version": __version__,
            "state": "stopping" if broker.is_stopping else "active",
            "uptime_ms": (broker.at.monotonic_ns - broker.started_at.monotonic_ns) // NS_PER_MS,
            "connections": len(broker.peers),
            "queues": len(store.queues),
            "messages": sum(queue.message_count for queue in store.queues.values()),
            "held_bytes": store.memory.held_bytes,
            "global_max_size_bytes": store.memory.max_bytes,
            "journal_segments": broker.journal.segments_count,
            "journal_position": broker.journal.position,
            "synced_position": store.decisions.synced,
        },
    )


def _health(broker: Broker, request: AdminRequest) -> None:
    broker.reply(request.id, health.of_node(broker))


def _metrics(broker: Broker, request: AdminRequest) -> None:
    broker.reply(request.id, metrics.of_node(broker, per_object=_argument(request, "per_object", bool, False)))


def _queues(broker: Broker, request: AdminRequest) -> None:
    queues = sorted(broker.store.queues.values(), key=lambda queue: queue.kind.name)
    broker.reply(request.id, {"queues": [attributes_of(queue) for queue in queues]})


def attributes_of(queue: Queue) -> dict[str, Any]:
    """What admin shows of a queue."""
    return {
        "name": queue.kind.name,
        "address": queue.kind.address,
        "routing_type": queue.kind.routing,
        "durable": queue.kind.is_durable,
        "message_count": queue.message_count,
        "delivering_count": queue.delivering_count,
        "scheduled_count": queue.scheduled_count,
        "consumer_count": len(queue.consumers),
        "messages_added": queue.added_total,
        "messages_acknowledged": queue.acknowledged_total,
        "messages_expired": queue.expired_total,
        "messages_killed": queue.killed_total,
        "messages_replaced": queue.replaced_total,
    }


def _queue_create(broker: Broker, request: AdminRequest) -> None:
    name = _argument(request, "name", str)
    routing = _argument(request, "routing_type", str, "anycast")
    if routing not in ("anycast", "multicast"):
        raise Refused("amqp:invalid-field", f"queue-create: routing_type is anycast or multicast, not {routing!r}")
    kind = QueueKind(name, _argument(request, "address", str, name), routing, _argument(request, "durable", bool, True))
    queue = broker.store.create_queue(kind)
    if kind.is_durable:
        broker.store.decisions.wait(broker.reply, request.id, attributes_of(queue))
    else:
        broker.reply(request.id, attributes_of(queue))


def _connections(broker: Broker, request: AdminRequest) -> None:
    rows = [
        {
            "connection": peer.conn,
            "peer": peer.accepted.peer,
            "listener": peer.listener.name,
            "user": peer.user,
            "container_id": peer.connection.peer_open.container_id if peer.connection.peer_open else None,
            "sessions": len(peer.connection.sessions),
            "links": sum(len(session.by_handle) for session in peer.connection.sessions),
            "unsettled": sum(session.unsettled.count for session in peer.connection.sessions),
            "blocked": peer.is_blocked,
        }
        for peer in broker.peers.values()
    ]
    broker.reply(request.id, {"connections": rows})


def _send(broker: Broker, request: AdminRequest) -> None:
    address = _argument(request, "address", str)
    messages = _argument(request, "messages", list)
    if len(messages) > SEND_COUNT_MAX:
        raise Refused("amqp:resource-limit-exceeded", f"send: at most {SEND_COUNT_MAX} messages in one request")
    payloads = [_payload(number, message) for number, message in enumerate(messages)]
    broker.local.send(request.id, address, payloads)


def _payload(number: int, message: Any) -> bytes:
    if not isinstance(message, dict) or ("body" in message) == ("body_base64" in message):
        raise Refused("amqp:invalid-field", f"send: messages.{number} needs exactly one of body and body_base64")
    for name in ("properties", "application_properties"):
        if not isinstance(message.get(name) or {}, dict):
            raise Refused("amqp:invalid-field", f"send: messages.{number}.{name} must be an object")
    try:
        body = message.get("body")
        return build_message(
            base64.b64decode(str(message["body_base64"]), validate=True) if body is None else str(body),
            durable=bool(message.get("durable", True)),
            header=_header(number, message),
            properties=Properties(**message["properties"]) if message.get("properties") else None,
            application_properties=message.get("application_properties"),
        )
    except PeerFault as fault:
        raise Refused(fault.condition, f"send: messages.{number}: {fault.description}") from None
    except (binascii.Error, TypeError, ValueError) as error:
        raise Refused("amqp:invalid-field", f"send: messages.{number}: {error}") from None


def _header(number: int, message: dict[str, Any]) -> Header:
    values: dict[str, Any] = {}
    for name, field, bound in (("priority", "priority", 9), ("ttl_ms", "ttl", 0xFFFFFFFF)):
        value = message.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= bound:
            raise Refused("amqp:invalid-field", f"send: messages.{number}.{name} is a whole number from 0 to {bound}")
        values[field] = value
    return Header(**values)


def _receive(broker: Broker, request: AdminRequest) -> None:
    count_max = _argument(request, "count_max", int, 1)
    wait_ms = _argument(request, "wait_ms", int, 0)
    if count_max < 1 or not 0 <= wait_ms <= RECEIVE_WAIT_MS_MAX:
        raise Refused("amqp:invalid-field", f"receive: count_max is at least 1, wait_ms 0 to {RECEIVE_WAIT_MS_MAX}")
    broker.local.receive((request.id, request.session), _argument(request, "address", str), count_max, wait_ms)


def _settle(broker: Broker, request: AdminRequest) -> None:
    outcome = _argument(request, "outcome", str, "accepted")
    if outcome not in OUTCOMES:
        raise Refused("amqp:invalid-field", f"settle: outcome is one of {', '.join(OUTCOMES)}, not {outcome!r}")
    broker.local.settle((request.id, request.session), _argument(request, "tag", int), outcome)


def _stop(broker: Broker, request: AdminRequest) -> None:
    broker.notice(Level.INFO, "stop-requested", session=request.session)
    broker.reply(request.id, {})
    broker.stop(Stop())


OPERATIONS: dict[str, Callable[[Broker, AdminRequest], None]] = {
    "status": _status,
    "queues": _queues,
    "queue-create": _queue_create,
    "connections": _connections,
    "send": _send,
    "receive": _receive,
    "settle": _settle,
    "stop": _stop,
    "health": _health,
    "metrics": _metrics,
}
