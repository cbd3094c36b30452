"""The asyncio client against a real broker process: what an application sees."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import mqbroker.client as mq
import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.certificates import Authority
from tests.support.patience import PATIENCE_S

TIMEOUT_S = PATIENCE_S
T = TypeVar("T")


def uri(broker: BrokerProcess, query: str = "", scheme: str = "amqp") -> str:
    return f"{scheme}://{broker.user}:{broker.password}@{broker.host}:{broker.port}{query}"


def run(work: Awaitable[T]) -> T:
    async def bounded() -> T:
        return await asyncio.wait_for(work, TIMEOUT_S)

    return asyncio.run(bounded())


def connected(broker: BrokerProcess, work: Callable[[mq.Connection], Awaitable[T]], **options: Any) -> T:
    """Run `work` with a connection."""

    async def go() -> T:
        async with mq.connect(uri(broker), **options) as connection:
            return await work(connection)

    return run(go())


async def bodies(connection: mq.Connection, address: str) -> list[Any]:
    return [message.body async for message in connection.browse(address)]


def test_messages_go_and_come_with_all_they_hold(broker: BrokerProcess) -> None:
    async def work(c: mq.Connection) -> None:
        async with c.sender("orders") as sender:
            await sender.send(
                mq.Message(
                    {"n": 1}, durable=True, priority=7, ttl_ms=60_000, id="i1", subject="s", group_id="g",
                    application_properties={"colour": "red"}, annotations={"x-opt-mine": "a"}, content_type="x/y",
                )
            )  # fmt: skip
        async with c.receiver("orders", credit=10) as receiver:
            message = await receiver.receive(PATIENCE_S)
            assert (message.body, message.durable, message.priority) == ({"n": 1}, True, 7)
            assert (message.id, message.subject, message.group_id) == ("i1", "s", "g")
            assert message.application_properties == {"colour": "red"}
            assert (message.annotations["x-opt-mine"], message.content_type) == ("a", "x/y")
            assert await message.accept()
            with pytest.raises(TimeoutError):
                await receiver.receive(0.05)

    connected(broker, work)


def test_many_in_flight(broker: BrokerProcess) -> None:
    async def work(c: mq.Connection) -> None:
        sender = await c.sender("orders")
        await asyncio.gather(*(sender.send(mq.Message(f"a{n}", durable=True)) for n in range(300)))
        assert await sender.send_many(mq.Message(f"b{n}", durable=True) for n in range(3000)) == 3000
        for n in range(300):
            await sender.post(f"c{n}")
        await sender.flush()
        assert sender.pending_count == 0
        seen: list[str] = []
        async for message in c.receiver("orders", credit=64):
            seen.append(message.text)
            assert await message.accept()
            if len(seen) == 3600:
                break
        assert seen == [f"{kind}{n}" for kind, count in (("a", 300), ("b", 3000), ("c", 300)) for n in range(count)]
        assert await bodies(c, "orders") == []

    connected(broker, work, pending_max=100)


def test_ids_against_duplicates_are_the_senders_own(broker: BrokerProcess) -> None:
    async def work(c: mq.Connection) -> None:
        sender = await c.sender("orders", duplicate_detection=True)
        message = mq.Message("twice", application_properties={"a": 1})
        await sender.send(message)
        await sender.send(message)
        assert message.application_properties == {"a": 1}
        await sender.send(mq.Message("once", application_properties={"_AMQ_DUPL_ID": "own"}))
        await sender.send(mq.Message("once", application_properties={"_AMQ_DUPL_ID": "own"}))
        assert await bodies(c, "orders") == ["twice", "twice", "once"]
        async with c.browse("orders") as browser:
            assert len(await browser.receive_many(10, timeout=PATIENCE_S)) == 3
            assert await browser.receive_many(10) == [], "it is told that there is nothing more"

    connected(broker, work)


def test_outcomes_of_a_receiver(broker: BrokerProcess) -> None:
    async def work(c: mq.Connection) -> None:
        sender = await c.sender("orders")
        for text in ("reject", "release", "modify", "accept"):
            await sender.send(text)
        async with c.receiver("orders") as receiver:
            got = {each.text: each for each in [await receiver.receive(PATIENCE_S) for _ in range(4)]}
            assert await got["reject"].reject("of no use", condition="my:condition")
            assert await got["release"].release()
            assert await got["modify"].modify(delivery_failed=True)
            assert await got["accept"].accept()
            with pytest.raises(mq.ClientError, match="settle each message once"):
                await got["accept"].accept()
            again = {each.text: each for each in [await receiver.receive(PATIENCE_S) for _ in range(2)]}
            assert (again["release"].delivery_count, again["modify"].delivery_count) == (0, 1)
            assert again["modify"].is_redelivered

    connected(broker, work)


def test_settle_modes(broker: BrokerProcess) -> None:
    async def work(c: mq.Connection) -> None:
        async with c.sender("orders", settled=True) as at_most_once:
            for n in range(5):
                await at_most_once.send(mq.Message(f"m{n}", durable=True))
        async with c.receiver("orders", confirm=True) as receiver:
            for n in range(3):
                message = await receiver.receive(PATIENCE_S)
                assert message.text == f"m{n}"
                assert await message.accept()
        async with c.receiver("orders", settled=True) as receiver:
            for n in range(3, 5):
                message = await receiver.receive(PATIENCE_S)
                assert (message.text, await message.accept()) == (f"m{n}", True)
        assert await bodies(c, "orders") == []

    connected(broker, work)


def test_batches_selectors_and_browsers(broker: BrokerProcess) -> None:
    async def work(c: mq.Connection) -> None:
        sender = await c.sender("orders")
        for n in range(250):
            await sender.post(mq.Message(n, application_properties={"odd": n % 2}))
        await sender.flush()
        assert await bodies(c, "orders") == list(range(250))
        odd = [message.body async for message in c.browse("orders", selector="odd = 1", credit=7)]
        assert odd == list(range(1, 250, 2))
        async with c.receiver("orders", selector="odd = 1", credit=50) as receiver:
            found: list[int] = []
            while len(found) < 125:
                batch = await receiver.receive_many(40, timeout=PATIENCE_S)
                assert 0 < len(batch) <= 40
                for message in batch:
                    await message.accept()
                found += [message.body for message in batch]
            assert found == odd
            assert await receiver.receive_many(40, timeout=0.05) == []

    connected(broker, work)


def test_subscriptions(broker: BrokerProcess) -> None:
    async def work(c: mq.Connection) -> None:
        async with c.receiver("news", subscription="mine") as durable:
            assert durable.address == "news"
        one = await c.receiver("news", subscription="ours", shared=True, durable=False)
        two = await c.receiver("news", subscription="ours", shared=True, durable=False)
        plain = await c.receiver("news", topic=True)
        async with c.sender("news", topic=True) as sender:
            for n in range(10):
                await sender.send(mq.Message(n, durable=True))
        assert [(await plain.receive(PATIENCE_S)).body for _ in range(10)] == list(range(10))
        taken = await asyncio.gather(*(_take(each) for each in (one, two) for _ in range(5)))
        assert sorted(taken) == list(range(10))
        durable = await c.receiver("news", subscription="mine")
        assert [(await durable.receive(PATIENCE_S)).body for _ in range(10)] == list(range(10))
        assert "app.mine" in str(broker.admin("queues"))
        await durable.unsubscribe()

    async def _take(receiver: mq.Receiver) -> int:
        message = await receiver.receive(PATIENCE_S)
        await message.accept()
        return int(message.body)

    connected(broker, work, container_id="app")
    assert "app.mine" not in str(broker.admin("queues"))


def test_one_queue_of_an_address(broker: BrokerProcess) -> None:
    async def work(c: mq.Connection) -> None:
        first = await c.receiver("news::first", topic=True)
        second = await c.receiver("news::second", topic=True)
        async with c.sender("news", topic=True) as sender:
            await sender.send("both")
        assert (await first.receive(PATIENCE_S)).text == (await second.receive(PATIENCE_S)).text == "both"

    connected(broker, work)


def test_requests_find_their_replies(broker: BrokerProcess) -> None:
    async def work(c: mq.Connection) -> None:
        async def serve() -> None:
            async for message in c.receiver("rpc"):
                await c.reply(message, message.text.upper())
                await message.accept()

        server = asyncio.create_task(serve())
        replies = await asyncio.gather(*(c.request("rpc", f"q{n}", timeout=PATIENCE_S) for n in range(20)))
        assert [reply.text for reply in replies] == [f"Q{n}" for n in range(20)]
        with pytest.raises(TimeoutError):
            await c.request("nobody", "?", timeout=0.05)
        with pytest.raises(mq.MessageFault, match="no reply_to"):
            await c.reply(mq.Message(), "x")
        server.cancel()

    connected(broker, work)


def test_transactions(broker: BrokerProcess) -> None:
    async def work(c: mq.Connection) -> None:
        sender = await c.sender("orders")
        await sender.send("in")
        async with c.receiver("orders") as receiver:
            async with c.transaction() as tx:
                message = await receiver.receive(PATIENCE_S)
                await message.accept(transaction=tx)
                await sender.send("out 1", transaction=tx)
                await sender.send("out 2", transaction=tx)
                assert await bodies(c, "orders") == []
            with pytest.raises(mq.TransactionFailed, match="has ended"):
                await sender.send("late", transaction=tx)
        assert await bodies(c, "orders") == ["out 1", "out 2"]

        async def fail() -> None:
            async with c.transaction() as tx:
                await sender.send("never", transaction=tx)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert await bodies(c, "orders") == ["out 1", "out 2"]

    connected(broker, work)


def test_what_the_broker_refuses_is_told(make_broker: Callable[..., BrokerProcess]) -> None:
    broker = make_broker(
        options={
            "address-settings": {"small": {"max-size-messages": 1, "address-full-policy": "FAIL"}},
            "limits": {"max-message-size-bytes": 100_000},
        }
    )
    broker.start()

    async def work(c: mq.Connection) -> None:
        sender = await c.sender("small")
        await sender.send("fits")
        with pytest.raises(mq.Rejected) as rejected:
            await sender.send("one more")
        assert rejected.value.condition == "amqp:resource-limit-exceeded"
        with pytest.raises(mq.ManyFailed) as many:
            await sender.send_many(f"m{n}" for n in range(3))
        assert (many.value.count, [message.body for message, _ in many.value.failures]) == (3, ["m0", "m1", "m2"])
        with pytest.raises(mq.MessageFault, match="takes at most 100000"):
            await sender.send(bytes(200_000))
        with pytest.raises(mq.LinkFailed) as refused:
            await c.receiver("orders", selector="a = = 1")
        assert refused.value.condition == "amqp:invalid-field"
        await sender.close()
        with pytest.raises(mq.Closed):
            await sender.send("x")

    connected(broker, work)


def test_large_messages(broker: BrokerProcess) -> None:
    async def work(c: mq.Connection) -> None:
        body = bytes(range(256)) * 8192
        async with c.sender("large") as sender:
            await sender.send(mq.Message(body, durable=True))
            await sender.send("small")
        async with c.receiver("large") as receiver:
            first = await receiver.receive(PATIENCE_S)
            assert first.body == body
            assert await first.accept()
            assert (await receiver.receive(PATIENCE_S)).text == "small"

    connected(broker, work, max_frame_size=4096)


def test_login(make_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    broker = make_broker(
        listener=authority.listener("optional", sasl_mechanisms=["EXTERNAL", "SCRAM-SHA-256", "PLAIN", "ANONYMOUS"])
    )
    broker.prepare()
    broker.set_user("client", "not-used-here-1")
    broker.start()
    ca = str(authority.ca_file)
    made = authority.ca.issue_cert("client.example.org", common_name="client")
    certificate = tmp_path / "client.pem"
    certificate.write_bytes(made.private_key_and_cert_chain_pem.bytes())

    async def who(address: str, **options: Any) -> None:
        async with mq.connect(address, tls_ca_file=ca, **options) as c:
            await (await c.sender("orders")).send("x")

    place = f"{broker.host}:{broker.port}"
    run(who(uri(broker, scheme="amqps")))
    run(who(f"amqps://{place}"))
    run(who(f"amqps://{place}", tls_certificate_file=str(certificate)))
    with pytest.raises(mq.LoginRefused, match="check user, password"):
        run(who(f"amqps://{broker.user}:wrong@{place}"))
    with pytest.raises(mq.ConnectionFailed, match="is not trusted"):
        run(_enter(mq.connect(f"amqps://{place}")))
    with pytest.raises(mq.ConnectionFailed, match="a file cannot be used"):
        run(_enter(mq.connect(f"amqps://{place}", tls_ca_file=str(tmp_path / "none"))))


async def _enter(opening: Any) -> None:
    async with opening:
        pass


def test_a_broker_that_is_not_there(make_broker: Callable[..., BrokerProcess]) -> None:
    broker = make_broker()
    with pytest.raises(mq.ConnectionFailed, match="no broker could be reached at"):
        run(_enter(mq.connect(f"amqp://{broker.host}:{broker.port}")))
    with pytest.raises(mq.UriFault, match="did you mean"):
        mq.connect("amqp://a?retry-intervall=1")
