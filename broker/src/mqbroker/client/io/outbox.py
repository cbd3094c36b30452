"""What is on its way out: who sends waits for room, and perhaps for the outcome.

Bounded: messages without an outcome are at most `pending_max` and hold at most `pending_bytes_max`; beyond that callers
wait, in the order in which they came.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterable, Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mqbroker.client import inputs
from mqbroker.client.errors import ClientError, Closed, ManyFailed
from mqbroker.client.io.driver import Driver
from mqbroker.client.io.patience import at_most
from mqbroker.client.io.transaction import txn_of
from mqbroker.client.message import DUPLICATE_ID, Message, encode_message
from mqbroker.client.options import SenderTerms
from mqbroker.wire.run import Run

if TYPE_CHECKING:
    from mqbroker.client.io.transaction import Transaction

FAILURES_MAX = 100  # that are kept with their messages; the others are counted


Sendable = Message | bytes | str


class Posted:
    """Messages whose outcomes somebody asks for together."""

    def __init__(self) -> None:
        self.count = 0
        self.failed_count = 0
        self.failures: list[tuple[Message, ClientError]] = []
        self._idle: asyncio.Future[None] | None = None

    def outcome(self, message: Message, failure: Callable[[], ClientError] | None) -> None:
        """One of the messages has its outcome: None, or the error that it failed with."""
        if failure is not None:
            self.failed_count += 1
            if len(self.failures) < FAILURES_MAX:
                self.failures.append((message, failure()))
        self.withdrawn()

    def withdrawn(self) -> None:
        """One has its outcome, or was not sent."""
        self.count -= 1
        if not self.count and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    async def wait(self) -> None:
        """Until all have theirs. Raises ManyFailed for those that were not accepted, once."""
        while self.count:
            if self._idle is None or self._idle.done():
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)
        failures, count = self.failures, self.failed_count
        self.failures, self.failed_count = [], 0
        if count:
            raise ManyFailed(count, failures)


class _Waiter:
    """Somebody who waits for room."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: asyncio.Future[None] | None = None


