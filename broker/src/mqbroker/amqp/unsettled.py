"""Deliveries that we sent and that are not settled, kept as ranges of ascending delivery ids.

An entry is (link, token, skip, n): `token` is whatever the sender of the messages put in, `skip` how many of the
token's messages lie before this entry (entries split in place). The usual disposition hits the head in O(1); any
other is found by bisection. Where several links have some, it is noted which are whose, so that a link that goes takes
its own without a look at all others; most sessions have one such link, and nothing is noted.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from mqbroker.base.look import LOOK
from mqbroker.base.value import Value

if TYPE_CHECKING:
    from mqbroker.amqp.settling import Portion

COMPACT_AT: Final = 512
FEW_SHIFT: Final = 3  # of so many times as many, entries are taken out one at a time


class Taken(Value):
    """Messages `skip`… of a token that are settled now."""

    __match_args__ = ("link", "token", "skip", "n")
    __slots__ = __match_args__

    def __init__(self, link: Any, token: Any, skip: int, n: int) -> None:
        self.link: Final = link
        self.token: Final = token
        self.skip: Final = skip
        self.n: Final = n

    def with_token(self, token: Any) -> Taken:
        """The same messages under another token."""
        return Taken(self.link, token, self.skip, self.n)


class Unsettled:
    """Sorted ranges; ids only ascend when added. `count` is the number of deliveries."""

    __slots__ = ("_entries", "_firsts", "_head", "_of_link", "_only", "_order", "count")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._entries: list[Taken] = []
        self._head = 0
        self._only: Any = None  # the link of all entries, where these are not noted
        self._of_link: dict[Any, dict[int, None]] = {}  # first ids of the entries of each, where there are several
        self._order: list[int] = []  # of the entries of one that goes piece by piece, the oldest last
        self.count = 0

    def add(self, first: int, count: int, link: Any, token: Any) -> None:
        """Remember `count` deliveries from id `first` (above all ids so far)."""
        LOOK.has_touched = True
        if self._of_link or link is not self._only:
            self._note(first, link)
        self._firsts.append(first)
        self._entries.append(Taken(link, token, 0, count))
        self.count += count

    def _note(self, first: int, link: Any) -> None:
        """An entry is about to be there, and perhaps it is not of the only link that has some."""
        of_link = self._of_link
        if not self.count:
            of_link.clear()
            self._only = link
            return
        if not of_link:
            of_link[self._only] = dict.fromkeys(self._firsts[self._head :])
        of_link.setdefault(link, {})[first] = None

    def take(self, first: int, last: int) -> list[Taken]:
        """Forget the ids first…last and say what they were; ids that are not here are passed over."""
        LOOK.has_touched = True
        taken: list[Taken] = []
        while self._head < len(self._firsts) and first <= self._firsts[self._head] <= last:
            entry = self._entries[self._head]
            start = self._firsts[self._head]
            if start + entry.n > last + 1:
                break
            taken.append(entry)
            self.count -= entry.n
            if self._of_link:
                del self._of_link[entry.link][start]
            self._advance()
            if start + entry.n > last:
                return taken
        return taken + [entry for _, entry in self.take_numbered(first, last)]

    def piece_of(self, first: int, last: int, portion: Portion) -> int:
        """The last id of a piece of first…last that has at most so many entries, and so many messages. Ids that are not
        here count for nothing: a piece has something, or is all.
        """
        firsts = self._firsts
        at = max(bisect_right(firsts, first, self._head) - 1, self._head)
        if at < len(firsts) and firsts[at] + self._entries[at].n <= first:
            at += 1
        if at >= len(firsts):
            return last
        if at + portion.entries_max < len(firsts):
            last = min(last, firsts[at + portion.entries_max] - 1)
        return min(last, max(first, firsts[at]) + portion.messages_max - 1)

    def _advance(self) -> None:
        self._entries[self._head] = None  # type: ignore[call-overload]  # lets go of the token at once
        self._head += 1
        if self._head >= COMPACT_AT and self._head * 2 >= len(self._firsts):
            del self._firsts[: self._head]
            del self._entries[: self._head]
            self._head = 0

    def take_numbered(self, first: int, last: int) -> list[tuple[int, Taken]]:
        """As `take`, each with the id of its first delivery, so that it can be put back."""
        firsts, entries = self._firsts, self._entries
        at = max(bisect_right(firsts, first, self._head) - 1, self._head)
        begin = at
        taken: list[tuple[int, Taken]] = []
        kept: list[tuple[int, Taken]] = []
        LOOK.has_touched = True
        while at < len(firsts) and firsts[at] <= last:
            start, entry = firsts[at], entries[at]
            link, token, skip, count = entry.link, entry.token, entry.skip, entry.n
            low, high = max(first - start, 0), min(last - start + 1, count)
            if low >= high:
                kept.append((start, entries[at]))
            else:
                taken.append((start + low, Taken(link, token, skip + low, high - low)))
                if low:
                    kept.append((start, Taken(link, token, skip, low)))
                elif self._of_link:
                    del self._of_link[link][start]
                if high < count:
                    kept.append((start + high, Taken(link, token, skip + high, count - high)))
                    if self._of_link:
                        self._of_link[link][start + high] = None
            at += 1
        firsts[begin:at] = [start for start, _ in kept]
        entries[begin:at] = [entry for _, entry in kept]
        self.count -= sum(entry.n for _, entry in taken)
        return taken

    def put_back(self, first: int, entry: Taken) -> None:
        """Remember again what was taken under the ids from `first` on, perhaps with another token."""
        at = bisect_right(self._firsts, first, self._head)
        LOOK.has_touched = True
        if self._of_link or entry.link is not self._only:
            self._note(first, entry.link)
        self._firsts.insert(at, first)
        self._entries.insert(at, entry)
        self.count += entry.n

    def has_any(self, first: int, last: int) -> bool:
        """Whether any of these ids is here."""
        at = max(bisect_right(self._firsts, last, self._head) - 1, self._head)
        return at < len(self._firsts) and self._firsts[at] <= last and self._firsts[at] + self._entries[at].n > first

    def begun_in(self, first: int, last: int) -> Iterator[tuple[int, Taken]]:
        """The entries that begin with one of these ids, each with that id; they stay."""
        at = bisect_left(self._firsts, first, self._head)
        while at < len(self._firsts) and self._firsts[at] <= last:
            yield self._firsts[at], self._entries[at]
            at += 1

    def has_of(self, link: Any) -> bool:
        """Whether anything that was delivered on a link is unsettled."""
        return bool(self._places_of(link, 1))

    def has_more_than(self, portion: Portion, link: Any) -> bool:
        """Whether a link has more than that."""
        places = self._places_of(link, portion.entries_max + 1)
        is_more = len(places) > portion.entries_max
        return is_more or sum(self._entries[at].n for at in places) > portion.messages_max

    def _places_of(self, link: Any, count_max: int) -> list[int]:
        """Where entries of a link are, so many at most."""
        if self._of_link:
            firsts = islice(self._of_link.get(link, ()), count_max)
            return [bisect_left(self._firsts, first, self._head) for first in firsts]
        end = len(self._firsts) if link is self._only else self._head
        return list(range(self._head, min(self._head + count_max, end)))

    def take_some(self, link: Any, portion: Portion) -> list[Taken]:
        """Forget some of what a link has, mostly the oldest."""
        entries_left, messages_left = portion.entries_max, portion.messages_max
        taken: list[Taken] = []
        while entries_left > 0 and messages_left > 0 and (first := self._first_of(link)) >= 0:
            at = bisect_left(self._firsts, first, self._head)
            taken += self.take(first, first + min(self._entries[at].n, messages_left) - 1)
            entries_left -= 1
            messages_left -= taken[-1].n
        return taken

    def _first_of(self, link: Any) -> int:
        """The first id of an entry of a link, mostly of its oldest; -1: it has none."""
        if not self._of_link:
            return self._firsts[self._head] if link is self._only and self._head < len(self._firsts) else -1
        own, order = self._of_link.get(link, {}), self._order
        LOOK.has_touched = True
        while order and order[-1] not in own:
            order.pop()
        if not order:
            order += sorted(own, reverse=True)
        return order[-1] if order else -1

    def take_link(self, link: Any) -> list[Taken]:
        """Forget the link and all that belongs to it, in the order in which it was sent."""
        is_only = link is self._only
        LOOK.has_touched = True
        if is_only:
            self._only = None
        if not self._of_link:
            return self._take_all() if is_only else []
        firsts = sorted(self._of_link.pop(link, ()))
        if len(firsts) << FEW_SHIFT < len(self._firsts) - self._head:
            taken = [self._take_at(bisect_left(self._firsts, first, self._head)) for first in firsts]
        else:
            taken = self._sift(link)
        self.count -= sum(entry.n for entry in taken)
        return taken

    def _take_all(self) -> list[Taken]:
        taken = self._entries[self._head :]
        LOOK.has_touched = True
        self._firsts, self._entries, self._head, self.count = [], [], 0, 0
        return taken

    def _take_at(self, at: int) -> Taken:
        del self._firsts[at]
        return self._entries.pop(at)

    def _sift(self, link: Any) -> list[Taken]:
        """Most of them are the link's: one look at all costs least."""
        pairs = list(zip(self._firsts[self._head :], self._entries[self._head :], strict=True))
        taken = [entry for _, entry in pairs if entry.link is link]
        kept = [(first, entry) for first, entry in pairs if entry.link is not link]
        self._firsts, self._entries, self._head = [first for first, _ in kept], [entry for _, entry in kept], 0
        return taken

    def __iter__(self) -> Any:
        """The entries, oldest first."""
        return iter(self._entries[self._head :])
