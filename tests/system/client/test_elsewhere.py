"""Links and connections that brokers send elsewhere, calls that wait too long, and brokers that announce themselves."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import mqbroker.client as mq
import pytest
from mqbroker.client import sync

from tests.support.broker_process import BrokerProcess, free_port
from tests.support.networks import Networks
from tests.system.client.test_reconnect import run, uri

pytestmark = pytest.mark.system
SECRET = "a secret of the cluster"
Make = Callable[..., BrokerProcess]


def moved(make_broker: Make, address: str, to: int) -> BrokerProcess:
    """A broker whose address is elsewhere by now."""
    place = {"redirect-to": f"127.0.0.1:{to}"}
    broker = make_broker(options={"address-settings": {address: place}})
    broker.start()
    return broker


def test_links_are_made_where_brokers_send_them(make_broker: Make) -> None:
    last = make_broker()
    last.start()
    middle = moved(make_broker, "orders", last.port)
    first = moved(make_broker, "orders", middle.port)

    async def work() -> None:
        async with mq.connect(uri(first)) as c:
            async with c.sender("orders") as sender:
                for number in range(3):
                    await sender.send(mq.Message(number, durable=True))
            other = await c.sender("bills")
            await other.send("stays")
            receiver = await c.receiver("orders")
            assert [(await receiver.receive(timeout=60)).body for _ in range(3)] == [0, 1, 2]
            assert c.broker is not None
            assert c.broker.port == first.port
            async with c.transaction() as tx:
                with pytest.raises(mq.TransactionFailed, match="at another broker than the transaction"):
                    await (await c.sender("orders")).send("x", transaction=tx)
            assert [broker.admin("status")["connections"] for broker in (first, middle, last)] == [1, 1, 1]

    run(work())
    for broker in (first, middle, last):
        broker.wait_for_connections(0, 60)
    with sync.connect(uri(first)) as c, c.sender("orders") as sender:
        sender.send("blocking")


def test_links_that_are_sent_in_a_circle_end_with_an_error(make_broker: Make) -> None:
    ports = [free_port(), free_port()]
    brokers = []
    for port, other in (ports, reversed(ports)):
        place = {"redirect-to": f"127.0.0.1:{other}"}
        broker = make_broker(listener={"port": port}, options={"address-settings": {"orders": place}})
        broker.port = port
        broker.start()
        brokers.append(broker)

    async def work() -> None:
        async with mq.connect(uri(brokers[0])) as c:
            with pytest.raises(mq.LinkFailed, match="brokers sent us on 5 times; check redirect-to"):
                await c.receiver("orders")
            await (await c.sender("others")).send("the connection goes on")

    run(work())


def test_calls_wait_for_a_connection_as_long_as_they_may(broker: BrokerProcess) -> None:
    query = "?reconnect-attempts=-1&retry-interval=50&call-failover-timeout=300"

    async def work() -> None:
        async with mq.connect(uri(broker, query=query)) as c:
            sender = await c.sender("orders")
            await sender.send("before")
            await asyncio.to_thread(broker.kill)
            why = r"away for longer than call-failover-timeout \(300 ms\)"
            with pytest.raises(TimeoutError, match=why):
                await sender.send(mq.Message("meanwhile", durable=True))
            with pytest.raises(TimeoutError, match=why):
                await c.receiver("orders")
            await asyncio.to_thread(broker.start)
            receiver = None
            while receiver is None:
                try:
                    receiver = await c.receiver("orders")
                except TimeoutError:
                    await asyncio.sleep(0.05)
            await sender.send("after")
            found = []
            while "after" not in found:
                found.append((await receiver.receive(timeout=60)).body)
            # "before" was not durable. What was given up is not taken back: it went when the connection came back.
            assert found == ["meanwhile", "after"]

    run(work())


def test_a_policy_of_the_application_chooses_among_all_that_are_known(make_broker: Make) -> None:
    second = make_broker()
    second.start()
    first = make_broker(listener={"failover-server-list": [f"{second.host}:{second.port}"]})
    first.start()
    counts: list[int] = []

    def last(number: int) -> int:
        counts.append(number)
        return number - 1

    async def work() -> None:
        async with mq.connect(uri(first), policy=last) as c:
            sender = await c.sender("orders")
            await asyncio.to_thread(first.kill)
            await sender.send("x")
            assert c.broker is not None
            assert c.broker.port == second.port

    run(work())
    assert counts[:2] == [1, 2]


# -- brokers that announce themselves ----------------------------------------------------------------------------------


@pytest.fixture
def networks() -> Iterator[Networks]:
    with Networks() as made:
        yield made


CLIENT = """
import asyncio, sys
import mqbroker.client as mq

async def main():
    query = "localBindAddress=" + sys.argv[1] + "&refreshTimeout=5000&initialWaitTimeout=" + sys.argv[3]
    try:
        async with mq.connect("udp://app:" + sys.argv[4] + "@231.7.7.7:9876?" + query, cluster_secret=sys.argv[2]) as c:
            await (await c.sender("orders")).send(mq.Message("found", durable=True))
            print("sent to", c.broker)
    except mq.ConnectionFailed as error:
        print("failed:", error)

asyncio.run(main())
"""


def test_brokers_that_announce_themselves_are_found_with_the_secret_alone(
    networks: Networks, make_broker: Make
) -> None:
    host = networks.host("mq1")
    local = host.address("eth1")
    port = free_port()
    options: dict[str, Any] = {
        "connectors": [{"name": "clients", "host": "127.0.0.1", "port": port}],
        "broadcast-groups": [
            {
                "name": "lan", "local-bind-address": local, "group-address": "231.7.7.7", "group-port": 9876,
                "broadcast-period": 200, "connector-ref": "clients",
            }
        ],
    }  # fmt: skip
    broker = make_broker(options=options, listener={"port": port}, network=host.network)
    broker.prepare()
    broker.command("secret", "set", "--stdin", "--config", str(broker.config_file), stdin=SECRET + "\n")
    broker.start()

    def said(secret: str, wait_ms: int) -> str:
        words = [*host.within, sys.executable, "-c", CLIENT, local, secret, str(wait_ms), broker.password]
        done = subprocess.run(words, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert said(SECRET, 90_000) == f"sent to amqp://127.0.0.1:{port}\n"
    assert said("the secret of another cluster", 1000).startswith(
        "failed: no broker announced itself at 231.7.7.7:9876 within initial-wait-timeout (1000 ms)"
    )
