"""Ids of messages that were seen at an address, as the journal keeps them: which segment holds which of them.

Ids are numbered for each address; what is below the oldest number has left the bounded cache of its address. Invariant:
a segment goes only when all its ids have left, were dropped with their address, or are written once more. Written again
are they only where that frees FREED_SHARE times as much, so ids alone never keep the journal busy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mqbroker.base.look import LOOK
from mqbroker.journal.ledger import JournalSegment
from mqbroker.journal.ranges import forgotten
from mqbroker.journal.records import DUPLICATE_HEAD_BYTES, DuplicateIdsRecord, encode_duplicates
from mqbroker.journal.recovered import StoredId

FREED_SHARE: Final = 4
MOVED_MAX: Final = 4096  # ids that one step writes again


@dataclass(slots=True)
class _Ids:
    """Of one address. `places` has what is in a segment already, `pending` goes with the next append."""

    oldest: int = 0
    ids: dict[int, bytes] = field(default_factory=dict)
    places: dict[int, JournalSegment] = field(default_factory=dict)
    pending: list[int] = field(default_factory=list)


class DuplicateIds:
    """Which duplicate ids of which addresses the journal holds, and in which segments."""

    def __init__(self, recovered: Mapping[str, Sequence[StoredId]], segments: Sequence[JournalSegment]) -> None:
        self._addresses: dict[str, _Ids] = {}
        self._dropped: dict[str, None] = {}
        self._changed: dict[str, None] = {}
        self._written: list[tuple[_Ids, list[int]]] = []
        self._moving: list[tuple[str, int]] = []
        by_number = {segment.number: segment for segment in segments}
        for address, stored in recovered.items():
            held = self._addresses[address] = _Ids(min((each.number for each in stored), default=0))
            for number, duplicate_id, place in stored:
                held.ids[number] = duplicate_id
                held.places[number] = by_number[place]
                by_number[place].id_bytes += _size_bytes(duplicate_id)

    def add(self, address: str, number: int, duplicate_id: bytes, oldest: int) -> None:
        """Keep an id. Numbers ascend; one that is known is written again. `oldest`: the first that is still wanted."""
        held = self._addresses.get(address)
        LOOK.has_touched = True
        if held is None:
            held = self._addresses[address] = _Ids(oldest)
        self._unplace(held, number)
        held.ids[number] = duplicate_id
        held.pending.append(number)
        self._changed[address] = None
        self.forget(address, oldest)

    def forget(self, address: str, oldest: int) -> None:
        """Ids below `oldest` are not wanted any more; the disk learns of it with the next id of this address."""
        held = self._addresses.get(address)
        if held is None:
            return
        LOOK.has_touched = True
        for number in forgotten(held.ids, held.oldest, oldest):
            self._unplace(held, number)
            held.ids.pop(number, None)
        held.oldest = max(held.oldest, oldest)

    def drop(self, address: str) -> None:
        """Forget all ids of an address; its record says so from this append on."""
        LOOK.has_touched = True
        held = self._addresses.pop(address, None)
        if held is not None:
            for number in list(held.places):
                self._unplace(held, number)
            self._changed.pop(address, None)
            self._dropped[address] = None

    @staticmethod
    def _unplace(held: _Ids, number: int) -> None:
        segment = held.places.pop(number, None)
        if segment is not None:
            segment.id_bytes -= _size_bytes(held.ids[number])

    # -- appends -------------------------------------------------------------------------------------------------------

    def records(self) -> list[bytes]:
        """What is new since the last call, for the append that `place` is called for."""
        if not self._changed and not self._dropped:
            return []
        new = [encode_duplicates(DuplicateIdsRecord(address, 0, [])) for address in self._dropped]
        LOOK.has_touched = True
        for address in self._changed:
            held = self._addresses[address]
            pairs = [(number, held.ids[number]) for number in held.pending if number in held.ids]
            if pairs:
                new.append(encode_duplicates(DuplicateIdsRecord(address, held.oldest, pairs)))
                self._written.append((held, [number for number, _ in pairs]))
            held.pending = []
        self._dropped, self._changed = {}, {}
        return new

    def place(self, segment: JournalSegment) -> None:
        """The records went into this segment."""
        if not self._written:
            return
        LOOK.has_touched = True
        for held, numbers in self._written:
            for number in numbers:
                if number in held.ids:
                    self._unplace(held, number)
                    held.places[number] = segment
                    segment.id_bytes += _size_bytes(held.ids[number])
        self._written = []

    # -- deletion ------------------------------------------------------------------------------------------------------

    def needed_from(self, segments: Sequence[JournalSegment], number: int) -> int:
        """The first segment that must stay, where messages need none before `number`. May write ids again."""
        before = [segment for segment in segments if segment.number < number]
        held = [segment for segment in before if segment.id_bytes]
        if held and not self._moving:
            if sum(segment.used_bytes for segment in before) < FREED_SHARE * sum(each.id_bytes for each in held):
                return held[0].number
            self._moving = self._placed_before(number)
        if held:
            self._move(number)
            held = [segment for segment in held if segment.id_bytes]
        return held[0].number if held else number

    def _placed_before(self, number: int) -> list[tuple[str, int]]:
        return [
            (address, each)
            for address, held in self._addresses.items()
            for each, segment in held.places.items()
            if segment.number < number
        ]

    def _move(self, number: int) -> None:
        moved, self._moving = self._moving[:MOVED_MAX], self._moving[MOVED_MAX:]
        for address, each in moved:
            held = self._addresses.get(address)
            place = held.places.get(each) if held is not None else None
            if held is not None and place is not None and place.number < number:
                self._unplace(held, each)
                held.pending.append(each)
                self._changed[address] = None


def _size_bytes(duplicate_id: bytes) -> int:
    return DUPLICATE_HEAD_BYTES + len(duplicate_id)
