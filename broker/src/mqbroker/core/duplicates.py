"""Duplicate detection: a message whose `_AMQ_DUPL_ID` was seen at its address is accepted and dropped.

Each address keeps the last `id-cache-size` ids. With `persist-id-cache` the ids of durable messages are in the journal,
in the append of their message: they come and go with it. Those of other messages end with the process, as they do.
Source: Artemis's manual, "Duplicate Message Detection".
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from mqbroker.base.look import LOOK
from mqbroker.core.kinds import INTERNAL_PREFIX

if TYPE_CHECKING:
    from mqbroker.core.decisions import Decisions
    from mqbroker.core.settings import Settings
    from mqbroker.journal.plan import Journal
    from mqbroker.journal.recovered import Recovered
    from mqbroker.wire.run import Run


class Duplicates:
    """The ids of all addresses. `dropped_total` counts messages since the process began."""

    def __init__(self, settings: Settings, journal: Journal, decisions: Decisions) -> None:
        self._settings = settings
        self._journal = journal
        self._decisions = decisions
        self._is_persisted = journal.keeps_ids
        self._seen: dict[str, OrderedDict[bytes, int]] = {}
        self._next: dict[str, int] = {}
        self.dropped_total = 0

    def is_new(self, address: str, run: Run) -> bool:
        """Whether this one message was not seen yet; from now on it was."""
        size = self._settings.of(address).id_cache_size
        duplicate_id = run.traits.duplicate_id
        if not size:
            return True
        seen = self._seen.get(address)
        LOOK.has_touched = True
        if seen is None:
            seen = self._seen[address] = OrderedDict()
        if duplicate_id in seen:
            self.dropped_total += 1
            return False
        number = self._next.get(address, 1)
        self._next[address] = number + 1
        seen[duplicate_id] = number
        while len(seen) > size:
            seen.popitem(last=False)
        if self._is_persisted and run.section.is_durable:
            self._journal.duplicates.add(address, number, duplicate_id, _oldest(seen))
        else:
            self._journal.duplicates.forget(address, _oldest(seen))
        return True

    def knows(self, address: str, run: Run) -> bool:
        """Whether this one message would be dropped, which changes nothing."""
        is_known = bool(run.traits.duplicate_id) and run.traits.duplicate_id in self._seen.get(address, ())
        return is_known and self._settings.of(address).id_cache_size > 0

    def must_wait(self, address: str, run: Run) -> bool:
        """Whether the acceptance of a dropped message waits for this step's append: the first one may not be on disk.

        Its id is written once more, so that there is an append.
        """
        if not self._is_persisted or not run.section.is_durable or self._decisions.is_idle:
            return False
        seen = self._seen[address]
        LOOK.has_touched = True
        self._journal.duplicates.add(address, seen[run.traits.duplicate_id], run.traits.duplicate_id, _oldest(seen))
        return True

    def forget(self, address: str) -> None:
        """The address is gone."""
        LOOK.has_touched = True
        if self._seen.pop(address, None) is not None:
            self._next.pop(address, None)
            self._journal.duplicates.drop(address)

    def load(self, recovered: Recovered) -> None:
        """Take over what recovery found, as far as it is wanted now."""
        for address, stored in recovered.duplicates.items():
            if address.startswith(INTERNAL_PREFIX):
                continue  # of others: arrivals.py, pins.py, routes.py
            size = self._settings.of(address).id_cache_size
            if not size or not self._is_persisted:
                self._journal.duplicates.drop(address)
                continue
            kept = stored[-size:]
            self._seen[address] = OrderedDict((each.duplicate_id, each.number) for each in kept)
            self._next[address] = kept[-1].number + 1
            self._journal.duplicates.forget(address, kept[0].number)


def _oldest(seen: OrderedDict[bytes, int]) -> int:
    return next(iter(seen.values()))
