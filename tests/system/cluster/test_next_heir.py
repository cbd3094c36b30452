"""The heir of a node that leaves is killed half-way and does not come back: the next one takes over, each message once.

What the first one may have waits for it; when it comes back at last, with what it had, nothing is there twice.
"""

from __future__ import annotations

import signal
from typing import Any

import mqbroker.client as mq
import pytest
from mqbroker.client import sync

from tests.support.broker_process import BrokerProcess
from tests.support.cluster_processes import WAIT_S, Make, linked
from tests.system.cluster.test_drains import COUNT, QUEUE, Balanced, count_at, fill, uri_of, wait_until
from tests.system.cluster.test_scale_down import shown

pytestmark = pytest.mark.system


class Heirs(Balanced):
    """Half a minute without any progress, and the next one is the heir: one that is up settles something in it."""

    def options(self, number: int) -> dict[str, Any]:
        return {**super().options(number), "scale-down": {"heir-timeout": 30_000}}


def unanswered_at(source: BrokerProcess) -> int:
    return sum(row["unanswered"] for row in source.admin("drain-show")["drains"])


def apart_at(source: BrokerProcess) -> int:
    """How many messages wait for the answer of an heir before."""
    return sum(each["unanswered"] for row in shown(source)["receipt"]["queues"] for each in row["heirs"])


def read_all(*brokers: BrokerProcess) -> list[str]:
    found: list[str] = []
    for broker in brokers:
        left = count_at(broker)
        with sync.connect(uri_of(broker)) as c:
            receiver = c.receiver(QUEUE)
            while left > 0:
                for message in receiver.receive_many(1000, timeout=WAIT_S):
                    found.append(str(message.body))
                    message.accept()
                    left -= 1
    return found


@pytest.mark.parametrize(
    "is_source_killed",
    [
        pytest.param(False, marks=pytest.mark.one_day_in_three(2)),
        pytest.param(True, marks=pytest.mark.one_day_in_three(0)),
    ],
)
def test_the_next_one_takes_over_and_nothing_is_there_twice(make_broker: Make, is_source_killed: bool) -> None:
    brokers = Heirs(make_broker, 3).start()
    source, first, second = brokers
    for number, broker in enumerate(brokers):
        linked(broker, *(f"mq{each}" for each in range(3) if each != number))
    fill(source)
    source.admin("scale-down", node="mq1")
    wait_until("a quarter is there", lambda: count_at(first) > COUNT // 4)
    # What it is sent while it stands still it cannot answer: it is killed with something unanswered.
    first.signal(signal.SIGSTOP)
    wait_until("something is unanswered", lambda: unanswered_at(source) > 0)
    first.kill()
    wait_until("the next one is the heir", lambda: shown(source)["node"] == "mq2")
    if is_source_killed:
        # What it has taken up nobody knows of before it is on disk: a start before that has the first heir again, which
        # may have everything then, and is waited for.
        wait_until("it goes to the next one", lambda: count_at(second) > 0)
        source.kill()
        source.start()
    wait_until("the rest is there", lambda: count_at(source) == apart_at(source))
    said = shown(source)
    apart = said["left"]
    assert (said["state"], count_at(second) > 0) == ("failed", True)
    assert 0 < apart < COUNT
    assert f"{apart} messages of it may be at node" in said["hindrances"][0]["why"]
    with sync.connect(uri_of(second)) as c:
        c.sender(QUEUE).send(mq.Message("late", durable=True))
    first.start()
    wait_until("all is answered for", lambda: shown(source)["state"] == "moved")
    receipt = shown(source)["receipt"]
    assert receipt["balances"], receipt["difference"]
    (row,) = receipt["queues"]
    assert (row["moved"], row["arrived"], row["left"]) == (COUNT, COUNT, 0)
    assert [each["moved"] for each in row["heirs"]] == [count_at(first), count_at(second) - 1]
    assert [each["arrived_digest"] for each in row["heirs"]] == [each["moved_digest"] for each in row["heirs"]]
    found = read_all(first, second)
    found.remove("late")
    assert sorted(found, key=int) == [f"{number}" for number in range(COUNT)]
