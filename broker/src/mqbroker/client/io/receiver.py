"""Receivers for asyncio, and the messages that they take."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from mqbroker.base.errors import Refused
from mqbroker.client.errors import Closed, MessageFault, NothingMore
from mqbroker.client.io.consuming import consume
from mqbroker.client.io.inbox import RELEASED, Delivery, Inbox
from mqbroker.client.io.opening import Opening
from mqbroker.client.io.patience import at_most
from mqbroker.wire.performatives import Accepted, Error, Modified, Rejected, encode
from mqbroker.wire.types import Symbol

if TYPE_CHECKING:
    from mqbroker.client.io.transaction import Transaction

ACCEPTED, FAILED = Accepted(), Modified(delivery_failed=True)
S = TypeVar("S", Rejected, Modified)


class ReceivedMessage(Delivery):
    """A message that came. Settle it once: accept, reject, release or modify, or by the end of an `async with` block.

    Each says whether the broker was told: False means that the connection was lost meanwhile. The message comes again
    then, unless the broker heard it all the same, as one that stops may. With `confirm`, they return when the broker
    has settled as well.
    """

    __slots__ = ()

    async def accept(self, *, transaction: Transaction | None = None) -> bool:
        """It was worked on: the broker may forget it."""
        return await self._block.inbox.settle(self, ACCEPTED, transaction)

    async def reject(self, why: str = "", *, condition: str = "amqp:precondition-failed") -> bool:
        """It will never be of use: the broker drops it, or keeps it as a dead letter."""
        return await self._block.inbox.settle(self, rejected(why, condition))

    async def release(self) -> bool:
        """Not looked at: it goes back to its place, as if it had never come."""
        return await self._block.inbox.settle(self, RELEASED)

    async def modify(
        self, *, delivery_failed: bool = True, undeliverable_here: bool = False,
        annotations: dict[str, Any] | None = None,
    ) -> bool:  # fmt: skip
        """It goes back, with one delivery in vain more, and not to this receiver if `undeliverable_here`."""
        return await self._block.inbox.settle(self, modified(delivery_failed, undeliverable_here, annotations))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Accepted at the end of the block; back in its place where the block was cancelled, and where it failed, with
        one delivery in vain more. What the block settled itself stays so.
        """
        if self.is_settled:
            return
        if kind is None:
            await self.accept()
        else:
            leave(self, kind)


def leave(message: Delivery, kind: type[BaseException]) -> None:
    """An exception ended the work on a message: whose fault that was decides what it goes back as."""
    inbox = message._block.inbox
    if not message.is_settled and inbox.judge(message, None) is None:
        inbox.tell(message, FAILED if issubclass(kind, Exception) else RELEASED)


class Receiver:
    """Receives from one address. Made by `Connection.receiver`; for the tasks of its loop.

    Several tasks may take from one receiver; each message goes to one of them.
    """

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox

    def __repr__(self) -> str:
        return f"<Receiver of {self.address!r}: {self._inbox.state}>"

    @property
    def address(self) -> str:
        """The broker's name of it; a temporary queue has another one after each reconnect."""
        return self._inbox.address

    async def receive(self, timeout: float | None = None) -> ReceivedMessage:
        """The next message. Raises TimeoutError after `timeout` seconds; LinkFailed, ConnectionFailed, Closed."""
        return cast(ReceivedMessage, await self._inbox.next(timeout))

    async def receive_many(self, count_max: int = 100, timeout: float | None = None) -> list[ReceivedMessage]:
        """Those that are there, at most so many; waits for the first, and says [] after `timeout` seconds."""
        try:
            return cast(list[ReceivedMessage], await self._inbox.next_many(count_max, timeout))
        except NothingMore:
            return []

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        return self

    async def __anext__(self) -> ReceivedMessage:
        try:
            return cast(ReceivedMessage, await self._inbox.next())
        except Closed:
            raise StopAsyncIteration from None

    async def consume(self, handler: Callable[[ReceivedMessage], Awaitable[object]], *, concurrency: int = 1) -> None:
        """Have `handler` work on each message, on `concurrency` at a time, until the receiver is drained or closed.

        Each message is accepted when its handler returns, and goes back with one delivery in vain more where it raises,
        which is logged. Cancelled, it cancels the handlers, whose messages go back to their places.
        """
        await consume(self, handler, concurrency)

    async def drain(self, timeout: float | None = None) -> None:
        """Take nothing more: returns when all has come that was on its way. What has come can be received and settled,
        and behind it iterating ends. Raises TimeoutError after `timeout` seconds.
        """
        await self._inbox.drain(timeout)

    async def close(self, timeout: float | None = None) -> None:
        """End. What waits here goes back, and what was received can be settled as long as the connection stands; a
        durable subscription stays and collects. After `timeout` seconds all goes back, and TimeoutError is raised.
        """
        try:
            async with at_most(timeout, lambda: f"the receiver of {self.address!r} was not closed"):
                await self._inbox.close()
        except TimeoutError:
            await self._inbox.end()
            raise

    async def abandon(self) -> None:
        """End at once: what waits here or is not settled goes back."""
        await self._inbox.end()

    async def unsubscribe(self) -> None:
        """End at once, and with it the durable subscription and all that it has collected."""
        await self._inbox.end(for_good=True)


class ReceiverOpening(Opening[Receiver]):
    """A receiver that opens: also `async for message in connection.receiver("orders")`, which ends with the loop."""

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        receiver = await self
        try:
            async for message in receiver:
                yield message
        finally:
            await receiver.close()  # also where the loop was left: what is in hand can be settled


def rejected(why: str, condition: str) -> Rejected:
    """The outcome of a message that is of no use."""
    return _sayable(Rejected(error=Error(condition=Symbol(condition), description=why or None)))


def modified(delivery_failed: bool, undeliverable_here: bool, annotations: dict[str, Any] | None) -> Modified:
    """The outcome of a message that goes back with a remark."""
    told = None if annotations is None else {Symbol(key): value for key, value in annotations.items()}
    return _sayable(Modified(delivery_failed, undeliverable_here, told))


def _sayable(state: S) -> S:
    """The same outcome. Raises MessageFault for what AMQP cannot carry, while its author can still be told."""
    try:
        encode(state)
    except Refused as refused:
        raise MessageFault(f"the outcome cannot be told: {refused.description}") from None
    return state
