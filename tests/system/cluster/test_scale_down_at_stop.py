"""A real broker of a cluster is stopped, and its messages are at another one: each once, also if it is killed."""

from __future__ import annotations

import re
import signal
from typing import Any

import mqbroker.client as mq
import pytest
from mqbroker.client import sync

from tests.support.broker_process import BrokerProcess
from tests.support.cluster_processes import WAIT_S, Make, linked
from tests.system.cluster.test_drains import Balanced, count_at, uri_of, wait_until

pytestmark = pytest.mark.system

COUNT = 1_500
BODIES = [f"{number}" for number in range(COUNT)]


class Leaving(Balanced):
    """Nodes of which each hands over what it has when it is stopped, slowly enough to be met in the middle of it."""

    window_bytes = 100

    def options(self, number: int) -> dict[str, Any]:
        return super().options(number) | {"scale-down": {"enabled": True}}


def filled(make_broker: Make) -> list[BrokerProcess]:
    """Two brokers, and messages at the first one."""
    brokers = Leaving(make_broker, 2).start()
    linked(brokers[0], "mq1")
    linked(brokers[1], "mq0")
    with sync.connect(uri_of(brokers[0])) as c:
        c.sender("orders").send_many([mq.Message(body, durable=True) for body in BODIES])
    return brokers


def stopped_in_the_middle(source: BrokerProcess, target: BrokerProcess) -> None:
    """The source is stopped, and hands over what it has until the target stands still, which has some of it then."""
    source.signal(signal.SIGTERM)
    wait_until("some is there", lambda: count_at(target) > 0)
    target.signal(signal.SIGSTOP)
    assert source.process is not None
    assert source.process.poll() is None, "it was over before"


def all_of(*brokers: BrokerProcess) -> list[str]:
    """What clients get, in the order of the brokers."""
    found: list[str] = []
    for broker in brokers:
        wanted = len(found) + count_at(broker)
        with sync.connect(uri_of(broker)) as c:
            receiver = c.receiver("orders")
            while len(found) < wanted:
                for message in receiver.receive_many(1000, timeout=WAIT_S):
                    found.append(str(message.body))
                    message.accept()
    return found


def test_all_is_at_the_other_one_and_the_next_start_is_an_empty_node(make_broker: Make) -> None:
    source, target = filled(make_broker)
    with sync.connect(uri_of(source)) as c:
        receiver = c.receiver("orders", credit=100)
        held = receiver.receive_many(10, timeout=WAIT_S)
        assert [str(message.body) for message in held] == BODIES[:10]
        assert source.stop() == 0
    assert "scale-down-moved" in source.log
    assert any(line.startswith("EXTEND_TIMEOUT_USEC=") for line in source.notify.drain())
    assert all_of(target) == BODIES
    source.start()
    linked(source, "mq1")
    assert (source.admin("scale-down-show")["state"], count_at(source)) == ("none", 0)
    with sync.connect(uri_of(source)) as c:
        c.sender("orders").send(mq.Message("new", durable=True))
    assert all_of(source) == ["new"]


def test_a_restart_that_was_announced_moves_nothing(make_broker: Make) -> None:
    source, target = filled(make_broker)
    said = source.command("admin", "--socket", str(source.admin_socket), "restart-begins")
    assert '"within_s": 60' in said
    assert source.stop() == 0
    assert "starts again at once" in source.log
    source.start()
    linked(source, "mq1")
    assert count_at(target) == 0
    assert all_of(source) == BODIES


def test_with_nobody_there_it_stops_at_once_and_says_so(make_broker: Make) -> None:
    source, target = filled(make_broker)
    target.kill()
    wait_until("the other one is missed", lambda: source.admin("topology")["links"][0]["state"] != "up")
    assert source.stop() == 0
    assert "scale-down-passed-over" in source.log
    source.start()
    assert all_of(source) == BODIES


@pytest.mark.parametrize("dies", [0, 1])
def test_killed_in_the_middle_nothing_is_lost_and_nothing_comes_twice(make_broker: Make, dies: int) -> None:
    brokers = filled(make_broker)
    source, target = brokers
    stopped_in_the_middle(source, target)
    brokers[dies].kill()
    if dies == 0:
        target.signal(signal.SIGCONT)
        assert 0 < count_at(target) < COUNT
    brokers[dies].start()
    if dies == 0:
        wait_until("it serves again", lambda: source.admin("scale-down-show")["state"] == "none")
    else:
        assert source.wait() == 0
        source.start()
    assert sorted(all_of(target, source), key=int) == BODIES


def test_stopped_twice_it_keeps_what_has_not_gone(make_broker: Make) -> None:
    source, target = filled(make_broker)
    stopped_in_the_middle(source, target)
    source.signal(signal.SIGTERM)
    assert source.wait() == 0
    target.signal(signal.SIGCONT)
    (left,) = re.findall(r"scale-down-unfinished .* left=(\d+)", source.log)
    assert 0 < int(left) <= COUNT, "what has no answer is here as well"
    # What has no answer by the end of the process goes once more after its start, and so may all that was behind it.
    source.start()
    wait_until("it serves again", lambda: source.admin("scale-down-show")["state"] == "none")
    assert sorted(all_of(target, source), key=int) == BODIES
