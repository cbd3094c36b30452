"""Diverts: messages of one address go to another as well, or instead.

Exclusive diverts come first: where one takes a message, its address and its other diverts do not get it. A copy is a
message of its own with the same bytes, in the same append. A message on its way passes each divert once, so a circle
of diverts ends, and one run makes at most COPIES_MAX copies. Routing types STRIP and PASS are the same here, because
messages carry none: the forwarding address decides. Source: Artemis's manual, "Diverting and Splitting Message Flows".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mqbroker.base.errors import ConfigFault, Refused
from mqbroker.base.look import LOOK
from mqbroker.config.slices import DivertOptions
from mqbroker.core.address.address import ANYCAST, FULLY_QUALIFIED, MULTICAST, Address, Origin
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.queue.message_view import view_at
from mqbroker.core.queue.meter import PAGE
from mqbroker.core.selector.selector import Selector, compile_selector
from mqbroker.wire.parts import part_of

if TYPE_CHECKING:
    from mqbroker.core.address.address_store import AddressStore
    from mqbroker.wire.run import Run

COPIES_MAX = 1000


@dataclass(frozen=True, slots=True)
class Divert:
    """One of them. `only`: the routing type of the queues that it reaches, empty for all."""

    name: str
    target: str
    filter: Selector | None
    is_exclusive: bool
    only: str


def faults_of(options: tuple[DivertOptions, ...]) -> list[ConfigFault]:
    """Filters that are no selectors."""
    faults = []
    for number, one in enumerate(options):
        try:
            if one.filter:
                compile_selector(one.filter)
        except Refused as refused:
            faults.append(ConfigFault(f"diverts.{number}.filter", refused.description))
    return faults


class Diverts:
    """All of a node. Raises Refused where a filter is no selector; `faults_of` says so before."""

    def __init__(self, options: tuple[DivertOptions, ...], store: AddressStore) -> None:
        self.options = options
        self._store = store
        self._copies_left = 0
        self.at: dict[str, list[Divert]] = {}
        for one in options:
            only = one.routing_type.lower()
            divert = Divert(
                one.name,
                one.forwarding_address,
                compile_selector(one.filter) if one.filter else None,
                one.exclusive,
                only if only in (ANYCAST, MULTICAST) else "",
            )
            self.at.setdefault(one.address, []).append(divert)

    def may_page(self, name: str) -> bool:
        """Whether all addresses that diverts of this one lead to, over others too, keep on disk what is too much."""
        passed, left = {name}, [name]
        while left:
            for divert in self.at.get(left.pop(), ()):
                target = divert.target.partition(FULLY_QUALIFIED)[0]
                if not self.can_page(target):
                    return False
                if target not in passed:
                    passed.add(target)
                    left.append(target)
        return True

    def can_page(self, name: str) -> bool:
        """Whether what comes to an address, which need not exist yet, can stay on disk."""
        address = self._store.addresses.get(name)
        return self._store.settings.of(name).address_full_policy == PAGE if address is None else address.can_page

    def find_way(self, name: str) -> bool:
        """Whether an exclusive divert takes whatever comes to an address, and a queue gets it, over others too.

        What they lead to is made here, as the first message would make it: whether it may be is known by that alone.
        """
        return self._takes_all(name) and self.find_all(name, {})

    def _takes_all(self, name: str) -> bool:
        return any(divert.is_exclusive and divert.filter is None for divert in self.at.get(name, ()))

    def find_all(self, name: str, seen: dict[str, bool]) -> bool:
        """Whether a queue gets all that exclusive diverts take away from an address, if there are any."""
        further = [each for each in self.at.get(name, ()) if each.is_exclusive]
        whole = [each for each in further if each.filter is None]
        if whole:
            return any(self._finds(each, seen) for each in whole)
        return all(self._finds(each, seen) for each in further)

    def _finds(self, divert: Divert, seen: dict[str, bool]) -> bool:
        """As `_forward`, for every message that may come. Each divert is looked at once, by its name: what it leads
        to is the same wherever it is met again, and one that is met on its own way leads nowhere."""
        LOOK.has_touched = True
        if divert.name not in seen:
            seen[divert.name] = False
            seen[divert.name] = self._leads_to_all(divert, seen)
        return seen[divert.name]

    def _leads_to_all(self, divert: Divert, seen: dict[str, bool]) -> bool:
        LOOK.has_touched = True
        try:
            address = self._target(divert)
        except Refused:
            return False
        is_reached = self._takes_all(address.name) or address.takes_each(divert.only)
        return is_reached and self.find_all(address.name, seen)

    def publish(self, address: Address, run: Run, origin: Origin) -> bool:
        """Take a run in at an address that has diverts. True: it must wait for this step's append."""
        LOOK.has_touched = True
        self._copies_left = COPIES_MAX
        return self._spread(address, run, (), (origin, ""))

    def _spread(self, address: Address, run: Run, passed: tuple[Divert, ...], terms: tuple[Origin, str]) -> bool:
        waits = False
        diverts = self.at.get(address.name, ())
        if address.target != address.name:  # one queue alone is meant: it may be diverted, but nobody else gets a copy
            diverts = [divert for divert in diverts if divert.is_exclusive]
        here = [divert for divert in diverts if divert not in passed]
        for begin, end, taking, stays in _split(address.name, run, here):
            for divert in taking:
                waits = self._forward(divert, self._part(run, begin, end), passed, terms[0]) or waits
            if stays:
                whole = end - begin == run.count
                waits = self._store.take_in(address, run if whole else self._part(run, begin, end), *terms) or waits
        return waits

    def _forward(self, divert: Divert, run: Run, passed: tuple[Divert, ...], origin: Origin) -> bool:
        LOOK.has_touched = True
        self._copies_left -= 1
        try:
            address = self._target(divert) if self._copies_left >= 0 else None
        except Refused:
            address = None
        if address is None:
            self._store.unrouted_total += run.count
            return False
        meter = address.meter
        if meter is not None and meter.drops and not meter.takes(1):
            meter.refused(run.count)
            return False
        return self._spread(address, run, (*passed, divert), (Origin(publisher=origin.publisher), divert.only))

    def _target(self, divert: Divert) -> Address:
        store = self._store
        if FULLY_QUALIFIED in divert.target:
            return store.target_for(divert.target, BROKER, divert.only)
        if divert.only == MULTICAST:
            return store.addresses.get(divert.target) or store.make_address(divert.target, BROKER)
        return store.address_for(divert.target, BROKER, anycast=divert.only == ANYCAST)

    @staticmethod
    def _part(run: Run, begin: int, end: int) -> Run:
        part = part_of(run, begin, end, run.traits)
        LOOK.has_touched = True
        part.arrived_ms = run.arrived_ms
        return part


def _split(name: str, run: Run, here: list[Divert]) -> Iterator[tuple[int, int, list[Divert], bool]]:
    """(begin, end, diverts that take these messages, whether the address gets them too)."""
    if all(divert.filter is None for divert in here):
        yield 0, run.count, *_taking(here)
        return
    begin = 0
    before: tuple[list[Divert], bool] | None = None
    for index in range(run.count):
        view = view_at(run, index, name)
        taken = _taking([divert for divert in here if divert.filter is None or divert.filter.matches(view)])
        if before is not None and taken != before:
            yield begin, index, *before
            begin = index
        before = taken
    if before is not None:
        yield begin, run.count, *before


def _taking(matching: list[Divert]) -> tuple[list[Divert], bool]:
    exclusive = [divert for divert in matching if divert.is_exclusive]
    return (exclusive, False) if exclusive else (matching, True)
