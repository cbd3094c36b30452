"""Messages between foreign clients: what one wrote, the next ones read, and nobody on the way changes it."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest

from tests.foreign.jms_client import JmsClient
from tests.foreign.link_client import LinkClient
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.foreign

BINARY = base64.b64encode(bytes(range(256)) * 3).decode()
BODIES: dict[str, dict[str, Any]] = {
    "text": {"kind": "text", "body": "grüße, 世界 🌍"},
    "bytes": {"kind": "bytes", "body": BINARY},
    "large": {"kind": "bytes", "size": 1 << 20},
}
MARKS = {"x-opt-jms-msg-type", "x-opt-jms-dest"}


@pytest.fixture
def clients(
    broker: BrokerProcess, jms: JmsClient, rhea: LinkClient, go_amqp: LinkClient
) -> tuple[JmsClient, LinkClient, LinkClient]:
    """All of them, each connected as `c`."""
    jms.connect("c", broker)
    jms.session("c", "s")
    rhea.connect("c", broker)
    go_amqp.connect("c", broker)
    return jms, rhea, go_amqp


@pytest.mark.parametrize("kind", BODIES)
def test_from_jms_by_rhea_and_go_back_to_jms(
    clients: tuple[JmsClient, LinkClient, LinkClient], queue: str, kind: str
) -> None:
    jms, rhea, go_amqp = clients
    said = {"properties": {"text": "ä", "number": 5, "flag": True}, "correlation_id": "c-1", "type": "order"}
    jms.put("s", f"queue:{queue}-1", {**BODIES[kind], **said}, priority=6)
    for hop, client in ((1, rhea), (2, go_amqp)):
        client.receiver("c", "in", f"{queue}-{hop}")
        client.sender("c", "out", f"{queue}-{hop + 1}")
        (row,) = client.ask("forward", **{"from": "in", "to": "out", "count": 1})["outcomes"]
        assert row["outcome"] == "accepted"
    jms.consumer("s", "in", f"queue:{queue}-3")
    (found,) = jms.receive("in")
    assert found["class"] == BODIES[kind]["kind"]
    assert found["properties"] == {**said["properties"], "JMSXDeliveryCount": 1}
    assert (found["correlation_id"], found["type"], found["priority"]) == ("c-1", "order", 6)
    assert found["destination"] == f"queue:{queue}-1"  # `to` is the application's, not the broker's
    if kind == "large":
        body = (bytes(range(251)) * (1 << 13))[: 1 << 20]
        assert found["sha256"] == hashlib.sha256(body).hexdigest()
    else:
        assert found["body"] == BODIES[kind]["body"]


def test_annotations_of_jms_are_there_for_all(clients: tuple[JmsClient, LinkClient, LinkClient], queue: str) -> None:
    """And nothing else is: the broker adds no annotations of its own to what it passes on."""
    jms, rhea, go_amqp = clients
    for client in (rhea, go_amqp):
        client.receiver("c", "in", queue, capabilities=["topic"])
    jms.put("s", f"topic:{queue}", {"kind": "bytes", "body": BINARY})
    for client in (rhea, go_amqp):
        (row,) = client.receive("in")
        assert set(row["annotations"]) == MARKS
        assert (row["annotations"]["x-opt-jms-msg-type"], row["annotations"]["x-opt-jms-dest"]) == (3, 1)
        assert row["body"] == BINARY


def test_traces_go_through(clients: tuple[JmsClient, LinkClient, LinkClient], queue: str) -> None:
    """What OpenTelemetry and Qpid put beside a message is not the broker's to touch."""
    _, rhea, go_amqp = clients
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    marks = {"x-opt-qpid-tracestate": "state=1", "traceparent": trace}
    rhea.sender("c", "out", queue)
    rhea.send("out", {"body": "a", "annotations": marks, "properties": {"traceparent": trace}})
    go_amqp.receiver("c", "in", queue)
    (row,) = go_amqp.receive("in")
    assert (row["annotations"], row["properties"]) == (marks, {"traceparent": trace})


def test_what_links_write_jms_reads(clients: tuple[JmsClient, LinkClient, LinkClient], queue: str) -> None:
    jms, rhea, go_amqp = clients
    for client in (rhea, go_amqp):
        client.sender("c", "out", queue)
        client.send("out", "text", {"kind": "bytes", "body": BINARY})
    jms.consumer("s", "in", f"queue:{queue}")
    found = jms.receive("in", 4)
    assert [(row["class"], row["body"]) for row in found] == [("text", "text"), ("bytes", BINARY)] * 2
