"""Memory is bounded and slowness is passed on; brokers are shared out; faults of callbacks stay their own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import mqbroker.client as mq
import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE_S

TIMEOUT_S = PATIENCE_S

BLOCK = {"address-full-policy": "BLOCK"}


def uri(*brokers: BrokerProcess, query: str = "") -> str:
    places = ",".join(f"{each.host}:{each.port}" for each in brokers)
    return f"amqp://{brokers[0].user}:{brokers[0].password}@{places}{query}"


def run(work: Awaitable[None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work, TIMEOUT_S)

    asyncio.run(bounded())


def test_a_full_address_makes_senders_wait(make_broker: Callable[..., BrokerProcess]) -> None:
    broker = make_broker(
        options={"address-settings": {"orders": {"max-size-messages": 20, **BLOCK}}, "limits": {"link-credit": 5}}
    )
    broker.start()

    async def work() -> None:
        async with mq.connect(uri(broker), pending_max=10) as c:
            sender = await c.sender("orders")
            sending = asyncio.create_task(sender.send_many(str(n) for n in range(200)))
            # It can never be done before somebody consumes, however long this waits.
            done, _ = await asyncio.wait([sending], timeout=0.2)
            assert not done
            assert sender.pending_count <= 10
            found = []
            async for message in c.receiver("orders", credit=3):
                found.append(int(message.text))
                await message.accept()
                if len(found) == 200:
                    break
            assert found == list(range(200))
            assert await sending == 200

    run(work())


def test_bytes_bound_a_sender_too(make_broker: Callable[..., BrokerProcess]) -> None:
    broker = make_broker(
        options={"address-settings": {"orders": {"max-size-messages": 1, **BLOCK}}, "limits": {"link-credit": 1}}
    )
    broker.start()

    async def work() -> None:
        async with mq.connect(uri(broker), pending_bytes_max=2500) as c:
            sender = await c.sender("orders")
            posting = [asyncio.create_task(sender.post(bytes(1000))) for _ in range(10)]
            _, waiting = await asyncio.wait(posting, timeout=0.2)
            assert sender.pending_count <= 2
            assert waiting
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)
            await sender.abandon()

    run(work())


def test_a_receiver_holds_its_credit_and_no_more(broker: BrokerProcess) -> None:
    async def work() -> None:
        async with mq.connect(uri(broker)) as c:
            await (await c.sender("orders")).send_many(str(n) for n in range(100))
            async with c.receiver("orders", credit=10) as receiver:
                first = await receiver.receive(PATIENCE_S)
                assert first.text == "0"
                # The rest is there for others, as long as nothing is taken here.
                async with c.receiver("orders", credit=100) as other:
                    others = []
                    while len(others) < 90:
                        others += await other.receive_many(100, timeout=PATIENCE_S)
                assert len(others) == 90

    run(work())


def test_connections_take_turns(make_broker: Callable[..., BrokerProcess]) -> None:
    brokers = make_broker(), make_broker()
    for each in brokers:
        each.start()

    async def work() -> None:
        async def where(query: str = "", **options: Any) -> int:
            async with mq.connect(uri(*brokers, query=query), **options) as c:
                assert c.broker is not None
                return [each.port for each in brokers].index(c.broker.port)

        turns = [await where() for _ in range(4)]
        assert turns in ([0, 1, 0, 1], [1, 0, 1, 0])
        sticky = {await where("?connection-load-balancing-policy=random-sticky") for _ in range(4)}
        assert len(sticky) == 1
        assert [await where("?connection-load-balancing-policy=first-element") for _ in range(2)] == [0, 0]
        assert await where(policy=lambda count: count - 1) == 1

    run(work())


def test_requests_go_on_after_a_reconnect(broker: BrokerProcess) -> None:
    async def work() -> None:
        safe = "?reconnect-attempts=-1&retry-interval=50"
        async with mq.connect(uri(broker, query=safe)) as server, mq.connect(uri(broker, query=safe)) as client:

            async def serve() -> None:
                async for message in server.receiver("rpc"):
                    if message.text != "ignored":
                        # What had no outcome is sent again, and the temporary queue of who asked is another by then.
                        with contextlib.suppress(mq.ClientError):
                            await server.reply(message, message.text.upper())
                    await message.accept()

            serving = asyncio.create_task(serve())
            assert (await client.request("rpc", "a")).text == "A"
            ignored = asyncio.create_task(client.request("rpc", "ignored", timeout=None))
            assert (await client.request("rpc", "b")).text == "B"
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
            with pytest.raises(mq.OutcomeUnknown):
                await ignored
            assert (await client.request("rpc", "c")).text == "C"
            serving.cancel()

    run(work())


def test_callbacks_that_fail(broker: BrokerProcess, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        def fail(_: object) -> int:
            raise ZeroDivisionError

        async with mq.connect(uri(broker), on_event=fail) as c:  # type: ignore[arg-type]  # it says nothing
            await (await c.sender("orders")).send("x")
        with pytest.raises(mq.ClientError, match="ZeroDivisionError"):
            await mq.connect(uri(broker), policy=fail)

    run(work())
    assert "on_event failed" in caplog.text


def test_a_fault_of_our_own_leaves_nobody_waiting(broker: BrokerProcess) -> None:
    async def work() -> None:
        async with mq.connect(uri(broker)) as c:
            sender, receiver = await c.sender("orders"), await c.receiver("empty")
            waiting = asyncio.create_task(receiver.receive())
            sending = asyncio.create_task(sender.send("x"))
            await asyncio.sleep(0)
            c._driver.put(object())  # type: ignore[arg-type]  # no input that there is
            for task in (sending, waiting):
                with pytest.raises(mq.ClientError, match="please report it"):
                    await task
            with pytest.raises(mq.ClientError, match="please report it"):
                await sender.send("late")
            with pytest.raises(mq.ClientError, match="please report it"):
                await c.sender("late")
            assert sender.pending_count == 0

    run(work())
