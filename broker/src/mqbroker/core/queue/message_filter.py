"""Filters over messages where they lie in their runs: whoever looks through a backlog decodes next to nothing of it.

A selector that asks for application properties alone says the same of all messages whose properties have the same
bytes. Those of the messages of an application are often few, so what it said is remembered; else a value is read where
it lies. Invariants: what is said is what the filter says of a view (message_view.py); what is remembered is bounded in
number and in bytes, whatever peers send, and can be forgotten at any time.
"""

from __future__ import annotations

from typing import Any, Final

from mqbroker.core.queue.backlog import Segment
from mqbroker.core.queue.message_view import Filter, MessageView, is_property, view_of
from mqbroker.core.queue.prefilter import NEEDLES_MAX, Prefilter, needles_of
from mqbroker.core.selector.selector import Selector
from mqbroker.wire.property_section import PropertyReader, properties_bytes

REMEMBERED_MAX: Final = 8192  # verdicts of all filters together: some 3 MiB; and so many filters
FILTERS_SIZE_MAX: Final = 1 << 20  # characters of their selectors; what is made of them takes some 35 bytes for each
REMEMBERED_BYTES_MAX: Final = 256  # of properties; what is longer is looked at each time
DECODED_LOOKS: Final = 4  # what a look at a message costs of which more than its application properties is asked for
PLAIN_LOOKS: Final = 4  # before it pays to search for what a message must have: of live ones there are few
LOOK_BYTES: Final = 1024  # of what lies before a body: so many more cost as much as one look more


class Candidate:
    """A message that filters are asked about: what one of them had found out, the others know."""

    __slots__ = ("_has_looked", "_index", "_properties", "_reader", "_view", "segment")

    def __init__(self, segment: Segment, index: int) -> None:
        self.segment: Final = segment
        self._index: Final = index
        self._has_looked = False
        self._properties: bytes | None = None
        self._reader: _Properties | None = None
        self._view: MessageView | None = None

    def properties(self) -> bytes | None:
        """The bytes of its application properties; None where it has none that can be read so."""
        if not self._has_looked:
            self._properties = properties_bytes(self.segment.run, self._index)
            self._has_looked = True
        return self._properties

    def reader(self, properties: bytes) -> _Properties:
        """What reads single ones of its properties."""
        if self._reader is None:
            self._reader = _Properties(properties)
        return self._reader

    @property
    def long_looks(self) -> int:
        """What a look costs more where much lies before the body, in looks."""
        if self._view is not None:
            return self._view.head_size // LOOK_BYTES
        return len(self._properties or b"") // LOOK_BYTES

    def view(self) -> MessageView:
        if self._view is None:
            self._view = view_of(self.segment, self._index)
        return self._view


class _Properties:
    """A message for selectors that ask for application properties alone."""

    __slots__ = ("_reader",)

    def __init__(self, encoded: bytes) -> None:
        self._reader: Final = PropertyReader(encoded)

    def value_of(self, name: str) -> Any:
        """As a view has it."""
        # Half of a surrogate pair is in no message: such a name is a key that none has.
        return self._reader.value_of(name.encode("utf-8", "surrogatepass"))


class MessageFilter:
    """A filter as dispatch asks it. `looks` is what a look costs that has to decode, in looks that have not.

    `needles`: bytes one of which each message has that it wants (prefilter.py), none where that is not known.
    """

    __slots__ = ("_filter", "_selector", "_verdicts", "looks", "needles")

    def __init__(self, wanted: Filter) -> None:
        self._filter: Final = wanted
        is_of_properties = isinstance(wanted, Selector) and all(map(is_property, wanted.names))
        self._selector: Final = wanted if isinstance(wanted, Selector) and is_of_properties else None
        self._verdicts: dict[bytes, bool] = {}
        self.looks: Final = 1 if is_of_properties else DECODED_LOOKS
        self.needles: Final = () if self._selector is None else needles_of(self._selector.required)

    def wants(self, candidate: Candidate) -> bool:
        """Whether the filter lets it through."""
        if self._selector is not None:
            properties = candidate.properties()
            if properties is not None:
                verdict = self._verdicts.get(properties)
                return self._judged(self._selector, candidate, properties) if verdict is None else verdict
        return self._filter.matches(candidate.view())

    def forget(self) -> None:
        """What was remembered is found out again."""
        self._verdicts = {}

    def _judged(self, selector: Selector, candidate: Candidate, properties: bytes) -> bool:
        verdict = selector.matches(candidate.reader(properties))
        if len(properties) <= REMEMBERED_BYTES_MAX:
            _REMEMBERED.add()
            self._verdicts[properties] = verdict
        return verdict


class Lookers:
    """Whoever looks at what is at one place: their filters, none where one takes whatever there is.

    Before the place `until` there are not more who look. `search` passes over what none of them wants, where it can.
    """

    __slots__ = ("filters", "search", "until")

    def __init__(self, filters: list[MessageFilter], until: int) -> None:
        self.filters: Final = filters
        self.until: Final = until
        is_known = bool(filters) and all(each.needles for each in filters)
        needles = {needle: None for each in filters for needle in each.needles} if is_known else {}
        self.search: Final = Prefilter(tuple(needles)) if 0 < len(needles) <= NEEDLES_MAX else None

    def passed_over(self, segment: Segment, index: int) -> tuple[int, int]:
        """How many messages from here on none of them wants for certain, and how many looks it took to know."""
        if self.search is None:
            return 0, 0
        count = self.search.next_index(segment, index) - index
        rank = segment.rank + index - segment.start
        return min(count, self.until - rank), self.search.looks()


class _Remembered:
    """The filters of selectors, and how many verdicts they remember; `size` of the texts of these selectors."""

    __slots__ = ("count", "filters", "size")

    def __init__(self) -> None:
        self.count = self.size = 0
        self.filters: dict[Selector, MessageFilter] = {}

    def add(self) -> None:
        """Room for one verdict more. Where there is none all of them go; filters stay, as thousands that look at one
        message say more than there is room for, and would be made anew for each message."""
        if self.count >= REMEMBERED_MAX:
            self.forget()
        self.count += 1

    def filter_of(self, selector: Selector) -> MessageFilter:
        """That of a selector, which is new where there was none. As many are kept as verdicts, and texts of so much
        size, then all of them go: those of consumers that have gone are among them."""
        kept = self.filters.get(selector)
        if kept is None:
            size = len(selector.text)
            if len(self.filters) >= REMEMBERED_MAX or self.size + size > FILTERS_SIZE_MAX:
                self.forget()
                self.filters.clear()
                self.size = 0
            self.size += size
            kept = self.filters[selector] = MessageFilter(selector)
        return kept

    def forget(self) -> None:
        """All verdicts."""
        for each in self.filters.values():
            each.forget()
        self.count = 0


_REMEMBERED: Final = _Remembered()


def message_filter(wanted: Filter) -> MessageFilter:
    """The filter of a consumer, for a run of dispatch: one that is kept longer may remember what nobody counts."""
    return _REMEMBERED.filter_of(wanted) if isinstance(wanted, Selector) else MessageFilter(wanted)
