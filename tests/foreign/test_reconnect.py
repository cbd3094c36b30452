"""A foreign client across restarts of its broker, by the client's own means of reconnecting."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.foreign.client import ProtonClient
from tests.foreign.conftest import depth, wait_for_depth
from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.foreign

Make = Callable[..., BrokerProcess]
BEATS = {"idle-timeout-ms": 4000}


def end(broker: BrokerProcess, way: str) -> None:
    if way == "stop":
        assert broker.stop() == 0
    else:
        broker.kill()


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_a_client_comes_back_after_a_restart(make_broker: Make, client: ProtonClient, way: str) -> None:
    """Links are there again with their credit. Durable messages are back in their order, others are gone."""
    # Proton hears of a close that it did not begin, and lets go of the socket with its next heartbeat but one only.
    broker = make_broker(listener=BEATS)
    broker.start()
    client.connect("c", broker, reconnect=True)
    client.sender("c", "out", "orders")
    client.sender("c", "other", "others")
    client.receiver("c", "in", "orders", credit=5)
    client.send("out", [f"d{number}" for number in range(10)])
    client.send("out", [f"n{number}" for number in range(10)], durable=False)
    client.send("other", ["only"])
    assert [row["id"] for row in client.receive("in", 5, outcome=None)] == [f"d{number}" for number in range(5)]
    end(broker, way)
    client.ask("wait_lost", name="c")
    broker.start()
    client.ask("wait_opened", name="c", count=2)
    # The five that were with the consumer come with a count; after a crash so do all of a queue that had a consumer.
    found = client.receive("in", 5)
    assert [row["id"] for row in found] == [f"d{number}" for number in range(5)]
    assert [row["delivery_count"] for row in found] == [1] * 5
    rest = client.receive("in", 5, more_credit=10)
    assert [row["id"] for row in rest] == [f"d{number}" for number in range(5, 10)]
    assert {row["delivery_count"] for row in rest} == {0 if way == "stop" else 1}
    assert client.send("out", ["new"])[0]["outcome"] == "accepted"
    assert [row["id"] for row in client.receive("in", 1)] == ["new"]
    client.receiver("c", "in2", "others", credit=1)
    assert [(row["id"], row["delivery_count"]) for row in client.receive("in2", 1)] == [("only", 0)]
    client.ask("close", name="c")
    wait_for_depth(broker, "orders", 0)


def test_what_a_consumer_settled_does_not_come_back(make_broker: Make, client: ProtonClient) -> None:
    broker = make_broker()
    broker.start()
    client.connect("c", broker, reconnect=True)
    client.sender("c", "out", "orders")
    client.send("out", [f"m{number}" for number in range(20)])
    client.receiver("c", "in", "orders", rcv="second", credit=10)
    client.receive("in", 10, settle=False)
    client.ask("wait_settled", link="in", count=10)
    broker.kill()
    client.ask("wait_lost", name="c")
    broker.start()
    client.ask("wait_opened", name="c", count=2)
    found = client.receive("in", 10, settle=False, more_credit=10)
    assert [row["id"] for row in found] == [f"m{number}" for number in range(10, 20)]
    client.ask("wait_settled", link="in", count=20)
    wait_for_depth(broker, "orders", 0)


def test_a_client_waits_for_a_broker_that_is_not_there_yet(make_broker: Make, client: ProtonClient) -> None:
    broker = make_broker()
    broker.prepare()
    client.connect("c", broker, reconnect=True, is_waiting=False)
    client.ask("work", time_s=0.3)
    broker.start()
    client.ask("wait_opened", name="c", count=1)
    client.sender("c", "out", "orders")
    assert client.send("out", ["a"])[0]["outcome"] == "accepted"


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_no_message_is_reported_accepted_that_is_not_there(make_broker: Make, client: ProtonClient, way: str) -> None:
    """In flight at a restart: whatever Proton makes of these on the new connection, an acceptance means a message.

    It sends a settled transfer without a message for each that the application has settled.
    """
    broker = make_broker(listener=BEATS)
    broker.start()
    client.connect("c", broker, reconnect=True)
    client.sender("c", "out", "orders")
    client.send("out", ["first"])
    client.begin("send", link="out", ids=[f"m{number}" for number in range(4000)], size=500)
    deadline_s = time.monotonic() + PATIENCE_S
    while depth(broker, "orders") < 2000:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    end(broker, way)
    broker.start()
    outcomes = client.finish()["outcomes"]
    there = depth(broker, "orders")
    client.receiver("c", "in", "orders", credit=5000)
    found = {row["id"] for row in client.receive("in", there)}
    assert len(found) == there
    accepted = {f"m{number}" for number, row in enumerate(outcomes) if row and row["outcome"] == "accepted"}
    assert accepted
    assert accepted <= found, sorted(accepted - found)[:10]
    assert None not in found
