"""An observer that keeps, from what it is told alone, which messages each queue has, and what cannot be true of it.

Each process of a node has one of its own, from before recovery on. Compared with what the store holds, it says whether
each message was told of exactly once from each point.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from mqbroker.core.address.message_observer import MessageObserver
from mqbroker.core.queue.backlog import REPLACED
from mqbroker.core.queue.leaving_reasons import ACKNOWLEDGED, LEFT
from mqbroker.core.queue.queue import Queue, Segment
from mqbroker.core.store.store import Store

ALL_IDS: Final = (0, 1 << 62)
TOLD_MAX: Final = 5


class Ledger(MessageObserver):
    """`told` counts messages by what was said of them; `deaf_to` is one such thing that it does not hear."""

    def __init__(self, deaf_to: str = "") -> None:
        self.told: Counter[str] = Counter()
        self.violations: list[str] = []
        self._deaf_to = deaf_to
        self._held: dict[Queue, set[int]] = {}

    def _hears(self, what: str, count: int) -> bool:
        if what == self._deaf_to:
            return False
        self.told[what] += count
        return True

    def _enter(self, what: str, queue: Queue, first_id: int, count: int) -> None:
        held, ids = self._held.setdefault(queue, set()), range(first_id, first_id + count)
        if not held.isdisjoint(ids):
            self.violations.append(f"{what} again: {ids} in {queue.kind.name}")
        held.update(ids)

    def messages_entered(self, queues: Sequence[Queue], segment: Segment) -> None:
        if self._hears("entered", segment.n * len(queues)):
            for queue in queues:
                self._enter("entered", queue, segment.first_id, segment.n)

    def messages_restored(self, queue: Queue, first_id: int, count: int) -> None:
        if self._hears("restored", count):
            self._enter("restored", queue, first_id, count)

    def messages_returned(self, queue: Queue, segment: Segment) -> None:
        ids = range(segment.first_id, segment.first_id + segment.n)
        if self._hears("returned", segment.n) and not self._held.get(queue, set()).issuperset(ids):
            self.violations.append(f"returned and not there: {ids} in {queue.kind.name}")

    def messages_left(self, queue: Queue, first_id: int, count: int, why: str) -> None:
        if why != ACKNOWLEDGED and why not in LEFT:
            self.violations.append(f"left for {why!r}")
        if not self._hears(why, count):
            return
        held, ids = self._held.get(queue, set()), range(first_id, first_id + count)
        if not held.issuperset(ids):
            self.violations.append(f"{why} and not there: {ids} in {queue.kind.name}")
        held.difference_update(ids)

    def message_outdated(self, queue: Queue, message_id: int) -> None:
        self._hears("outdated", 1)

    def compare(self, store: Store) -> list[str]:
        """What does not fit, in itself or with the store."""
        found: dict[Queue, set[int]] = {}
        for queue, first_id, count in _contents(store):
            ids = set(range(first_id, first_id + count))
            if not found.setdefault(queue, set()).isdisjoint(ids):
                self.violations.append(f"twice in {queue.kind.name}: {first_id}+{count}")
            found[queue] |= ids
        for queue in {*found, *self._held}:
            here, told = found.get(queue, set()), self._held.get(queue, set())
            if here != told:
                name, more, less = queue.kind.name, sorted(here - told), sorted(told - here)
                self.violations.append(f"{name} has {more[:TOLD_MAX]} and not {less[:TOLD_MAX]}, as was told")
        return self.violations

    def miscounted(self, store: Store) -> dict[str, tuple[int, int]]:
        """What was told of other numbers than the store counted, once nothing is left of what was deleted."""
        letters = store.dead_letters
        counted = {
            "entered": store.added_total,
            "returned": store.returned_total + letters.held_total,
            ACKNOWLEDGED: store.acknowledged_total,
            **letters.left_totals,
        }
        counted[REPLACED] -= self.told["outdated"]
        return {what: (self.told[what], n) for what, n in counted.items() if self.told[what] != n}


def _contents(store: Store) -> Iterator[tuple[Queue, int, int]]:
    """Ranges of ids (first, count) in each queue, and in what is left of those that were purged or deleted."""
    for queue in store.queues.values():
        for segment in queue.segments():
            yield queue, segment.first_id, segment.n
        pages = queue.pages
        for page in () if pages is None else [*pages._pages, *filter(None, (pages.reading,))]:
            for piece in page.pieces():
                yield queue, piece.first_id, piece.n
            for written in page.fresh:
                yield queue, written.first_id, written.count
    for queue, segment in store.in_delivery():
        yield queue, segment.first_id, segment.n
    for held in store.remains._held:
        for segment in (*held.backlog, *held.rest):
            yield held.queue, segment.first_id, segment.n
