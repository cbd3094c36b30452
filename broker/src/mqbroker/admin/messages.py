"""Messages: sent and received by administrators themselves."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from mqbroker.admin.arguments import selector_of
from mqbroker.base.errors import PeerFault, Refused
from mqbroker.node.broker.broker import Broker
from mqbroker.node.values.inputs import AdminRequest
from mqbroker.wire.sections import Header, Properties, build_message

SEND_COUNT_MAX = 10_000
RECEIVE_WAIT_MS_MAX = 60_000
BODIES = ("body", "body_base64")
MESSAGE_NAMES = {*BODIES, "durable", "priority", "ttl_ms", "properties", "application_properties"}
OUTCOMES = ("accepted", "released", "modified", "rejected")


def send(broker: Broker, request: AdminRequest) -> None:
    """`send`: publish; answered when the messages are safe. Each of `messages` has `body` or `body_base64`, and may
    have `durable`, `priority`, `ttl_ms`, `properties` and `application_properties`.
    """
    address, messages = request.arguments["address"], request.arguments["messages"]
    if len(messages) > SEND_COUNT_MAX:
        raise Refused("amqp:resource-limit-exceeded", f"send: at most {SEND_COUNT_MAX} messages in one request")
    payloads = [_payload(number, message) for number, message in enumerate(messages)]
    broker.local.send(request.id, address, payloads)


def _payload(number: int, message: Any) -> bytes:
    bodies = [name for name in BODIES if isinstance(message, dict) and message.get(name) is not None]
    if len(bodies) != 1:
        raise Refused("amqp:invalid-field", f"send: messages.{number} needs exactly one of body and body_base64")
    unknown = sorted(set(message) - MESSAGE_NAMES)
    if unknown:
        known = ", ".join(sorted(MESSAGE_NAMES))
        raise Refused(
            "amqp:invalid-field", f"send: messages.{number} has an unknown {unknown[0]!r}; there are: {known}"
        )
    for name in ("properties", "application_properties"):
        if not isinstance(message.get(name) or {}, dict):
            raise Refused("amqp:invalid-field", f"send: messages.{number}.{name} must be an object")
    for name in ("message_id", "correlation_id"):
        said = (message.get("properties") or {}).get(name)
        if said is not None and (isinstance(said, bool) or not isinstance(said, str | int)):
            raise Refused("amqp:invalid-field", f"send: messages.{number}.properties.{name} is a text or a number")
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


def receive(broker: Broker, request: AdminRequest) -> None:
    """`receive`: take messages; they come back with the session unless they are settled."""
    said, asked_by = request.arguments, (request.id, request.session)
    broker.local.receive(asked_by, said["address"], said["count_max"], said["wait_ms"], selector_of(request))


def settle(broker: Broker, request: AdminRequest) -> None:
    """`settle`: what becomes of the messages under a tag."""
    said = request.arguments
    broker.local.settle((request.id, request.session), said["tag"], said["outcome"])
