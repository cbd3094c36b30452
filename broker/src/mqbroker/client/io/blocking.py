"""The blocking API: the asyncio shell in an event loop of its own thread, one for each connection.

Any thread may call; the work is done in the loop's thread, which also keeps heartbeats and reconnects going while the
application computes. Iterating takes what is there in chunks, so that a change of threads pays for many messages. A
call that is interrupted (Ctrl-C) is given up in the loop as well.
"""

from __future__ import annotations

import time
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from itertools import islice
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, cast

from mqbroker.client.errors import Closed, NothingMore, UnreadableMessage
from mqbroker.client.io import connection as aio
from mqbroker.client.io import receiver as aio_receiver
from mqbroker.client.io import sender as aio_sender
from mqbroker.client.io import transaction as aio_transaction
from mqbroker.client.io.consuming import consume_in_threads
from mqbroker.client.io.inbox import RELEASED, Delivery, Inbox
from mqbroker.client.io.opening import Closable, Opening
from mqbroker.client.io.outbox import Posted, Sendable
from mqbroker.client.io.receiver import ACCEPTED, leave, modified, rejected
from mqbroker.client.io.runner import Runner
from mqbroker.client.io.signatures import with_options
from mqbroker.client.message import Message
from mqbroker.client.options import (
    ConnectOptions,
    ReceiverOptions,
    ReceiverTerms,
    SenderOptions,
    SenderTerms,
    Settings,
)
from mqbroker.client.uri import Endpoint
from mqbroker.wire.performatives import DeliveryState

V = TypeVar("V")
T = TypeVar("T", bound=Closable)
CHUNK_MAX = 100


class Block(ABC):
    """`with`: closed at its end, or abandoned if an exception ends it."""

    @abstractmethod
    def close(self, timeout: float | None = None) -> None: ...

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
    """A message that came. Settle it once: accept, reject, release or modify, or by the end of a `with` block.

    Each says whether the broker was told: False means that the connection was lost meanwhile. The message comes again
    then, unless the broker heard it all the same, as one that stops may. With `confirm`, they return when the broker
    has settled as well.
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
        inbox = self._block.inbox
        if inbox.terms.confirm or transaction is not None:
            return self._runner.call(inbox.settle(self, state, _inner(transaction)))
        known = inbox.judge(self, None)
        return self._runner.soon(lambda: inbox.tell(self, state)) if known is None else known

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Accepted at the end of the block; back in its place where the program is interrupted, and where the block
        failed, with one delivery in vain more. What the block settled itself stays so.
        """
        if self.is_settled:
            return
        if kind is None:
            self.accept()
        else:
            self._runner.soon(lambda: leave(self, kind))


