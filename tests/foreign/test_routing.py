"""Proton at a listener with a router: it is told where to go, or why not."""

from __future__ import annotations

from collections.abc import Callable

from tests.foreign.client import ProtonClient
from tests.support.broker_process import BrokerProcess


def test_proton_is_told_where_to_go_and_why_not(
    make_broker: Callable[..., BrokerProcess], client: ProtonClient
) -> None:
    there = make_broker()
    there.start()
    gate = make_broker(
        options={
            "connectors": [{"name": "there", "host": "127.0.0.1", "port": there.port}],
            "connection-routers": [
                {
                    "name": "spread", "key-type": "CLIENT_ID", "static-connectors": ["there"],
                    "local-target-filter": "mine", "check-period": 50, "quorum-timeout": 15_000,
                }
            ],
        },
        listener={"router": "spread"},
    )  # fmt: skip
    gate.start()
    client.connect("first", gate, container="theirs")
    lost = client.ask("wait_lost", name="first")["lost"]
    assert lost["condition"] == "amqp:connection:redirect"
    assert lost["info"] == {"hostname": "127.0.0.1", "network-host": "127.0.0.1", "port": there.port}
    client.connect("second", gate, container="mine")
    client.sender("second", "out", "orders")
    (outcome,) = client.send("out", ["a"])
    assert outcome["outcome"] == "accepted"
