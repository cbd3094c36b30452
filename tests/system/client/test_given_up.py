"""Calls that are given up at any await: books of what each may have come to, held against what is left in the queue.

Of a call that was given up nobody knows whether it reached the broker, so what it was about is a *maybe* from then on.
All else is sure, and each message must be where the books say: an accepted one with somebody who took it, or in the
queue once; one of a transaction that did not end in its commit nowhere at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Coroutine
from typing import Any, TypeVar

import mqbroker.client as mq
import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE_S
from tests.system.client.test_settling import uri

T = TypeVar("T")
QUEUE = "orders"
ROUNDS = 40  # of each producer
TURNS_MAX = 25  # of the event loop, after which a call is given up
SIZES_BYTES = (10, 1_000, 60_000, 200_000)


class Books:
    """What is sure of each message, and what may be. Nothing is forgotten: a maybe stays one unless it becomes sure."""

    def __init__(self) -> None:
        self.count = 0
        self.sent: set[str] = set()  # the broker has accepted them
        self.maybe_sent: set[str] = set()
        self.taken: set[str] = set()  # the broker has settled their acceptance
        self.maybe_taken: set[str] = set()
        self.seen: set[str] = set()

    def new(self) -> str:
        self.count += 1
        return str(self.count)

    def faults(self, left: Counter[str]) -> dict[str, list[str]]:
        """What cannot be, with what is `left` in the queue."""
        there = set(left) | self.seen
        found = {
            "lost": self.sent - set(left) - self.taken - self.maybe_taken,
            "never committed": there - self.sent - self.maybe_sent,
            "came back": self.taken & set(left),
            "twice": {name for name, count in left.items() if count > 1},
        }
        return {what: sorted(names) for what, names in found.items() if names}


class Client:
    """One task of producers or consumers, on a connection that it shares with others."""

    def __init__(self, books: Books, connection: mq.Connection, seed: int) -> None:
        self.books = books
        self.connection = connection
        self.rng = random.Random(seed)

    async def perhaps(self, work: Coroutine[Any, Any, T]) -> T:
        """What it came to, where it was not given up after some turns or some time. Raises CancelledError else."""
        choice = self.rng.random()
        if choice < 0.4:
            return await work
        task = asyncio.ensure_future(work)
        if choice < 0.8:
            for _ in range(self.rng.randrange(TURNS_MAX)):
                await asyncio.sleep(0)
        else:
            await asyncio.wait([task], timeout=self.rng.random() / 100)
        task.cancel()
        return await task

    # -- producers -----------------------------------------------------------------------------------------------------

    async def produce(self) -> None:
        sender = await self.connection.sender(QUEUE)
        for _ in range(ROUNDS):
            with contextlib.suppress(asyncio.CancelledError):
                await (self.send(sender) if self.rng.random() < 0.5 else self.send_together(sender))

    def message(self, name: str) -> mq.Message:
        return mq.Message(f"{name} ".ljust(self.rng.choice(SIZES_BYTES), "x"), durable=True)

    async def send(self, sender: mq.Sender) -> None:
        name = self.books.new()
        self.books.maybe_sent.add(name)
        await self.perhaps(sender.send(self.message(name)))
        self.books.sent.add(name)

    async def send_together(self, sender: mq.Sender) -> None:
        """In a transaction; what is given up of it may be in it all the same."""
        names = [self.books.new() for _ in range(self.rng.randrange(1, 5))]
        transaction = self.connection.transaction()
        await self.perhaps(transaction.begin())
        told = [name for name in names if await self.is_done(sender.send(self.message(name), transaction=transaction))]
        if self.rng.random() < 0.2:
            await self.perhaps(transaction.rollback())
            return
        self.books.maybe_sent.update(names)
        await self.perhaps(transaction.commit())
        self.books.sent.update(told)

    async def is_done(self, work: Coroutine[Any, Any, Any]) -> bool:
        try:
            return await self.perhaps(work) is not False
        except asyncio.CancelledError:
            return False

    # -- consumers -----------------------------------------------------------------------------------------------------

    async def consume(self, is_over: asyncio.Event) -> None:
        while not is_over.is_set():
            try:
                opening = self.connection.receiver(QUEUE, credit=self.rng.choice((1, 5, 50)), confirm=True)
                receiver = await self.perhaps(opening._open())
            except asyncio.CancelledError:
                continue
            for _ in range(self.rng.randrange(5, 50)):
                with contextlib.suppress(asyncio.CancelledError, TimeoutError):
                    await self.take(await self.perhaps(receiver.receive(timeout=0.1)))
            await receiver.abandon()

    async def take(self, message: mq.ReceivedMessage) -> None:
        name = str(message.text).split()[0]
        self.books.seen.add(name)
        choice = self.rng.random()
        if choice < 0.4:
            self.books.maybe_taken.add(name)
            if await self.perhaps(message.accept()):
                self.books.taken.add(name)
        elif choice < 0.7:
            await self.take_together(name, message)
        elif choice < 0.9:
            await self.perhaps(message.release())

    async def take_together(self, name: str, message: mq.ReceivedMessage) -> None:
        transaction = self.connection.transaction()
        await self.perhaps(transaction.begin())
        is_told = await self.is_done(message.accept(transaction=transaction))
        if self.rng.random() < 0.2:
            await self.perhaps(transaction.rollback())
            return
        self.books.maybe_taken.add(name)
        await self.perhaps(transaction.commit())
        if is_told:
            self.books.taken.add(name)


async def worked_off(broker: BrokerProcess, books: Books, seed: int) -> None:
    connections = [await mq.connect(uri(broker)) for _ in range(3)]
    clients = [Client(books, connections[number % 3], 100 * seed + number) for number in range(8)]
    is_over = asyncio.Event()
    consuming = [asyncio.ensure_future(each.consume(is_over)) for each in clients[4:]]
    await asyncio.gather(*(each.produce() for each in clients[:4]))
    is_over.set()
    await asyncio.gather(*consuming)
    for each in connections:
        await each.close()


async def rest(broker: BrokerProcess) -> Counter[str]:
    """Whatever the queue still holds: nobody else is connected."""
    await asyncio.to_thread(broker.wait_for_connections, 0)
    left: Counter[str] = Counter()
    async with mq.connect(uri(broker)) as connection:
        receiver = await connection.receiver(QUEUE, credit=500)
        while (await asyncio.to_thread(broker.admin, "queue-show", name=QUEUE))["message_count"]:
            for message in await receiver.receive_many(500, timeout=1):
                left[str(message.text).split()[0]] += 1
                await message.accept()
    return left


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_or_doubled_where_calls_are_given_up(broker: BrokerProcess, seed: int) -> None:
    async def go() -> None:
        books = Books()
        await worked_off(broker, books, seed)
        left = await rest(broker)
        assert books.faults(left) == {}
        assert min(len(books.sent), len(books.taken), len(books.seen)) > 20

    asyncio.run(asyncio.wait_for(go(), PATIENCE_S))