class Sender(Block):
    """Sends to one address; see `mqbroker.client.Sender`."""

    def __init__(self, runner: Runner, inner: aio_sender.Sender) -> None:
        self._runner = runner
        self._inner = inner

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def address(self) -> str:
        """Where messages go; empty where each says that itself."""
        return self._inner.address

    @property
    def pending_count(self) -> int:
        """Messages without an outcome."""
        return self._inner.pending_count

    def send(self, message: Sendable, *, transaction: Transaction | None = None, timeout: float | None = None) -> None:
        """Send a message and wait until the broker accepted it; a durable one is on its disk then."""
        self._runner.call(self._inner.send(message, transaction=_inner(transaction), timeout=timeout))

    def post(self, message: Sendable, *, transaction: Transaction | None = None, timeout: float | None = None) -> None:
        """Send a message without waiting for its outcome, which `flush` tells. Waits while too many have none."""
        self._runner.call(self._inner.post(message, transaction=_inner(transaction), timeout=timeout))

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything that was posted has its outcome. Raises ManyFailed if any was not accepted."""
        self._runner.call(self._inner.flush(timeout))

    def send_many(
        self, messages: Iterable[Sendable], *, transaction: Transaction | None = None, timeout: float | None = None
    ) -> int:
        """Send all of them in their order, many at a time, and wait until all are accepted; says how many.

        The iterable is read in the calling thread, a chunk at a time.
        """
        outbox, together, tx = self._inner._outbox, Posted(), _inner(transaction)
        end_s = None if timeout is None else time.monotonic() + timeout
        sent, rest = 0, iter(messages)
        while chunk := list(islice(rest, CHUNK_MAX)):
            sent += self._runner.call(outbox.post_many(chunk, together, tx, _left_s(end_s)))
        self._runner.call(outbox.settled(together, _left_s(end_s)))
        return sent

    def close(self, timeout: float | None = None) -> None:
        """Wait for what is under way, then end. Raises ManyFailed if something posted was not accepted."""
        self._runner.call_last(self._inner.close(timeout))

    def abandon(self) -> None:
        """End without waiting; what has no outcome gets OutcomeUnknown."""
        self._runner.call_last(self._inner.abandon())


class Receiver(Block):
    """Receives from one address; see `mqbroker.client.Receiver`. Iterate over it in one thread at a time.

    One that nobody holds any more is closed: the loop over it was left, say.
    """

    def __init__(self, runner: Runner, inner: aio_receiver.Receiver) -> None:
        self._runner = runner
        self._inner = inner
        self._inbox = inner._inbox
        self._inbox.message_class = ReceivedMessage
        self._chunk: deque[ReceivedMessage] = deque()
        self._left = weakref.finalize(self, _closed, runner, self._inbox, self._chunk)
        self._left.atexit = False

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def address(self) -> str:
        """The broker's name of it; a temporary queue has another one after each reconnect."""
        return self._inner.address

    def receive(self, timeout: float | None = None) -> ReceivedMessage:
        """The next message. Raises TimeoutError after `timeout` seconds; LinkFailed, ConnectionFailed, Closed."""
        try:
            return self._chunk.popleft()
        except IndexError:
            return self._ours(self._taken(self._inbox.next(timeout)))

    def receive_many(self, count_max: int = 100, timeout: float | None = None) -> list[ReceivedMessage]:
        """Those that are there, at most so many; waits for the first, and says [] after `timeout` seconds."""
        if self._chunk:
            return [self._chunk.popleft() for _ in range(min(count_max, len(self._chunk)))]
        try:
            return self._next_many(count_max, timeout)
        except NothingMore:
            return []

    def _next_many(self, count_max: int, timeout: float | None = None) -> list[ReceivedMessage]:
        return [self._ours(each) for each in self._taken(self._inbox.next_many(count_max, timeout))]

    def _taken(self, taking: Coroutine[Any, Any, V]) -> V:
        try:
            return self._runner.call(taking)
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
            if message.is_settled or self._inbox.is_current(message):
                return message

    def _ours(self, message: Delivery) -> ReceivedMessage:
        ours = cast(ReceivedMessage, message)
        ours._runner = self._runner
        return ours

    def consume(self, handler: Callable[[ReceivedMessage], object], *, concurrency: int = 1) -> None:
        """Have `handler` work on each message, in `concurrency` threads, until the receiver is drained or closed.

        Each message is accepted when its handler returns, and goes back with one delivery in vain more where it raises,
        which is logged. Interrupted, it closes the receiver and waits for the handlers.
        """
        consume_in_threads(self, handler, concurrency)

    def drain(self, timeout: float | None = None) -> None:
        """Take nothing more: returns when all has come that was on its way. What has come can be received and settled,
        and behind it iterating ends. Raises TimeoutError after `timeout` seconds.
        """
        self._runner.call(self._inner.drain(timeout))

    def close(self, timeout: float | None = None) -> None:
        """End. What waits here goes back, and what was received can be settled as long as the connection stands; a
        durable subscription stays and collects. After `timeout` seconds all goes back, and TimeoutError is raised.
        """
        self._give_back()
        self._runner.call_last(self._inner.close(timeout))

    def abandon(self) -> None:
        """End at once: what waits here or is not settled goes back."""
        self._chunk.clear()
        self._runner.call_last(self._inner.abandon())

    def unsubscribe(self) -> None:
        """End at once, and with it the durable subscription and all that it has collected."""
        self._chunk.clear()
        self._runner.call(self._inner.unsubscribe())

    def _give_back(self) -> None:
        chunk = list(self._chunk)
        self._chunk.clear()
        self._runner.soon(lambda: _release(self._inbox, chunk))


