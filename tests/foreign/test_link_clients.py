"""What rhea and go-amqp do alike: messages of all kinds go through a queue."""

from __future__ import annotations

import base64
import hashlib

import pytest

from tests.foreign.conftest import wait_for_depth
from tests.foreign.link_client import LinkClient
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.foreign

DURABLE = pytest.mark.parametrize("durable", [True, False], ids=["durable", "not-durable"])
MIB = 1 << 20


@pytest.fixture(params=["rhea", "go_amqp"])
def client(request: pytest.FixtureRequest, broker: BrokerProcess) -> LinkClient:
    """Each of them, connected as `c`, with a container id of its own."""
    found: LinkClient = request.getfixturevalue(request.param)
    found.connect("c", broker, container_id="app")
    return found


@DURABLE
def test_messages_go_through_a_queue(broker: BrokerProcess, client: LinkClient, queue: str, durable: bool) -> None:
    client.sender("c", "out", queue)
    rows = [{"body": f"m{number}", "durable": durable} for number in range(3)]
    assert client.send("out", *rows) == ["accepted"] * 3
    client.receiver("c", "in", queue)
    found = client.receive("in", 3)
    assert [(row["body"], row["durable"]) for row in found] == [(f"m{number}", durable) for number in range(3)]
    wait_for_depth(broker, queue, 0)


def test_what_a_message_says_arrives(client: LinkClient, queue: str) -> None:
    client.sender("c", "out", queue)
    said = {
        "priority": 7, "correlation_id": "c1", "reply_to": "answers", "message_id": "m1", "group_id": "g",
        "subject": "s", "properties": {"n": 5, "t": "ä", "f": 0.5, "b": True}, "annotations": {"x-opt-mine": "kept"},
    }  # fmt: skip
    client.send("out", {**said, "kind": "bytes", "body": base64.b64encode(bytes(range(256))).decode()})
    client.receiver("c", "in", queue)
    (found,) = client.receive("in")
    assert {name: found[name] for name in said} == said
    assert base64.b64decode(found["body"]) == bytes(range(256))


@pytest.mark.parametrize("mib", [1, 10])
def test_large_messages(client: LinkClient, queue: str, mib: int) -> None:
    body = (bytes(range(251)) * (mib * MIB // 251 + 1))[: mib * MIB]
    client.sender("c", "out", queue)
    assert client.send("out", {"size": mib * MIB}) == ["accepted"]
    client.receiver("c", "in", queue)
    (found,) = client.receive("in")
    assert (found["size"], found["sha256"]) == (mib * MIB, hashlib.sha256(body).hexdigest())


def test_a_browser_takes_nothing(broker: BrokerProcess, client: LinkClient, queue: str) -> None:
    client.sender("c", "out", queue)
    client.send("out", "a", "b")
    client.receiver("c", "look", queue, distribution_mode="copy")
    assert client.bodies("look", 2) == ["a", "b"]
    wait_for_depth(broker, queue, 2)
