"""Messages that leave a queue other than to a consumer: expired, replaced, pushed out, dead.

Expired and dead ones may go to another address, everything else is settled and gone. Where such an address is set and
does not take them (it cannot be made, has no queue that wants them, its diverts bring them to none, or to one that is
full and drops, or it is the one that they are at) they stay, and it is tried again later: a dead one is offered to
consumers then, an expired one is not. Where none is set they are gone. Somebody is told of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from mqbroker.base.errors import Refused
from mqbroker.base.look import LOOK
from mqbroker.core.address.address import ANYCAST, FULLY_QUALIFIED, MULTICAST, Address, Origin
from mqbroker.core.address.diverts import DivertWay
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.address.settings import MoveTarget, queue_of_origin
from mqbroker.core.address.wildcard_names import check_is_one
from mqbroker.core.address.wildcards import reached
from mqbroker.core.queue.backlog import EXPIRED, REPLACED, Segment
from mqbroker.core.queue.kinds import RETROACTIVE
from mqbroker.core.queue.leaving_reasons import KILLED, LEFT
from mqbroker.core.queue.moved_message import NOT_TAKEN, MessageOrigin, moved
from mqbroker.core.queue.queue import Queue

if TYPE_CHECKING:
    from mqbroker.core.address.address_store import AddressStore
    from mqbroker.wire.run import Run

LossListener = Callable[[str, int, str], None]  # of which queue, how many, and why
HOLD_MS: Final = 60_000


class DeadLetters:
    """See the module's docstring."""

    def __init__(self, store: AddressStore) -> None:
        self._store = store
        self.left_totals = dict.fromkeys(LEFT, 0)  # without a consumer's acceptance
        self.lost_totals = dict.fromkeys((EXPIRED, KILLED), 0)  # of these, what went nowhere
        self.held_total = 0  # attempts that the address which was to have them refused
        self.moved_out_of: Queue | None = None  # while messages are: what goes astray then does not come back there
        # While what nobody takes stays where it is and comes again: what addresses keep of it once somebody takes it.
        self.unkept: list[tuple[Address, Segment]] | None = None
        self._astray: list[str] = []  # addresses whose astray messages are published: diverts may bring them back there
        self.on_lost: LossListener = lambda queue, count, reason: None
        self.on_held: LossListener = lambda queue, count, reason: None

    def clear(self, queue: Queue) -> None:
        """Settle what left a queue by itself; expired messages go to the expiry address."""
        LOOK.has_touched = True
        for why, segment in queue.take_gone():
            if why != EXPIRED:
                self._store.discard(queue, segment, REPLACED)
            elif queue.kind.routing == RETROACTIVE:
                self._store.discard(queue, segment, EXPIRED)  # copies for nobody
            else:
                self._expire(queue, segment)

    def outdated(self, queues: Iterable[Queue], message_id: int) -> None:
        """A message came to these as an older value than the one of its key that is there, and is not let in.

        The id is that of where it was before, if it gets none here.
        """
        LOOK.has_touched = True
        for queue in queues:
            queue.replaced_total += 1
            self.left_totals[REPLACED] += 1
            for each in self._store.message_observers:
                each.message_outdated(queue, message_id)

    def _expire(self, queue: Queue, segment: Segment) -> None:
        target = self._store.settings.move_target(queue.kind.address, EXPIRED)
        if target.address:
            self._move(queue, segment, target, "expired", EXPIRED)
        else:
            self._lose(queue, segment, EXPIRED, "expired, and its address has no expiry-address")

    def reject(self, queue: Queue, segment: Segment, cause: str) -> None:
        """Messages in delivery that nobody can use: to the dead-letter address, or dropped where there is none."""
        target = self._store.settings.move_target(queue.kind.address, KILLED)
        LOOK.has_touched = True
        queue.killed_total += segment.n
        if target.address:
            self._move(queue, segment, target, cause, KILLED)
        else:
            self._lose(queue, segment, KILLED, f"{cause}, and its address has no dead-letter-address")

    def width_of(self, queue: Queue) -> int:
        """What copies of a dead letter of this queue cost at most (`Diverts.width_of`)."""
        target = self._store.settings.of(queue.kind.address).dead_letter_address
        return self._store.diverts.width_of(target, is_moved=True)

    def _lose(self, queue: Queue, segment: Segment, why: str, reason: str) -> None:
        """These messages are gone, and somebody hears of it."""
        LOOK.has_touched = True
        self._store.discard(queue, segment, why)
        self.lost_totals[why] += segment.n
        self.on_lost(queue.kind.name, segment.n, reason)

    def _hold(self, queue: Queue, segment: Segment, why: str, reason: str) -> None:
        """They stay where they are, because the address that is to have them does not take them, and try again later.

        What waits for another node does so too, though later ones pass it then.
        """
        store, due_ms = self._store, self._store.at.wall_ms + HOLD_MS
        LOOK.has_touched = True
        self.held_total += segment.n
        if why == EXPIRED:
            queue.expired_total -= segment.n
        else:
            queue.killed_total -= segment.n
            segment = Segment(segment.run, segment.start, segment.n, max(segment.deliveries, 1))
            if segment.run.section.is_durable and queue.journal_id:
                store.journal.count(queue.journal_id, segment.first_id, segment.n, segment.deliveries, due_ms)
        queue.put_back(segment, due_ms)
        store.look_at_end(queue)
        store.watch(queue)
        if store.message_observers:
            store.tell_returned(queue, segment)
        self.on_held(queue.kind.name, segment.n, reason)

    def astray(self, target: str, segments: list[Segment], cause: str = NOT_TAKEN, routing: str = "") -> bool:
        """Messages that reached no queue of their address: to the dead-letter address, where the settings say so.

        They were for `target`, an address or `address::queue`; with a routing type for queues of that alone. True: they
        must wait for this step's append.
        """
        origin, _, queue = target.partition(FULLY_QUALIFIED)
        settings = self._store.settings.of(origin)
        if not settings.send_to_dla_on_no_route or not settings.dead_letter_address or origin in self._astray:
            return False
        try:
            address = self._target(origin, self._store.settings.move_target(origin, KILLED))
        except Refused:
            return False
        LOOK.has_touched = True
        self._astray.append(origin)
        waits = self._publish_astray(address, MessageOrigin(origin, queue, routing), segments, cause)
        self._astray.pop()
        return waits

    def _publish_astray(self, address: Address, said: MessageOrigin, segments: list[Segment], cause: str) -> bool:
        waits, origin = False, Origin(said.address)
        places = ((each, index) for each in segments for index in range(each.start, each.start + each.n))
        for segment, index in self._store.diverts.apart(places):
            run = moved(segment, index, said, cause)
            if self.moved_out_of is None or not self._comes_to(self.moved_out_of, DivertWay(address, run, origin, "")):
                waits = self._store.publish(address, run, origin) or waits
        return waits

    def _comes_to(self, queue: Queue, way: DivertWay) -> bool:
        """Whether a queue is one of those that get a message on its way, over diverts and by wildcards too."""
        for each in self._store.diverts.find_ways(way):
            if each.address is None:
                continue
            copied = [(address, "") for address in reached(each.address, each.origin)]
            places = ((each.address, each.only), *copied)
            if any(address.may_get(queue, each.run, each.origin, only) for address, only in places):
                return True
        return False

    def _target(self, origin: str, target: MoveTarget, queue: str = "") -> Address:
        """The address, and a queue for this origin alone if there is to be one. Raises Refused.

        `queue` is what the messages are in.
        """
        if target.address in (origin, f"{origin}{FULLY_QUALIFIED}{queue}"):
            raise Refused("amqp:precondition-failed", "it is there already")
        if FULLY_QUALIFIED not in target.address:
            check_is_one(target.address)  # before a queue is made there
        own = self._store.queues.get(target.queue)
        if own is None and target.queue:
            own = self._store.create_queue(queue_of_origin(target, origin), BROKER)
        address = self._store.addresses.get(target.address)
        is_own_there = own is not None and own.kind.address == target.address
        if address is not None and (is_own_there or address.keeps_apart(origin)):
            return address  # no other queue is made, which would get them too
        # As whoever sends there: it may be there on another node alone.
        return self._store.target_for(target.address, BROKER)

    def _move(self, queue: Queue, segment: Segment, target: MoveTarget, cause: str, why: str) -> None:
        """To another address, in the same append: a crash leaves them here or there, never in both or in none."""
        kind, origin = queue.kind, queue.kind.address
        said = MessageOrigin(origin, kind.queue_meant, ANYCAST if kind.is_shared else MULTICAST)
        try:
            address = self._target(origin, target, queue.kind.name)
        except Refused as refused:
            self._hold(queue, segment, why, f"{cause}, and {target.address!r} does not take it: {refused.description}")
            return
        diverts = self._store.diverts
        wide = diverts.width_of(target.address, is_moved=True) - diverts.copies_of(target.address)
        diverts.followed_total += wide * segment.n  # as what follows diverts, whoever causes it pays for it
        is_taken, begin = True, segment.start
        for index in range(segment.start, segment.start + segment.n):
            run = moved(segment, index, said, cause, is_value=kind.last_value)
            was_taken, is_taken = is_taken, self._take_in(address, run, origin)
            if is_taken != was_taken and index > begin:
                self._leave(queue, segment.part(begin, index - begin), was_taken, (target.address, cause, why))
                begin = index
        rest = segment.part(begin, segment.start + segment.n - begin)
        self._leave(queue, rest, is_taken, (target.address, cause, why))

    def _take_in(self, address: Address, run: Run, origin: str) -> bool:
        """Publish one of them there; whether any queue has it."""
        store, around = self._store, self.unkept
        routed = store.routed_total
        LOOK.has_touched = True
        unkept = self.unkept = list[tuple[Address, Segment]]()
        store.publish(address, run, Origin(origin))
        self.unkept = around
        is_taken = store.routed_total > routed  # what diverts took in part would come again with each attempt
        for each, segment in unkept if is_taken else ():
            store.keep(each, segment)
        return is_taken

    def _leave(self, queue: Queue, segment: Segment, is_taken: bool, said: tuple[str, str, str]) -> None:
        target, cause, why = said
        LOOK.has_touched = True
        if is_taken:
            self._store.discard(queue, segment, why)
        else:
            self._hold(queue, segment, why, f"{cause}, and no queue of {target!r} takes it")
