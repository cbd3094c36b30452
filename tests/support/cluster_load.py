"""Durable messages into some nodes of a cluster and out of others, through whatever happens to them.

    load = Load(queue, producers={"mq1": uri, …}, consumers={"mq3": uri})
    load.begin()
    …
    load.stop_sending()
    violations = load.verdict(left=0)

Producers and consumers are the project's own client library, one connection each; it comes back by itself and sends
again what had no answer, with the id by which brokers drop the second. Consumers confirm what they accept. What they
learn goes into the history that the checker judges. All of it runs in a thread of its own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, deque
from collections.abc import Coroutine, Mapping
from typing import Any

import mqbroker.client as mq

from tests.support.checker import History, Sent, body_of
from tests.support.patience import PATIENCE_S

# At most so many of one producer have no answer; then it waits.
IN_FLIGHT_MAX = 50
# Between two messages of one producer, so that what waits behind a fault stays small.
PAUSE_S = 0.025
SIZES_BYTES = (60, 200, 1024, 5000)
CREDIT = 50
WORKERS = 20
EVENTS_MAX = 200  # the last ones are kept
# What a connection tells: a broker that closes it in order has answered whatever it took in.
LOST, CLOSED_IN_ORDER, CONNECTED = "the connection was lost: ", " closed the connection: ", "connected to "
# A host without power says nothing any more: without a frame for so long a connection counts as lost.
CONNECTION: dict[str, Any] = {
    "initial_connect_attempts": -1,
    "reconnect_attempts": -1,
    "retry_interval_ms": 200,
    "idle_timeout_ms": 3000,
    "call_timeout_ms": 10_000,
    "allow_plain": True,
    # Where several places are named a client begins at the first of them, so that it is known who is where.
    "connection_load_balancing_policy": "first-element",
    "use_topology_for_load_balancing": False,
}


class Whereabouts:
    """Where a producer is: it goes on at other nodes than those of its URI too, as brokers tell of each other."""

    def __init__(self, history: History, producer: str, *, answers_at_stop: bool = True) -> None:
        self._history = history
        self._producer = producer
        self._answers_at_stop = answers_at_stop
        self._where = ""
        self._unanswered: set[str] = set()

    def note(self, text: str) -> None:
        """Its connection told this."""
        if text.startswith(CONNECTED):
            if text != self._where:
                self._history.sent_elsewhere |= self._unanswered
            self._where, self._unanswered = text, set()
        elif text.startswith(LOST) and not (self._answers_at_stop and CLOSED_IN_ORDER in text):
            self._unanswered = self._history.unanswered(self._producer)


class Load:
    """See the module's docstring."""

    def __init__(
        self,
        queue: str,
        producers: Mapping[str, str],
        consumers: Mapping[str, str],
        pause_s: float = PAUSE_S,
        *,
        answers_at_stop: bool = True,
    ) -> None:
        """`answers_at_stop`: whether brokers that stop have answered what they took in, as they do since 0.1.0."""
        self.queue = queue
        self.pause_s = pause_s
        self.answers_at_stop = answers_at_stop
        self.producers = dict(producers)
        self.consumers = dict(consumers)
        self.history = History(is_several_nodes=True)
        # What producers and consumers have seen, by their node.
        self.accepted: Counter[str] = Counter()
        self.received: Counter[str] = Counter()
        self.consuming: set[str] = set()  # consumers that their broker has let in at some time
        self.lost_connections: Counter[str] = Counter()
        self.errors: list[str] = []
        self.events: deque[str] = deque(maxlen=EVENTS_MAX)  # what connections told, and what came again, with the time
        self._is_stopping = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="load", daemon=True)
        self._sending: list[asyncio.Task[None]] = []
        self._receiving: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        """Connect, and go on until told to stop."""
        self._thread.start()
        self._do(self._begin())

    def stop_sending(self, within_s: float) -> None:
        """Returns when each message has its answer."""
        self._is_stopping = True
        self._do(self._all_sent(within_s), within_s)

    def verdict(self, left: int) -> list[str]:
        """All violations, with so many messages left in queues. Nothing is received any more afterwards."""
        self.end()
        return [*self.errors, *self.history.check_drained(left)]

    def end(self) -> None:
        """Give up whatever is under way."""
        if self._thread.is_alive():
            self._do(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(PATIENCE_S)

    @property
    def counts(self) -> dict[str, Any]:
        return {
            "sent": len(self.history.sent),
            "accepted": dict(self.accepted),
            "received": dict(self.received),
            "redelivered": sum(count - 1 for count in self.history.received.values() if count > 1),
            "confirmed": len(self.history.settle_confirmed),
            "lost_connections": dict(self.lost_connections),
        }

    def _do(self, work: Coroutine[Any, Any, None], within_s: float = PATIENCE_S) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(within_s + 5)

    async def _begin(self) -> None:
        self._sending = [asyncio.create_task(self._produce(*each)) for each in self.producers.items()]
        self._receiving = [asyncio.create_task(self._consume(*each)) for each in self.consumers.items()]
        for task in (*self._sending, *self._receiving):
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.errors.append(f"a client ended: {task.exception()!r}")

    async def _all_sent(self, within_s: float) -> None:
        async with asyncio.timeout(within_s):
            await asyncio.gather(*self._sending)

    async def _end(self) -> None:
        for task in (*self._sending, *self._receiving):
            task.cancel()
        await asyncio.gather(*self._sending, *self._receiving, return_exceptions=True)

    def _noting(self, node: str, whereabouts: Whereabouts | None = None) -> dict[str, Any]:
        """Options of the connection to a node, whose losses are counted; `whereabouts` are those of its producer."""

        def note(text: str) -> None:
            self.lost_connections[node] += text.startswith(LOST)
            if whereabouts is not None:
                whereabouts.note(text)
            if not text.startswith("no connection"):  # of which there are very many
                self._keep(f"{node}: {text}")

        return {**CONNECTION, "on_event": note}

    def _keep(self, text: str) -> None:
        """So that of what was violated can be said beside what it was. Times are those of logs, in UTC."""
        now_s = time.time()
        self.events.append(f"{time.strftime('%H:%M:%S', time.gmtime(now_s))}.{int(now_s % 1 * 1000):03d} {text}")

    # -- producers -----------------------------------------------------------------------------------------------------

    async def _produce(self, node: str, uri: str) -> None:
        in_flight = asyncio.Semaphore(IN_FLIGHT_MAX)
        number = 0
        whereabouts = Whereabouts(self.history, node, answers_at_stop=self.answers_at_stop)
        async with mq.connect(uri, **self._noting(node, whereabouts)) as connection:
            sender = await connection.sender(self.queue, duplicate_detection=True)
            async with asyncio.TaskGroup() as group:
                while not self._is_stopping:
                    await in_flight.acquire()
                    number += 1
                    message_id, size = f"{node}-{number}", SIZES_BYTES[number % len(SIZES_BYTES)]
                    self.history.send(message_id, Sent(node, number, self.queue, True, size))
                    group.create_task(self._send(node, sender, message_id, size, in_flight))
                    await asyncio.sleep(self.pause_s)

    async def _send(
        self, node: str, sender: mq.Sender, message_id: str, size: int, in_flight: asyncio.Semaphore
    ) -> None:
        try:
            await sender.send(mq.Message(body_of(message_id, size), durable=True))
        except (mq.Rejected, mq.Released, mq.Modified) as refusal:
            self.history.outcome(message_id, type(refusal).__name__.lower())
        else:
            self.history.outcome(message_id, "accepted")
            self.accepted[node] += 1
        finally:
            in_flight.release()

    # -- consumers -----------------------------------------------------------------------------------------------------

    async def _consume(self, node: str, uri: str) -> None:
        async with mq.connect(uri, **self._noting(node)) as connection:
            receiver = await connection.receiver(self.queue, credit=CREDIT, confirm=True)
            self.consuming.add(node)
            async with asyncio.TaskGroup() as group:
                for _ in range(WORKERS):
                    group.create_task(self._take(node, receiver))

    async def _take(self, node: str, receiver: mq.Receiver) -> None:
        async for message in receiver:
            self.received[node] += 1
            body = message.body if isinstance(message.body, bytes) else repr(message.body).encode()
            message_id = self.history.receive(f"consumer at {node}", self.queue, body, message.delivery_count)
            if message_id is None:
                await message.accept()
                continue
            if self.history.received[message_id] > 1:
                self._keep(f"{node}: {message_id} came again, with a delivery count of {message.delivery_count}")
            self.history.settle_tried.add(message_id)
            if await message.accept():
                self.history.settle_confirmed.add(message_id)
