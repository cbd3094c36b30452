"""Clients that are sent to members of a cluster, over real processes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import mqbroker.client as mq
import pytest

from tests.support.broker_process import BrokerProcess, free_port
from tests.support.cluster_processes import WAIT_S, Make, Nodes, connection, linked, provide

pytestmark = pytest.mark.system

ROUTER = {"name": "spread", "cluster-connection": "cluster", "key-type": "CLIENT_ID", "check-period": 50}


class Routed(Nodes):
    """Nodes that tell each other where clients reach them; the first has a router and is no target."""

    def __init__(self, make: Make, count: int, **router: Any) -> None:
        self.settings, self.listener = None, {}
        self.router = {**ROUTER, **router}
        self.ports = [free_port() for _ in range(count)]
        self.client_ports = [free_port() for _ in range(count)]
        self.brokers = [
            make(options=self.options(number), listener=self.clients(number)) for number in range(count)
        ]  # fmt: skip
        for broker, port in zip(self.brokers, self.client_ports, strict=True):
            broker.port = port
            provide(broker)

    def clients(self, number: int) -> dict[str, Any]:
        return {"port": self.client_ports[number], **({} if number else {"router": "spread"})}

    def options(self, number: int) -> dict[str, Any]:
        found = super().options(number)
        found["connectors"].append({"name": "clients", "host": "127.0.0.1", "port": self.client_ports[number]})
        if not number:
            found["connection-routers"] = [self.router]
        return found

    def connections(self, number: int) -> list[dict[str, Any]]:
        listed = [f"mq{each}" for each in range(len(self.ports))]
        return [connection(f"mq{number}", **{"static-connectors": listed, "client-connector-ref": "clients"})]


def ports_of(broker: BrokerProcess, names: list[str]) -> list[int]:
    """Where clients of these names end up, each asked for after the one before."""

    async def one(name: str) -> int:
        uri = f"amqp://{broker.user}:{broker.password}@{broker.host}:{broker.port}"
        async with mq.connect(uri, container_id=name) as c:
            await (await c.sender("orders")).send(mq.Message(name, durable=True))
            assert c.broker is not None
            return c.broker.port

    async def work() -> list[int]:
        return [await asyncio.wait_for(one(name), WAIT_S) for name in names]

    return asyncio.run(work())


def test_clients_are_sent_to_members_that_come_and_go(make_broker: Make) -> None:
    nodes = Routed(make_broker, 3)
    front, one, two = nodes.start()
    linked(front, "mq1", "mq2")
    for port in nodes.client_ports[1:]:
        front.wait_for_log(f"router-target-found router=spread target=127.0.0.1:{port}", WAIT_S)
    assert set(ports_of(front, list("abcd"))) == set(nodes.client_ports[1:])
    assert two.stop() == 0
    front.wait_for_log("router-target-lost", WAIT_S)
    assert set(ports_of(front, list("abcd"))) == {one.port}
    two.start()
    linked(front, "mq1", "mq2")
    front.wait_for_log(f"router-target-found router=spread target=127.0.0.1:{two.port}", WAIT_S, 2)
    assert set(ports_of(front, list("abcd"))) == set(nodes.client_ports[1:])


def test_a_router_whose_cache_is_persisted_sends_clients_where_it_did_before_it_stopped_or_was_killed(
    make_broker: Make,
) -> None:
    persisted = {"cache-timeout": 0, "cache-persisted": True, "quorum-timeout": 90_000, "policy": "ROUND_ROBIN"}
    nodes = Routed(make_broker, 3, **persisted)
    front, *_ = nodes.start()
    linked(front, "mq1", "mq2")
    for port in nodes.client_ports[1:]:
        front.wait_for_log(f"router-target-found router=spread target=127.0.0.1:{port}", WAIT_S)
    names = [f"app-{number}" for number in range(7)]
    before = ports_of(front, names)
    assert {before.count(port) for port in nodes.client_ports[1:]} == {3, 4}
    assert front.stop() == 0
    exported = front.command("journal", "export", "--config", str(front.config_file)).splitlines()
    assert [row["key"] for row in map(json.loads, exported) if row["type"] == "route"] == names
    front.start()
    assert ports_of(front, names[::-1]) == before[::-1]
    names += ["late-1", "late-2"]
    before += ports_of(front, names[-2:])
    assert len(set(before[-2:])) == 2
    # Routes are written soon, and what waits for the disk takes them along.
    assert front.admin("send", address="here", messages=[{"body": "x", "durable": True}]) == {"accepted": 1}
    front.kill()
    front.start()
    assert ports_of(front, names[::-1]) == before[::-1]
