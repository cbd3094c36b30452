"""Traffic through the brokers of a rack, for tests that run outside of it: this runs inside, and is told when to stop.

    {"queue": "orders", "producers": {"mq1": uri}, "consumers": {"mq2": uri}, "pause_s": 0.05,
     "backlog": {"queue": "old", "uri": uri, "count": 20000, "read_from": uri}}

on the first line of standard input; without `pause_s` producers wait as long as those of any load, and
`answers_at_stop` is false where brokers of the last release are among them (cluster_load.py). It says `begun` when
the backlog is there and clients are connected. With the next line it sends no more, waits until everything has come,
reads the backlog where `read_from` leads, and says as JSON what was violated and counted, and the last events.
Where standard input ends before that, whoever started it is gone: it goes too, whatever it is at.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter
from typing import Any

import mqbroker.client as mq
from mqbroker.client import sync

from tests.support.cluster_load import PAUSE_S, Load
from tests.support.patience import PATIENCE_S, wait_until

BATCH = 1000
LEFT_ALONE = 9  # exit code


class Ears(threading.Thread):
    """Hears from whom it was started, also while it is at something."""

    def __init__(self) -> None:
        super().__init__(name="ears", daemon=True)
        self.is_told_to_stop = threading.Event()

    def run(self) -> None:
        # The file itself: an interpreter that ends cannot take a buffer from who waits for it.
        while os.read(0, 64):
            self.is_told_to_stop.set()
        os._exit(LEFT_ALONE)


def fill(uri: str, queue: str, count: int, size: int = 0) -> None:
    """Durable messages that nobody reads yet, numbered, and of at least so many bytes."""
    with sync.connect(uri, allow_plain=True) as connection:
        sender = connection.sender(queue)
        for first in range(0, count, BATCH):
            last = min(first + BATCH, count)
            sender.send_many([mq.Message(f"{number}".ljust(size), durable=True) for number in range(first, last)])


def read(uri: str, queue: str, count: int) -> list[str]:
    """What is wrong with the backlog: messages that are missing, that come twice or in another order."""
    found: list[str] = []
    with sync.connect(uri, allow_plain=True) as connection:
        receiver = connection.receiver(queue)
        while messages := receiver.receive_many(BATCH, timeout=PATIENCE_S if len(found) < count else 2):
            for message in messages:
                found.append(str(message.body))
                message.accept()
    wanted = [str(number) for number in range(count)]
    twice = [body for body, times in Counter(found).items() if times > 1]
    lost = set(wanted) - set(found)
    said = [f"{len(lost)} of the backlog are lost: {sorted(lost)[:5]}"] if lost else []
    said += [f"{len(twice)} of the backlog came twice: {twice[:5]}"] if twice else []
    return said + (["the backlog came in another order"] if not said and found != wanted else [])


def main() -> None:
    said: dict[str, Any] = json.loads(sys.stdin.readline())
    ears = Ears()
    ears.start()
    backlog = said["backlog"]
    fill(backlog["uri"], backlog["queue"], backlog["count"])
    load = Load(
        said["queue"], said["producers"], said["consumers"], said.get("pause_s", PAUSE_S),
        answers_at_stop=said.get("answers_at_stop", True),
    )  # fmt: skip
    try:
        load.begin()
        # A rollout looks who would not be served, and asks for a consumer at another node where one is not there yet.
        wait_until(lambda: load.consuming == set(load.consumers), "each consumer is let in")
        print("begun", flush=True)
        ears.is_told_to_stop.wait()
        load.stop_sending(PATIENCE_S)
        deadline_s = time.monotonic() + PATIENCE_S
        while len(load.history.received) < load.accepted.total() and time.monotonic() < deadline_s:
            time.sleep(0.1)
        violations = load.verdict(left=0)
    finally:
        load.end()
    violations += read(backlog["read_from"], backlog["queue"], backlog["count"])
    print(json.dumps({"violations": violations, "counts": load.counts, "events": list(load.events)}), flush=True)


if __name__ == "__main__":
    main()
