"""Receivers: messages wait here up to the credit, and are decoded when the application takes them.

More credit is asked for as messages are taken, so who takes nothing gets nothing more. A message belongs to the
connection on which it came: settled after that is lost, it says False and comes again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from mqbroker.base.errors import Refused
from mqbroker.client import inputs
from mqbroker.client.errors import ClientError, Closed, MessageFault, NothingMore, TransactionFailed, UnreadableMessage
from mqbroker.client.io.driver import Driver
from mqbroker.client.io.opening import Opening
from mqbroker.client.message import Message, decode_message
from mqbroker.client.options import ReceiverTerms
from mqbroker.wire.performatives import Accepted, DeliveryState, Error, Modified, Rejected, Released, encode
from mqbroker.wire.run import Run
from mqbroker.wire.types import Symbol

if TYPE_CHECKING:
    from mqbroker.client.io.transaction import Transaction

ACCEPTED, RELEASED = Accepted(), Released()
S = TypeVar("S", Rejected, Modified)


class Delivery(Message):
    """A message that came, and where from; what both shells' received messages share."""

    __slots__ = ("delivery_id", "epoch", "is_settled", "receiver")

    delivery_id: int
    epoch: int
    is_settled: bool
    receiver: Receiver


class ReceivedMessage(Delivery):
    """A message that came. Settle it once: accept, reject, release or modify.

    Each says whether the broker was told: False means that the connection was lost meanwhile, and that the message will
    come again. With `confirm`, they return when the broker has settled as well.
    """

    __slots__ = ()

    async def accept(self, *, transaction: Transaction | None = None) -> bool:
        """It was worked on: the broker may forget it."""
        return await self.receiver.settle(self, ACCEPTED, transaction)

    async def reject(self, why: str = "", *, condition: str = "amqp:precondition-failed") -> bool:
        """It will never be of use: the broker drops it, or keeps it as a dead letter."""
        return await self.receiver.settle(self, rejected(why, condition))

    async def release(self) -> bool:
        """Not looked at: it goes back to its place, as if it had never come."""
        return await self.receiver.settle(self, RELEASED)

    async def modify(
        self, *, delivery_failed: bool = True, undeliverable_here: bool = False,
        annotations: dict[str, Any] | None = None,
    ) -> bool:  # fmt: skip
        """It goes back, with one delivery in vain more, and not to this receiver if `undeliverable_here`."""
        return await self.receiver.settle(self, modified(delivery_failed, undeliverable_here, annotations))


class _Block:
    """Messages that came together; taken from the front."""

    __slots__ = ("delivery_id", "epoch", "index", "is_settled", "run")

    def __init__(self, epoch: int, run: Run, delivery_id: int, is_settled: bool) -> None:
        self.epoch = epoch
        self.run = run
        self.delivery_id = delivery_id
        self.is_settled = is_settled
        self.index = 0


