"""Addresses, subscriptions and selectors as a foreign client uses them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.foreign.client import ProtonClient
from tests.foreign.conftest import wait_for_depth
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.foreign


def ids(client: ProtonClient, link: str, count: int) -> list[str]:
    return [message["id"] for message in client.receive(link, count)]


def test_a_selector_picks_and_the_rest_stays(broker: BrokerProcess, client: ProtonClient, queue: str) -> None:
    client.connect("c", broker)
    client.sender("c", "out", queue)
    client.send("out", ["a", "b"], properties={"color": "red", "weight": 3})
    client.send("out", ["c"], properties={"color": "blue", "weight": 5})
    client.receiver("c", "in", queue, selector="color LIKE 'b%' AND weight BETWEEN 4 AND 6", credit=10)
    assert ids(client, "in", 1) == ["c"]
    wait_for_depth(broker, queue, 2)
    client.receiver("c", "rest", queue, credit=10)
    assert ids(client, "rest", 2) == ["a", "b"]


def test_a_browser_leaves_everything(broker: BrokerProcess, client: ProtonClient, queue: str) -> None:
    client.connect("c", broker)
    client.sender("c", "out", queue)
    client.send("out", ["a", "b", "c"])
    client.receiver("c", "look", queue, is_copy=True, credit=10)
    assert ids(client, "look", 3) == ["a", "b", "c"]
    wait_for_depth(broker, queue, 3)


def test_every_subscriber_of_a_topic_gets_a_copy(broker: BrokerProcess, client: ProtonClient, queue: str) -> None:
    client.connect("c", broker)
    for name in ("one", "two"):
        client.receiver("c", name, queue, capabilities=["topic"], credit=10)
    client.sender("c", "out", queue, capabilities=["topic"])
    client.send("out", ["a", "b"])
    assert ids(client, "one", 2) == ids(client, "two", 2) == ["a", "b"]


def test_subscribers_to_patterns_get_copies_of_what_matches(
    broker: BrokerProcess, client: ProtonClient, queue: str
) -> None:
    """Once each, whether an address is there before them or not; who consumes from the address loses nothing."""
    client.connect("c", broker)
    client.sender("c", "early", f"{queue}.uk")
    for name, address, capabilities in (
        ("all", f"{queue}.#", []), ("one", f"{queue}.*", ["topic"]), ("queue", f"{queue}.uk", ["queue"]),
    ):  # fmt: skip
        client.receiver("c", name, address, capabilities=capabilities, credit=10)
    client.send("early", ["a"])
    client.sender("c", "late", f"{queue}.fr.paris")
    client.send("late", ["b"])
    client.send("early", ["c"])
    assert ids(client, "all", 3) == ["a", "b", "c"]
    assert ids(client, "one", 2) == ids(client, "queue", 2) == ["a", "c"]
    wait_for_depth(broker, f"{queue}.uk", 0)


def test_who_subscribes_later_gets_the_newest(make_broker: Callable[..., BrokerProcess], client: ProtonClient) -> None:
    broker = make_broker(options={"address-settings": {"news": {"retroactive-message-count": 2}}})
    broker.start()
    client.connect("c", broker)
    client.sender("c", "out", "news", capabilities=["topic"])
    client.send("out", ["a", "b", "c"])
    client.receiver("c", "late", "news", capabilities=["topic"], credit=10)
    assert ids(client, "late", 2) == ["b", "c"]
    client.send("out", ["d"])
    assert ids(client, "late", 1) == ["d"]


def test_shared_subscribers_share(broker: BrokerProcess, client: ProtonClient, queue: str) -> None:
    client.connect("c", broker)
    for name in ("one", "two"):
        client.receiver(
            "c", name, queue, link_name=f"team-{queue}|{name}", capabilities=["topic", "shared", "global"], credit=10
        )
    client.sender("c", "out", queue, capabilities=["topic"])
    client.send("out", ["a"])
    client.send("out", ["b"])
    assert sorted(ids(client, "one", 1) + ids(client, "two", 1)) == ["a", "b"]


def test_request_and_reply_over_a_temporary_queue(broker: BrokerProcess, client: ProtonClient, queue: str) -> None:
    client.connect("asks", broker)
    client.connect("answers", broker)
    reply_to = client.receiver("asks", "replies", None, is_dynamic=True, credit=10)["address"]
    assert reply_to
    client.sender("answers", "back", None)
    (outcome,) = client.send("back", ["answer"], address=reply_to)
    assert outcome["outcome"] == "accepted"
    assert ids(client, "replies", 1) == ["answer"]
    refused = client.receiver("answers", "thief", reply_to)
    assert refused["refused"]["condition"] == "amqp:not-allowed"
    client.ask("close_link", name="replies")
    (outcome,) = client.send("back", ["late"], address=f"{queue}::")
    assert outcome["outcome"] == "rejected"


def test_messages_of_higher_priority_overtake(broker: BrokerProcess, client: ProtonClient, queue: str) -> None:
    client.connect("c", broker)
    client.sender("c", "out", queue)
    for priority, name in ((1, "low"), (4, "usual"), (9, "high")):
        client.send("out", [name], priority=priority)
    client.receiver("c", "in", queue, credit=10)
    assert ids(client, "in", 3) == ["high", "usual", "low"]


def test_a_short_life_ends(broker: BrokerProcess, client: ProtonClient, queue: str) -> None:
    client.connect("c", broker)
    client.sender("c", "out", queue)
    client.send("out", ["short"], ttl=0.2)
    client.send("out", ["long"], ttl=3600)
    client.ask("work", time_s=0.4)
    client.receiver("c", "in", queue, credit=10)
    assert ids(client, "in", 1) == ["long"]
    rows = {row["name"]: row["messages_expired"] for row in broker.admin("queues")["queues"]}
    assert rows[queue] == 1


def test_one_queue_of_an_address(broker: BrokerProcess, client: ProtonClient, queue: str) -> None:
    client.connect("c", broker)
    client.receiver("c", "in", f"{queue}::{queue}-a", capabilities=["queue"], credit=10)
    client.sender("c", "out", queue)
    client.send("out", ["a"])
    assert ids(client, "in", 1) == ["a"]


@pytest.mark.parametrize("role", ["sender", "receiver"])
def test_an_address_that_has_moved_says_where(
    broker: BrokerProcess, client: ProtonClient, queue: str, role: str
) -> None:
    broker.options = {"address-settings": {queue: {"redirect-to": "b2.example:5671"}}}
    broker.write_config()
    broker.admin("config-reload")
    client.connect("c", broker)
    found = getattr(client, role)("c", "link", queue)
    assert found["is_null"]
    assert found["refused"]["condition"] == "amqp:link:redirect"
    assert found["refused"]["info"] == {
        "hostname": "b2.example", "network-host": "b2.example", "port": 5671, "address": queue,
    }  # fmt: skip
    # The connection goes on.
    client.sender("c", "out", f"{queue}.here")
    (outcome,) = client.send("out", ["a"])
    assert outcome["outcome"] == "accepted"


def test_prefixes_of_a_listener_say_what_is_meant(
    make_broker: Callable[..., BrokerProcess], client: ProtonClient
) -> None:
    broker = make_broker(listener={"anycast-prefix": "queue://", "multicast-prefix": "topic://"})
    broker.start()
    client.connect("c", broker)
    assert client.receiver("c", "one", "topic://news", credit=10)["address"] == "topic://news"
    client.receiver("c", "two", "topic://news", credit=10)
    client.sender("c", "out", None)
    client.send("out", ["a"], address="topic://news")
    assert ids(client, "one", 1) == ids(client, "two", 1) == ["a"]
    client.send("out", ["b"], address="queue://orders")
    wait_for_depth(broker, "orders", 1)
    client.receiver("c", "in", "queue://orders", credit=10)
    assert ids(client, "in", 1) == ["b"]
