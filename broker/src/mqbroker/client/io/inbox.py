"""What waits for the application: messages, up to the credit, which are decoded when they are taken.

More credit is asked for as messages are taken, so who takes nothing gets nothing more. A message belongs to the
connection on which it came: settled after that is lost, it says False and comes again. Once closed, an inbox gives back
what waits and takes nothing more, and its link stands until all that was taken is settled, or nobody holds it any more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from mqbroker.client import inputs
from mqbroker.client.errors import ClientError, Closed, MessageFault, NothingMore, TransactionFailed, UnreadableMessage
from mqbroker.client.io.driver import Driver
from mqbroker.client.io.patience import at_most
from mqbroker.client.io.transaction import txn_of
from mqbroker.client.message import Message, decode_message
from mqbroker.client.options import ReceiverTerms
from mqbroker.wire.performatives import DeliveryState, Released
from mqbroker.wire.run import Run

if TYPE_CHECKING:
    from mqbroker.client.io.transaction import Transaction

RELEASED = Released()
CLOSE_S = 5.0  # that closing waits for the broker, whom what is in hand may be told meanwhile


class Block:
    """Messages that came together; taken from the front. `held_count`: those that were taken and not settled."""

    __slots__ = ("delivery_id", "epoch", "held_count", "inbox", "index", "is_settled", "run")

    def __init__(self, inbox: Inbox, epoch: int, run: Run, delivery_id: int, is_settled: bool) -> None:
        self.inbox = inbox
        self.epoch = epoch
        self.run = run
        self.delivery_id = delivery_id
        self.is_settled = is_settled
        self.index = 0
        self.held_count = 0

    def __del__(self) -> None:
        if self.held_count:
            self.inbox.dropped(self.epoch, self.held_count)


class Delivery(Message):
    """A message that came; what both shells' received messages share. `is_settled`: its outcome was told."""

    __slots__ = ("_block", "_delivery_id", "is_settled")

    _block: Block
    _delivery_id: int
    is_settled: bool


