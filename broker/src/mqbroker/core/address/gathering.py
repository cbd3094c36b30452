"""What a transaction posts, gathered while it comes: neighbours that are alike are a run, as a commit costs by runs.

A run is begun by what comes at once, joined by what is for the same place, says nothing special of itself and has the
same header section, and made when it is full or something else comes. Invariants: the order is that in which they
came, and memory holds what it would hold of each by itself. What has to stay apart, or is looked at one by one where it
goes, is not gathered. Sources: wire/run.py for what a run is, docs/adr/0019-commits.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mqbroker.base.look import LOOK
from mqbroker.core.address.address import FULLY_QUALIFIED
from mqbroker.wire.header_section import Section
from mqbroker.wire.run import CANONICAL_SIZE, Run, joined

if TYPE_CHECKING:
    from mqbroker.core.address.address_store import AddressStore

PostTarget = tuple[str, str]  # the target of messages, and what their sender wants there (routing_demands.py)
GatheredPost = tuple[PostTarget, Run]

COUNT_MAX: Final = 256  # messages of a run; to make it of them is done in one go
BYTES_MAX: Final = 256 << 10  # its bytes, as many as a read may bring
MESSAGE_BYTES_MAX: Final = 16 << 10  # of one that is gathered: larger ones cost more to copy than they do alone
COPIES_PER_PART: Final = 10  # of a message (`Diverts.width_of`), some 25 µs each; fewer count for nothing


class Gathering:
    """See the module's docstring. `posted` is all of it at any time."""

    __slots__ = ("_count", "_messages_count", "_section", "_size_bytes", "_store", "_wanted", "posted")

    def __init__(self, store: AddressStore) -> None:
        self._store = store
        self.posted: list[GatheredPost] = []
        self._count = 0  # of these, the last ones, are to be a run
        self._messages_count = self._size_bytes = 0  # of so many messages and bytes,
        self._wanted: PostTarget = ("", "")  # for this place,
        self._section: Section | None = None  # with this header section; None: what came last stays alone

    def joins(self, wanted: PostTarget, run: Run) -> bool:
        """Whether it would be of one run with those before it."""
        # Sections are known by their bytes, so two that are one have the same, in the same spelling.
        if run.section is not self._section or wanted != self._wanted or not _is_gathered(run):
            return False
        if self._messages_count + run.count > COUNT_MAX or self._size_bytes + len(run.buffer) > BYTES_MAX:
            return False
        return self._count > 1 or not is_taken_apart(self._store, wanted[0])

    def add(self, wanted: PostTarget, run: Run) -> int:
        """One run more behind the others. Says how many there are more."""
        more = 0
        LOOK.has_touched = True
        if not self.joins(wanted, run):
            more = 1 + self.close()
            if _is_gathered(run):
                self._wanted, self._section = wanted, run.section
        self._count += 1
        self._messages_count += run.count
        self._size_bytes += len(run.buffer)
        self.posted.append((wanted, run))
        return more

    def close(self) -> int:
        """What is gathered becomes a run. Says how many runs there are more than `add` has said."""
        LOOK.has_touched = True
        count, self._section = self._count, None
        self._count = self._messages_count = self._size_bytes = 0
        if count < 2:
            return 0
        gathered = [run for _, run in self.posted[-count:]]
        run = joined(gathered)
        if run is None:
            return count - 1  # without header sections, and one of them begins in a way that could be of one
        run.is_plain = True
        self._store.memory.replace(gathered, run)
        self.posted[-count:] = [(self._wanted, run)]
        return 0

    def parts_beyond(self) -> int:
        """How many parts more than runs there are, with their copies, as things are now where these go.

        A run that stays one is copied as one.
        """
        parts: dict[str, int] = {}
        apart: dict[str, bool] = {}
        beyond, diverts = 0, self._store.diverts
        for (target, _), run in self.posted:
            if target not in parts:
                parts[target] = 1 + diverts.width_of(target) // COPIES_PER_PART
            count = run.count
            if count > 1:
                if target not in apart:
                    apart[target] = is_taken_apart(self._store, target)
                count = count if apart[target] else 1
            beyond += count * parts[target] - 1
        return beyond


def _is_gathered(run: Run) -> bool:
    """Whether its messages, alone in their buffer, may be of one run with others."""
    return (
        run.is_plain and run.head_size == CANONICAL_SIZE and run.large is None
        and run.frame_size_max <= MESSAGE_BYTES_MAX and run.end(run.count - 1) - run.first_start == len(run.buffer)
    )  # fmt: skip


def is_taken_apart(store: AddressStore, target: str) -> bool:
    """Whether messages that are sent there are dealt with one by one, so that a run costs as many as it has."""
    name = target.partition(FULLY_QUALIFIED)[0]
    if store.is_diverted(name) or store.settings.of(name).enable_ingress_timestamp:
        return True
    address = store.addresses.get(name)
    return address is not None and (
        address.looks_at_each or any(wildcard.looks_at_each for wildcard in address.wildcards)
    )
