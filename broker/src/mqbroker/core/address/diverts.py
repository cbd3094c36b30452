"""Diverts: messages of one address go to another as well, or instead.

Exclusive diverts come first: where one takes a message, its address and its other diverts do not get it. A copy is a
message of its own with the same bytes, in the same append. A message on its way passes each divert once, so a circle
of diverts ends, and one message makes at most COPIES_MAX copies, with those of dead letters that these become. Routing
types STRIP and PASS are the same here, because messages carry none: the forwarding address decides. Source: Artemis's
manual, "Diverting and Splitting Message Flows".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from mqbroker.base.errors import ConfigFault, Refused
from mqbroker.base.look import LOOK
from mqbroker.config.slices import DivertOptions
from mqbroker.core.address.address import ANYCAST, FULLY_QUALIFIED, MULTICAST, UNKNOWN, Address, Origin
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.queue.backlog import Segment
from mqbroker.core.queue.message_view import view_at
from mqbroker.core.queue.meter import PAGE
from mqbroker.core.queue.moved_message import NOT_MADE
from mqbroker.core.selector.selector import Selector, compile_selector
from mqbroker.wire.parts import part_of
from mqbroker.wire.run import Run

if TYPE_CHECKING:
    from mqbroker.core.address.address_store import AddressStore

COPIES_MAX = 1000
QUEUES_PER_COPY = 8  # that get a copy cost what it does to follow a divert
LetsIn = Callable[[Address, int], bool]  # whether an address takes anything of so many messages
T = TypeVar("T")
RoutedPlace = tuple[Address, str]  # an address, and the routing type of its queues that are meant, empty for all


class DivertWay(NamedTuple):
    """Where a run gets, None: nowhere; as which run, with whose origin, and to `only` queues of this routing type.

    `missing`: the address, or one queue of it, that could not be made where it gets nowhere; empty where there are too
    many copies.
    """

    address: Address | None
    run: Run
    origin: Origin
    only: str
    missing: str = ""


class Waypoint(NamedTuple):
    """Where a message gets: to an address, or to one queue of it alone, of which only exclusive diverts take it."""

    name: str
    is_alone: bool


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
        self._depth = 0
        self.followed_total = 0  # times that a divert was followed, by looks too
        self.at: dict[str, list[Divert]] = {}
        self._passes_of: dict[Waypoint, dict[Waypoint, int]] = {}  # where somebody asked: how often one gets where
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

    def copies_of(self, target: str) -> int:
        """How often one message that is sent there follows diverts where all filters take it, up to COPIES_MAX.

        Messages of one run follow them together, or each by itself where filters or their shape take them apart.
        """
        return sum(self._passes(_waypoint_of(target)).values())

    def width_of(self, target: str, *, is_moved: bool = False) -> int:
        """What it costs that one message is sent there, in copies: diverts that it follows, addresses with wildcards
        that get it, and queues that get copies, here or at other nodes, QUEUES_PER_COPY of them as one.

        `is_moved`: by the broker, so that the address itself gives those with wildcards none.
        """
        address = self._store.addresses.get(target)
        is_copied = address is None or address.copied_count or address.wildcards or address.copied_elsewhere
        if not is_copied and target not in self.at:
            return 0  # the usual case
        waypoint = _waypoint_of(target)
        beyond = sum(times * (1 + self._width_at(each)) for each, times in self._passes(waypoint).items())
        return self._width_at(waypoint, is_moved=is_moved) + beyond

    def _width_at(self, waypoint: Waypoint, *, is_moved: bool = False) -> int:
        address = self._store.addresses.get(waypoint.name)
        if address is None or waypoint.is_alone:
            return 0
        wildcards = () if is_moved else address.wildcards
        queues_count = sum(each.copied_count + each.copied_elsewhere for each in (address, *wildcards))
        return len(wildcards) + queues_count // QUEUES_PER_COPY

    def _passes(self, waypoint: Waypoint) -> dict[Waypoint, int]:
        """How often one message gets where over diverts, COPIES_MAX times together."""
        if waypoint.name not in self.at:
            return {}
        if waypoint not in self._passes_of:
            LOOK.has_touched = True
            self._passes_of[waypoint] = self._count(waypoint)
        return self._passes_of[waypoint]

    def _count(self, waypoint: Waypoint) -> dict[Waypoint, int]:
        passes: dict[Waypoint, int] = {}
        left, count = [(waypoint, frozenset[str]())], 0
        while left:
            place, passed = left.pop()
            for divert in self.at.get(place.name, ()):
                if divert.name in passed or (place.is_alone and not divert.is_exclusive):
                    continue
                if count >= COPIES_MAX:
                    return passes
                count += 1
                there = _waypoint_of(divert.target)
                passes[there] = passes.get(there, 0) + 1
                left.append((there, passed | {divert.name}))
        return passes

    def find_way(self, name: str) -> bool:
        """Whether an exclusive divert takes whatever comes to an address, and a queue gets it, over others too.

        What they lead to is made here, as the first message would make it: whether it may be is known by that alone.
        """
        LOOK.has_touched = True
        around = self._begin()
        is_found = any(self._leads_on(each, ()) for each in self._whole(name))
        self._end(around)
        return is_found

    def _begin(self) -> int:
        """A walk. One inside of another, of a dead letter on its way, has as many copies as are left to that one."""
        around = self._copies_left
        LOOK.has_touched = True
        if not self._depth:
            self._copies_left = COPIES_MAX
        self._depth += 1
        return around

    def _end(self, around: int) -> None:
        """A walk that was a look alone: what it has used is there again."""
        LOOK.has_touched = True
        self._depth -= 1
        self._copies_left = around

    def apart(self, messages: Iterable[T]) -> Iterator[T]:
        """These, each of other messages of one run, with as many copies as there are now; then the fewest are left."""
        left = least = self._copies_left
        LOOK.has_touched = True
        for each in messages:
            self._copies_left = left
            yield each
            least = min(least, self._copies_left)
        self._copies_left = least

    def _whole(self, name: str) -> list[Divert]:
        return [divert for divert in self.at.get(name, ()) if divert.is_exclusive and divert.filter is None]

    def _leads_on(self, divert: Divert, passed: tuple[Divert, ...]) -> bool:
        """As `_ways`, for every message that may come."""
        address = self._next(divert)
        if address is None:
            return False
        passed = (*passed, divert)
        if whole := [each for each in self._whole(address.name) if each not in passed]:
            return any(self._leads_on(each, passed) for each in whole)
        further = [each for each in self.at.get(address.name, ()) if each.is_exclusive and each not in passed]
        return address.takes_each(divert.only) and all(self._leads_on(each, passed) for each in further)

    def find_places(self, address: Address, run: Run, lets_in: LetsIn) -> list[RoutedPlace]:
        """Where one message would get from an address that may have diverts; what they lead to is made for that.

        `lets_in`: whether an address that diverts lead to lets it in.
        """
        ways = self.find_ways(DivertWay(address, run, UNKNOWN, ""), lets_in)
        return [(way.address, way.only) for way in ways if way.address is not None]

    def find_ways(self, way: DivertWay, lets_in: LetsIn = lambda target, count: True) -> list[DivertWay]:
        """As `find_places`, with the origin that it has there, and with ways to nowhere."""
        if way.address is None or way.address.name not in self.at:
            return [way]
        LOOK.has_touched = True
        around = self._begin()
        ways = list(self._ways(way, (), lets_in))
        self._end(around)
        return ways

    def publish(self, address: Address, run: Run, origin: Origin) -> bool:
        """Take a run in at an address that has diverts. True: it must wait for this step's append."""
        LOOK.has_touched = True
        self._begin()
        waits = False
        for way in self._ways(DivertWay(address, run, origin, ""), (), _drop_or_let_in):
            if way.address is None:
                waits = self._go_astray(way) or waits
            else:
                waits = self._store.take_in(way.address, way.run, way.origin, way.only) or waits
        self._depth -= 1  # what dead letters on its way have used is used
        return waits

    def _go_astray(self, way: DivertWay) -> bool:
        LOOK.has_touched = True
        self._store.unrouted_total += way.run.count
        if not way.missing:
            return False
        self._store.name_next(way.run)
        whole = Segment(way.run, 0, way.run.count, 0)
        return self._store.dead_letters.astray(way.missing, [whole], NOT_MADE, way.only)

    def _ways(self, way: DivertWay, passed: tuple[Divert, ...], lets_in: LetsIn) -> Iterator[DivertWay]:
        address, run, origin, only, _ = way
        if address is None:
            yield way
            return
        diverts = self.at.get(address.name, ())
        if not address.is_whole:  # its queues alone are meant: they may be diverted, but nobody else gets a copy
            diverts = [divert for divert in diverts if divert.is_exclusive]
        here = [divert for divert in diverts if divert not in passed]
        for begin, end, taking, stays in self.apart(_split(address.name, run, here)):
            for divert in taking:
                target = self._next(divert)
                if target is None or lets_in(target, end - begin):
                    further = self._over(divert, target, _part(run, begin, end), origin)
                    yield from self._ways(further, (*passed, divert), lets_in)
            if stays:
                yield DivertWay(address, run if end - begin == run.count else _part(run, begin, end), origin, only)

    def _over(self, divert: Divert, target: Address | None, part: Run, origin: Origin) -> DivertWay:
        missing = divert.target if target is None and self._copies_left >= 0 else ""
        return DivertWay(target, part, Origin(publisher=origin.publisher), divert.only, missing)

    def _next(self, divert: Divert) -> Address | None:
        """What a divert leads to, as one copy more; None: nowhere."""
        LOOK.has_touched = True
        self._copies_left -= 1
        self.followed_total += 1
        try:
            return self._target(divert) if self._copies_left >= 0 else None
        except Refused:
            return None

    def _target(self, divert: Divert) -> Address:
        store = self._store
        if FULLY_QUALIFIED in divert.target:
            return store.target_for(divert.target, BROKER, divert.only)
        if divert.only == MULTICAST:
            return store.addresses.get(divert.target) or store.make_address(divert.target, BROKER)
        return store.address_for(divert.target, BROKER, anycast=divert.only == ANYCAST)


def _waypoint_of(target: str) -> Waypoint:
    name, qualified, _ = target.partition(FULLY_QUALIFIED)
    return Waypoint(name, bool(qualified))


def _drop_or_let_in(address: Address, count: int) -> bool:
    meter = address.meter
    if meter is None or not meter.drops or meter.takes(1):
        return True
    meter.refused(count)
    return False


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