class Receiver:
    """Receives from one address. Made by `Connection.receiver`; for the tasks of its loop.

    Several tasks may take from one receiver; each message goes to one of them. `address` is the broker's name of it,
    which for a temporary queue is another one after each reconnect.
    """

    message_class: type[Delivery] = ReceivedMessage

    def __init__(self, driver: Driver, terms: ReceiverTerms) -> None:
        self.address = terms.address
        self.on_interrupted: Callable[[], None] | None = None
        self._driver = driver
        self._terms = terms
        self._handle = driver.new_handle(self)
        self._blocks: deque[_Block] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._taken_count = 0  # that the machine was not told of
        self._epoch = -1
        self._is_at_end = False
        self._unreadable: UnreadableMessage | None = None  # what is raised next
        self._attached = asyncio.Event()
        self._error: ClientError | None = None

    async def open(self) -> Receiver:
        """Used by `Connection.receiver`."""
        handle, terms = self._handle, self._terms
        self.address = await self._driver.patient_open(handle, lambda token: inputs.OpenReceiver(handle, terms, token))
        self._attached.set()
        return self

    async def attached(self) -> None:
        """Wait until it stands: at once, or after a reconnect. Raises what has ended it."""
        await self._attached.wait()
        self._raise_error()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise type(self._error)(self._error.why, self._error.condition)

    # -- taking --------------------------------------------------------------------------------------------------------

    async def receive(self, timeout: float | None = None) -> ReceivedMessage:
        """The next message. Raises TimeoutError after `timeout` seconds; LinkFailed, ConnectionFailed, Closed."""
        message = self.take()
        if message is None:
            async with asyncio.timeout(timeout):
                message = await self.next()
        return cast(ReceivedMessage, message)

    async def receive_many(self, count_max: int = 100, timeout: float | None = None) -> list[ReceivedMessage]:
        """Those that are there, at most so many; waits for the first, and says [] after `timeout` seconds."""
        try:
            return cast(list[ReceivedMessage], await self.next_many(count_max, timeout))
        except NothingMore:
            return []

    async def next_many(self, count_max: int, timeout: float | None) -> list[Delivery]:
        """The same, of this receiver's own class. Raises NothingMore where a browser is at its end."""
        try:
            async with asyncio.timeout(timeout):
                found = [await self.next()]
        except TimeoutError:
            return []
        try:
            while len(found) < count_max and (message := self.take()) is not None:
                found.append(message)
        except UnreadableMessage as unreadable:
            self._unreadable = unreadable  # those before it first
        return found

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        return self

    async def __anext__(self) -> ReceivedMessage:
        try:
            return cast(ReceivedMessage, await self.next())
        except Closed:
            raise StopAsyncIteration from None

    async def next(self) -> Delivery:
        """The next message, of this receiver's own class."""
        while (message := self.take()) is None:
            self._raise_error()
            if self._is_at_end:
                raise NothingMore(f"{self.address!r} has nothing more to browse")
            await self._wait()
        return message

    async def _wait(self) -> None:
        waiter: asyncio.Future[None] = self._driver.loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except BaseException:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            else:
                self._wake()  # a message was meant for us: it is the next one's
            raise

    def take(self) -> Delivery | None:
        """The next message if one is there. Raises UnreadableMessage in the place of one that cannot be shown."""
        if self._unreadable is not None:
            unreadable, self._unreadable = self._unreadable, None
            raise unreadable
        if not self._blocks:
            return None
        block = self._blocks[0]
        index = block.index
        block.index += 1
        if block.index >= block.run.count:
            self._blocks.popleft()
        self._took(block.epoch)
        message = self.message_class()
        message.receiver, message.epoch, message.is_settled = self, block.epoch, block.is_settled
        message.delivery_id = (block.delivery_id + index) & 0xFFFFFFFF
        payload = bytes(block.run.payload(index))
        try:
            decode_message(payload, message)
        except MessageFault as fault:
            # Nobody but the application can say what is to become of it: the broker took it for well-formed.
            raise self._unreadable_of(message, payload, fault) from None
        return message

    def _unreadable_of(self, message: Delivery, payload: bytes, fault: MessageFault) -> UnreadableMessage:
        why = f"a message of {self.address!r} {fault.why}; settle it by this error's `message`, its bytes are `payload`"
        error = UnreadableMessage(why, fault.condition)
        error.message, error.payload = message, payload
        return error

    def _took(self, epoch: int) -> None:
        self._taken_count += 1
        if self._taken_count * 2 >= self._terms.credit or not self._blocks:
            self._driver.put(inputs.Took(self._handle, epoch, self._taken_count))
            self._taken_count = 0

    # -- settling ------------------------------------------------------------------------------------------------------

    async def settle(self, message: Delivery, state: DeliveryState, transaction: Transaction | None = None) -> bool:
        """Used by the messages."""
        known = self.judge(message, transaction)
        if known is not None:
            return known
        if not self.is_confirming or transaction is not None:
            self.tell(message, state, transaction)
            return True
        told: bool = await self._driver.patient(
            self._driver.ask(
                lambda token: inputs.Settle(self._handle, message.epoch, message.delivery_id, state, None, token)
            )
        )
        return told

    def judge(self, message: Delivery, transaction: Transaction | None) -> bool | None:
        """What a settlement says where nobody is to be told; None, once, where the broker is. Raises ClientError."""
        if message.is_settled:
            if self._terms.settled or self._terms.browse:
                return True  # nothing is to be settled here
            raise ClientError("the message was settled before: settle each message once")
        if transaction is not None and transaction.txn_on(self._driver).epoch != message.epoch:
            raise TransactionFailed("the message came on another connection than that of the transaction")
        if not self.is_current(message):
            return False
        message.is_settled = True
        return True if self._terms.browse else None

    def tell(self, message: Delivery, state: DeliveryState, transaction: Transaction | None = None) -> None:
        """Give the outcome to the broker, if its connection still stands by then."""
        txn = None if transaction is None else transaction.txn
        self._driver.put(inputs.Settle(self._handle, message.epoch, message.delivery_id, state, txn, None))

    def is_current(self, message: Delivery) -> bool:
        """Whether the connection on which the message came still stands, as far as is known."""
        return message.epoch == self._epoch and self._error is None

    @property
    def is_confirming(self) -> bool:
        """Whether settlements wait for the broker's own."""
        return self._terms.confirm

    # -- ends ----------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """End. What waits here or is not settled goes back; a durable subscription stays and collects."""
        await self._close(is_closed=not (self._terms.subscription and self._terms.durable))

    async def abandon(self) -> None:
        """The same: nothing is under way that could be waited for."""
        await self.close()

    async def unsubscribe(self) -> None:
        """End, and with it the durable subscription and all that it has collected."""
        await self._close(is_closed=True)

    async def _close(self, *, is_closed: bool) -> None:
        if self._error is None:
            self.gone(Closed(f"the receiver of {self.address!r} was closed by the application"))
            await self._driver.ask(lambda token: inputs.CloseEnd(self._handle, is_closed, token))

    # -- from the driver -----------------------------------------------------------------------------------------------

    def arrived(self, epoch: int, run: Run, delivery_id: int, is_settled: bool) -> None:
        """Messages came."""
        if self._error is None:
            self._epoch = epoch
            self._blocks.append(_Block(epoch, run, delivery_id, is_settled or self._terms.settled))
            for _ in range(min(run.count, len(self._waiters))):
                self._wake()

    def interrupted(self) -> None:
        """The connection is gone: what waits here will come again."""
        self._blocks.clear()
        self._unreadable = None
        self._taken_count = 0
        self._epoch = -1
        self._attached.clear()
        if self.on_interrupted is not None:
            self.on_interrupted()

    def restored(self, address: str) -> None:
        """It goes on, a temporary queue under another name."""
        self.address = address
        self._attached.set()

    def at_end(self) -> None:
        """A browser has seen everything."""
        self._is_at_end = True
        self._wake_all()

    def gone(self, error: ClientError) -> None:
        """The receiver has ended."""
        if self._error is None:
            self._error = error
            self._attached.set()
            self._blocks.clear()
            self._unreadable = None
            self._wake_all()

    def outcomes(self, sendings: list[inputs.Sending], failure: Callable[[], ClientError] | None) -> None:
        """Nothing is sent here."""

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _wake_all(self) -> None:
        while self._waiters:
            self._wake()


class ReceiverOpening(Opening[Receiver]):
    """A receiver that opens: also `async for message in connection.receiver("orders")`."""

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        async with self as receiver:
            async for message in receiver:
                yield message


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
