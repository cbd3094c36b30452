"""What must be in a journal, as plain dictionaries beside it: for tests that lose power and look at what is left.

`Model.act` makes a random step of calls on a Journal and does the same to its dictionaries; `state` is the truth after
it, and `contents` says what recovery found in the same form.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

from mqbroker.config.declarations.options import defaults
from mqbroker.config.slices import JournalOptions
from mqbroker.journal.plan import Journal
from mqbroker.journal.records import Attempts, encode_attributes
from mqbroker.journal.recovered import Recovered

QUEUES_MAX = 5
ID_CACHES = {"orders": 40, "prices.eu": 3}  # how many ids each address keeps


def options(**changes: Any) -> JournalOptions:
    """Small files and early compaction, so that a short test sees much of both."""
    values: dict[str, Any] = {
        "journal_file_size_bytes": 4096,
        "journal_compact_min_files": 3,
        "journal_compact_percentage": 60,
        **changes,
    }
    return replace(defaults().journal, **values)


@dataclass
class State:
    """What recovery must bring back. `live` is (queue, message id) -> body, `ids` is address -> number -> id."""

    queues: dict[int, dict[str, Any]] = field(default_factory=dict)
    live: dict[tuple[int, int], bytes] = field(default_factory=dict)
    counts: dict[tuple[int, int], Attempts] = field(default_factory=dict)
    ids: dict[str, dict[int, bytes]] = field(default_factory=dict)
    consumed: set[int] = field(default_factory=set)
    boot: int = 0
    addresses: dict[str, dict[str, Any]] = field(default_factory=dict)

    def copy(self) -> State:
        ids = {address: dict(held) for address, held in self.ids.items()}
        return State(
            dict(self.queues), dict(self.live), dict(self.counts), ids, set(self.consumed), self.boot,
            dict(self.addresses),
        )  # fmt: skip


def contents(found: Recovered) -> State:
    live: dict[tuple[int, int], bytes] = {}
    for queue, ranges in found.queue_contents().items():
        ids = [first + i for first, n, _ in ranges for i in range(n)]
        assert ids == sorted(set(ids)), "a queue is in the order of ids, each once"
        for first, n, run in ranges:
            bodies = bytes(run.frames).split(b">")
            for number in range(first, first + n):
                live[queue, number] = bodies[number - run.first_id] + b">"
    counts = {
        (c.queue_id, c.first_id + i): Attempts(c.delivery_count, c.due_ms) for c in found.counts for i in range(c.n)
    }
    ids = {address: {one.number: one.duplicate_id for one in stored} for address, stored in found.duplicates.items()}
    return State(found.queues, live, counts, ids, set(found.consumed), found.boot, found.addresses)


class Model:
    """Random calls. `body_bytes` is the most that a message of this run carries."""

    def __init__(self, seed: int, body_bytes: int = 12) -> None:
        self.random = random.Random(seed)
        self._sayings = random.Random(seed)  # of their own, so that messages come as they always came
        self._dues = random.Random(seed)
        self.state = State()
        self.next_id = 1
        self.next_queue = 1
        self.compacted = 0
        self._body_bytes = body_bytes

    def begin(self, journal: Journal) -> None:
        """A new life of the process, with the START that its journal holds already."""
        self.next_id = max(self.next_id, journal.next_id)
        self.state.boot = journal.boot
        self.state.consumed.clear()

    def act(self, journal: Journal) -> None:
        calls = (
            self._store,
            self._store,
            self._store,
            self._settle,
            self._settle,
            self._declare,
            self._count,
            self._use,
            self._see,
        )
        for _ in range(self.random.randint(1, 6)):
            self.random.choice(calls)(journal)
        if self.random.random() < 0.03:
            self._drop(journal)
        if self.random.random() < 0.02:
            self._forget(journal)
        if self._sayings.random() < 0.05:
            self._say(journal)
        self._compact(journal)

    def settle_all(self, journal: Journal) -> None:
        for queue, number in self.state.live:
            journal.settle(queue, number, 1)
        self.state.live.clear()
        self.state.counts.clear()
        for address in list(self.state.ids):
            journal.duplicates.drop(address)
        self.state.ids.clear()

    def _declare(self, journal: Journal) -> None:
        if len(self.state.queues) < QUEUES_MAX:
            attributes = {"name": f"q{self.next_queue}", "max": self.random.randint(0, 9)}
            self.state.queues[self.next_queue] = attributes
            journal.declare(self.next_queue, encode_attributes(attributes))
            self.next_queue += 1

    def _store(self, journal: Journal) -> None:
        queues = list(self.state.queues)
        if not queues:
            return
        self.next_id += self.random.choice((0, 0, 0, 5))  # ids of messages that are not durable
        n = self.random.choice((1, 1, 2, 7, 30))
        chosen = sorted(self.random.sample(queues, self.random.randint(1, min(3, len(queues)))))
        bodies = [self._body(self.next_id + i) for i in range(n)]
        journal.store(self.next_id, n, chosen, b"".join(bodies))
        for i, body in enumerate(bodies):
            for queue in chosen:
                self.state.live[queue, self.next_id + i] = body
        self.next_id += n

    def _body(self, number: int) -> bytes:
        # Zeros too: they must not be taken for sectors that were never written.
        filler = self.random.choice((b"\0", b"x")) * self.random.randint(0, self._body_bytes)
        return b"<%d:" % number + filler + b">"

    def _settle(self, journal: Journal) -> None:
        if not self.state.live:
            return
        queue, first = self.random.choice(list(self.state.live))
        n, most = 0, self.random.choice((1, 3, 40))
        while n < most and (queue, first + n) in self.state.live:
            del self.state.live[queue, first + n]
            self.state.counts.pop((queue, first + n), None)
            n += 1
        journal.settle(queue, first, n)

    def _count(self, journal: Journal) -> None:
        if self.state.live:
            queue, number = self.random.choice(list(self.state.live))
            times = self.state.counts[queue, number].delivery_count if (queue, number) in self.state.counts else 0
            attempts = Attempts(times + 1, self._dues.choice((0, 5_000, self._dues.getrandbits(60))))
            self.state.counts[queue, number] = attempts
            journal.count(queue, number, 1, *attempts)

    def _use(self, journal: Journal) -> None:
        if self.state.queues:
            queue = self.random.choice(list(self.state.queues))
            self.state.consumed.add(queue)
            journal.consumed(queue)

    def _see(self, journal: Journal) -> None:
        address = self.random.choice(list(ID_CACHES))
        held = self.state.ids.setdefault(address, {})
        for _ in range(self.random.choice((1, 1, 5))):
            number = max(held, default=0) + self.random.choice((1, 1, 3))  # others are not for the disk
            if held and self.random.random() < 0.2:
                number = self.random.choice(list(held))  # said once more
            held[number] = b"%d" % number + b"i" * self.random.randint(0, 20)
            while len(held) > ID_CACHES[address]:
                del held[min(held)]
            journal.duplicates.add(address, number, held[number], min(held))

    def _say(self, journal: Journal) -> None:
        """An administrator makes, changes or deletes an address."""
        name = f"address.é{self._sayings.randint(1, 4)}"
        if name in self.state.addresses and self._sayings.random() < 0.5:
            del self.state.addresses[name]
            journal.drop_address(name)
            return
        self.state.addresses[name] = {"paused": self._sayings.random() < 0.5}
        journal.declare_address(name, self.state.addresses[name])

    def _forget(self, journal: Journal) -> None:
        if self.state.ids:
            address = self.random.choice(list(self.state.ids))
            del self.state.ids[address]
            journal.duplicates.drop(address)

    def _drop(self, journal: Journal) -> None:
        if self.state.queues:
            self.drop(journal, self.random.choice(list(self.state.queues)))

    def drop(self, journal: Journal, queue: int) -> None:
        del self.state.queues[queue]
        self.state.consumed.discard(queue)
        self.state.live = {key: body for key, body in self.state.live.items() if key[0] != queue}
        self.state.counts = {key: n for key, n in self.state.counts.items() if key[0] != queue}
        journal.drop(queue)

    def _compact(self, journal: Journal) -> None:
        for first, n in journal.compactable() or ():
            self.compacted += 1
            for number in range(first, first + n):
                holders = [queue for queue in self.state.queues if (queue, number) in self.state.live]
                if holders:
                    journal.store(number, 1, holders, self.state.live[holders[0], number])
                for queue in holders:
                    if (queue, number) in self.state.counts:
                        journal.count(queue, number, 1, *self.state.counts[queue, number])
