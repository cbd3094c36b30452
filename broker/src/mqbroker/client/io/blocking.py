"""The blocking API: the asyncio shell in an event loop of its own thread, one for each connection.

Any thread may call; the work is done in the loop's thread, which also keeps heartbeats and reconnects going while the
application computes. Iterating takes what is there in chunks, so that a change of threads pays for many messages. A
call that is interrupted (Ctrl-C) is given up in the loop as well.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, cast

from mqbroker.client.errors import Closed, NothingMore, UnreadableMessage
from mqbroker.client.io import connection as aio
from mqbroker.client.io import receiver as aio_receiver
from mqbroker.client.io import sender as aio_sender
from mqbroker.client.io import transaction as aio_transaction
from mqbroker.client.io.opening import Closable, Opening
from mqbroker.client.io.receiver import ACCEPTED, RELEASED, Delivery, modified, rejected
from mqbroker.client.message import Message
from mqbroker.client.options import ConnectOptions, ReceiverOptions, SenderOptions
from mqbroker.client.uri import Endpoint
from mqbroker.wire.performatives import DeliveryState

V = TypeVar("V")
T = TypeVar("T", bound=Closable)
CHUNK_MAX = 100


class Runner:
    """A thread with an event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="mqbroker-client", daemon=True)
        self._lock = threading.Lock()
        self._soon: list[Callable[[], None]] = []
        self._is_over = False
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()

    def call(self, work: Coroutine[Any, Any, V], timeout: float | None = None) -> V:
        """Run it in the loop and wait. Raises TimeoutError after `timeout` seconds, and Closed behind the end."""
        with self._lock:
            if self._is_over or threading.current_thread() is self._thread:
                work.close()
                why = "the connection was closed" if self._is_over else "a blocking call in the connection's own thread"
                raise Closed(f"{why}; it cannot be used here")
            future: Future[V] = asyncio.run_coroutine_threadsafe(_within(work, timeout), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call_last(self, work: Coroutine[Any, Any, None]) -> None:
        """The same for the end of something, which is no matter any more when the connection has ended."""
        if self._is_over:
            work.close()
        else:
            self.call(work)

    def soon(self, work: Callable[[], None]) -> bool:
        """Have it done in the loop without waiting. False: the loop has ended."""
        with self._lock:
            if self._is_over:
                return False
            self._soon.append(work)
            if len(self._soon) == 1:  # else the loop was told, and has not come to it
                self._loop.call_soon_threadsafe(self._do_soon)
            return True

    def _do_soon(self) -> None:
        with self._lock:
            works, self._soon = self._soon, []
        for work in works:
            work()

    def end(self) -> None:
        """Stop the loop; from then on nothing can be called."""
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


async def _within(work: Coroutine[Any, Any, V], timeout: float | None) -> V:
    async with asyncio.timeout(timeout):
        return await work


class Block(ABC):
    """`with`: closed at its end, or abandoned if an exception ends it."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def abandon(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()


class ReceivedMessage(Delivery):
    """A message that came. Settle it once: accept, reject, release or modify.

    Each says whether the broker was told: False means that the connection was lost meanwhile, and that the message will
    come again. With `confirm`, they return when the broker has settled as well.
    """

    __slots__ = ("_runner",)

    _runner: Runner

    def accept(self, *, transaction: Transaction | None = None) -> bool:
        """It was worked on: the broker may forget it."""
        return self._settle(ACCEPTED, transaction)

    def reject(self, why: str = "", *, condition: str = "amqp:precondition-failed") -> bool:
        """It will never be of use: the broker drops it, or keeps it as a dead letter."""
        return self._settle(rejected(why, condition))

    def release(self) -> bool:
        """Not looked at: it goes back to its place, as if it had never come."""
        return self._settle(RELEASED)

    def modify(
        self, *, delivery_failed: bool = True, undeliverable_here: bool = False,
        annotations: dict[str, Any] | None = None,
    ) -> bool:  # fmt: skip
        """It goes back, with one delivery in vain more, and not to this receiver if `undeliverable_here`."""
        return self._settle(modified(delivery_failed, undeliverable_here, annotations))

    def _settle(self, state: DeliveryState, transaction: Transaction | None = None) -> bool:
        receiver = self.receiver
        if receiver.is_confirming or transaction is not None:
            return self._runner.call(receiver.settle(self, state, _inner(transaction)))
        known = receiver.judge(self, None)
        return self._runner.soon(lambda: receiver.tell(self, state)) if known is None else known


class Sender(Block):
    """Sends to one address; see `mqbroker.client.Sender`."""

    def __init__(self, runner: Runner, inner: aio_sender.Sender) -> None:
        self._runner = runner
        self._inner = inner
        self.address = inner.address

    @property
    def pending_count(self) -> int:
        """Messages without an outcome."""
        return self._inner.pending_count

    def send(
        self, message: Message | bytes | str, *, transaction: Transaction | None = None, timeout: float | None = None
    ) -> None:
        """Send a message and wait until the broker accepted it; a durable one is on its disk then."""
        self._runner.call(self._inner.send(message, transaction=_inner(transaction)), timeout)

    def post(
        self, message: Message | bytes | str, *, transaction: Transaction | None = None, timeout: float | None = None
    ) -> None:
        """Send a message without waiting for its outcome, which `flush` tells. Waits while too many have none."""
        self._runner.call(self._inner.post(message, transaction=_inner(transaction)), timeout)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything that was posted has its outcome. Raises ManyFailed if any was not accepted."""
        self._runner.call(self._inner.flush(), timeout)

    def send_many(
        self, messages: Iterable[Message | bytes | str], *, transaction: Transaction | None = None,
        timeout: float | None = None,
    ) -> int:  # fmt: skip
        """Send all of them in their order, many at a time, and wait until all are accepted; says how many.

        The iterable is read in the calling thread, a chunk at a time.
        """
        together = aio_sender.Posted()
        sent = 0
        chunk: list[Message | bytes | str] = []
        for message in messages:
            chunk.append(message)
            if len(chunk) >= CHUNK_MAX:
                sent += self._runner.call(self._inner.post_all(chunk, together, _inner(transaction)), timeout)
                chunk = []
        sent += self._runner.call(self._inner.post_all(chunk, together, _inner(transaction)), timeout)
        self._runner.call(together.wait(), timeout)
        return sent

    def close(self) -> None:
        """Wait for what is under way, then end. Raises ManyFailed if something posted was not accepted."""
        self._runner.call_last(self._inner.close())

    def abandon(self) -> None:
        """End without waiting; what has no outcome gets OutcomeUnknown."""
        self._runner.call_last(self._inner.abandon())


class Receiver(Block):
    """Receives from one address; see `mqbroker.client.Receiver`. Iterate over it in one thread at a time."""

    def __init__(self, runner: Runner, inner: aio_receiver.Receiver) -> None:
        self._runner = runner
        self._inner = inner
        self._chunk: deque[ReceivedMessage] = deque()

    @property
    def address(self) -> str:
        """The broker's name of it; a temporary queue has another one after each reconnect."""
        return self._inner.address

    def receive(self, timeout: float | None = None) -> ReceivedMessage:
        """The next message. Raises TimeoutError after `timeout` seconds; LinkFailed, ConnectionFailed, Closed."""
        try:
            return self._chunk.popleft()
        except IndexError:
            return self._ours(self._taken(self._inner.next(), timeout))

    def receive_many(self, count_max: int = 100, timeout: float | None = None) -> list[ReceivedMessage]:
        """Those that are there, at most so many; waits for the first, and says [] after `timeout` seconds."""
        if self._chunk:
            return [self._chunk.popleft() for _ in range(min(count_max, len(self._chunk)))]
        try:
            return self._next_many(count_max, timeout)
        except NothingMore:
            return []

    def _next_many(self, count_max: int, timeout: float | None = None) -> list[ReceivedMessage]:
        return [self._ours(each) for each in self._taken(self._inner.next_many(count_max, timeout))]

    def _taken(self, taking: Coroutine[Any, Any, V], timeout: float | None = None) -> V:
        try:
            return self._runner.call(taking, timeout)
        except UnreadableMessage as unreadable:
            self._ours(unreadable.message)
            raise

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return self

    def __next__(self) -> ReceivedMessage:
        """The next message. Those of a connection that was lost meanwhile are passed over: they come again."""
        while True:
            if not self._chunk:
                try:
                    self._chunk.extend(self._next_many(CHUNK_MAX))
                except Closed:
                    raise StopIteration from None
            message = self._chunk.popleft()
            if message.is_settled or self._inner.is_current(message):
                return message

    def _ours(self, message: Delivery) -> ReceivedMessage:
        ours = cast(ReceivedMessage, message)
        ours._runner = self._runner
        return ours

    def close(self) -> None:
        """End. What waits here or is not settled goes back; a durable subscription stays and collects."""
        self._chunk.clear()
        self._runner.call_last(self._inner.close())

    def abandon(self) -> None:
        """The same: nothing is under way that could be waited for."""
        self.close()

    def unsubscribe(self) -> None:
        """End, and with it the durable subscription and all that it has collected."""
        self._chunk.clear()
        self._runner.call(self._inner.unsubscribe())


class Transaction:
    """One transaction: `with connection.transaction() as tx`; see `mqbroker.client.Transaction`."""

    def __init__(self, runner: Runner, inner: aio_transaction.Transaction) -> None:
        self._runner = runner
        self.inner = inner

    def begin(self) -> Transaction:
        """Begin; `with` does it."""
        self._runner.call(self.inner.begin())
        return self

    def commit(self) -> None:
        """All of it happens. Raises TransactionFailed, or TransactionInDoubt if the answer was lost."""
        self._runner.call(self.inner.commit())

    def rollback(self) -> None:
        """Nothing of it happens; messages that were accepted in it come again."""
        self._runner.call(self.inner.rollback())

    def __enter__(self) -> Transaction:
        return self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.call(self.inner.__aexit__(kind, value, trace))


class Connection(Block):
    """One connection to a broker, perhaps another one after a reconnect; see `mqbroker.client.Connection`."""

    def __init__(self, runner: Runner, inner: aio.Connection) -> None:
        self._runner = runner
        self._inner = inner

    @property
    def is_connected(self) -> bool:
        """Whether a broker is connected right now."""
        return self._inner.is_connected

    @property
    def broker(self) -> Endpoint | None:
        """Where it is connected, or tries to be."""
        return self._inner.broker

    @property
    def container_id(self) -> str:
        """How this application calls itself."""
        return self._inner.container_id

    def sender(self, address: str = "", **options: Unpack[SenderOptions]) -> Sender:
        """A sender to an address, to `address::queue`, or without one: then each message says in `to` where it goes."""
        return Sender(self._runner, self._runner.call(_made(self._inner.sender(address, **options))))

    def receiver(self, address: str, **options: Unpack[ReceiverOptions]) -> Receiver:
        """A receiver of a queue, of a topic, or of `address::queue`."""
        return self._receiver(self._inner.receiver(address, **options))

    def browse(self, address: str, selector: str = "", credit: int = aio.CREDIT_DEFAULT) -> Receiver:
        """Copies of what is in a queue now; iterating over it ends where the queue ends."""
        return self._receiver(self._inner.browse(address, selector, credit))

    def temporary_queue(self, credit: int = aio.CREDIT_DEFAULT) -> Receiver:
        """A receiver of a queue of its own, which ends with it; `address` is what others send to."""
        return self._receiver(self._inner.temporary_queue(credit))

    def _receiver(self, opening: aio_receiver.ReceiverOpening) -> Receiver:
        inner = self._runner.call(_made(opening))
        inner.message_class = ReceivedMessage
        return Receiver(self._runner, inner)

    def transaction(self) -> Transaction:
        """A transaction, to be entered with `with`."""
        return Transaction(self._runner, self._inner.transaction())

    def request(self, address: str, message: Message | bytes | str, timeout: float | None = 30.0) -> Message:
        """Send a request and wait for its reply. Raises TimeoutError after `timeout` seconds, and as `Sender.send`."""
        return self._runner.call(self._inner.request(address, message, timeout))

    def reply(self, request: Message, message: Message | bytes | str) -> None:
        """Send the reply to a request that was received."""
        self._runner.call(self._inner.reply(request, message))

    def close(self) -> None:
        """Wait for what senders have under way, then close. Raises ManyFailed if something posted was not accepted."""
        self._end(self._inner.close())

    def abandon(self) -> None:
        """Close without waiting for outcomes."""
        self._end(self._inner.abandon())

    def _end(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            self._runner.call_last(work)
        finally:
            self._runner.end()


def connect(uri: str, **options: Unpack[ConnectOptions]) -> Connection:
    """Connect to the broker, or to one of the brokers, that the URI names; `ConnectOptions` says what else.

        with connect("amqp://user:password@host:5672?reconnect-attempts=-1") as connection: …

    Raises UriFault, ConnectionFailed, LoginRefused.
    """
    opening = aio.connect(uri, **options)
    runner = Runner()
    try:
        return Connection(runner, runner.call(_made(opening)))
    except BaseException:
        runner.end()
        raise


async def _made(opening: Opening[T]) -> T:
    return await opening


def _inner(transaction: Transaction | None) -> aio_transaction.Transaction | None:
    return None if transaction is None else transaction.inner
