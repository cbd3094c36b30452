"""A client that knows one node of a cluster hears of the others, and goes on there when that node is gone."""

from __future__ import annotations

import asyncio

import mqbroker.client as mq
import pytest

from tests.support.cluster_processes import WAIT_S, Make, Reachable, linked

pytestmark = [pytest.mark.system, pytest.mark.timeout(400)]


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
