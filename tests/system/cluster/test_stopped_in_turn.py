"""Three real brokers, two of them on one processor; one after the other stands still while messages go through all."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.cluster_load import Load
from tests.support.cluster_processes import WAIT_S, Make, Nodes, connection, linked
from tests.system.cluster.test_drains import count_at, uri_of, wait_until

pytestmark = [pytest.mark.system, pytest.mark.slow]

QUEUE = "orders"
STILL_S, PERIOD_S = 4.5, 6.5
MORE = 20  # messages that each producer has accepted, and each consumer had, after all went on


class Impatient(Nodes):
    """Links are given up within the time for which a node stands still."""

    def connections(self, number: int) -> list[dict[str, Any]]:
        listed = [f"mq{each}" for each in range(len(self.ports))]
        return [
            connection(f"mq{number}", **{"static-connectors": listed, "check-period": 1000, "connection-ttl": 2000})
        ]


def stands_still(broker: BrokerProcess) -> None:
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        time.sleep(STILL_S)
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    time.sleep(PERIOD_S - STILL_S)


@pytest.mark.one_day_in_three(0)
def test_nothing_is_lost_or_doubled_and_everybody_goes_on(make_broker: Make) -> None:
    brokers = Impatient(make_broker, 3, settings={QUEUE: {"redistribution-delay": 0}}).start()
    names = [f"mq{number}" for number in range(3)]
    for broker in brokers[:2]:
        os.sched_setaffinity(broker.pid, {min(os.sched_getaffinity(0))})
    for number, broker in enumerate(brokers):
        linked(broker, *(name for name in names if name != names[number]))
    uris = {name: uri_of(broker) for name, broker in zip(names, brokers, strict=True)}
    load = Load(QUEUE, producers=uris, consumers={name: uris[name] for name in names[1:]})
    load.begin()
    try:
        for broker in brokers:
            stands_still(broker)
        for number, broker in enumerate(brokers):
            linked(broker, *(name for name in names if name != names[number]))
        accepted, received = dict(load.accepted), dict(load.received)
        wait_until("each producer goes on", lambda: all(load.accepted[n] >= accepted[n] + MORE for n in names))
        wait_until("each consumer goes on", lambda: all(load.received[n] >= received[n] + MORE for n in names[1:]))
        load.stop_sending(WAIT_S)
        wait_until("all is consumed", lambda: sum(count_at(broker, QUEUE) for broker in brokers) == 0)
        wait_until(
            "nothing waits", lambda: not any(row["depth"] for b in brokers for row in b.admin("topology")["links"])
        )
        assert load.verdict(left=0) == [], load.counts
    finally:
        load.end()
    assert sum(load.lost_connections.values()) > 0, "who stands still is given up"
    assert any("bridge-disconnected" in broker.log for broker in brokers)
