"""Brokers whose listeners route clients, with the project's own client, which follows redirects."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import mqbroker.client as mq
import pytest
from mqbroker.wire.performatives import Close, Open

from tests.support import frames
from tests.support.broker_process import BrokerProcess, free_port
from tests.support.certificates import Authority
from tests.support.patience import PATIENCE_S
from tests.system.bad_input.peer import Peer

pytestmark = pytest.mark.system

Make = Callable[..., BrokerProcess]
TIMEOUT_S = PATIENCE_S


def run(work: Awaitable[None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work, TIMEOUT_S)

    asyncio.run(bounded())


def uri(broker: BrokerProcess, query: str = "") -> str:
    return f"amqp://{broker.user}:{broker.password}@{broker.host}:{broker.port}{query}"


def routed(make_broker: Make, ports: list[int], port: int, **router: Any) -> BrokerProcess:
    """A broker at `port` whose clients are routed to those at `ports`."""
    connectors = [{"name": f"c{each}", "host": "127.0.0.1", "port": each} for each in ports]
    row = {"name": "spread", "static-connectors": [each["name"] for each in connectors], "check-period": 50, **router}
    broker = make_broker(
        options={"connectors": connectors, "connection-routers": [row]}, listener={"port": port, "router": "spread"}
    )
    broker.port = port
    broker.start()
    return broker


def test_two_brokers_share_clients_by_their_names(make_broker: Make) -> None:
    ports = [free_port(), free_port()]
    common = {"key-type": "CLIENT_ID", "policy": "CONSISTENT_HASH", "local-target-enabled": True, "quorum-size": 2,
              "quorum-timeout": 90_000}  # fmt: skip
    first, second = (
        routed(make_broker, ports, port, **{"local-connector-ref": f"c{port}"}, **common) for port in ports
    )  # fmt: skip

    async def work() -> None:
        found: Counter[int] = Counter()
        for number in range(12):
            places = set()
            for broker in (first, second):
                async with mq.connect(uri(broker), container_id=f"app-{number}") as c:
                    await (await c.sender("orders")).send(mq.Message(number, durable=True))
                    assert c.broker is not None
                    places.add(c.broker.port)
            assert len(places) == 1, "both brokers say the same of one client"
            found.update(places)
        assert set(found) == set(ports)

    run(work())


def test_clients_go_to_who_is_there_and_are_refused_where_nobody_is(make_broker: Make) -> None:
    last = make_broker()
    last.start()
    first = routed(make_broker, [last.port], free_port(), **{"quorum-timeout": 100})

    async def work() -> None:
        # It is refused for as long as no look has found the other one.
        async with mq.connect(uri(first, "?initial-connect-attempts=-1&retry-interval=50")) as c:
            assert c.broker is not None
            assert c.broker.port == last.port
        await asyncio.to_thread(last.kill)
        await asyncio.to_thread(first.wait_for_log, "router-target-lost router=spread", 60)
        with pytest.raises(mq.ConnectionFailed, match="0 of 1 brokers are there; try again later") as refused:
            await mq.connect(uri(first))
        assert refused.value.condition == "amqp:connection:forced"

    run(work())


def test_brokers_that_send_clients_to_each_other_are_found_out(make_broker: Make) -> None:
    ports = [free_port(), free_port()]
    first, _ = (routed(make_broker, [other], port) for port, other in (ports, reversed(ports)))

    async def work() -> None:
        with pytest.raises(mq.ConnectionFailed, match="redirect us in a circle"):
            await mq.connect(uri(first))

    run(work())


def test_the_name_that_a_client_asks_tls_for_may_be_its_key(make_broker: Make, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    router = {"name": "mine", "key-type": "SNI_HOST", "local-target-filter": "mine[.]example"}
    broker = make_broker(
        options={"connection-routers": [router]}, listener=authority.listener(router="mine"), tls=authority.client()
    )
    broker.start()
    assert broker.tls is not None
    broker.tls.check_hostname = False
    answers = []
    for name in ("mine.example", "other.example"):
        with Peer(broker) as plain:
            plain.sock.close()
            plain.sock = broker.connect(server_name=name)
            plain.send(frames.plain(broker.user, broker.password) + frames.opened() + frames.close())
            plain.wait_for(Open)
            (close,) = plain.wait_for(Close)
            answers.append(None if close.error is None else str(close.error.condition))
    assert answers == [None, "amqp:connection:forced"]
