"""Duplicate detection: a message whose `_AMQ_DUPL_ID` was seen at its address is accepted and dropped.

Each address keeps the last `id-cache-size` ids. With `persist-id-cache` the ids of durable messages are in the journal,
in the append of their message: they come and go with it. Those of other messages end with the process, as they do.

Addresses are deleted by themselves, within seconds, and made again by the next sender, who may be the one that sends
again what it had no answer for. So ids outlive their address by `id-cache-retention`; a start counts as the moment at
which it went, since nobody knows better. They are bounded: those of the address that went first are forgotten.
Source: Artemis's manual, "Duplicate Message Detection".
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

from mqbroker.amqp import frame_costs
from mqbroker.base.look import LOOK
from mqbroker.base.time import NS_PER_MS
from mqbroker.core.queue.kinds import INTERNAL_PREFIX, TEMPORARY_PREFIX

if TYPE_CHECKING:
    from mqbroker.core.address.address_store import AddressStore
    from mqbroker.journal.recovered import Recovered
    from mqbroker.wire.run import Run


VACANT_IDS_MAX: Final = 100_000  # ids of addresses that are gone
ENDED_MAX: Final = 20  # addresses whose ids are forgotten, each time that some are due
STALE_MAX: Final = 1_000  # deadlines that mean nothing any more, beyond those that do


class Vacant(NamedTuple):
    """An address that went: when, until when its ids are kept, and how many these are."""

    gone_ns: int
    until_ns: int
    ids_count: int


NEVER: Final = Vacant(0, 0, 0)
NO_SEEN: Final[OrderedDict[bytes, int]] = OrderedDict()


class Duplicates:
    """The ids of all addresses. `dropped_total` counts messages since the process began."""

    def __init__(self, store: AddressStore) -> None:
        self._store = store
        self._settings = store.settings
        self._journal = store.journal
        self._decisions = store.decisions
        self._is_persisted = store.journal.keeps_ids
        # Addresses that went, the first one first. One that is there again stays in it, and keeps its ids.
        self._vacant: dict[str, Vacant] = {}
        self._vacant_count = 0
        self._deadlines: list[tuple[int, str]] = []  # a heap; what `_vacant` does not say has no meaning any more
        self.due_ns = 0
        self.scheduled_ns = 0
        self._seen: dict[str, OrderedDict[bytes, int]] = {}
        self._next: dict[str, int] = {}
        self.dropped_total = 0

    def remember(self, address: str, run: Run) -> bool:
        """This one message has been seen; True: for the first time."""
        size = self._settings.of(address).id_cache_size
        duplicate_id = run.traits.duplicate_id
        if not size:
            return True
        LOOK.has_touched = True
        if duplicate_id in self._seen.get(address, ()):
            self.dropped_total += 1
            return False
        self._remember(address, duplicate_id, size, is_durable=run.section.is_durable)
        return True

    def _remember(self, address: str, duplicate_id: bytes, size: int, *, is_durable: bool) -> None:
        seen = self._seen.get(address)
        LOOK.has_touched = True
        if seen is None:
            seen = self._seen[address] = OrderedDict()
        number = self._next.get(address, 1)
        self._next[address] = number + 1
        seen[duplicate_id] = number
        while len(seen) > size:
            seen.popitem(last=False)
        if self._is_persisted and is_durable:
            self._journal.duplicates.add(address, number, duplicate_id, _oldest(seen))
        else:
            self._journal.duplicates.forget(address, _oldest(seen))

    def knows(self, address: str, run: Run) -> bool:
        """Whether this one message would be dropped, which changes nothing."""
        is_known = bool(run.traits.duplicate_id) and run.traits.duplicate_id in self._seen.get(address, ())
        return is_known and self._settings.of(address).id_cache_size > 0

    # -- what another node has to know, and tells ----------------------------------------------------------------------

    def newest(self) -> dict[str, int]:
        """The number of the last id of each address."""
        return {address: number - 1 for address, number in self._next.items() if address in self._seen}

    def behind(self, address: str, number: int, count_max: int, bytes_max: int) -> tuple[list[bytes], int]:
        """The first ids of an address with numbers above this one, so many at most, and the number of the last."""
        ids: list[bytes] = []
        for duplicate_id, each in self._seen.get(address, NO_SEEN).items():
            if each <= number:
                continue
            ids.append(duplicate_id)
            number, bytes_max = each, bytes_max - len(duplicate_id)
            if len(ids) >= count_max or bytes_max <= 0:
                break
        return ids, number

    def take_over(self, address: str, ids: list[bytes]) -> None:
        """Another node, that leaves, has seen these at the address; on disk with this step's append."""
        size, seen = self._settings.of(address).id_cache_size, self._seen.get(address, NO_SEEN)
        LOOK.has_touched = True
        for each in ids if size else ():
            if each not in seen:
                self._remember(address, each, size, is_durable=True)
        if address in self._seen and address not in self._store.addresses:
            self._keep(address)

    def write_again(self, address: str, run: Run) -> bool:
        """The id of a dropped message, where the first one may not be on disk, so that there is an append.

        True: the acceptance waits for this step's append (`decisions.wait`).
        """
        if not self._is_persisted or not run.section.is_durable or self._decisions.is_idle:
            return False
        seen = self._seen[address]
        LOOK.has_touched = True
        self._journal.duplicates.add(address, seen[run.traits.duplicate_id], run.traits.duplicate_id, _oldest(seen))
        return True

    def vacated(self, address: str) -> None:
        """The address is gone. Its ids go later, but for one that is of its connection alone: it is not made again."""
        LOOK.has_touched = True
        if address in self._seen:
            self._keep(address)

    def _keep(self, address: str) -> None:
        """From now on for as long as its settings say, and of more ids than are kept in all the newest."""
        now_ns, seen = self._store.at.monotonic_ns, self._seen[address]
        LOOK.has_touched = True
        self._leave_vacant(address)
        until_ns = self._until_ns(address, now_ns)
        if until_ns <= now_ns or address.startswith(TEMPORARY_PREFIX):
            self._forget(address)
            return
        if len(seen) > VACANT_IDS_MAX:
            while len(seen) > VACANT_IDS_MAX:
                seen.popitem(last=False)
            self._journal.duplicates.forget(address, _oldest(seen))
        self._vacant[address] = Vacant(now_ns, until_ns, len(seen))
        self._vacant_count += len(seen)
        heappush(self._deadlines, (until_ns, address))
        while self._vacant_count > VACANT_IDS_MAX:
            self._end(next(iter(self._vacant)))
        self._plan()

    def _until_ns(self, address: str, gone_ns: int) -> int:
        """Until when the ids of an address that went then are kept."""
        return gone_ns + self._settings.of(address).id_cache_retention * NS_PER_MS

    def settings_changed(self) -> Iterator[int]:
        """For addresses that went before as well. Each is a piece and yields what it cost, as in auto_delete.py."""
        for address in list(self._vacant):
            known = self._vacant.get(address)
            if known is not None and known.until_ns != (until_ns := self._until_ns(address, known.gone_ns)):
                LOOK.has_touched = True
                self._vacant[address] = known._replace(until_ns=until_ns)
                heappush(self._deadlines, (until_ns, address))
                self._plan()
            yield frame_costs.LOOKED_AT

    def _leave_vacant(self, address: str) -> None:
        LOOK.has_touched = True
        self._vacant_count -= self._vacant.pop(address, NEVER).ids_count

    def _end(self, address: str) -> None:
        self._leave_vacant(address)
        if address not in self._store.addresses:
            self._forget(address)

    def _plan(self) -> None:
        LOOK.has_touched = True
        if len(self._deadlines) > 2 * len(self._vacant) + STALE_MAX:
            self._deadlines = sorted((each.until_ns, address) for address, each in self._vacant.items())
        self.due_ns = self._deadlines[0][0] if self._deadlines else 0
        self._store.schedule(self)

    def on_time(self, now_ns: int) -> None:
        """Ids of addresses that went long ago are forgotten, of some of them at once; the others are due still."""
        LOOK.has_touched = True
        for _ in range(ENDED_MAX):
            if not self._deadlines or self._deadlines[0][0] > now_ns:
                break
            until_ns, address = heappop(self._deadlines)
            if self._vacant.get(address, NEVER).until_ns == until_ns:
                self._end(address)
        self._plan()

    def _forget(self, address: str) -> None:
        LOOK.has_touched = True
        if self._seen.pop(address, None) is not None:
            self._next.pop(address, None)
            self._journal.duplicates.drop(address)

    def load(self, recovered: Recovered) -> None:
        """Take over what recovery found, as far as it is wanted now; after addresses are there."""
        for address, stored in recovered.duplicates.items():
            if address.startswith(INTERNAL_PREFIX):
                continue  # of others: arrivals.py, group_owners.py, routes.py
            size = self._settings.of(address).id_cache_size
            if not size or not self._is_persisted:
                self._journal.duplicates.drop(address)
                continue
            kept = stored[-size:]
            self._seen[address] = OrderedDict((each.duplicate_id, each.number) for each in kept)
            self._next[address] = kept[-1].number + 1
            self._journal.duplicates.forget(address, kept[0].number)
        for address in [each for each in self._seen if each not in self._store.addresses]:
            self._keep(address)


def _oldest(seen: OrderedDict[bytes, int]) -> int:
    return next(iter(seen.values()))
