"""rhea, the client for Node.js: what differs from Proton is its way with capabilities, filters and reconnecting."""

from __future__ import annotations

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
def client(broker: BrokerProcess, rhea: LinkClient) -> LinkClient:
    """Connected as `c`, with a container id of its own."""
    rhea.connect("c", broker, container_id="app")
    return rhea


def test_the_broker_says_what_it_can(broker: BrokerProcess, rhea: LinkClient) -> None:
    found = rhea.connect("c", broker)
    assert {"ANONYMOUS-RELAY", "DELAYED_DELIVERY", "SHARED-SUBS"} <= set(found["offered"])
    assert {"product", "version"} <= set(found["properties"])


def test_settled_messages(client: LinkClient, queue: str) -> None:
    client.sender("c", "out", queue, settled=True)
    assert client.send("out", "a", "b") == ["settled", "settled"]
    client.receiver("c", "in", queue)
    assert client.bodies("in", 2) == ["a", "b"]


def test_outcomes(broker: BrokerProcess, client: LinkClient, queue: str) -> None:
    client.sender("c", "out", queue)
    client.send("out", "a")
    client.receiver("c", "in", queue, credit=1)
    seen = [
        client.receive("in", outcome=outcome, more_credit=more)[0]["delivery_count"]
        for outcome, more in (("release", 0), ("modify-failed", 1), ("release", 1), ("reject", 1))
    ]
    assert seen == [0, 0, 1, 1]
    wait_for_depth(broker, queue, 0)


@pytest.mark.parametrize(("default", "left"), [(None, [1]), ("accepted", []), ("released", [0])])
def test_what_is_settled_without_an_outcome_gets_the_one_of_the_source(
    broker: BrokerProcess, client: LinkClient, queue: str, default: str | None, left: list[int]
) -> None:
    client.sender("c", "out", queue)
    client.send("out", "a")
    said = {} if default is None else {"default_outcome": default}
    client.receiver("c", "in", queue, credit=1, **said)
    assert client.bodies("in", outcome="none") == ["a"]
    client.receiver("c", "next", queue, credit=1)
    if left:
        assert [row["delivery_count"] for row in client.receive("next")] == left
    wait_for_depth(broker, queue, 0)


def test_a_selector_by_its_code_under_the_key_of_rhea(broker: BrokerProcess, client: LinkClient, queue: str) -> None:
    client.sender("c", "out", queue)
    client.send("out", *({"body": f"m{n}", "properties": {"n": n}} for n in range(4)))
    client.receiver("c", "in", queue, selector="n >= 2")
    assert client.bodies("in", 2) == ["m2", "m3"]
    assert client.is_quiet("in")
    wait_for_depth(broker, queue, 2)
    refused = {"connection": "c", "link": "bad", "address": queue, "selector": "n >"}
    assert client.refusal("receiver", **refused).startswith("amqp:invalid-field")


def test_the_capability_topic_on_either_end(broker: BrokerProcess, client: LinkClient, queue: str) -> None:
    """Where neither end says `topic`, an address is a queue; a sender may leave it out once there are subscribers."""
    for link in ("one", "two"):
        client.receiver("c", link, queue, capabilities=["topic"])
    client.sender("c", "out", queue, capabilities=["topic"])
    client.sender("c", "plain", queue)
    client.send("out", "a")
    client.send("plain", "b")
    assert client.bodies("one", 2) == client.bodies("two", 2) == ["a", "b"]


@pytest.mark.parametrize("routing", ["ANYCAST", "MULTICAST"])
def test_without_a_capability_the_settings_decide(make_broker: Make, rhea: LinkClient, routing: str) -> None:
    said = {"news.#": {"default-address-routing-type": routing}}
    broker = make_broker(options={"address-settings": said})
    broker.start()
    rhea.connect("c", broker)
    for link in ("one", "two"):
        rhea.receiver("c", link, "news.today")
    rhea.sender("c", "out", "news.today")
    rhea.send("out", "a", "b")
    found = rhea.bodies("one", 2, wait_ms=500) + rhea.bodies("two", 2, wait_ms=500)
    assert sorted(found) == (["a", "b"] if routing == "ANYCAST" else ["a", "a", "b", "b"])


def test_a_durable_subscription(broker: BrokerProcess, client: LinkClient, queue: str) -> None:
    def subscribe() -> None:
        client.receiver("c", "in", queue, name="news", capabilities=["topic"], **NEVER)

    client.sender("c", "out", queue, capabilities=["topic"])
    subscribe()
    client.send("out", "a")
    assert client.bodies("in") == ["a"]
    client.ask("close", name="in", is_detach=True)
    client.send("out", "b")
    wait_for_queues(broker, queue, {"app.news": 1})
    subscribe()
    assert client.bodies("in") == ["b"]
    # A close, unlike a detach, ends it.
    client.ask("close", name="in")
    wait_for_queues(broker, queue, {})


