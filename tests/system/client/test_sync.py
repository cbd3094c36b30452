"""The blocking client against a real broker process, from several threads too."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import mqbroker.client as mq
import pytest
from mqbroker.client import sync
from mqbroker.client.types import Encoded
from mqbroker.wire.walk import VALUES_MAX

from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE_S

TIMEOUT_S = PATIENCE_S


def uri(broker: BrokerProcess, query: str = "") -> str:
    return f"amqp://{broker.user}:{broker.password}@{broker.host}:{broker.port}{query}"


def test_send_receive_and_settle(broker: BrokerProcess) -> None:
    with sync.connect(uri(broker)) as c:
        assert c.is_connected
        with c.sender("orders") as sender:
            sender.send(mq.Message("one", durable=True, subject="s"))
            assert sender.send_many(f"m{n}" for n in range(250)) == 250
            sender.post("last")
            sender.flush()
        with c.receiver("orders") as receiver:
            first = receiver.receive(TIMEOUT_S)
            assert (first.text, first.subject, first.accept()) == ("one", "s", True)
            with pytest.raises(mq.ClientError, match="settle each message once"):
                first.accept()
            assert receiver.receive(TIMEOUT_S).release()
            seen = []
            for message in receiver:
                seen.append(message.text)
                assert message.accept()
                if len(seen) == 251:
                    break
            assert sorted(seen) == sorted([*(f"m{n}" for n in range(250)), "last"])
            with pytest.raises(TimeoutError):
                receiver.receive(0.05)
            assert receiver.receive_many(timeout=0.05) == []
        assert [message.body for message in c.browse("orders")] == []


def test_confirm_reject_modify_and_transactions(broker: BrokerProcess) -> None:
    with sync.connect(uri(broker)) as c, c.sender("orders") as sender:
        sender.send_many(["confirm", "reject", "modify", "tx"])
        with c.receiver("orders", confirm=True) as receiver:
            got = {message.text: message for message in (receiver.receive(TIMEOUT_S) for _ in range(4))}
            assert got["confirm"].accept()
            assert got["reject"].reject("no use")
            assert got["modify"].modify()
            with c.transaction() as tx:
                assert got["tx"].accept(transaction=tx)
                sender.send("out", transaction=tx)
            again = receiver.receive(TIMEOUT_S)
            assert (again.text, again.delivery_count) == ("modify", 1)
            again.accept()
        assert [message.text for message in c.browse("orders")] == ["out"]


def test_requests(broker: BrokerProcess) -> None:
    with sync.connect(uri(broker)) as server, sync.connect(uri(broker)) as client:
        requests = server.receiver("rpc")

        def serve() -> None:
            for message in requests:
                server.reply(message, message.text.upper())
                message.accept()

        thread = threading.Thread(target=serve)
        thread.start()
        assert client.request("rpc", "hello", timeout=TIMEOUT_S).text == "HELLO"
        requests.close()
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()


def test_threads_share_a_connection(broker: BrokerProcess) -> None:
    with sync.connect(uri(broker)) as c, c.sender("orders") as sender, ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda n: sender.send(mq.Message(str(n), durable=True)), range(100)))
        with c.receiver("orders") as receiver:

            def take(_: int) -> str:
                message = receiver.receive(TIMEOUT_S)
                message.accept()
                return message.text

            assert sorted(threads.map(take, range(100)), key=int) == [str(n) for n in range(100)]


def test_errors_and_ends(broker: BrokerProcess, make_broker: Callable[..., BrokerProcess]) -> None:
    absent = make_broker()
    with pytest.raises(mq.ConnectionFailed):
        sync.connect(f"amqp://{absent.host}:{absent.port}")
    with pytest.raises(mq.LoginRefused):
        sync.connect(f"amqp://{broker.user}:wrong@{broker.host}:{broker.port}")
    before = set(threading.enumerate())
    c = sync.connect(uri(broker))
    sender = c.sender("orders")
    with pytest.raises(mq.LinkFailed):
        c.receiver("orders", selector="= 1")
    c.close()
    c.close()
    sender.close()
    with pytest.raises(mq.Closed):
        sender.send("x")
    for thread in set(threading.enumerate()) - before:  # one that derived the login's key ends a little later
        thread.join(TIMEOUT_S)
    assert set(threading.enumerate()) <= before


def test_a_wait_that_is_closed_ends(broker: BrokerProcess) -> None:
    c = sync.connect(uri(broker))
    receiver = c.receiver("orders")
    ended: list[Any] = []

    def wait() -> None:
        ended.extend(receiver)

    thread = threading.Thread(target=wait)
    thread.start()
    c.close()
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()
    assert ended == []


def test_blocking_calls_do_not_block_their_own_loop(broker: BrokerProcess) -> None:
    with sync.connect(uri(broker)) as c:
        sender = c.sender("orders")

        async def inside() -> None:
            with pytest.raises(mq.Closed, match="in the connection's own thread"):
                sender.send("x")

        asyncio.run_coroutine_threadsafe(inside(), c._runner._loop).result(TIMEOUT_S)


def test_what_cannot_be_shown_is_the_applications_to_settle(broker: BrokerProcess) -> None:
    """No text, behind more values than the broker looks into: it raises in its place, and nothing becomes of it."""
    values = b"\x40" * VALUES_MAX + b"\xa1\x01\xff"
    odd = Encoded(b"\xd0" + struct.pack(">II", len(values) + 4, VALUES_MAX + 1) + values)
    with sync.connect(uri(broker)) as c:
        with c.sender("orders") as sender:
            sender.send_many(mq.Message(body, durable=True) for body in ("a", odd, "b"))
        with c.receiver("orders") as receiver:
            assert [message.text for message in receiver.receive_many(10, TIMEOUT_S)] == ["a"]
            with pytest.raises(mq.UnreadableMessage, match="a message of 'orders' cannot be read"):
                receiver.receive_many(10, TIMEOUT_S)
            assert [message.text for message in receiver.receive_many(10, TIMEOUT_S)] == ["b"]
        with c.receiver("orders") as receiver:  # what was not settled is there again
            found = iter(receiver)
            assert next(found).accept()
            with pytest.raises(mq.UnreadableMessage) as caught:
                next(found)
            assert b"\xa1\x01\xff" in caught.value.payload
            assert caught.value.message.accept()
            assert next(found).accept()
        assert [message.body for message in c.browse("orders")] == []
