"""Marks: which start of this node numbered which messages.

Other nodes know a message by node id, mark and number. Numbers go on from the journal, and that may have been wiped,
cut, or be an old copy: then they are given out once more. So each start numbers under a mark that no other start has,
and what waits for other nodes over starts keeps the mark it was numbered under. Between two starts a number is left
out, so no run and no stretch of consecutive numbers belongs to both.

They are kept in the journal as ids of duplicate detection under a name that no address has: the number is the first
that a start gives out, the id its mark. Source: docs/adr/0014-message-identity.md.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from mqbroker.base.look import LOOK
from mqbroker.core.address.stored_tables import text_in
from mqbroker.core.queue.kinds import INTERNAL_PREFIX

if TYPE_CHECKING:
    from mqbroker.core.cluster.cluster_store import ClusterStore
    from mqbroker.journal.recovered import Recovered

NAME: Final = INTERNAL_PREFIX + "marks"
MARKS_MAX: Final = 10_000  # starts that are remembered while something of the first one waits for another node
NONE: Final = ""  # of what an older release numbered


class Marks:
    """See the module's docstring. `own` is the mark of this start."""

    def __init__(self) -> None:
        self.own = NONE
        self._own_from = 0
        self._firsts: list[int] = []  # of the starts before and of this one, ascending
        self._marks: list[str] = []

    def of(self, number: int) -> str:
        """The mark of a message. One whose start is not known is this start's, which gives out no such number."""
        if number >= self._own_from:
            return self.own
        index = bisect_right(self._firsts, number) - 1
        return self._marks[index] if index >= 0 else self.own

    def begin(self, store: ClusterStore, recovered: Recovered, mark: str) -> None:
        """A start: from here on the store numbers under this mark, which is on disk before what is numbered. Raises
        StorageFault for marks that cannot be read."""
        if not mark:
            return
        stored = recovered.duplicates.get(NAME, [])
        first = max([store.next_id + (store.next_id > 1), *(each.number + 1 for each in stored)])
        before = [(each.number, text_in("the mark of message ids", each.duplicate_id)) for each in stored]
        journal = store.journal.duplicates
        LOOK.has_touched = True
        if not recovered.is_gapless:
            journal.drop(NAME)
            before = []
        elif not before and first > 1:
            before = [(1, NONE)]
            journal.add(NAME, 1, b"", 1)
        oldest = bisect_right([number for number, _ in before], _first_waiting(store, recovered, first)) - 1
        kept = [*before[max(oldest, 0) :], (first, mark)][-MARKS_MAX:]
        journal.add(NAME, first, mark.encode(), kept[0][0])
        self._firsts = [number for number, _ in kept]
        self._marks = [each for _, each in kept]
        self.own, self._own_from = mark, first
        store.next_id = first

    def cover(self, store: ClusterStore) -> None:
        """What is here goes to another node, though it did not wait for one: what was numbered under marks that are
        forgotten by now, all before the first that is known, goes under this start's, also after the next one."""
        if not self.own or not self._firsts or self._firsts[0] <= 1:
            return
        journal = store.journal.duplicates
        LOOK.has_touched = True
        self._firsts.insert(0, 1)
        self._marks.insert(0, self.own)
        journal.drop(NAME)  # numbers ascend there, so all are said anew
        for number, mark in zip(self._firsts, self._marks, strict=True):
            journal.add(NAME, number, mark.encode(), 1)


def _first_waiting(store: ClusterStore, recovered: Recovered, first: int) -> int:
    """The lowest number of what waits for other nodes; `first` where nothing does."""
    waiting = {queue.journal_id for queue in store.queues.values() if queue.kind.is_outbound}
    lowest = first
    for run in recovered.runs if waiting else ():
        for queue_id, ranges in run.live.items():
            if queue_id in waiting and ranges:
                lowest = min(lowest, ranges[0][0])
    return lowest
