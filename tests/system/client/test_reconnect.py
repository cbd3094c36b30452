"""Brokers that die under load, and lists of brokers: nothing that was accepted is lost, duplicates only where told.

The ends are events and not times: a broker is killed when so many messages were accepted, and the test ends when all
are through.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import mqbroker.client as mq
import pytest
from mqbroker.client import sync
from mqbroker.client.errors import ManyFailed

from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE_S

TIMEOUT_S = PATIENCE_S
SAFE = "?reconnect-attempts=-1&retry-interval=50"
COUNT = 3000


def uri(*brokers: BrokerProcess, query: str = SAFE) -> str:
    first = brokers[0]
    places = ",".join(f"{each.host}:{each.port}" for each in brokers)
    return f"amqp://{first.user}:{first.password}@{places}{query}"


def run(work: Awaitable[None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work, TIMEOUT_S)

    asyncio.run(bounded())


async def restarted(broker: BrokerProcess) -> None:
    """kill -9 and a start, while this loop goes on."""
    await asyncio.to_thread(broker.kill)
    await asyncio.to_thread(broker.start)


async def drained(connection: mq.Connection, address: str) -> list[Any]:
    """Everything that is in a queue; a browser ends where the queue ends, so nothing is waited for."""
    return [message.body async for message in connection.browse(address, credit=500)]


async def send_under_kills(connection: mq.Connection, broker: BrokerProcess, sender: mq.Sender, kills: int) -> None:
    """Send COUNT durable messages, many at a time; kill the broker whenever a share of them was accepted."""
    accepted = 0
    killer: asyncio.Task[None] | None = None
    limit = asyncio.Semaphore(200)

    async def one(number: int) -> None:
        nonlocal accepted, killer
        async with limit:
            await sender.send(mq.Message(number, durable=True))
        accepted += 1
        if accepted % (COUNT // (kills + 1)) == 0 and (killer is None or killer.done()) and accepted < COUNT:
            killer = asyncio.create_task(restarted(broker))

    await asyncio.gather(*(one(number) for number in range(COUNT)))
    assert killer is not None
    await killer


def test_a_name_that_cannot_be_asked_for_is_a_place_that_failed(broker: BrokerProcess) -> None:
    unaskable = f"{'x' * 64}.example"

    async def work() -> None:
        places = uri(broker).replace("@", f"@{unaskable}:5672,") + "&connection-load-balancing-policy=first-element"
        async with mq.connect(places) as c:
            await (await c.sender("orders")).send("hello")
        with pytest.raises(mq.ConnectionFailed, match=f"{unaskable}.*label"):
            async with mq.connect(f"amqp://{unaskable}:5672"):
                pass

    run(work())


def test_no_accepted_message_is_lost_when_the_broker_is_killed(broker: BrokerProcess) -> None:
    async def work() -> None:
        told: list[str] = []
        async with mq.connect(uri(broker), on_event=told.append) as c:
            await send_under_kills(c, broker, await c.sender("orders"), kills=2)
            found = Counter(await drained(c, "orders"))
        assert set(found) == set(range(COUNT))
        assert sum(each.startswith("connected to") for each in told) >= 2

    run(work())


def test_duplicate_detection_makes_it_exactly_once(broker: BrokerProcess) -> None:
    async def work() -> None:
        async with mq.connect(uri(broker)) as c:
            await send_under_kills(c, broker, await c.sender("orders", duplicate_detection=True), kills=2)
            assert sorted(await drained(c, "orders")) == list(range(COUNT))

    run(work())


def test_a_consumer_goes_on_and_misses_nothing(broker: BrokerProcess) -> None:
    async def work() -> None:
        async with mq.connect(uri(broker)) as c:
            await (await c.sender("orders")).send_many(mq.Message(n, durable=True) for n in range(COUNT))
            seen: Counter[int] = Counter()
            doubtful: set[int] = set()
            killer: asyncio.Task[None] | None = None
            async with c.receiver("orders", credit=100, confirm=True) as receiver:
                async for message in receiver:
                    if await message.accept():
                        seen[message.body] += 1
                    else:
                        doubtful.add(message.body)  # the broker may have settled it, and only its answer was lost
                    if killer is None and len(seen) > COUNT // 3:
                        killer = asyncio.create_task(restarted(broker))
                    if len(doubtful | set(seen)) == COUNT:
                        break
            assert killer is not None
            await killer
            # Confirmed by the broker means that it cannot come again.
            assert set(seen.values()) == {1}
            assert set(await drained(c, "orders")) <= doubtful - set(seen)

    run(work())


def test_transactions_are_whole_through_kills(broker: BrokerProcess) -> None:
    async def work() -> None:
        doubtful: set[int] = set()
        done: set[int] = set()
        async with mq.connect(uri(broker)) as c:
            sender = await c.sender("orders")
            killer: asyncio.Task[None] | None = None
            number = 0
            while number < 60:
                try:
                    async with c.transaction() as tx:
                        for part in range(5):
                            await sender.send(mq.Message([number, part], durable=True), transaction=tx)
                    done.add(number)
                except mq.TransactionInDoubt:
                    doubtful.add(number)
                except mq.TransactionFailed:
                    continue
                number += 1
                if number == 20:
                    killer = asyncio.create_task(restarted(broker))
            assert killer is not None
            await killer
            found: dict[int, list[int]] = {}
            for which, part in await drained(c, "orders"):
                found.setdefault(which, []).append(part)
        assert done <= set(found) <= done | doubtful
        assert all(parts == [0, 1, 2, 3, 4] for parts in found.values())

    run(work())


def test_another_broker_of_the_list_takes_over(make_broker: Callable[..., BrokerProcess]) -> None:
    first, second = make_broker(), make_broker()
    first.start()
    second.start()

    async def work() -> None:
        where = f"{SAFE}&connection-load-balancing-policy=first-element"
        async with mq.connect(uri(first, second, query=where)) as c:
            assert str(c.broker) == f"amqp://{first.host}:{first.port}"
            sender = await c.sender("orders")
            receiver = await c.receiver("orders")
            await sender.send("to the first")
            message = await receiver.receive(PATIENCE_S)
            await asyncio.to_thread(first.kill)
            await sender.send("to the second")
            assert str(c.broker) == f"amqp://{second.host}:{second.port}"
            assert (await receiver.receive(PATIENCE_S)).text == "to the second"
            assert await message.accept() is False

    run(work())


def test_a_broker_that_names_another_one(make_broker: Callable[..., BrokerProcess]) -> None:
    second = make_broker()
    second.start()
    first = make_broker(listener={"failover-server-list": [f"{second.host}:{second.port}"]})
    first.start()
    gate = make_broker(listener={"redirect-to": f"{first.host}:{first.port}"})
    gate.start()

    async def work() -> None:
        async with mq.connect(uri(gate)) as c:
            assert str(c.broker) == f"amqp://{first.host}:{first.port}"
            sender = await c.sender("orders")
            gate.kill()
            await asyncio.to_thread(first.kill)
            await sender.send("x")
            assert str(c.broker) == f"amqp://{second.host}:{second.port}"

    run(work())


def test_what_waits_is_told_when_nobody_comes_back(broker: BrokerProcess) -> None:
    async def work() -> None:
        async with mq.connect(uri(broker, query="?reconnect-attempts=2&retry-interval=10")) as c:
            sender, receiver = await c.sender("orders"), await c.receiver("orders")
            waiting = asyncio.create_task(receiver.receive())
            await asyncio.sleep(0)
            await asyncio.to_thread(broker.kill)
            with pytest.raises(mq.ClientError):
                await sender.send(mq.Message("x", durable=True))
            with pytest.raises(mq.ConnectionFailed, match="check that a broker listens there"):
                await waiting
            assert not c.is_connected
            with pytest.raises(mq.ConnectionFailed):
                await c.sender("more")

    run(work())


def test_without_resend_the_application_decides(broker: BrokerProcess) -> None:
    async def work() -> None:
        async with mq.connect(uri(broker)) as c:
            sender = await c.sender("orders", resend=False)
            failures: list[ManyFailed] = []
            killer: asyncio.Task[None] | None = None
            for start in range(0, COUNT, 500):
                try:
                    await sender.send_many(mq.Message(n, durable=True) for n in range(start, start + 500))
                except ManyFailed as failed:
                    failures.append(failed)
                if start == 1000:
                    killer = asyncio.create_task(restarted(broker))
            assert killer is not None
            await killer
            found = Counter(await drained(c, "orders"))
        assert {type(error) for failed in failures for _, error in failed.failures} <= {mq.OutcomeUnknown}
        assert max(found.values()) == 1
        assert COUNT - len(found) <= sum(failed.count for failed in failures)

    run(work())


def test_the_blocking_client_comes_back_too(broker: BrokerProcess) -> None:
    with sync.connect(uri(broker)) as c, c.sender("orders", duplicate_detection=True) as sender:
        assert sender.send_many(mq.Message(n, durable=True) for n in range(500)) == 500
        broker.kill()
        broker.start()
        assert sender.send_many(mq.Message(n, durable=True) for n in range(500, 1000)) == 500
        seen: list[int] = []
        with c.receiver("orders", credit=50) as receiver:
            for message in receiver:
                if message.accept():
                    seen.append(message.body)
                if len(seen) == 300:
                    broker.kill()
                    broker.start()
                if len(set(seen)) == 1000:
                    break
        assert set(seen) == set(range(1000))
