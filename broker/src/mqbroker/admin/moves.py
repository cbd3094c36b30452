"""Purges, moves and retries: requests that take messages out of a queue, a bounded piece in each step.

What a piece does to a message, storing it at its new place and settling it at its old one, is in one append: a crash
finds it here or there. A request is answered once the last of it is on disk; who stops it half-way (a crash, a stop)
leaves the rest in the queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mqbroker.admin.arguments import check_is_not_forwarded, check_may_drop, queue_named, selector_of
from mqbroker.base.errors import PeerFault, Refused
from mqbroker.core.address.address import MULTICAST, UNKNOWN, Address
from mqbroker.core.address.diverts import RoutedPlace
from mqbroker.core.address.fully_qualified import alone_at
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.address.wildcard_names import has_wildcards
from mqbroker.core.cluster.cluster_bindings import alone_elsewhere
from mqbroker.core.paging.paged_picking import PagedPicker
from mqbroker.core.queue.kinds import QueueKind, check_is_public
from mqbroker.core.queue.leaving_reasons import MOVED, PURGED
from mqbroker.core.queue.message_view import MessageView, view_at, view_of
from mqbroker.core.queue.meter import BLOCK, Meter
from mqbroker.core.queue.moved_message import CAUSE, NOT_MADE, NOT_TAKEN, MessageOrigin, retried, transferred
from mqbroker.core.queue.picking import Budget
from mqbroker.core.queue.queue import Queue, Segment
from mqbroker.core.selector.selector import Selector
from mqbroker.core.store.transaction_quota import TransactionQuota
from mqbroker.node.broker.broker import Broker
from mqbroker.node.values.inputs import AdminRequest
from mqbroker.wire.parts import parts_of
from mqbroker.wire.run import Run

PURGED_MAX = 20_000  # messages of one piece
MOVED_MAX = 30  # a moved message is made anew, some 75 µs: a step stays near two milliseconds
MOVED_BYTES_MAX = 4 << 20
LOOKS_MAX = 150  # pieces of the queue, diverts that are followed, copies for wildcards: some 10 to 20 µs each
SCHEDULED_LOOKS_MAX = 2_000  # where all are scheduled: short ones, and a piece puts in order what came since the last
QUEUES_PER_LOOK = 4  # that get a copy of one message
UNBOUNDED = 1 << 62
COUNT_MAX = 2**53


class Purge:
    """Drops messages; also what moves have in common."""

    needs_disk = True
    bounds = (PURGED_MAX, UNBOUNDED)
    counted = "purged"

    def __init__(self, broker: Broker, request: AdminRequest, queue: Queue) -> None:
        self.broker = broker
        self.store = broker.store
        self.request = request
        self.queue = queue
        self.check()
        self.selector: Selector | None = selector_of(request)
        self.count = 0
        self.budget = Budget(0, 0, 0)  # of this piece
        self.look_cost = 1  # of one as long as LOOKS_MAX counts, in looks of this budget
        self.picker = self.pick()

    @property
    def is_waiting(self) -> bool:
        """See `node.values.jobs.Job`."""
        return self.picker.is_waiting

    def begin(self) -> None:
        """Before the first piece: where all is meant, what is paged goes unread."""
        if self.selector is None and self.queue.pages is not None:
            dropped = self.store.paging.drop(self.queue, is_settled=True)
            self.count += dropped.messages
            self.store.dead_letters.left_totals[PURGED] += dropped.messages
            if dropped.is_settled:
                self.store.decisions.wait(_go_on)

    def pick(self) -> PagedPicker:
        """What is wanted of the queue."""
        return PagedPicker(self.store, self.queue, self.wants if self.selector is not None else None)

    def wants(self, segment: Segment, index: int) -> bool:
        """Whether this message is meant."""
        return self.selector is None or self.selector.matches(view_of(segment, index))

    def check(self) -> None:
        """First, before it begins, and before each piece: the queue may drain since. Raises Refused where it does."""
        check_may_drop(self.request, self.queue)

    def prepare(self) -> None:
        """Before a piece. Raises Refused where it cannot go on."""
        self.check()

    def act(self, segment: Segment) -> None:
        """Deal with messages that were taken."""
        self.store.discard(self.queue, segment, PURGED)

    def run(self) -> bool:
        """See `node.values.jobs.Job`."""
        if self.queue.is_deleted:
            self.fail("amqp:resource-deleted", "the queue was deleted")
            return False
        try:
            self.prepare()
        except Refused as refused:
            self.fail(refused.condition, refused.description)
            return False
        messages, size_bytes = self.bounds
        looks = LOOKS_MAX if self.queue.backlog.count or self.queue.pages else SCHEDULED_LOOKS_MAX
        self.look_cost = looks // LOOKS_MAX
        self.budget = Budget(messages, looks, size_bytes)
        taken = self.picker.piece(self.budget)
        for segment in taken:
            self.act(segment)
            self.count += segment.n
        if self.queue.journal_id and any(segment.run.section.is_durable for segment in taken):
            # So that the answer, which waits for all that is before it, waits for this.
            self.store.decisions.wait(_go_on)
        if not self.picker.is_done:
            return True
        self.store.decisions.wait_for_earlier(self.broker.reply, self.request.id, self.result())
        return False

    def result(self) -> dict[str, Any]:
        """The answer."""
        return {self.counted: self.count}

    def fail(self, condition: str, why: str) -> None:
        """It ends here."""
        done = f"{self.request.operation}: {why}; {self.count} messages were {self.counted} before"
        self.broker.reply_error(self.request.id, condition, done)

    def abandon(self) -> None:
        """See `node.values.jobs.Job`."""
        self.fail("amqp:connection:forced", "the broker stops")


class Move(Purge):
    """Moves messages to another address; what that would route nowhere stays, and is counted as `left`.

    So does what does not fit: where the address is full, FAIL and DROP would refuse it of a sender, or drop it. BLOCK
    is FAIL here, as nothing holds a move back.

    Diverts of that address are followed for each message, and where they bring it is asked instead: it goes where one
    of these takes it, and stays where one is its own queue.
    """

    bounds = (MOVED_MAX, MOVED_BYTES_MAX)
    counted = "moved"

    def __init__(self, broker: Broker, request: AdminRequest, queue: Queue) -> None:
        self.target = self.target_of(request)
        self.count_max: int = request.arguments["count_max"]
        self.left = 0
        self.owed_bytes = 0  # what this piece gives back at its end
        self.tallies: dict[Meter, TransactionQuota] = {}  # of this message: what it brings to addresses with bounds
        super().__init__(broker, request, queue)
        self.address = self.resolve()

    def target_of(self, request: AdminRequest) -> str:
        """The address that the request names."""
        named: str = request.arguments["address"]
        return named

    def begin(self) -> None:
        """Pages are read when it comes to them."""

    def pick(self) -> PagedPicker:
        return PagedPicker(self.store, self.queue, self.wants, self.count_max)

    def check(self) -> None:
        check_is_not_forwarded(self.request, self.queue)
        check_is_public(self.queue.kind)

    def prepare(self) -> None:
        super().prepare()
        memory = self.store.memory
        if memory.is_shut:
            raise Refused("amqp:resource-limit-exceeded", memory.why_full)
        self.owed_bytes = 0
        self.address = self.resolve()

    def resolve(self) -> Address:
        """The target as it is now. Raises Refused."""
        address = self.store.target_for(self.target, BROKER)
        is_copied = self.store.is_diverted(address.name) or any(each.has_way for each in address.wildcards)
        if not address.has_way and not is_copied:
            raise Refused("amqp:not-found", f"no queue gets what is sent to address {self.target!r}")
        if self.queue in address.queues:
            name = self.queue.kind.name
            raise Refused("amqp:precondition-failed", f"queue {name!r} is bound to address {self.target!r} itself")
        return address

    def wants(self, segment: Segment, index: int) -> bool:
        if not super().wants(segment, index):
            return False
        diverts = self.store.diverts
        followed = diverts.followed_total
        planned = self.plan(segment, index)  # which may follow some to find out whether there is a way
        is_in = planned is not None and self.find_room(*planned) and self.take_in(*planned)
        # The picker has paid for one look of its own, which for what is scheduled is a short one.
        self.budget.looks -= (1 + diverts.followed_total - followed) * self.look_cost - 1
        self.left += not is_in
        self.owed_bytes += segment.run.size_bytes(index, 1) if is_in else 0
        return is_in  # it is there already, and leaves here in this step

    def find_room(self, address: Address, run: Run) -> bool:
        """Room for a message where the address and its diverts get it, and none of these its own queue.

        The address itself refuses what it has no room for, as of a sender. Of those beyond diverts, and with wildcards,
        one with room will do.
        """
        size_bytes = run.size_bytes(0, 1)
        self.tallies.clear()
        places = self.store.diverts.find_places(address, run, lambda target, _: self.lets_in(target))
        self.budget.looks -= _width(places) * self.look_cost
        if any(each.may_get(self.queue, run, UNKNOWN, only) for each, only in _with_wildcards(places)):
            return False
        if self.find_later(places, run):
            return False
        takers = [place for place, only in _with_wildcards(places) if _reaches(place, run, only)]
        if not self.has_memory(takers):
            return False
        if address in takers and not self.reserve(address, size_bytes):
            return False
        rooms = [self.reserve(place, size_bytes) for place in takers if place is not address]
        return address in takers or any(rooms)

    def has_memory(self, takers: list[Address]) -> bool:
        """Whether there is memory for a message at all that get it, copies too, or they keep it on disk.

        While the memory is full, one that is there already gives back what it takes, with its piece or with the run
        that it is of: until then there is a quarter more, as for transactions. One of a page gives back nothing.
        """
        memory = self.store.memory
        if not memory.is_full or all(place.can_page for place in takers):
            return True
        return not self.picker.is_of_pages and memory.has_margin(self.owed_bytes)

    def lets_in(self, target: Address) -> bool:
        """Whether diverts may bring a message there: an address that is full and drops lets none pass either."""
        meter = target.meter
        return meter is None or not meter.drops or self.tally(meter).is_open

    def reserve(self, address: Address, size_bytes: int) -> bool:
        """Room for a message beside what its other copies take; False: there is none. Its own needs none."""
        meter = address.meter
        if meter is None or meter is self.queue.meter:
            return True
        tally = self.tally(meter)
        return (meter.policy != BLOCK or tally.is_within_bounds) and tally.takes(size_bytes)

    def tally(self, meter: Meter) -> TransactionQuota:
        """What a message brings to an address."""
        if meter not in self.tallies:
            self.tallies[meter] = TransactionQuota(meter)
        return self.tallies[meter]

    def plan(self, segment: Segment, index: int) -> tuple[Address, Run] | None:
        """Where to, and as what; None where it has to stay."""
        run = transferred(segment, index, self.broker.at.wall_ms)
        return self.address, run

    def find_later(self, places: list[RoutedPlace], run: Run) -> bool:
        """Whether one of its places has a later message, which it may not replace: who moves it himself means it to."""
        return False

    def act(self, segment: Segment) -> None:
        self.store.discard(self.queue, segment, MOVED)

    def take_in(self, address: Address, run: Run) -> bool:
        """One message goes there. Says whether any queue has it; its own is none of these, as it is gone over."""
        routed = self.store.routed_total
        self.store.dead_letters.moved_out_of = self.queue
        self.store.publish(address, run, is_known=True)
        self.store.dead_letters.moved_out_of = None
        return self.store.routed_total > routed

    def result(self) -> dict[str, Any]:
        return {self.counted: self.count, "left": self.left}


class Retry(Move):
    """Sends dead letters and expired messages back to where they came from, as they were.

    One that came from a queue goes to that queue alone, here or at another node: the others have had it. Where that
    queue is gone, a copy is left, and what it shared goes to those that share what comes to the address, unless the
    request asks for `to_address`, that is for whoever sends there. One that was for a queue that rejected it, and is
    gone, is left. One that came to no queue goes to what it was for: one queue, those of a routing type or all. An
    exclusive divert that takes all of an address takes it in each of these cases. A value of which there is a later
    one is left.
    """

    counted = "retried"

    def __init__(self, broker: Broker, request: AdminRequest, queue: Queue) -> None:
        self.origins: dict[tuple[MessageOrigin, str], Address | None] = {}
        self.diverted: dict[str, bool] = {}  # addresses of this piece, as is `origins`
        self.to_address: bool = request.arguments["to_address"]
        super().__init__(broker, request, queue)

    def target_of(self, request: AdminRequest) -> str:
        return ""

    def prepare(self) -> None:
        super().prepare()
        self.origins.clear()
        self.diverted.clear()

    def resolve(self) -> Address:
        return Address("")

    def plan(self, segment: Segment, index: int) -> tuple[Address, Run] | None:
        payload = bytes(segment.run.payload(index))
        view = MessageView(payload)
        origin = MessageOrigin.said_by(view)
        if origin is None:
            return None
        cause = view.annotation(CAUSE)
        said = origin, cause if cause in (NOT_MADE, NOT_TAKEN) else ""
        if said not in self.origins:
            self.origins[said] = self.origin_of(*said)
        address = self.origins[said]
        try:
            run = retried(segment.run, index)
        except PeerFault:
            return None
        return None if address is None else (address, run)

    def find_later(self, places: list[RoutedPlace], run: Run) -> bool:
        """Whether a queue has a later value of its key, which it would replace."""
        queues = [
            queue
            for place, only in _with_wildcards(places)
            if any(each.kind.last_value for each in place.queues)
            for queue in _takers(place, run, only)
            if queue.kind.last_value
        ]
        if not queues:
            return False
        (part,) = parts_of(run)
        part.arrived_ms = self.broker.at.wall_ms
        return any(queue.is_outdated(Segment(part, 0, 1, 0)) for queue in queues)

    def origin_of(self, origin: MessageOrigin, astray: str) -> Address | None:
        """What the message was in before: its queue alone if that is still there, else its address.

        Whoever had a copy when it came first gets none: diverts, what the address keeps for later queues, and addresses
        with wildcards, but where it reached no queue (`astray`: why), as those would have been such. All of them do
        where the address was not there.
        """
        address, queue, routing = origin
        home = self.store.queues.get(queue)
        is_home = home is not None and _is_of(home.kind, origin)
        if is_home and home is self.queue:
            return None
        there = self.store.addresses.get(address)
        try:
            if is_home:
                return alone_at(self.store, address, queue, BROKER)
            if there is not None and queue and (elsewhere := alone_elsewhere(there, queue, routing)) is not None:
                return elsewhere
            is_diverted = there is not None and self.find_diverted(address)
            if queue and astray and not self.to_address and not is_diverted:
                if astray != NOT_MADE or home is not None:
                    return None  # it was there: made anew it would share what is sent, and maybe nobody reads it
                return alone_at(self.store, address, queue, BROKER, routing)
            if not is_diverted:
                there = self.taker_of(origin, astray, there)
        except Refused:
            return None
        if there is None or self.to_address or (astray == NOT_MADE and not routing):
            return there
        wildcards = () if queue and not astray else there.wildcards
        return there.again(wildcards, routing, is_whole=astray == NOT_MADE)

    def find_diverted(self, address: str) -> bool:
        """Whether exclusive diverts take all that comes to an address; asked once in a piece, as it may follow many."""
        if address not in self.diverted:
            self.diverted[address] = self.store.find_diverted(address)
        return self.diverted[address]

    def taker_of(self, origin: MessageOrigin, astray: str, there: Address | None) -> Address | None:
        """The address, which may be there, for what came from a queue that is gone, or from none. Raises Refused."""
        if not astray and not self.to_address and self.is_copy(origin, there):
            return None  # also where a queue would be made that nobody reads
        if there is None or not has_wildcards(origin.address):  # to one with wildcards nobody sends
            there = self.store.target_for(origin.address, BROKER, origin.routing if astray else "")
        is_doubled = origin.queue and not origin.routing and _gives_copies(there) and not self.to_address
        return None if is_doubled or self.queue in there.queues else there

    def is_copy(self, origin: MessageOrigin, there: Address | None) -> bool:
        """Whether others had the message as well, for sure or, of one that an older release moved, maybe.

        What a queue shared is kept as one where it may be at a node that is away: of another name than the one made.
        """
        has_way = there is not None and there.has_way
        if origin.routing:
            is_elsewhere = origin.queue not in ("", origin.address) and bool(self.broker.options.cluster_connections)
            return origin.routing == MULTICAST or (is_elsewhere and not has_way)
        way = self.store.queues.get(origin.queue)
        if way is not None and way.kind.is_forwarding:
            return not way.kind.forwards_shared
        return origin.queue not in ("", origin.address) and not has_way


def _is_of(kind: QueueKind, origin: MessageOrigin) -> bool:
    """Whether a queue of its name is the one that the message was in: one of the other routing type is another."""
    is_same = kind.address == origin.address and not kind.is_forwarding
    return is_same and origin.routing in ("", kind.routing)


def _gives_copies(address: Address) -> bool:
    """Whether there are queues that got a copy each, here or at other nodes."""
    elsewhere = address.cluster_bindings
    return bool(address.copied_count) or (elsewhere is not None and elsewhere.takes(MULTICAST))


def _reaches(address: Address, run: Run, only: str) -> bool:
    """Whether any queue would take the message. Queues for what is moved by itself take nothing else, but for what
    names one, `address::queue`."""
    if _takers(address, run, only):
        return True
    elsewhere = address.cluster_bindings
    return elsewhere is not None and elsewhere.reaches(view_at(run, 0, address.name), only)


def _takers(address: Address, run: Run, only: str) -> list[Queue]:
    view = view_at(run, 0, address.name)
    queues = address.open_to(UNKNOWN, only)
    return [queue for queue in queues if queue.filter is None or queue.filter.matches(view)]


def _with_wildcards(places: list[RoutedPlace]) -> Iterator[RoutedPlace]:
    """And those with wildcards that get copies of what comes to them."""
    for place, only in places:
        yield place, only
        for wildcard in place.wildcards:
            yield wildcard, ""


def _width(places: list[RoutedPlace]) -> int:
    """What it costs that so many queues and addresses with wildcards get a message there, in looks."""
    queues_count = sum(len(each.queues) + each.copied_elsewhere for each, _ in _with_wildcards(places))
    return sum(len(place.wildcards) for place, _ in places) + queues_count // QUEUES_PER_LOOK


def _go_on() -> None:
    """Nothing waits for a piece in the middle but the pieces behind it."""


def purge(broker: Broker, request: AdminRequest) -> None:
    """`queue-purge`: drop its messages, or those that the selector matches."""
    _start(broker, Purge(broker, request, queue_named(broker, request)))


def move(broker: Broker, request: AdminRequest) -> None:
    """`messages-move`: to another address; what that would route nowhere, or has no room for, is left."""
    _start(broker, Move(broker, request, queue_named(broker, request, "queue")))


def retry(broker: Broker, request: AdminRequest) -> None:
    """`dead-letters-retry`: back to where they came from; `to_address` where the queue there is gone."""
    _start(broker, Retry(broker, request, queue_named(broker, request, "queue")))


def _start(broker: Broker, job: Purge) -> None:
    """What was accepted before the request is meant too, so what waits for the disk is waited for."""
    broker.store.decisions.wait_for_earlier(_begin, broker, job)


def _begin(broker: Broker, job: Purge) -> None:
    try:
        job.check()
        broker.jobs.add(job)
        job.begin()
    except Refused as refused:
        broker.reply_error(job.request.id, refused.condition, refused.description)