class Outbox:
    """What one sender has taken from the application and has no outcome for."""

    def __init__(self, driver: Driver, terms: SenderTerms) -> None:
        settings = driver.machine.settings
        self.address = terms.address
        self._driver = driver
        self._terms = terms
        self._handle = driver.new_handle(self)
        self._count_max = settings.pending_max
        self._bytes_max = settings.pending_bytes_max
        self._count = 0
        self._bytes = 0
        self._waiters: deque[_Waiter] = deque()
        self._idle: asyncio.Future[None] | None = None
        self._posted = Posted()
        self._error: ClientError | None = None
        self._id_prefix = os.urandom(16).hex() if terms.duplicate_detection else ""
        self._id_count = 0

    async def open(self) -> None:
        """Have the broker attach it."""
        handle, terms = self._handle, self._terms
        await self._driver.patient_open(handle, lambda token: inputs.OpenSender(handle, terms, token))

    @property
    def pending_count(self) -> int:
        """Messages without an outcome."""
        return self._count

    @property
    def error(self) -> ClientError | None:
        """The error that has ended the sender; None while it goes on."""
        return self._error

    async def send(self, message: Sendable, transaction: Transaction | None, timeout: float | None) -> None:
        """Send a message and wait for its outcome."""
        sent: list[Message] = []
        if timeout is None:
            await self._driver.patient(self._send(message, transaction, sent))
            return
        async with at_most(timeout, lambda: self._in_vain(sent)):
            await self._driver.patient(self._send(message, transaction, sent))

    def _in_vain(self, sent: list[Message]) -> str:
        if sent:
            return f"the message to {self.address!r} was sent, may have been taken, and got no outcome"
        return (
            f"the message to {self.address!r} was not sent: there was no room beside {self._count} without an outcome"
        )

    async def _send(self, message: Sendable, transaction: Transaction | None, sent: list[Message]) -> None:
        outcome: asyncio.Future[None] = self._driver.loop.create_future()
        whole = _as_message(message)
        await self._put(whole, outcome, transaction)
        sent.append(whole)
        await outcome

    async def post(self, message: Sendable, transaction: Transaction | None, timeout: float | None) -> None:
        """Send a message and wait for room only."""
        if timeout is None:
            await self._post(message, self._posted, transaction)
        else:
            await self.post_many([message], self._posted, transaction, timeout)

    async def flush(self, timeout: float | None) -> None:
        """Wait until everything that was posted has its outcome."""
        await self.settled(self._posted, timeout)

    async def post_many(
        self, messages: Iterable[Sendable] | AsyncIterable[Sendable], together: Posted,
        transaction: Transaction | None, timeout: float | None,
    ) -> int:  # fmt: skip
        """Send messages whose outcomes are asked for together, and wait for room only; says how many."""
        sent = 0
        async with at_most(timeout, lambda: f"{sent} messages were sent to {self.address!r}, and there was no room"):
            if isinstance(messages, AsyncIterable):
                async for message in messages:
                    await self._post(message, together, transaction)
                    sent += 1
            else:
                for message in messages:
                    await self._post(message, together, transaction)
                    sent += 1
        return sent

    async def settled(self, together: Posted, timeout: float | None) -> None:
        """Wait until all of them have their outcome. Raises ManyFailed for those that were not accepted, once."""
        async with at_most(timeout, lambda: f"{together.count} messages to {self.address!r} got no outcome"):
            await together.wait()

    async def _post(self, message: Sendable, posted: Posted, transaction: Transaction | None) -> None:
        posted.count += 1
        try:
            await self._put(_as_message(message), posted, transaction)
        except BaseException:
            posted.withdrawn()
            raise

    async def close(self) -> None:
        """Wait for what is under way, then end."""
        try:
            if self._error is None:
                while self._count:
                    if self._idle is None or self._idle.done():
                        self._idle = self._driver.loop.create_future()
                    await asyncio.shield(self._idle)  # others may wait for it as well
                await self._posted.wait()
        finally:
            await self.end()

    async def end(self) -> None:
        """End the sender, and wait for no outcome."""
        if self._error is None:
            self._error = Closed(f"the sender of {self.address!r} was closed by the application")
            self._wake()
            await self._driver.ask(lambda token: inputs.CloseEnd(self._handle, True, token))

    # -- room ----------------------------------------------------------------------------------------------------------

    async def _put(self, message: Message, sink: Any, transaction: Transaction | None) -> None:
        payload = self._encoded(message)
        size = len(payload)
        if self._waiters or self._is_full(size):
            await self._wait_for_room(size)
        if self._error is not None:
            raise type(self._error)(self._error.why, self._error.condition)
        txn = None if transaction is None else txn_of(transaction, self._driver)
        self._count += 1
        self._bytes += size
        self._driver.put(inputs.Post(self._handle, inputs.Sending(payload, (self, sink, message), txn)))

    def _encoded(self, message: Message) -> bytes:
        if self._id_prefix and DUPLICATE_ID not in message.application_properties:
            # In a copy: the application may send the same object again, and that is another message.
            self._id_count += 1
            identity = {DUPLICATE_ID: f"{self._id_prefix}-{self._id_count}"}
            message = replace(message, application_properties=message.application_properties | identity)
        return encode_message(message)

    def _is_full(self, size: int) -> bool:
        return self._count >= self._count_max or (self._count > 0 and self._bytes + size > self._bytes_max)

    async def _wait_for_room(self, size: int) -> None:
        """Whoever came first goes first: one waiter is in front until there is room for it."""
        waiter = _Waiter()
        self._waiters.append(waiter)
        try:
            while self._error is None and (self._waiters[0] is not waiter or self._is_full(size)):
                waiter.future = self._driver.loop.create_future()
                await waiter.future
        finally:
            self._waiters.remove(waiter)
            self._wake()  # whoever is next may have room as well

    def _wake(self) -> None:
        for waiter in self._waiters:
            if waiter.future is not None and not waiter.future.done():
                waiter.future.set_result(None)
            if self._error is None:
                return

    # -- from the driver -----------------------------------------------------------------------------------------------

    def outcomes(self, sendings: list[inputs.Sending], failure: Callable[[], ClientError] | None) -> None:
        """Messages have their outcome."""
        for sending in sendings:
            self._count -= 1
            self._bytes -= len(sending.payload)
            _, sink, message = sending.token
            if isinstance(sink, Posted):
                sink.outcome(message, failure)
            elif not sink.done():
                if failure is None:
                    sink.set_result(None)
                else:
                    sink.set_exception(failure())
        if not self._count and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)
        self._wake()

    def gone(self, error: ClientError) -> None:
        """The sender has ended for good, with this error; whoever waits is told."""
        self._error = self._error or error
        self._wake()

    def arrived(self, epoch: int, run: Run, delivery_id: int, is_settled: bool) -> None:
        """Nothing arrives at a sender."""

    def interrupted(self) -> None:
        """What had no outcome is the machine's to send again."""

    def restored(self, address: str) -> None:
        """The link stands again after a loss, which changes nothing here."""

    def at_end(self) -> None:
        """A sender has no end of messages."""


def _as_message(message: Sendable) -> Message:
    return message if isinstance(message, Message) else Message(message)
