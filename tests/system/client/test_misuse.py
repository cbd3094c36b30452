"""Calls that are given up, made twice or answered by nobody: nothing is lost, and nothing is left at the broker."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import mqbroker.client as mq
import pytest
from mqbroker.client import sync
from mqbroker.wire.performatives import Disposition, Flow, Transfer

from tests.support import frames
from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE_S
from tests.system.bad_input.peer import Peer
from tests.system.client.test_settling import connected, fill, rest, uri

TIMEOUT_S = PATIENCE_S
MAP_BY_LISTS = bytes.fromhex("005377 c1 03 02 45 40")  # well-formed, and it has no form in Python


async def gone(broker: BrokerProcess, operation: str) -> None:
    """Until the broker has none of these."""
    async with asyncio.timeout(TIMEOUT_S):
        while (await asyncio.to_thread(broker.admin, operation))[operation]:
            await asyncio.sleep(0.02)


def test_what_is_given_up_while_it_opens_is_not_there(broker: BrokerProcess) -> None:
    async def work(c: mq.Connection) -> None:
        broker.signal(signal.SIGSTOP)
        opening = [asyncio.ensure_future(c.receiver("orders")._open()) for _ in range(5)]
        sending = [asyncio.ensure_future(c.sender("orders")._open()) for _ in range(5)]
        await asyncio.sleep(0.05)
        for each in (*opening, *sending):
            each.cancel()
        found = await asyncio.gather(*opening, *sending, return_exceptions=True)
        broker.signal(signal.SIGCONT)
        assert {type(each) for each in found} == {asyncio.CancelledError}
        await fill(c, 3)
        await gone(broker, "consumers")
        await gone(broker, "producers")
        assert await rest(c) == [(n, 0) for n in range(3)]

    connected(broker, work)


async def given_up(work: Coroutine[Any, Any, object], turns: int) -> object:
    """What came of it, where it was cancelled after so many turns of the loop."""
    task = asyncio.ensure_future(work)
    for _ in range(turns):
        await asyncio.sleep(0.0001 if turns % 2 else 0)
    task.cancel()
    (found,) = await asyncio.gather(task, return_exceptions=True)
    return found


def test_a_durable_subscription_outlives_who_gives_up_opening_it(broker: BrokerProcess) -> None:
    async def work(c: mq.Connection) -> None:
        await (await c.receiver("news", subscription="mine")).close()
        async with c.sender("news", topic=True) as sender:
            await sender.send_many(mq.Message(n, durable=True) for n in range(3))
        for turns in range(30):  # before it is asked for, while it is, and when the answer is there
            opened = await given_up(c.receiver("news", subscription="mine")._open(), turns)
            if isinstance(opened, mq.Receiver):
                await opened.close()
        async with c.receiver("news", subscription="mine") as receiver:
            assert [(await receiver.receive(TIMEOUT_S)).body for _ in range(3)] == [0, 1, 2]

    connected(broker, work, container_id="app")


def test_a_second_receiver_of_a_subscription_ends_nobody_else(broker: BrokerProcess) -> None:
    async def work(c: mq.Connection) -> None:
        sender = await c.sender("news", topic=True)
        receiver = await c.receiver("news", subscription="mine")
        with pytest.raises(mq.LinkFailed, match="has one of subscription 'mine' already"):
            await c.receiver("news", subscription="mine")
        await sender.send("x")
        assert (await receiver.receive(TIMEOUT_S)).text == "x"

    connected(broker, work, container_id="app")


def test_a_transaction_that_nobody_waits_for_does_not_stay_open(make_broker: Callable[..., BrokerProcess]) -> None:
    broker = make_broker(options={"limits": {"transactions-per-connection-max": 2}})
    broker.start()

    async def work(c: mq.Connection) -> None:
        async with c.transaction() as tx:
            with pytest.raises(mq.TransactionFailed, match="begun already"):
                await tx.begin()
        for turns in range(40):
            begun = await given_up(c.transaction().begin(), turns)
            if isinstance(begun, mq.Transaction):
                await begun.rollback()
        async with c.transaction(), c.transaction():
            pass

    connected(broker, work)


def test_a_transaction_that_a_timeout_ends_waits_for_no_answer(broker: BrokerProcess) -> None:
    async def work() -> None:
        connection = await mq.connect(uri(broker))
        sender = await connection.sender("orders")

        async def send() -> None:
            async with asyncio.timeout(0.1), connection.transaction() as tx:
                broker.signal(signal.SIGSTOP)
                await sender.send("x", transaction=tx)

        try:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(send(), TIMEOUT_S)
        finally:
            broker.signal(signal.SIGCONT)
        assert await rest(connection) == []
        await connection.close()

    asyncio.run(asyncio.wait_for(work(), TIMEOUT_S))


def test_a_sender_may_be_closed_twice_at_once(broker: BrokerProcess) -> None:
    async def work(c: mq.Connection) -> None:
        sender = await c.sender("orders")
        broker.signal(signal.SIGSTOP)
        await sender.post(mq.Message(0, durable=True))
        closing = [asyncio.create_task(sender.close()) for _ in range(3)]
        await asyncio.sleep(0.05)
        broker.signal(signal.SIGCONT)
        await asyncio.gather(*closing)
        assert await rest(c) == [(0, 0)]

    connected(broker, work)


def test_a_message_that_was_refused_does_not_cost_those_of_other_senders(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    full = {"full": {"max-size-messages": 1, "address-full-policy": "FAIL"}}
    broker = make_broker(options={"address-settings": full, "limits": {"link-credit": 2}})
    broker.start()

    async def work() -> None:
        connection = await mq.connect(uri(broker))
        senders = [await connection.sender("full"), await connection.sender("orders"), await connection.sender("full")]
        await senders[0].send("x")
        for sender in senders:
            for n in range(200 if sender is senders[1] else 1):
                await sender.post(mq.Message(n, durable=True))
        with pytest.raises(mq.ManyFailed, match="2 messages were not accepted") as told:
            await connection.close()
        assert len(told.value.failures) == 2
        async with mq.connect(uri(broker)) as again, again.receiver("orders", credit=200) as receiver:
            assert [(await receiver.receive(TIMEOUT_S)).body for _ in range(200)] == list(range(200))

    asyncio.run(asyncio.wait_for(work(), TIMEOUT_S))


def test_a_handler_that_ends_itself_ends_no_worker(broker: BrokerProcess, caplog: pytest.LogCaptureFixture) -> None:
    async def work(c: mq.Connection) -> None:
        await fill(c, 6)
        seen: list[Any] = []

        async def handle(message: mq.ReceivedMessage) -> None:
            seen.append((message.body, message.delivery_count))
            if message.body < 3 and not message.is_redelivered:
                inner = asyncio.ensure_future(asyncio.Event().wait())
                inner.cancel()
                await inner
            if len(seen) == 9:
                await receiver.drain()

        receiver = await c.receiver("orders", credit=2)
        await receiver.consume(handle, concurrency=2)
        assert sorted(seen) == sorted([*((n, 0) for n in range(6)), *((n, 1) for n in range(3))])

    connected(broker, work)
    assert "the handler was cancelled" in caplog.text


def test_a_receiver_with_messages_in_hand_closes_while_the_broker_is_silent(broker: BrokerProcess) -> None:
    async def work(c: mq.Connection) -> None:
        await fill(c, 2)
        receiver = await c.receiver("orders", credit=10)
        message = await receiver.receive(TIMEOUT_S)
        broker.signal(signal.SIGSTOP)
        try:
            await asyncio.wait_for(receiver.close(), TIMEOUT_S)
        finally:
            broker.signal(signal.SIGCONT)
        assert await message.accept()
        assert await rest(c) == [(1, 0)]

    connected(broker, work, call_timeout_ms=3_600_000)  # for an answer it would wait an hour


def test_a_reply_that_cannot_be_read_ends_its_own_request_alone(broker: BrokerProcess) -> None:
    async def work(c: mq.Connection) -> None:
        async with mq.connect(uri(broker)) as server:
            requests = await server.receiver("upper")
            asking = [asyncio.create_task(c.request("upper", text, timeout=1 + 100 * n)) for n, text in enumerate("ab")]
            first, second = [await requests.receive(TIMEOUT_S) for _ in range(2)]
            assert first.reply_to is not None
            await asyncio.to_thread(_reply_unreadably, broker, first.reply_to)
            with pytest.raises(TimeoutError):
                await asking[0]
            await server.reply(second, "B")
            assert (await asking[1]).text == "B"

    connected(broker, work)


def _reply_unreadably(broker: BrokerProcess, to: str) -> None:
    head = Transfer(handle=1, delivery_id=0, delivery_tag=b"0", message_format=0, settled=False)
    with Peer(broker) as peer:
        peer.login()
        peer.send(frames.sender(to, 1))
        peer.wait_for(Flow, 2)
        peer.send(frames.frame(head, MAP_BY_LISTS))
        peer.wait_for(Disposition)


def test_a_thread_that_leaves_ends_the_work_of_all(broker: BrokerProcess) -> None:
    with sync.connect(uri(broker)) as c:
        with c.sender("orders") as sender:
            sender.send_many(mq.Message(n, durable=True) for n in range(4))

        def handle(message: sync.ReceivedMessage) -> None:
            if message.body == 1:
                raise SystemExit

        with pytest.raises(SystemExit):
            c.receiver("orders", credit=2).consume(handle, concurrency=2)
        assert 1 in [message.body for message in c.browse("orders")]
