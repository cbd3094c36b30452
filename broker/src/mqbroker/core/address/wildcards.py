"""Addresses with wildcards, `news.*` or `news.#`: whoever subscribes there gets copies of what all that match get.

The syntax is that of the settings (config/matching.py). Such an address is like any other but for where its messages
come from: each that is taken in at an address that matches comes there too, as a message of its own with the same
bytes, in the same append, as diverts do it (diverts.py). Bounds, pages, settings, filters and bindings of other nodes
are those of the wildcard address. What the broker itself moves (dead letters, expired messages) does not come again.
Temporary and internal addresses match nothing, as replies are between two. Exclusive diverts take messages away before.
Source: Artemis's manual, "Routing Messages With Wild Cards".
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from mqbroker.amqp import frame_costs
from mqbroker.base.errors import Refused
from mqbroker.base.look import LOOK
from mqbroker.config.matching import ANY_WORD, ANY_WORDS, DELIMITER, matches
from mqbroker.core.address.wildcard_names import has_wildcards
from mqbroker.core.queue.kinds import INTERNAL_PREFIX, TEMPORARY_PREFIX
from mqbroker.wire.parts import part_of

if TYPE_CHECKING:
    from mqbroker.core.address.address import Address, Origin
    from mqbroker.core.address.address_store import AddressStore
    from mqbroker.wire.run import Run

COPIES_MAX: Final = 1000  # addresses with wildcards that one address matches: each gets a copy, in the same append
PASSED_SHIFT: Final = 6  # names that begin otherwise: a power of 2 of them costs what one comparison does


class WildcardPattern(NamedTuple):
    """An address with wildcards: its words, and what a name that matches begins with."""

    words: list[str]
    stem: str

    @staticmethod
    def of(name: str) -> WildcardPattern:
        words = name.split(DELIMITER)
        stem = list(takewhile(lambda word: word not in (ANY_WORD, ANY_WORDS), words))
        # No delimiter behind it: `news.#` matches `news` too.
        return WildcardPattern(words, DELIMITER.join(stem))


class Wildcards:
    """Which addresses match which; `Address.wildcards` has for each where its messages go as well.

    `work` counts what that cost so far, in units of amqp/frame_costs.py, so that it can be charged to whoever caused
    it.
    """

    def __init__(self, store: AddressStore) -> None:
        self._store = store
        self._patterns: dict[Address, WildcardPattern] = {}
        self._plain: dict[Address, None] = {}  # addresses that may match one
        self.work = 0

    def check(self, name: str) -> None:
        """Whether each copy that a new address brings is within a bound. Raises Refused."""
        if has_wildcards(name):
            full = [each for each in self._plain if len(each.wildcards) >= COPIES_MAX]
            crowded = next((each.name for each in self._matching(WildcardPattern.of(name), full)), None)
        else:
            crowded = name if len(self._patterns) > COPIES_MAX and len(self._matched(name)) > COPIES_MAX else None
        if crowded is not None:
            why = f"address {crowded!r} matches {COPIES_MAX} addresses with wildcards already, and each gets a copy"
            raise Refused("amqp:resource-limit-exceeded", why)

    def added(self, address: Address) -> None:
        """An address is there: one that matches, or one that others match."""
        name = address.name
        LOOK.has_touched = True
        if has_wildcards(name):
            pattern = self._patterns[address] = WildcardPattern.of(name)
            for other in self._matching(pattern, self._plain):
                other.wildcards = (*other.wildcards, address)
        elif not name.startswith((INTERNAL_PREFIX, TEMPORARY_PREFIX)):
            self._plain[address] = None
            address.wildcards = tuple(self._matched(name)) if self._patterns else ()

    def _matching(self, pattern: WildcardPattern, addresses: Collection[Address]) -> list[Address]:
        """Those of these addresses that match."""
        near = [other for other in addresses if other.name.startswith(pattern.stem)]
        LOOK.has_touched = True
        self.work += (len(near) + (len(self._plain) >> PASSED_SHIFT)) * frame_costs.COMPARED
        return [other for other in near if matches(pattern.words, other.name.split(DELIMITER))]

    def _matched(self, name: str) -> list[Address]:
        """The addresses with wildcards that a name matches."""
        if not _may_match(name):
            return []
        words = name.split(DELIMITER)
        near = [
            (address, pattern.words) for address, pattern in self._patterns.items() if name.startswith(pattern.stem)
        ]
        LOOK.has_touched = True
        self.work += (len(near) + (len(self._patterns) >> PASSED_SHIFT)) * frame_costs.COMPARED
        return [address for address, pattern in near if matches(pattern, words)]

    def gone(self, address: Address) -> None:
        """An address was deleted: no pattern matches it, and it is no pattern, any more."""
        LOOK.has_touched = True
        self._plain.pop(address, None)
        if self._patterns.pop(address, None) is None:
            return
        for other in self._plain:
            if other.wildcards and address in other.wildcards:
                other.wildcards = tuple(each for each in other.wildcards if each is not address)

    def publish(self, wildcard: Address, run: Run, origin: Origin) -> bool:
        """What came to an address comes to one with wildcards that it matches. True: as `Store.publish`."""
        meter = wildcard.meter
        LOOK.has_touched = True
        self.work += frame_costs.COPIED
        if meter is not None and meter.drops and not meter.takes(1):
            meter.refused(run.count)
            return False
        copy = part_of(run, 0, run.count, run.traits)
        copy.arrived_ms = run.arrived_ms
        return self._store.take_in(wildcard, copy, origin, "")


def reached(address: Address, origin: Origin) -> tuple[Address, ...]:
    """The addresses with wildcards that get copies of what comes to this one from there."""
    return () if origin.moved_from else tuple(each for each in address.wildcards if each.has_way)


def _may_match(name: str) -> bool:
    return not name.startswith((INTERNAL_PREFIX, TEMPORARY_PREFIX)) and not has_wildcards(name)
