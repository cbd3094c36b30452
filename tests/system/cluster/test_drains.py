"""A queue of real brokers drains to another one, and a broker is killed in the middle: each message comes once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import mqbroker.client as mq
import pytest
from mqbroker.client import sync

from tests.support.broker_process import BrokerProcess
from tests.support.cluster_processes import WAIT_S, Make, Nodes, connection, linked

pytestmark = pytest.mark.system

COUNT = 10_000
QUEUE = "orders"
ATTEMPTS = 5  # to kill a broker in the middle of a drain: each moves twice as much as the one before


class Balanced(Nodes):
    """Messages stay where they are sent. Little is unanswered at a time, so that a drain takes a while."""

    window_bytes = 500

    def connections(self, number: int) -> list[dict[str, Any]]:
        listed = [f"mq{each}" for each in range(len(self.ports))]
        wants = {
            "static-connectors": listed,
            "message-load-balancing": "OFF",
            "confirmation-window-size": self.window_bytes,
        }
        return [connection(f"mq{number}", **wants)]


def uri_of(broker: BrokerProcess) -> str:
    return f"amqp://{broker.user}:{broker.password}@{broker.host}:{broker.port}"


def fill(broker: BrokerProcess, queue: str = QUEUE, count: int = COUNT) -> None:
    with sync.connect(uri_of(broker)) as c:
        c.sender(queue).send_many([mq.Message(f"{number}", durable=True) for number in range(count)])


def count_at(broker: BrokerProcess, queue: str = QUEUE) -> int:
    return sum(row["message_count"] for row in broker.admin("queues")["queues"] if row["name"] == queue)


def wait_until(what: str, is_so: Any) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.005)


def is_drained(broker: BrokerProcess) -> bool:
    return [row["state"] for row in broker.admin("drain-show")["drains"]] == ["is drained"]


def read(broker: BrokerProcess, queue: str = QUEUE, count: int = COUNT) -> list[str]:
    found: list[str] = []
    with sync.connect(uri_of(broker)) as c:
        receiver = c.receiver(queue)
        while len(found) < count:
            for message in receiver.receive_many(1000, timeout=WAIT_S):
                found.append(str(message.body))
                message.accept()
    return found


def killed_in_the_middle(brokers: Sequence[BrokerProcess], dies: int) -> tuple[str, int]:
    """Kill the first or the second while a queue is drained from the one to the other; which queue, and what was in it.

    On a busy machine the drain may be done before it is seen that it has begun; then a longer one is tried.
    """
    source, target = brokers[:2]
    for attempt in range(ATTEMPTS):
        queue, count = f"{QUEUE}-{attempt}", COUNT << attempt
        fill(source, queue, count)
        source.admin("drain-queue", queue=queue, node="mq1")
        # The function is asked before the loop goes on.
        wait_until("a quarter is there", lambda: count_at(target, queue) > count // 4)  # noqa: B023
        brokers[dies].kill()
        if 0 < count_at(brokers[1 - dies], queue) < count:
            return queue, count
        brokers[dies].start()
        wait_until("all is there", lambda: is_drained(source))
        source.admin("drain-cancel", queue=queue)
        wait_until("it serves again", lambda: source.admin("drain-show")["drains"] == [])
    raise AssertionError(f"{ATTEMPTS} drains were over before a broker was killed")


@pytest.mark.parametrize("dies", [0, 1])
@pytest.mark.parametrize("nodes", [2, 3])
def test_each_comes_once_and_in_order_though_a_broker_is_killed(make_broker: Make, nodes: int, dies: int) -> None:
    brokers = Balanced(make_broker, nodes).start()
    source, target = brokers[:2]
    for number, broker in enumerate(brokers):
        linked(broker, *(f"mq{each}" for each in range(nodes) if each != number))
    queue, count = killed_in_the_middle(brokers, dies)
    brokers[dies].start()
    wait_until("all is there", lambda: is_drained(source))
    assert (count_at(source, queue), count_at(target, queue)) == (0, count)
    assert read(target, queue, count) == [f"{number}" for number in range(count)]
    assert source.admin("drain-cancel", queue=queue)["state"] in ("ends", "serves")
    wait_until("it serves again", lambda: source.admin("drain-show")["drains"] == [])
