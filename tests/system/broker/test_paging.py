"""A real broker with more messages than memory: it stays small, dies, starts again, and gives them back in order."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Callable
from typing import Any

from tests.support.broker_process import BrokerProcess

Make = Callable[..., BrokerProcess]

BODY = "x" * 8000
BATCH = 100
BATCHES = 60
GROWN_BYTES_MAX = 32 << 20  # of 48 MB that are sent


class Session:
    """An admin session in which what was received can be settled."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(60)
        self._socket.connect(str(broker.admin_socket))
        self._file = self._socket.makefile("rwb")
        self._id = 0

    def ask(self, operation: str, **arguments: Any) -> Any:
        self._id += 1
        row = {"id": self._id, "op": operation, "args": arguments}
        self._file.write(json.dumps(row).encode() + b"\n")
        self._file.flush()
        answer = json.loads(self._file.readline())
        assert "error" not in answer, answer
        return answer["result"]

    def take(self, count: int) -> list[int]:
        """So many messages for good; the numbers that they begin with."""
        numbers: list[int] = []
        while len(numbers) < count:
            found = self.ask("receive", address="orders", count_max=min(BATCH, count - len(numbers)), wait_ms=60_000)
            assert found["messages"], f"{len(numbers)} of {count} came"
            self.ask("settle", tag=found["tag"], outcome="accepted")
            numbers += [int(message["body"].split("|")[0]) for message in found["messages"]]
        return numbers

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def test_a_broker_stays_small_dies_and_gives_all_back_in_order(make_broker: Make) -> None:
    settings = {"max-size-bytes": 1 << 20, "address-full-policy": "PAGE", "page-size-bytes": 1 << 20}
    broker = make_broker(
        options={
            "address-settings": {"orders": settings},
            "limits": {"global-max-size-bytes": 8 << 20, "max-message-size-bytes": 1 << 20},
            "journal": {"journal-file-size-bytes": 2 << 20},
        }
    )
    broker.start()
    before = broker.rss_bytes()
    session = Session(broker)
    for batch in range(BATCHES):
        bodies = [f"{batch * BATCH + number}|{BODY}" for number in range(BATCH)]
        session.ask("send", address="orders", messages=[{"body": body, "durable": True} for body in bodies])
    assert broker.rss_bytes() - before < GROWN_BYTES_MAX
    assert session.take(1500) == list(range(1500))
    session.close()
    broker.signal(signal.SIGKILL)
    broker.wait()
    broker.start()
    assert broker.rss_bytes() - before < GROWN_BYTES_MAX, "recovery leaves on disk what is too much"
    session = Session(broker)
    assert session.take(BATCH * BATCHES - 1500) == list(range(1500, BATCH * BATCHES))
    assert broker.rss_bytes() - before < GROWN_BYTES_MAX
    (shown,) = session.ask("addresses")["addresses"]
    assert (shown["message_count"], shown["paging"]) == (0, False)
    session.close()
    assert broker.stop() == 0