class Inbox:
    """Of one receiver. `message_class` is what its messages are."""

    def __init__(self, driver: Driver, terms: ReceiverTerms, message_class: type[Delivery]) -> None:
        self.address = terms.address
        self.terms = terms
        self.message_class = message_class
        self.on_interrupted: Callable[[], None] | None = None
        self._driver = driver
        self._handle = driver.new_handle(self)
        self._blocks: deque[Block] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._taken_count = 0  # that the machine was not told of
        self._held_count = 0  # that were taken and not settled
        self._epoch = -1
        self._is_at_end = False
        self._unreadable: UnreadableMessage | None = None  # what is raised next
        self._attached = asyncio.Event()
        self._error: ClientError | None = None  # nothing more is taken
        self._is_leaving = False  # closed, and there for what is to be settled
        self._is_over = False  # nothing more is settled

    async def open(self) -> None:
        """Have the broker attach it."""
        handle, terms = self._handle, self.terms
        opening = self._driver.patient_open(
            handle, lambda token: inputs.OpenReceiver(handle, terms, token), is_closed=not terms.outlives_its_link
        )
        self.address = await opening
        self._attached.set()

    async def attached(self) -> None:
        """Wait until it stands: at once, or after a reconnect. Raises what has ended it."""
        await self._attached.wait()
        self._raise_error()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise type(self._error)(self._error.why, self._error.condition)

    @property
    def state(self) -> str:
        """Where the receiver stands, in a word or two for people."""
        if self._error is not None:
            return "closed" if isinstance(self._error, Closed) else f"ended: {self._error.why}"
        waiting = sum(block.run.count - block.index for block in self._blocks)
        return f"{waiting} waiting, {self._held_count} to be settled"

    # -- taking --------------------------------------------------------------------------------------------------------

    async def next(self, timeout: float | None = None) -> Delivery:
        """The next message. Raises TimeoutError; NothingMore where a browser or a drained receiver is at its end."""
        message = self.take()
        if message is not None:
            return message
        if timeout is None:
            return await self._next()
        async with at_most(timeout, lambda: f"no message of {self.address!r} came"):
            return await self._next()

    async def _next(self) -> Delivery:
        while (message := self.take()) is None:
            self._raise_error()
            if self._is_at_end:
                raise NothingMore(f"{self.address!r} has nothing more to show" if self.terms.browse else
                                  f"the receiver of {self.address!r} was drained, and nothing more comes")  # fmt: skip
            await self._wait()
        return message

    async def next_many(self, count_max: int, timeout: float | None) -> list[Delivery]:
        """Those that are there, after a wait for the first; none after `timeout` seconds. Raises NothingMore."""
        try:
            deliveries = [await self.next(timeout)]
        except TimeoutError:
            return []
        try:
            while len(deliveries) < count_max and (message := self.take()) is not None:
                deliveries.append(message)
        except UnreadableMessage as unreadable:
            self._unreadable = unreadable  # those before it first
        return deliveries

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
            try:
                raise unreadable
            finally:
                del unreadable  # else it and its message would live on in a circle with this frame
        if not self._blocks:
            return None
        block = self._blocks[0]
        index = block.index
        block.index += 1
        if block.index >= block.run.count:
            self._blocks.popleft()
        self._took(block.epoch)
        message = self.message_class()
        message._block, message.is_settled = block, block.is_settled
        message._delivery_id = (block.delivery_id + index) & 0xFFFFFFFF
        if not block.is_settled:
            block.held_count += 1
            self._held_count += 1
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
        if self._taken_count * 2 >= self.terms.credit or not self._blocks:
            self._driver.put(inputs.Took(self._handle, epoch, self._taken_count))
            self._taken_count = 0

    # -- settling ------------------------------------------------------------------------------------------------------

    async def settle(self, message: Delivery, state: DeliveryState, transaction: Transaction | None = None) -> bool:
        """Give a message its outcome; says whether the broker was told."""
        known = self.judge(message, transaction)
        if known is not None:
            return known
        if not self.terms.confirm or transaction is not None:
            self.tell(message, state, transaction)
            return True
        asked = self._driver.ask(
            lambda token: inputs.Settle(self._handle, message._block.epoch, message._delivery_id, state, None, token)
        )
        try:
            told: bool = await self._driver.patient(asked)
        finally:
            message._block.held_count -= 1
            self._held_less(message._block.epoch, 1)
        return told

    def judge(self, message: Delivery, transaction: Transaction | None) -> bool | None:
        """What a settlement says where nobody is to be told; None, once, where the broker is. Raises ClientError."""
        if message.is_settled:
            if self.terms.settled or self.terms.browse:
                return True  # nothing is to be settled here
            raise ClientError("the message was settled before: settle each message once")
        if transaction is not None and txn_of(transaction, self._driver).epoch != message._block.epoch:
            raise TransactionFailed("the message came on another connection than that of the transaction")
        if not self.is_current(message):
            return False
        message.is_settled = True
        return None

    def tell(self, message: Delivery, state: DeliveryState, transaction: Transaction | None = None) -> None:
        """Give the outcome to the broker, if its connection still stands by then."""
        txn = None if transaction is None else txn_of(transaction, self._driver)
        self._driver.put(inputs.Settle(self._handle, message._block.epoch, message._delivery_id, state, txn, None))
        block = message._block
        block.held_count -= 1
        if block.epoch == self._epoch:
            self._held_count -= 1
            if self._is_leaving:
                self._look_for_last()

    def is_current(self, message: Delivery) -> bool:
        """Whether the connection on which the message came still stands, as far as is known."""
        return message._block.epoch == self._epoch and not self._is_over

    def _held_less(self, epoch: int, count: int) -> None:
        if epoch == self._epoch:
            self._held_count -= count
            self._look_for_last()

    def _look_for_last(self) -> None:
        if self._is_leaving and self._held_count <= 0:
            self._end()

    def dropped(self, epoch: int, count: int) -> None:
        """Nobody holds these any more, so nobody will settle them. Called where the last reference went."""
        with suppress(RuntimeError):  # the loop has ended
            self._driver.loop.call_soon_threadsafe(self._held_less, epoch, count)

    # -- ends ----------------------------------------------------------------------------------------------------------

    async def drain(self, timeout: float | None = None, *, is_leaving: bool = False) -> None:
        """Have the broker send nothing more, and wait until what was on its way is here. Raises TimeoutError."""
        asked = self._driver.ask(lambda token: inputs.Drain(self._handle, is_leaving, token))
        async with at_most(timeout, lambda: f"the broker did not say that {self.address!r} is drained"):
            await asked

    async def close(self) -> None:
        """Take nothing more and give back what waits; what was taken can be settled while the connection stands."""
        if self._error is not None:
            return
        self._refuse(Closed(f"the receiver of {self.address!r} was closed by the application"))
        if not self._held_count or self.terms.temporary:
            await self._ended(is_closed=not self.terms.outlives_its_link)
            return
        self._is_leaving = True
        leaving = self._driver.loop.create_task(self._leave())
        try:
            await asyncio.wait([leaving], timeout=CLOSE_S)
        except BaseException:
            leaving.cancel()
            self._end()
            raise

    async def _leave(self) -> None:
        try:
            await self.drain(self._driver.call_timeout_s, is_leaving=True)
        except TimeoutError:
            self._end()  # who does not answer that may send for ever

    async def end(self, *, for_good: bool = False) -> None:
        """End at once: what was not settled goes back. `for_good`: with its durable subscription."""
        if self._error is None or (self._is_leaving and not self._is_over):
            self._refuse(Closed(f"the receiver of {self.address!r} was closed by the application"))
            await self._ended(is_closed=for_good or not self.terms.outlives_its_link)

    def _refuse(self, error: ClientError) -> None:
        """Nobody takes anything more; what waits goes back."""
        self._error = self._error or error
        self._attached.set()
        self._unreadable = None
        blocks, self._blocks = self._blocks, deque()
        if self._held_count:
            for block in blocks:
                self._give_back(block)
        self._wake_all()

    def _give_back(self, block: Block) -> None:
        count = block.run.count - block.index
        first = (block.delivery_id + block.index) & 0xFFFFFFFF
        if not block.is_settled:
            self._driver.put(inputs.Settle(self._handle, block.epoch, first, RELEASED, None, None, count))

    def _end(self) -> None:
        if not self._is_over:
            self._is_over = True
            token = self._driver.loop.create_future()
            self._driver.put(inputs.CloseEnd(self._handle, not self.terms.outlives_its_link, token))

    async def _ended(self, *, is_closed: bool) -> None:
        self._is_over = True
        await self._driver.ask(lambda token: inputs.CloseEnd(self._handle, is_closed, token))

    # -- from the driver -----------------------------------------------------------------------------------------------

    def arrived(self, epoch: int, run: Run, delivery_id: int, is_settled: bool) -> None:
        """Messages of a run have come, under these delivery ids of this epoch."""
        self._epoch = epoch
        block = Block(self, epoch, run, delivery_id, is_settled or self.terms.settled or self.terms.browse)
        if self._error is not None:
            self._give_back(block)
            return
        self._blocks.append(block)
        for _ in range(min(run.count, len(self._waiters))):
            self._wake()

    def interrupted(self) -> None:
        """The connection is gone: what waits here will come again."""
        self._blocks.clear()
        self._unreadable = None
        self._taken_count = self._held_count = 0
        self._epoch = -1
        if self._is_leaving:
            self._end()
        if self._error is None:
            self._attached.clear()
        if self.on_interrupted is not None:
            self.on_interrupted()

    def restored(self, address: str) -> None:
        """It goes on, a temporary queue under another name."""
        self.address = address
        self._attached.set()

    def at_end(self) -> None:
        """A browser has seen everything, or all has come of what was on its way to who wants no more."""
        self._is_at_end = True
        self._wake_all()

    def gone(self, error: ClientError) -> None:
        """The receiver has ended for good, with this error; whoever waits is told."""
        self._is_over = True
        self._held_count = 0
        self._refuse(error)

    def outcomes(self, sendings: list[inputs.Sending], failure: Callable[[], ClientError] | None) -> None:
        """A receiver sends nothing, so no outcomes come to it."""

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _wake_all(self) -> None:
        while self._waiters:
            self._wake()