def _release(inbox: Inbox, chunk: Iterable[ReceivedMessage]) -> None:
    """Messages that were taken in advance, and that nobody has seen."""
    for message in chunk:
        if not message.is_settled and inbox.judge(message, None) is None:
            inbox.tell(message, RELEASED)


def _closed(runner: Runner, inbox: Inbox, chunk: deque[ReceivedMessage]) -> None:
    """Nobody holds the receiver any more. Called in whichever thread that was."""

    def close() -> None:
        _release(inbox, chunk)
        chunk.clear()
        runner.begin(inbox.close())

    runner.soon(close)


class Transaction:
    """One transaction: `with connection.transaction() as tx`; see `mqbroker.client.Transaction`."""

    def __init__(self, runner: Runner, inner: aio_transaction.Transaction) -> None:
        self._runner = runner
        self._inner = inner

    def __repr__(self) -> str:
        return repr(self._inner)

    def begin(self) -> Transaction:
        """Begin the transaction, and give it back; `with` does it by itself."""
        self._runner.call(self._inner.begin())
        return self

    def commit(self) -> None:
        """All of it happens. Raises TransactionFailed, or TransactionInDoubt if the answer was lost."""
        self._runner.call(self._inner.commit())

    def rollback(self) -> None:
        """Nothing of it happens; messages that were accepted in it come again."""
        self._runner.call(self._inner.rollback())

    def __enter__(self) -> Transaction:
        return self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.call(self._inner.__aexit__(kind, value, trace))


class Connection(Block):
    """One connection to a broker, perhaps another one after a reconnect; see `mqbroker.client.Connection`."""

    def __init__(self, runner: Runner, inner: aio.Connection) -> None:
        self._runner = runner
        self._inner = inner

    def __repr__(self) -> str:
        return repr(self._inner)

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

    @with_options(SenderOptions, SenderTerms)
    def sender(self, address: str = "", **options: Unpack[SenderOptions]) -> Sender:
        """A sender to an address, to `address::queue`, or without one: then each message says in `to` where it goes."""
        return Sender(self._runner, self._runner.call(_made(self._inner.sender(address, **options))))

    @with_options(ReceiverOptions, ReceiverTerms)
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
        return Receiver(self._runner, self._runner.call(_made(opening)))

    def transaction(self) -> Transaction:
        """A transaction, to be entered with `with`."""
        return Transaction(self._runner, self._inner.transaction())

    def request(self, address: str, message: Message | bytes | str, timeout: float | None = 30.0) -> Message:
        """Send a request and wait for its reply. Raises TimeoutError after `timeout` seconds, and as `Sender.send`."""
        return self._runner.call(self._inner.request(address, message, timeout))

    def reply(self, request: Message, message: Message | bytes | str) -> None:
        """Send the reply to a request that was received."""
        self._runner.call(self._inner.reply(request, message))

    def close(self, timeout: float | None = None) -> None:
        """Wait for what senders have under way, then close. Raises ManyFailed if something posted was not accepted.

        After `timeout` seconds what is under way is abandoned, and TimeoutError is raised.
        """
        self._end(self._inner.close(timeout))

    def abandon(self) -> None:
        """Close without waiting: for outcomes, or for the broker's answer."""
        self._end(self._inner.abandon())

    def _end(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            self._runner.call_last(work)
        finally:
            self._runner.end()


@with_options(ConnectOptions, Settings)
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
    return None if transaction is None else transaction._inner


def _left_s(end_s: float | None) -> float | None:
    return None if end_s is None else max(end_s - time.monotonic(), 0)
