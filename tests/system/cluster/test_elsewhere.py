"""A client that knows one node of a cluster hears of the others, and goes on there when that node is gone."""

from __future__ import annotations

import asyncio
import time

import mqbroker.client as mq
import pytest
from mqbroker.client import sync

from tests.support.broker_process import BrokerProcess
from tests.support.cluster_processes import WAIT_S, Make, Reachable, linked

pytestmark = pytest.mark.system

KNOWN = "brokers are now "


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


class Heard:
    """What a connection tells the application, until it names brokers at exactly these ports."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def names(self, *ports: int) -> None:
        """Wait for it."""
        deadline_s = time.monotonic() + WAIT_S
        expected = {f"amqp://127.0.0.1:{port}" for port in ports}
        while not any(set(text.removeprefix(KNOWN).split(", ")) == expected for text in self.lists()[-1:]):
            assert time.monotonic() < deadline_s, (expected, self.texts)
            time.sleep(0.02)

    def lists(self) -> list[str]:
        return [text for text in self.texts if text.startswith(KNOWN)]


def uri_of(broker: BrokerProcess) -> str:
    query = "?reconnect-attempts=-1&retry-interval=100&max-retry-interval=1000"
    return f"amqp://{broker.user}:{broker.password}@{broker.host}:{broker.port}{query}"


def test_a_client_goes_on_at_a_node_that_came_after_it(make_broker: Make) -> None:
    first, second, third = Reachable(make_broker, 3).brokers
    first.start()
    heard = Heard()

    async def work() -> None:
        async with mq.connect(uri_of(first), on_event=heard.texts.append) as c:
            sender = await c.sender("orders")
            await sender.send(mq.Message("here", durable=True))
            await asyncio.to_thread(second.start)
            await asyncio.to_thread(third.start)
            await asyncio.to_thread(heard.names, first.port, second.port, third.port)
            await asyncio.to_thread(second.stop)  # in order: nobody is to be sent there any more
            await asyncio.to_thread(heard.names, first.port, third.port)
            await asyncio.to_thread(first.kill)
            await asyncio.wait_for(sender.send(mq.Message("there", durable=True)), WAIT_S)
            assert c.broker is not None
            assert c.broker.port == third.port

    asyncio.run(work())
    rows = third.admin("browse", queue="orders", limit=10)["messages"]
    assert [row["body"] for row in rows] == ["there"]


def test_so_does_a_client_without_asyncio(make_broker: Make) -> None:
    first, second = Reachable(make_broker, 2).brokers
    first.start()
    heard = Heard()
    with sync.connect(uri_of(first), on_event=heard.texts.append) as c, c.sender("orders") as sender:
        second.start()
        heard.names(first.port, second.port)
        first.kill()
        sender.send(mq.Message("there", durable=True))
        assert c.broker is not None
        assert c.broker.port == second.port
    rows = second.admin("browse", queue="orders", limit=10)["messages"]
    assert [row["body"] for row in rows] == ["there"]
