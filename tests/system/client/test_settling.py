"""What was received can be settled while the connection stands, and what was not goes back: of loops that were left, of
receivers that were closed or drained, of blocks and of workers.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
import threading
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Any, TypeVar

import mqbroker.client as mq
import pytest
from mqbroker.client import sync

from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE_S

TIMEOUT_S = PATIENCE_S
T = TypeVar("T")


def uri(broker: BrokerProcess, query: str = "") -> str:
    return f"amqp://{broker.user}:{broker.password}@{broker.host}:{broker.port}{query}"


def connected(broker: BrokerProcess, work: Callable[[mq.Connection], Awaitable[T]], **options: Any) -> T:
    """Run `work` with a connection."""

    async def go() -> T:
        async with mq.connect(uri(broker), **options) as connection:
            return await work(connection)

    return asyncio.run(asyncio.wait_for(go(), TIMEOUT_S))


async def fill(c: mq.Connection, count: int) -> None:
    async with c.sender("orders") as sender:
        await sender.send_many(mq.Message(n, durable=True) for n in range(count))


async def rest(c: mq.Connection) -> list[Any]:
    """What is there, as a consumer gets it: bodies and how often they came in vain."""
    found = []
    async with c.receiver("orders") as receiver:
        await receiver.drain(TIMEOUT_S)
        async for message in receiver:
            found.append((message.body, message.delivery_count))
            await message.release()
    return sorted(found)


def test_who_leaves_a_loop_can_settle_what_is_in_hand(broker: BrokerProcess) -> None:
    async def work(c: mq.Connection) -> None:
        await fill(c, 20)
        async for message in c.receiver("orders", credit=5):
            if message.body == 2:
                break
            await message.accept()
        await asyncio.sleep(0.05)  # the loop's receiver is being closed meanwhile
        assert await message.accept()
        assert await rest(c) == [(n, 0) for n in range(3, 20)]

    connected(broker, work)


@pytest.mark.parametrize("confirm", [False, True])
def test_who_closes_a_receiver_can_settle_what_is_in_hand(broker: BrokerProcess, confirm: bool) -> None:
    async def work(c: mq.Connection) -> None:
        await fill(c, 10)
        async with c.receiver("orders", credit=10, confirm=confirm) as receiver:
            taken = [await receiver.receive(TIMEOUT_S) for _ in range(4)]
        with pytest.raises(mq.Closed):
            await receiver.receive(TIMEOUT_S)
        assert await rest(c) == [(n, 0) for n in range(4, 10)], "what nobody took went back"
        assert await taken[0].accept()
        assert await taken[1].release()
        assert await taken[2].modify()
        assert await taken[3].reject()
        with pytest.raises(mq.ClientError, match="settle each message once"):
            await taken[0].accept()
        assert await rest(c) == [(1, 0), (2, 1), *((n, 0) for n in range(4, 10))]

    connected(broker, work)


def test_what_nobody_holds_any_more_goes_back(broker: BrokerProcess) -> None:
    async def work(c: mq.Connection) -> None:
        await fill(c, 3)
        async with c.receiver("orders") as receiver:
            assert len(await receiver.receive_many(3, TIMEOUT_S)) > 0
        async with c.receiver("orders") as receiver:
            found = [await receiver.receive(TIMEOUT_S) for _ in range(3)]
        assert sorted(each.body for each in found) == [0, 1, 2]

    connected(broker, work)


def test_who_abandons_a_receiver_gives_all_back_at_once(broker: BrokerProcess) -> None:
    async def work(c: mq.Connection) -> None:
        await fill(c, 3)
        receiver = await c.receiver("orders")
        message = await receiver.receive(TIMEOUT_S)
        await receiver.close()
        await receiver.abandon()
        assert not await message.accept()
        assert [body for body, _ in await rest(c)] == [0, 1, 2]

        async def fail() -> None:
            async with c.receiver("orders") as failing:
                kept.append(await failing.receive(TIMEOUT_S))
                raise ZeroDivisionError

        kept: list[mq.ReceivedMessage] = []
        with pytest.raises(ZeroDivisionError):
            await fail()
        assert not await kept[0].accept()

    connected(broker, work)


def test_a_durable_subscription_is_there_for_the_next_one_while_something_is_in_hand(broker: BrokerProcess) -> None:
    async def work(c: mq.Connection) -> None:
        receiver = await c.receiver("news", subscription="mine")
        async with c.sender("news", topic=True) as sender:
            await sender.send_many(mq.Message(n, durable=True) for n in range(3))
        first = await receiver.receive(TIMEOUT_S)
        await receiver.close()
        again = await c.receiver("news", subscription="mine")
        assert sorted([(await again.receive(TIMEOUT_S)).body for _ in range(3)]) == [0, 1, 2]
        assert not await first.accept(), "the name has another receiver, which got it"

    connected(broker, work, container_id="app")


def test_a_drained_receiver_ends_behind_what_came(broker: BrokerProcess) -> None:
    async def work(c: mq.Connection) -> None:
        await fill(c, 30)
        async with c.receiver("orders", credit=10) as receiver:
            assert (await receiver.receive(TIMEOUT_S)).body == 0
            await receiver.drain(TIMEOUT_S)
            seen = [message.body async for message in receiver]
            assert seen == list(range(1, len(seen) + 1))
            assert len(seen) < 20
            with pytest.raises(mq.NothingMore, match="was drained"):
                await receiver.receive(TIMEOUT_S)
            assert await receiver.receive_many(5, TIMEOUT_S) == []

    connected(broker, work)


def test_a_block_settles_by_how_it_ends(broker: BrokerProcess) -> None:
    async def work(c: mq.Connection) -> None:
        await fill(c, 5)
        receiver = await c.receiver("orders", credit=5)
        taken = [await receiver.receive(TIMEOUT_S) for _ in range(5)]
        async with taken[0] as message:
            assert message is taken[0]
        with pytest.raises(ZeroDivisionError):
            async with taken[1]:
                raise ZeroDivisionError
        with pytest.raises(asyncio.CancelledError):
            async with taken[2]:
                raise asyncio.CancelledError
        async with taken[3]:
            await taken[3].release()
        await taken[4].accept()
        with pytest.raises(ZeroDivisionError):
            async with taken[4]:
                raise ZeroDivisionError
        await receiver.close()
        assert await rest(c) == [(1, 1), (2, 0), (3, 0)]

    connected(broker, work)


def test_workers_are_so_many_and_outlive_a_message_that_fails(
    broker: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(c: mq.Connection) -> None:
        await fill(c, 40)
        receiver = await c.receiver("orders", credit=10)
        busy, most, seen = 0, 0, []

        async def handle(message: mq.ReceivedMessage) -> None:
            nonlocal busy, most
            busy += 1
            most = max(most, busy)
            await asyncio.sleep(0.001)
            busy -= 1
            seen.append(message.body)
            if message.body == 7 and not message.is_redelivered:
                raise ZeroDivisionError
            if len(seen) == 41:
                await receiver.drain()

        await receiver.consume(handle, concurrency=4)
        assert most == 4
        assert sorted(seen) == sorted([*range(40), 7])
        assert await rest(c) == []
        with pytest.raises(mq.UriFault, match="concurrency 0"):
            await receiver.consume(handle, concurrency=0)

    connected(broker, work)
    assert "ZeroDivisionError" in caplog.text


def test_workers_that_are_cancelled_give_their_messages_back(broker: BrokerProcess) -> None:
    async def work(c: mq.Connection) -> None:
        await fill(c, 3)
        started = asyncio.Semaphore(0)

        async def handle(message: mq.ReceivedMessage) -> None:
            started.release()
            await asyncio.Event().wait()

        async with c.receiver("orders") as receiver:
            working = asyncio.create_task(receiver.consume(handle, concurrency=2))
            await started.acquire()
            await started.acquire()
            working.cancel()
            await asyncio.wait([working])
            assert working.cancelled()
        assert await rest(c) == [(0, 0), (1, 0), (2, 0)]

    connected(broker, work)


def test_what_took_too_long_is_said(broker: BrokerProcess) -> None:
    async def work() -> None:
        connection = await mq.connect(uri(broker))
        sender, receiver = await connection.sender("orders"), await connection.receiver("empty")
        with pytest.raises(TimeoutError, match=r"^no message of 'empty' came within 0.01 s$"):
            await receiver.receive(0.01)
        with pytest.raises(TimeoutError, match=r"no reply from 'empty' came within 0\.01 s"):
            await connection.request("empty", "?", timeout=0.01)
        assert broker.process is not None
        broker.process.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(
                TimeoutError, match="to 'orders' was sent, may have been taken, and got no outcome within"
            ):
                await sender.send("x", timeout=0.05)
            await sender.post("y")
            with pytest.raises(TimeoutError, match=r"1 messages to 'orders' got no outcome within 0\.05 s"):
                await sender.flush(0.05)
            with pytest.raises(TimeoutError, match="2 messages to 'orders' got no outcome"):
                await sender.send_many(["a", "b"], timeout=0.05)
            with pytest.raises(TimeoutError, match=r"did not say that 'empty' is drained within 0\.05 s"):
                await receiver.drain(0.05)
            with pytest.raises(TimeoutError, match="closed with 4 messages under way"):
                await sender.close(timeout=0.05)
            with pytest.raises(TimeoutError, match=r"or did not answer the close, within 0\.05 s"):
                await connection.close(timeout=0.05)
        finally:
            broker.process.send_signal(signal.SIGCONT)

    asyncio.run(asyncio.wait_for(work(), TIMEOUT_S))


def test_no_room_is_no_sending(make_broker: Callable[..., BrokerProcess]) -> None:
    settings = {"orders": {"max-size-messages": 1, "address-full-policy": "BLOCK"}}
    broker = make_broker(options={"address-settings": settings, "limits": {"link-credit": 1}})
    broker.start()

    async def work(c: mq.Connection) -> None:
        sender = await c.sender("orders")
        for _ in range(20):
            try:
                await sender.send("x", timeout=0.2)
            except TimeoutError as error:
                told = str(error)
        assert "was not sent: there was no room beside 2 without an outcome within 0.2 s" in told
        await sender.abandon()

    connected(broker, work, pending_max=2)


# -- without asyncio ---------------------------------------------------------------------------------------------------


def test_a_loop_that_is_left_holds_nothing_back(broker: BrokerProcess) -> None:
    """Its receiver is closed when nobody holds it any more; what it had taken ahead goes back in its order."""
    with sync.connect(uri(broker)) as c:
        with c.sender("orders") as sender:
            sender.send_many(mq.Message(n, durable=True) for n in range(300))
        for message in c.receiver("orders", credit=150):
            if message.body == 2:
                break
            assert message.accept()
        assert message.accept()
        with c.receiver("orders", credit=10) as receiver:
            assert [receiver.receive(TIMEOUT_S).body for _ in range(10)] == list(range(3, 13))


def test_receivers_that_are_closed_or_drained(broker: BrokerProcess) -> None:
    with sync.connect(uri(broker)) as c:
        with c.sender("orders") as sender:
            sender.send_many(mq.Message(n, durable=True) for n in range(10))
        with c.receiver("orders") as receiver:
            taken = list(islice(receiver, 3))
        assert [each.accept() for each in taken] == [True] * 3
        with c.receiver("orders") as receiver:
            receiver.drain(TIMEOUT_S)
            seen = []
            for message in receiver:
                with message:
                    seen.append(message.body)
            assert sorted(seen) == list(range(3, 10))
        assert [message.body for message in c.browse("orders")] == []


def test_blocks_of_messages(broker: BrokerProcess) -> None:
    with sync.connect(uri(broker)) as c:
        with c.sender("orders") as sender:
            sender.send_many(range_of_messages(3))
        with c.receiver("orders") as receiver:
            first, second, third = (receiver.receive(TIMEOUT_S) for _ in range(3))
            with first:
                pass
            with pytest.raises(ZeroDivisionError), second:
                raise ZeroDivisionError
            with pytest.raises(KeyboardInterrupt), third:
                raise KeyboardInterrupt
        found = {message.body: message.delivery_count for message in c.browse("orders")}
        assert found == {1: 1, 2: 0}


def range_of_messages(count: int) -> list[mq.Message | bytes | str]:
    return [mq.Message(n, durable=True) for n in range(count)]


def test_workers_in_threads(broker: BrokerProcess, caplog: pytest.LogCaptureFixture) -> None:
    with sync.connect(uri(broker)) as c:
        with c.sender("orders") as sender:
            sender.send_many(range_of_messages(40))
        lock, seen, together = threading.Lock(), [], threading.Barrier(3)
        with c.receiver("orders", credit=10) as receiver:

            def handle(message: sync.ReceivedMessage) -> None:
                if message.body < 3:
                    together.wait(TIMEOUT_S)  # three are at work, or nobody goes on
                with lock:
                    seen.append(message.body)
                    is_last = len(seen) == 41
                if is_last:
                    receiver.drain()
                if message.body == 7 and not message.is_redelivered:
                    raise ZeroDivisionError

            receiver.consume(handle, concurrency=3)
        assert sorted(seen) == sorted([*range(40), 7])
        assert [message.body for message in c.browse("orders")] == []
    assert "ZeroDivisionError" in caplog.text


def test_times_of_blocking_calls(broker: BrokerProcess) -> None:
    c = sync.connect(uri(broker))
    sender, receiver = c.sender("orders"), c.receiver("empty")
    with pytest.raises(TimeoutError, match="no message of 'empty' came within"):
        receiver.receive(0.01)
    assert broker.process is not None
    broker.process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(TimeoutError, match=r"got no outcome within 0\.05 s"):
            sender.send("x", timeout=0.05)
        with pytest.raises(TimeoutError, match="messages to 'orders' got no outcome within"):
            sender.send_many((str(n) for n in range(250)), timeout=0.2)
        with pytest.raises(TimeoutError, match="or did not answer the close"):
            c.close(timeout=0.05)
    finally:
        broker.process.send_signal(signal.SIGCONT)
    with pytest.raises(mq.Closed):
        sender.send("late")


# -- what a program shows ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [mq, sync])
def test_options_are_shown_with_their_defaults(module: Any) -> None:
    receiver = inspect.signature(module.Connection.receiver).parameters
    assert (receiver["credit"].default, receiver["subscription"].default) == (100, "")
    assert inspect.signature(module.Connection.sender).parameters["resend"].default is True
    connect = inspect.signature(module.connect).parameters
    assert connect["reconnect_attempts"].default == 0
    assert not [each for each in connect.values() if each.kind is inspect.Parameter.VAR_KEYWORD]


def test_nothing_public_is_for_inside() -> None:
    assert _public(mq.Sender) == {
        "address", "pending_count", "send", "post", "flush", "send_many", "close", "abandon",
    }  # fmt: skip
    assert _public(mq.Receiver) == {
        "address", "receive", "receive_many", "consume", "drain", "close", "abandon", "unsubscribe",
    }  # fmt: skip
    assert _public(mq.Transaction) == {"begin", "commit", "rollback"}
    for theirs, ours in ((mq.Sender, sync.Sender), (mq.Receiver, sync.Receiver), (mq.Connection, sync.Connection),
                         (mq.Transaction, sync.Transaction), (mq.ReceivedMessage, sync.ReceivedMessage)):  # fmt: skip
        assert _public(theirs) == _public(ours)


def _public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_things_say_what_they_are(broker: BrokerProcess) -> None:
    async def work(c: mq.Connection) -> None:
        assert repr(c) == f"<Connection of 'app': up, amqp://{broker.host}:{broker.port}>"
        await fill(c, 2)
        sender, receiver = await c.sender("orders"), await c.receiver("orders")
        assert repr(sender) == "<Sender to 'orders': 0 without an outcome>"
        message = await receiver.receive(TIMEOUT_S)
        assert "1 to be settled" in repr(receiver)
        assert repr(message).startswith("ReceivedMessage(0, durable=True")
        await message.accept()
        await sender.close()
        await receiver.close()
        assert repr(sender) == "<Sender to 'orders': 0 without an outcome, closed>"
        assert repr(receiver) == "<Receiver of 'orders': closed>"
        async with c.transaction() as tx:
            assert repr(tx) == "<Transaction: open>"

    connected(broker, work, container_id="app")