def test_a_durable_subscription_goes_to_the_newer_connection(
    broker: BrokerProcess, client: LinkClient, queue: str
) -> None:
    client.connect("c2", broker, container_id="app")
    for connection, link in (("c", "old"), ("c2", "new")):
        client.receiver(connection, link, queue, name="news", capabilities=["topic"], **NEVER)
    client.sender("c", "out", queue, capabilities=["topic"])
    client.send("out", "a")
    assert client.bodies("new") == ["a"]
    assert client.is_quiet("old")
    assert "link-stolen" in broker.log


def test_shared_subscriptions(broker: BrokerProcess, client: LinkClient, queue: str) -> None:
    for link, name in (("one", "team"), ("two", "team|2")):
        client.receiver("c", link, queue, name=name, capabilities=["topic", "shared"], credit=10, **NEVER)
    client.sender("c", "out", queue, capabilities=["topic"])
    client.send("out", *(f"m{number}" for number in range(8)))
    one, two = client.bodies("one", 8, wait_ms=400), client.bodies("two", 8, wait_ms=400)
    assert sorted(one + two) == [f"m{number}" for number in range(8)]
    assert one
    assert two
    assert list(queues(broker, queue)) == ["app.team"]


def test_a_dynamic_queue_answers_requests(broker: BrokerProcess, client: LinkClient, queue: str) -> None:
    answers = client.receiver("c", "answers", None, dynamic=True)["address"]
    client.sender("c", "out", queue)
    client.sender("c", "anywhere", None)
    client.receiver("c", "requests", queue)
    client.send("out", {"body": "2 + 2?", "reply_to": answers, "correlation_id": 7})
    (request,) = client.receive("requests")
    client.send("anywhere", {"body": "4", "to": request["reply_to"], "correlation_id": request["correlation_id"]})
    (answer,) = client.receive("answers")
    assert (answer["body"], answer["correlation_id"]) == ("4", 7)
    client.ask("close", name="answers")
    wait_for_queues(broker, answers, {})


def test_time_to_live_and_delay(broker: BrokerProcess, client: LinkClient, queue: str) -> None:
    client.sender("c", "out", queue)
    client.send("out", {"body": "gone", "ttl": 50}, {"body": "later", "annotations": {"x-opt-delivery-delay": 600}})
    sent_s = time.monotonic()
    time.sleep(0.1)
    client.receiver("c", "in", queue)
    assert client.bodies("in") == ["later"]
    assert time.monotonic() - sent_s > 0.4


def test_a_message_with_a_body_alone_that_is_in_a_file(make_broker: Make, rhea: LinkClient) -> None:
    """Without a section before its body there is nothing to be sent before that is read."""
    limits = {"amqp-min-large-message-size-bytes": 100_000, "large-message-in-memory-max-size-bytes": 0}
    broker = make_broker(options={"limits": limits})
    broker.start()
    rhea.connect("c", broker)
    rhea.sender("c", "out", "orders")
    assert rhea.send("out", "x" * 300_000, "small") == ["accepted"] * 2
    rhea.receiver("c", "in", "orders")
    assert rhea.bodies("in", 2) == ["x" * 300_000, "small"]
    assert "connection-failed" not in broker.log


def test_a_silent_connection_stays_open(make_broker: Make, rhea: LinkClient) -> None:
    """rhea closes when nothing comes for the time that it announced, which other clients announce by half."""
    broker = make_broker(listener={"idle-timeout-ms": 3000})
    broker.start()
    assert rhea.connect("c", broker, idle_time_out=3000)["idle_time_out"] == 1500
    rhea.sender("c", "out", "orders")
    time.sleep(5)
    assert rhea.send("out", "a") == ["accepted"]
    assert broker.admin("status")["connections"] == 1
    assert "connection-failed" not in broker.log


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_it_reconnects_and_nothing_is_lost(make_broker: Make, rhea: LinkClient, way: str) -> None:
    broker = make_broker()
    broker.start()
    rhea.connect("c", broker, reconnect=True, container_id="app")
    rhea.sender("c", "out", "orders")
    rhea.receiver("c", "in", "orders", credit=0)
    assert rhea.send("out", *(f"m{number}" for number in range(100))) == ["accepted"] * 100
    if way == "kill":
        broker.kill()
    else:
        broker.stop()
    broker.start()
    rhea.ask("opened", name="c", count=2)
    assert rhea.send("out", "new") == ["accepted"]
    found = rhea.bodies("in", 101, more_credit=101)
    assert found == [*(f"m{number}" for number in range(100)), "new"]


def test_a_wrong_password_is_refused(broker: BrokerProcess, rhea: LinkClient) -> None:
    why = rhea.refusal("connect", name="c", port=broker.port, user=broker.user, password="wrong")
    assert "authenticate" in why.lower()
