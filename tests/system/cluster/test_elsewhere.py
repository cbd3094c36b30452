"""A client that knows one node of a cluster hears of the others, and goes on there when that node is gone."""

from __future__ import annotations

import asyncio
from typing import Any

import mqbroker.client as mq
import pytest

from tests.support.broker_process import free_port
from tests.support.cluster_processes import WAIT_S, Make, Nodes, connection, linked, provide

pytestmark = [pytest.mark.system, pytest.mark.timeout(400)]


class Reachable(Nodes):
    """Nodes that tell each other where clients reach them."""

    def __init__(self, make: Make, count: int) -> None:
        self.client_ports = [free_port() for _ in range(count)]
        self.settings, self.listener = None, {}
        self.ports = [free_port() for _ in range(count)]
        self.brokers = [
            make(options=self.options(number), listener={"port": port}) for number, port in enumerate(self.client_ports)
        ]
        for broker, port in zip(self.brokers, self.client_ports, strict=True):
            broker.port = port
            provide(broker)

    def options(self, number: int) -> dict[str, Any]:
        found = super().options(number)
        found["connectors"].append({"name": "clients", "host": "127.0.0.1", "port": self.client_ports[number]})
        return found

    def connections(self, number: int) -> list[dict[str, Any]]:
        listed = [f"mq{each}" for each in range(len(self.ports))]
        return [connection(f"mq{number}", **{"static-connectors": listed, "client-connector-ref": "clients"})]


def test_a_client_that_knows_one_node_goes_on_at_another(make_broker: Make) -> None:
    first, second = Reachable(make_broker, 2).start()
    linked(first, "mq1")
    linked(second, "mq0")
    query = "?reconnect-attempts=-1&retry-interval=100&max-retry-interval=1000"
    uri = f"amqp://{first.user}:{first.password}@{first.host}:{first.port}{query}"

    async def work() -> None:
        async with mq.connect(uri) as c:
            sender = await c.sender("orders")
            await sender.send(mq.Message("here", durable=True))
            assert c.broker is not None
            assert c.broker.port == first.port
            await asyncio.to_thread(first.kill)
            await asyncio.wait_for(sender.send(mq.Message("there", durable=True)), WAIT_S)
            assert c.broker.port == second.port

    asyncio.run(work())
