"""A whole node of real brokers leaves, and a broker is killed in the middle: each message is at the heir, once."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Any

import mqbroker.client as mq
import pytest
from mqbroker.client import sync

from tests.support.broker_process import BrokerProcess
from tests.support.cluster_processes import WAIT_S, Make, linked
from tests.system.cluster.test_drains import COUNT, QUEUE, Balanced, count_at, fill, read, uri_of, wait_until

pytestmark = pytest.mark.system


def shown(broker: BrokerProcess) -> Any:
    return broker.admin("scale-down-show")


def half_way(source: BrokerProcess, target: BrokerProcess, queue: str) -> None:
    """The source stands still, and some of the queue is at the target."""
    wait_until("some is there", lambda: count_at(target, queue) > 0)
    source.signal(signal.SIGSTOP)
    assert 0 < count_at(target, queue) < COUNT


def starts_again(brokers: Sequence[BrokerProcess], dies: int) -> None:
    """One of them, after it was killed; the source goes on."""
    brokers[dies].kill()
    brokers[0].signal(signal.SIGCONT)
    brokers[dies].start()


@pytest.mark.parametrize("dies", [0, 1])
def test_the_receipt_balances_though_a_broker_is_killed(make_broker: Make, dies: int) -> None:
    brokers = Balanced(make_broker, 2).start()
    source, target = brokers
    linked(source, "mq1")
    linked(target, "mq0")
    fill(source)
    with sync.connect(uri_of(source)) as c:
        c.sender("bills").send_many([mq.Message(f"{number}", durable=True) for number in range(100)])
    source.admin("scale-down", node="mq1")
    half_way(source, target, QUEUE)
    starts_again(brokers, dies)
    wait_until("all is there", lambda: shown(source)["state"] == "moved")
    said = shown(source)
    assert (said["left"], said["connections"], count_at(target)) == (0, 0, COUNT)
    assert said["receipt"]["balances"], said["receipt"]["difference"]
    rows = {row["queue"]: row for row in said["receipt"]["queues"]}
    assert [(rows[name]["moved"], rows[name]["arrived"]) for name in ("bills", "orders")] == [
        (100, 100),
        (COUNT, COUNT),
    ]
    assert read(target) == [f"{number}" for number in range(COUNT)]


def why_not_yet(target: BrokerProcess) -> str:
    """Why a subscriber is refused where its subscription arrives; empty: it is let in, as all has come."""
    with sync.connect(uri_of(target), container_id="reader") as c:
        try:
            c.receiver("news", subscription="daily", topic=True)
        except mq.LinkFailed as refused:
            return str(refused)
    return ""


@pytest.mark.parametrize("dies", [0, 1])
def test_a_subscriber_goes_on_at_the_heir_though_a_broker_is_killed(make_broker: Make, dies: int) -> None:
    brokers = Balanced(make_broker, 2).start()
    source, target = brokers
    linked(source, "mq1")
    linked(target, "mq0")
    with sync.connect(uri_of(source), container_id="reader") as c:
        c.receiver("news", subscription="daily", topic=True)
    with sync.connect(uri_of(source)) as c:
        c.sender("news", topic=True).send_many([mq.Message(f"{n}", durable=True) for n in range(COUNT)])
    source.admin("scale-down", node="mq1")
    half_way(source, target, "reader.daily")
    assert "not here yet" in why_not_yet(target)
    starts_again(brokers, dies)
    wait_until("all is there", lambda: shown(source)["state"] == "moved")
    assert shown(source)["receipt"]["balances"], shown(source)["receipt"]["difference"]
    found: list[str] = []
    with sync.connect(uri_of(target), container_id="reader") as c:
        receiver = c.receiver("news", subscription="daily", topic=True)
        while len(found) < COUNT:
            for message in receiver.receive_many(1000, timeout=WAIT_S):
                found.append(str(message.body))
                message.accept()
    assert found == [f"{number}" for number in range(COUNT)]


@pytest.mark.parametrize("dies", [0, 1])
def test_queues_of_other_kinds_move_what_they_keep_though_a_broker_is_killed(make_broker: Make, dies: int) -> None:
    brokers = Balanced(make_broker, 2).start()
    source, target = brokers
    linked(source, "mq1")
    linked(target, "mq0")
    kinds: dict[str, dict[str, Any]] = {"read by all": {"non_destructive": True}, "ring": {"ring_size": 300}}
    for name, attributes in kinds.items():
        source.admin("queue-create", name=name, **attributes)
    with sync.connect(uri_of(source)) as c:
        for name in kinds:
            c.sender(name).send_many([mq.Message(f"{number}", durable=True) for number in range(COUNT)])
    source.admin("scale-down", node="mq1")
    half_way(source, target, "read by all")
    starts_again(brokers, dies)
    wait_until("all is there", lambda: shown(source)["state"] == "moved")
    assert shown(source)["receipt"]["balances"], shown(source)["receipt"]["difference"]
    assert {name: (count_at(source, name), count_at(target, name)) for name in kinds} == {
        "read by all": (0, COUNT),
        "ring": (0, 300),
    }
    found: list[str] = []
    with sync.connect(uri_of(target)) as c:
        receiver = c.receiver("ring")
        while len(found) < 300:
            for message in receiver.receive_many(300, timeout=WAIT_S):
                found.append(str(message.body))
                message.accept()
    assert found == [f"{number}" for number in range(COUNT - 300, COUNT)]
