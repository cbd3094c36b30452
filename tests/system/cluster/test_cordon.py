"""A real broker is cordoned: its client goes to the other one by itself, and what it kept outlives a kill."""

from __future__ import annotations

from typing import Any

import mqbroker.client as mq
import pytest
from mqbroker.client import sync

from tests.support.broker_process import BrokerProcess
from tests.support.cluster_processes import Make, Reachable, linked
from tests.system.cluster.test_drains import COUNT, count_at, fill, read, uri_of, wait_until

pytestmark = pytest.mark.system


def shown(broker: BrokerProcess) -> Any:
    return broker.admin("scale-down-show")


def test_a_client_goes_elsewhere_and_what_is_kept_outlives_a_kill(make_broker: Make) -> None:
    brokers = Reachable(make_broker, 2).start()
    source, target = brokers
    linked(source, "mq1")
    linked(target, "mq0")
    fill(source)
    with sync.connect(uri_of(source)) as c:
        sender = c.sender("bills")
        sender.send(mq.Message("before", durable=True))
        source.admin("cordon")
        wait_until("its client has left", lambda: shown(source)["connections"] == 0)
        sender.send(mq.Message("after", durable=True))
        assert count_at(target, "bills") == 1
    source.kill()
    source.start()
    linked(target, "mq0")
    linked(source, "mq1")  # by its name, which is told together with where clients reach it
    assert (shown(source)["state"], shown(source)["left"]) == ("cordoned", COUNT + 1)
    assert source.admin("status")["state"] == "cordoned"
    with sync.connect(uri_of(source)) as c:  # is sent on
        c.sender("bills").send(mq.Message("sent on", durable=True))
    assert (count_at(source, "bills"), count_at(target, "bills")) == (1, 2)
    assert source.admin("uncordon")["state"] == "none"
    assert read(source) == [f"{number}" for number in range(COUNT)]
