"""Foreign clients outside of the hosts that send to a cluster and read from it, each with a list of brokers to try.

Qpid Proton and Qpid JMS send to the same queue and read from it. What they learn is one history for the checker.
"""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.foreign.builds import JMS, built
from tests.foreign.jms_client import JmsClient
from tests.foreign.proton_stage import QUEUE, Login, ProtonLoad
from tests.support.checker import History, body_of
from tests.support.patience import PATIENCE_S, wait_until

FAILOVER = "failover.initialReconnectDelay=50&failover.reconnectDelay=100&failover.useReconnectBackOff=false"
PAUSE_S = 0.1
SIZES_BYTES = (60, 200, 1024, 3000)
LOGIN = Login("load", "secret-of-the-load")


class JmsEnd:
    """A process on Qpid JMS that sends or receives until it is told to end, and what it learned."""

    def __init__(self, folder: Path, name: str, urls: Sequence[str]) -> None:
        self.name = name
        self.client = JmsClient(built(JMS), folder / f"{name}.log")
        self.facts: list[tuple[str, list[Any]]] = []
        self.errors: list[str] = []
        self.count = 0
        self._is_ending = threading.Event()
        self._thread: threading.Thread | None = None
        self.client.ask(
            "connect", name="c", at=",".join(urls), failover=True, options=FAILOVER, user=LOGIN.user,
            password=LOGIN.password,
        )  # fmt: skip
        self.client.session("c", "s")

    def begin(self, turn: Callable[[], None]) -> None:
        """Do this again and again."""

        def work() -> None:
            try:
                while not self._is_ending.is_set():
                    turn()
            except AssertionError as failed:
                self.errors.append(f"{self.name}: {failed}")

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    def note(self, kind: str, *values: Any) -> None:
        self.facts.append((self.name, [time.monotonic(), kind, *values]))

    def send(self) -> None:
        """One message; returns when the broker has answered."""
        self.count += 1
        message_id, size = f"{self.name}-{self.count}", SIZES_BYTES[self.count % len(SIZES_BYTES)]
        self.note("send", message_id, self.count, size)
        body = base64.b64encode(body_of(message_id, size)).decode()
        self.client.send("out", {"kind": "bytes", "body": body})
        self.note("outcome", message_id, "accepted")
        time.sleep(PAUSE_S)

    def receive(self) -> None:
        """What has come; the client acknowledges each message by itself."""
        for row in self.client.receive("in", 50, wait_ms=200):
            self.note("receive", row["body"], row["properties"]["JMSXDeliveryCount"] - 1)
            self.note("tried", base64.b64decode(row["body"]).partition(b"|")[0].decode())
            self.count += 1

    def end(self) -> None:
        self._is_ending.set()
        if self._thread is not None:
            self._thread.join(PATIENCE_S)
        self.client.close()


class ForeignTraffic:
    """Producers and consumers of both libraries, numbered from 0. `url`: host -> where its clients are served."""

    def __init__(self, folder: Path, url: Callable[[str], str]) -> None:
        self._proton = ProtonLoad(folder, LOGIN)
        self._folder = folder
        self._url = url
        self._producers: list[JmsEnd] = []
        self._consumers: list[JmsEnd] = []
        self._proton_producers: list[str] = []
        self._proton_consumers: list[str] = []

    def begin(self, hosts: Sequence[Sequence[str]]) -> None:
        """A producer and a consumer of each library for each list of hosts."""
        for names in hosts:
            number, urls = len(self._consumers), [self._url(name) for name in names]
            self._consume(f"{number}", urls)
            self._produce(f"{number}", urls)

    def _consume(self, name: str, urls: list[str]) -> None:
        self._proton_consumers.append(f"proton-in-{name}")
        self._proton.start("consume", f"proton-in-{name}", urls, credit=20)
        consumer = JmsEnd(self._folder, f"jms-in-{name}", urls)
        consumer.client.consumer("s", "in", f"queue:{QUEUE}")
        consumer.begin(consumer.receive)
        self._consumers.append(consumer)

    def _produce(self, name: str, urls: list[str]) -> None:
        self._proton_producers.append(f"proton-out-{name}")
        self._proton.start(
            "produce", f"proton-out-{name}", urls, in_flight=10, count_max=1_000_000, sizes=SIZES_BYTES, pause_s=PAUSE_S
        )
        producer = JmsEnd(self._folder, f"jms-out-{name}", urls)
        producer.client.producer("s", "out", f"queue:{QUEUE}")
        producer.begin(producer.send)
        self._producers.append(producer)

    def received(self, name: str) -> int:
        """By one of the JMS consumers."""
        return next(one.count for one in self._consumers if one.name == name)

    def sent(self, name: str) -> int:
        """By one of the JMS producers."""
        return next(one.count for one in self._producers if one.name == name)

    def stop_sending(self) -> None:
        """Returns when each message has its answer."""
        for producer in self._producers:
            producer.end()
        self._proton.end(*self._proton_producers)

    def verdict(self, depth: Callable[[], int]) -> tuple[list[str], dict[str, int]]:
        """All violations once queues are empty, and counts of what was learned. The clients end by it."""
        wait_until(lambda: depth() == 0, "all was read")
        self._proton.end(*self._proton_consumers)
        for consumer in self._consumers:
            consumer.end()
        facts = self._proton.facts()
        for end in (*self._producers, *self._consumers):
            facts += end.facts
        history = History(is_several_nodes=True)
        ProtonLoad.tell(history, sorted(facts, key=lambda row: row[1][0]))
        kinds = [kind for _, (_, kind, *_) in facts]
        counts = {kind: kinds.count(kind) for kind in sorted(set(kinds))}
        counts["again"] = sum(history.received.values()) - len(history.received)
        errors = [text for end in (*self._producers, *self._consumers) for text in end.errors]
        return [*errors, *history.check_drained(depth())], counts

    def close(self) -> None:
        """Whatever they are at."""
        self._proton.close()
        for end in (*self._producers, *self._consumers):
            end.client.close()
