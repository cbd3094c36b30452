"""go-amqp, Microsoft's client for Go: names of links are random unless given, and nothing reconnects by itself."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from tests.foreign.conftest import queues, wait_for_depth, wait_for_queues
from tests.foreign.link_client import LinkClient
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.foreign

Make = Callable[..., BrokerProcess]
NEVER = {"durable": 2, "expiry_policy": "never"}


@pytest.fixture
def client(broker: BrokerProcess, go_amqp: LinkClient) -> LinkClient:
    """Connected as `c`, with a container id of its own."""
    go_amqp.connect("c", broker, container_id="app")
    return go_amqp


def test_settled_messages(client: LinkClient, queue: str) -> None:
    client.sender("c", "out", queue, settled=True)
    client.send("out", "a", "b")
    client.receiver("c", "in", queue)
    assert client.bodies("in", 2) == ["a", "b"]


def test_outcomes(broker: BrokerProcess, client: LinkClient, queue: str) -> None:
    client.sender("c", "out", queue)
    client.send("out", "a")
    client.receiver("c", "in", queue, credit=0)
    outcomes = ("release", "modify-failed", "release", "reject")
    seen = [client.receive("in", outcome=each, more_credit=1)[0]["delivery_count"] for each in outcomes]
    assert seen == [0, 0, 1, 1]
    wait_for_depth(broker, queue, 0)


def test_drain_gives_the_credit_back(broker: BrokerProcess, client: LinkClient, queue: str) -> None:
    """Its drain sends no credit and asks for no echo, and waits for the answer all the same."""
    client.receiver("c", "in", queue, credit=0)
    client.ask("drain", link="in")
    client.receive("in", more_credit=5, wait_ms=100)
    client.ask("drain", link="in")
    client.sender("c", "out", queue)
    client.send("out", "a", "b")
    assert client.is_quiet("in")
    assert client.bodies("in", 2, more_credit=2) == ["a", "b"]
    wait_for_depth(broker, queue, 0)


def test_a_receiver_may_ask_for_mixed_settlement(client: LinkClient, queue: str) -> None:
    client.receiver("c", "in", queue, settle_mode=2)
    client.sender("c", "out", queue)
    client.send("out", "a")
    assert client.bodies("in") == ["a"]


def test_a_selector(broker: BrokerProcess, client: LinkClient, queue: str) -> None:
    client.sender("c", "out", queue)
    client.send("out", *({"body": f"m{n}", "properties": {"n": n}} for n in range(4)))
    client.receiver("c", "in", queue, selector="n >= 2")
    assert client.bodies("in", 2) == ["m2", "m3"]
    assert client.is_quiet("in")
    wait_for_depth(broker, queue, 2)
    # The reason comes behind an answer without a source. Versions before 1.6 took that for a link.
    refused = {"connection": "c", "link": "bad", "address": queue, "selector": "n >"}
    assert "amqp:invalid-field" in client.refusal("receiver", **refused)


def test_a_queue_of_a_topic_by_its_full_name(broker: BrokerProcess, client: LinkClient, queue: str) -> None:
    """How go-amqp's users share a subscription: its links have no names that could be one."""
    for link in ("one", "two"):
        client.receiver("c", link, f"{queue}::team", capabilities=["topic"])
    client.receiver("c", "all", queue, capabilities=["topic"])
    client.sender("c", "out", queue, capabilities=["topic"])
    client.send("out", *(f"m{number}" for number in range(6)))
    one, two = client.bodies("one", 6, wait_ms=400), client.bodies("two", 6, wait_ms=400)
    assert sorted(one + two) == client.bodies("all", 6) == [f"m{number}" for number in range(6)]
    assert one
    assert two
    found = set(queues(broker, queue))
    (own,) = found - {"team"}
    # A subscription that nobody named: the container, the random name of its link, and a number.
    assert re.fullmatch(r"app\..+\.\d+", own)


def test_a_durable_subscription(broker: BrokerProcess, client: LinkClient, queue: str) -> None:
    """go-amqp only closes links, which ends a subscription; it is kept when the connection goes away."""

    def subscribe() -> None:
        client.receiver("c", "in", queue, name="news", capabilities=["topic"], **NEVER)

    client.connect("other", broker)
    client.sender("other", "out", queue, capabilities=["topic"])
    subscribe()
    client.send("out", "a")
    assert client.bodies("in") == ["a"]
    client.ask("close", name="c")
    client.send("out", "b")
    wait_for_queues(broker, queue, {"app.news": 1})
    client.connect("c", broker, container_id="app")
    subscribe()
    assert client.bodies("in") == ["b"]
    client.ask("close", name="in")
    wait_for_queues(broker, queue, {})


def test_a_dynamic_queue_answers_requests(broker: BrokerProcess, client: LinkClient, queue: str) -> None:
    answers = client.receiver("c", "answers", None, dynamic=True)["address"]
    client.sender("c", "out", queue)
    client.sender("c", "anywhere", None)
    client.receiver("c", "requests", queue)
    client.send("out", {"body": "2 + 2?", "reply_to": answers, "correlation_id": "c7"})
    (request,) = client.receive("requests")
    answer = {"body": "4", "to": request["reply_to"], "correlation_id": request["correlation_id"]}
    assert client.send("anywhere", answer) == ["accepted"]
    (found,) = client.receive("answers")
    assert (found["body"], found["correlation_id"]) == ("4", "c7")
    client.ask("close", name="answers")
    wait_for_queues(broker, answers, {})


def test_time_to_live_and_delay(client: LinkClient, queue: str) -> None:
    client.sender("c", "out", queue)
    client.send("out", {"body": "gone", "ttl": 50}, {"body": "later", "annotations": {"x-opt-delivery-delay": 600}})
    sent_s = time.monotonic()
    time.sleep(0.1)
    client.receiver("c", "in", queue)
    assert client.bodies("in") == ["later"]
    assert time.monotonic() - sent_s > 0.4


def test_a_broker_that_ends_is_told_and_nothing_is_lost(make_broker: Make, go_amqp: LinkClient) -> None:
    broker = make_broker()
    broker.start()
    go_amqp.connect("c", broker)
    go_amqp.sender("c", "out", "orders")
    assert go_amqp.send("out", *(f"m{number}" for number in range(100))) == ["accepted"] * 100
    broker.kill()
    assert go_amqp.refusal("send", link="out", messages=[{"body": "lost"}])
    broker.start()
    go_amqp.connect("c2", broker)
    go_amqp.receiver("c2", "in", "orders")
    assert go_amqp.bodies("in", 100) == [f"m{number}" for number in range(100)]


def test_a_wrong_password_is_refused(broker: BrokerProcess, go_amqp: LinkClient) -> None:
    why = go_amqp.refusal("connect", name="c", port=broker.port, user=broker.user, password="wrong")
    assert "SASL" in why
