"""A queue of real brokers drains to another one, and a broker is killed in the middle: each message comes once."""

from __future__ import annotations

import time
from typing import Any

import mqbroker.client as mq
import pytest
from mqbroker.client import sync

from tests.support.broker_process import BrokerProcess
from tests.support.cluster_processes import WAIT_S, Make, Nodes, connection, linked

pytestmark = pytest.mark.system

COUNT = 20_000
QUEUE = "orders"


class Balanced(Nodes):
    """Messages stay where they are sent. Little is unanswered at a time, so that a drain takes a while."""

    def connections(self, number: int) -> list[dict[str, Any]]:
        listed = [f"mq{each}" for each in range(len(self.ports))]
        wants = {"static-connectors": listed, "message-load-balancing": "OFF", "confirmation-window-size": 20_000}
        return [connection(f"mq{number}", **wants)]


def uri_of(broker: BrokerProcess) -> str:
    return f"amqp://{broker.user}:{broker.password}@{broker.host}:{broker.port}"


def fill(broker: BrokerProcess) -> None:
    with sync.connect(uri_of(broker)) as c:
        c.sender(QUEUE).send_many([mq.Message(f"{number}", durable=True) for number in range(COUNT)])


def count_at(broker: BrokerProcess, queue: str = QUEUE) -> int:
    return sum(row["message_count"] for row in broker.admin("queues")["queues"] if row["name"] == queue)


def wait_until(what: str, is_so: Any) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.005)


def is_drained(broker: BrokerProcess) -> bool:
    return [row["state"] for row in broker.admin("drain-show")["drains"]] == ["is drained"]


def read(broker: BrokerProcess) -> list[str]:
    found: list[str] = []
    with sync.connect(uri_of(broker)) as c:
        receiver = c.receiver(QUEUE)
        while len(found) < COUNT:
            for message in receiver.receive_many(1000, timeout=WAIT_S):
                found.append(str(message.body))
                message.accept()
    return found


@pytest.mark.parametrize("dies", [0, 1])
@pytest.mark.parametrize("nodes", [2, 3])
def test_each_comes_once_and_in_order_though_a_broker_is_killed(make_broker: Make, nodes: int, dies: int) -> None:
    brokers = Balanced(make_broker, nodes).start()
    source, target = brokers[:2]
    for number, broker in enumerate(brokers):
        linked(broker, *(f"mq{each}" for each in range(nodes) if each != number))
    fill(source)
    source.admin("drain-queue", queue=QUEUE, node="mq1")
    wait_until("a quarter is there", lambda: count_at(target) > COUNT // 4)
    brokers[dies].kill()
    left = count_at(brokers[1 - dies])
    assert 0 < left < COUNT, "it was killed in the middle"
    brokers[dies].start()
    wait_until("all is there", lambda: is_drained(source))
    assert (count_at(source), count_at(target)) == (0, COUNT)
    assert read(target) == [f"{number}" for number in range(COUNT)]
    assert source.admin("drain-cancel", queue=QUEUE)["state"] in ("ends", "serves")
    wait_until("it serves again", lambda: source.admin("drain-show")["drains"] == [])
