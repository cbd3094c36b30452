"""What the node keeps: addresses, queues and their messages, and the journal's view of them.

Invariants: a durable message is deliverable only when its append is synced; a message behind such a one in the same
queue waits with it; `run.live` counts (message, queue) pairs that are not settled. Everything that touches the journal
for messages goes through here, so that memory and disk tell the same story.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from mqbroker.base.errors import Refused
from mqbroker.base.look import LOOK
from mqbroker.base.time import NS_PER_MS, At
from mqbroker.config.slices import AddressSettingsOptions, LimitOptions
from mqbroker.core.address.address import FULLY_QUALIFIED, MULTICAST, UNKNOWN, Address, Origin, RoutedPart
from mqbroker.core.address.address_records import AddressRecords
from mqbroker.core.address.auto_delete import AutoDelete
from mqbroker.core.address.creation import Creation
from mqbroker.core.address.dead_letters import DeadLetters
from mqbroker.core.address.decisions import Decisions
from mqbroker.core.address.deployed_addresses import DeployedAddresses
from mqbroker.core.address.diverts import Diverts
from mqbroker.core.address.duplicates import Duplicates
from mqbroker.core.address.fully_qualified import target_at
from mqbroker.core.address.ingress import stamped
from mqbroker.core.address.message_observer import MessageObserver
from mqbroker.core.address.overdue import Overdue
from mqbroker.core.address.permissions import DELETE, SEND, Actor
from mqbroker.core.address.purged_messages import Remains
from mqbroker.core.address.quotas import NOBODY, Quotas, maker_for
from mqbroker.core.address.settings import Settings
from mqbroker.core.address.stored_tables import kinds_in
from mqbroker.core.address.wildcard_names import has_wildcards
from mqbroker.core.address.wildcards import Wildcards, reached
from mqbroker.core.cluster.arrivals import Arrivals
from mqbroker.core.cluster.forwarding import Remotes
from mqbroker.core.cluster.grouping import Grouping
from mqbroker.core.cluster.queue_observer import QueueObserver
from mqbroker.core.cluster.redistribution import Redistribution
from mqbroker.core.paging.paging import Paging
from mqbroker.core.paging.paging_store import PagingStore
from mqbroker.core.paging.restore import bring_back
from mqbroker.core.queue.kinds import QueueKind, check_is_public, kind_of
from mqbroker.core.queue.large import LargeFiles
from mqbroker.core.queue.leaving_reasons import ACKNOWLEDGED, DELETED, PURGED
from mqbroker.core.queue.memory import Memory
from mqbroker.core.queue.meter import PAGE, Meters
from mqbroker.core.queue.queue import Consumer, Queue, Segment, check_consumers
from mqbroker.core.queue.times import deliver_at_ms, expires_ms, redelivery_delay_ms
from mqbroker.core.selector.selector import compile_selector
from mqbroker.core.store.retroactive import Retroactive
from mqbroker.core.store.surroundings import StoreSurroundings
from mqbroker.journal.plan import Journal
from mqbroker.journal.recovered import Recovered
from mqbroker.wire.parts import parts_of
from mqbroker.wire.run import Run

NO_QUEUE: Final = Queue(QueueKind("", ""), 0)  # stands for one that was deleted


class Store(PagingStore):
    """Addresses, queues, messages. What it does not know itself it asks its surroundings."""

    def __init__(
        self,
        limits: LimitOptions,
        settings: AddressSettingsOptions,
        journal: Journal,
        around: StoreSurroundings,
        at: At,
    ) -> None:
        self.surroundings, self.node_id = around, around.node_id
        self.schedule, self.in_delivery = around.schedule, around.in_delivery
        self.ends_itself, self.read_page = around.ends_itself, around.read_page
        self.limits = limits
        self.settings = Settings(settings)
        self.journal = journal
        self.at = at
        self.decisions = Decisions(journal.position - 1)
        self.duplicates = Duplicates(self)
        self.diverts = Diverts((), self)
        self.dead_letters = DeadLetters(self)
        self.auto_delete = AutoDelete(self)
        self.overdue = Overdue(self, self.auto_delete)
        self.quotas = Quotas(limits)
        self.address_records = AddressRecords(self, self.auto_delete)
        self.deployed_addresses = DeployedAddresses(self, self.address_records)
        self.large = LargeFiles(journal)
        self.memory = Memory(limits.global_max_size_bytes, self.large)
        self.meters, self.remains = Meters(self.memory), Remains(self, self.dead_letters)
        self.paging = Paging(self)
        self.redistribution = Redistribution(self)
        self.remotes = Remotes(self, self.redistribution)
        self.retroactive = Retroactive(self, self.overdue)
        self.arrivals = Arrivals(self)
        LOOK.has_touched = True
        self.remotes.is_heard = self.arrivals.is_linked
        self.queue_observers: tuple[QueueObserver, ...] = ()
        self.message_observers: tuple[MessageObserver, ...] = ()
        self.wildcards = Wildcards(self)
        self.creation = Creation(self, self.address_records, self.auto_delete, self.wildcards)
        self.addresses: dict[str, Address] = {}
        self.queues: dict[str, Queue] = {}
        self.dirty: dict[Queue, None] = {}  # something about them has changed
        self.ended: dict[Queue, None] = {}  # they were to go, and nothing holds them any more
        self.next_id = journal.next_id
        # Since the process began, never less than before: queues may go, these stay.
        self.received_total = 0
        self.received_bytes_total = 0
        self.added_total = 0
        self.routed_total = 0
        self.unrouted_total = 0
        self.returned_total = 0
        self.acknowledged_total = 0
        self._next_queue_id = 1
        self._together: list[tuple[Queue, Segment]] | None = None  # what one commit brings into queues
        self.grouping: Grouping | None = around.grouping_for(self)

    def observe_queues(self, observer: QueueObserver) -> None:
        """The observer hears of queues and consumers from now on."""
        LOOK.has_touched = True
        self.queue_observers += (observer,)

    def observe_messages(self, observer: MessageObserver) -> None:
        """The observer hears of messages from now on: of all that there are, if that is before `load`."""
        LOOK.has_touched = True
        self.message_observers += (observer,)

    def stop_observing(self, observer: object) -> None:
        """The observer hears of nothing any more."""
        LOOK.has_touched = True
        self.queue_observers = tuple(each for each in self.queue_observers if each is not observer)
        self.message_observers = tuple(each for each in self.message_observers if each is not observer)

    # -- names ---------------------------------------------------------------------------------------------------------

    def address_for(self, name: str, actor: Actor | None, *, anycast: bool = False) -> Address:
        """The address, made with a queue of its name where the actor may do that. Raises Refused.

        `anycast`: a queue of its name is wanted, whatever the settings say.
        """
        address = self.addresses.get(name)
        if address is not None and (address.anycast or (not anycast and address.gives_copies)):
            return address
        is_shared = address is not None and address.is_shared  # at another node, to which messages go from here or not
        if not anycast and not is_shared and self._gives_copies_by_rule(name):
            return self.make_address(name, actor)
        if address is not None and not anycast and not is_shared and address.has_copies:
            # A queue that is made for one sender would get a copy of each dead letter from then on.
            raise Refused(
                "amqp:not-found",
                f"address {name!r} has queues for what is moved there from one address each, and none for who sends: "
                "create one, or ask for one by the capability 'queue'",
            )
        self.settings.check_creation(name, name, is_new=name not in self.addresses)
        maker = maker_for(actor)[0]
        self.create_queue(kind_of(name, name, self.settings.of(name), auto_created=True, maker=maker), actor)
        return self.addresses[name]

    def is_multicast(self, name: str) -> bool:
        """Whether an address gives copies to who reads there, or makes a queue, and does not say what he wants."""
        address = self.addresses.get(name)
        if address is not None and (address.is_shared or address.has_copies):
            return not address.is_shared
        return self._gives_copies_by_rule(name)

    def _gives_copies_by_rule(self, name: str) -> bool:
        return has_wildcards(name) or self.is_topic_by_rule(name)

    def is_topic_by_rule(self, name: str) -> bool:
        """Whether an address without queues gives copies because a person or the settings say so."""
        return self.address_records.routing_of(name) == MULTICAST

    def permit(self, actor: Actor | None, permission: str, address: str, queue: str = "") -> None:
        """Raises Refused where the actor has not this permission at this address, or that of this queue."""
        self.surroundings.permit(actor, permission, address, queue)

    def is_diverted(self, name: str) -> bool:
        """Whether messages of an address go to others as well, or instead."""
        return name in self.diverts.at

    def find_diverted(self, name: str) -> bool:
        """Whether all messages of an address go to others instead, and get to a queue; it may be made for them."""
        return self.diverts.find_way(name)

    def may_send(self, target: str, actor: Actor | None) -> None:
        """Whether the actor may send there: to an address, or to `address::queue`. Raises Refused."""
        self.permit(actor, SEND, target.partition(FULLY_QUALIFIED)[0])

    def target_for(self, target: str, actor: Actor | None, wanted: str = "") -> Address:
        """Where messages go that name their target, and what is wanted there (routing_demands.py), themselves. Raises
        Refused."""
        return target_at(self, target, actor, wanted)

    def forget_address(self, name: str) -> None:
        """An address that nobody is bound to any more is not kept."""
        address = self.addresses.get(name)
        LOOK.has_touched = True
        if address is not None and address.is_empty and not address.rings and not address.is_declared:
            del self.addresses[name]
            self.wildcards.gone(address)
            self.quotas.address_gone(address)
            self.duplicates.vacated(name)

    def add_address(self, name: str, maker: tuple[str, int] = NOBODY) -> Address:
        """One that is not there, whoever wants it; it counts for its maker."""
        settings = self.settings.of(name)
        meter, pages = self.meters.of(name, settings), settings.address_full_policy == PAGE
        LOOK.has_touched = True
        added = self.addresses[name] = Address(name, meter, self.auto_delete.address_due, pages=pages)
        added.retains_max = self.retroactive.count_at(name)
        self.quotas.address_made(added, maker)
        self.wildcards.added(added)
        return added

    def takes_when_full(self, address: Address) -> bool:
        """Whether all that comes there, and what diverts make of it, can stay on disk while the memory is full."""
        if self.memory.is_shut or not all(each.can_page for each in address.wildcards):
            return False
        return address.can_page and (address.name not in self.diverts.at or self.diverts.may_page(address.name))

    def make_address(self, name: str, actor: Actor | None, *, is_temporary: bool = False) -> Address:
        """The address, without a queue where it is new. Raises Refused."""
        return self.creation.make_address(name, actor, is_temporary=is_temporary)

    def queue_for(self, name: str, actor: Actor | None) -> Queue:
        """The queue to consume from: by its own name, else the first shared one of that address. Raises Refused."""
        queue = self.queues.get(name)
        if queue is not None:
            check_is_public(queue.kind)
            return queue
        address = self.address_for(name, actor, anycast=True)
        return self.queues.get(name) or address.anycast[0]

    def create_queue(self, kind: QueueKind, actor: Actor | None) -> Queue:
        """Make and bind a queue; on disk with this step's append. Raises Refused."""
        self.creation.check_queue(kind, actor)
        maker = maker_for(actor)
        queue = self.add_queue(kind if maker[0] in ("", kind.maker) else replace(kind, maker=maker[0]), maker)
        self.retroactive.give(queue)
        return queue

    def add_queue(self, kind: QueueKind, maker: tuple[str, int] = NOBODY) -> Queue:
        """One that is not there, whoever wants it; it counts for its maker, and so does its address, if it is new."""
        queue_id = self._next_queue_id
        LOOK.has_touched = True
        self._next_queue_id += 1
        if kind.is_durable:
            self.journal.declare(queue_id, kind.encoded())
        return self._bind(kind, queue_id, maker)

    def _bind(self, kind: QueueKind, queue_id: int, maker: tuple[str, int] = NOBODY) -> Queue:
        LOOK.has_touched = True
        queue = self.queues[kind.name] = Queue(kind, queue_id if kind.is_durable else 0, self.overdue.add)
        queue.made_on = maker[1]
        self.quotas.queue_made(kind, queue.made_on)
        queue.counted_from_ms = self.at.wall_ms
        if kind.selector:
            queue.filter = compile_selector(kind.selector)
        address = self.addresses.get(kind.address)
        if address is None:
            address = self.add_address(kind.address, maker)
        address.bind(queue)
        self.quotas.look(address)
        if kind.is_forwarding:
            self.remotes.added(queue)
        elif kind.is_ring:
            self.retroactive.added(queue)
        else:
            for each in self.queue_observers:
                each.queue_added(queue)
            self.redistribution.look(queue)
        if kind.is_draining:
            self.remotes.drains.found(queue)
        return queue

    def delete_queue(self, queue: Queue, actor: Actor | None) -> int:
        """Unbind a queue and drop what is in it; says how many messages that is. Raises Refused while it is in use."""
        if queue.consumers or queue.delivering_count or queue.arriving_count:
            raise Refused("amqp:precondition-failed", f"queue {queue.kind.name!r} is in use")
        self.permit(actor, DELETE[queue.kind.is_durable], queue.kind.address, queue.kind.name)
        dropped = queue.message_count
        if queue.journal_id:
            self.journal.drop(queue.journal_id)
        LOOK.has_touched = True
        self.remains.add(queue)
        self.paging.drop(queue, is_settled=False)
        self._unbind(queue)
        self.dead_letters.left_totals[DELETED] += dropped
        del self.queues[queue.kind.name]
        self.dirty.pop(queue, None)
        queue.is_deleted = True
        queue.dispatcher.turn_to(NO_QUEUE)
        return dropped

    def _unbind(self, queue: Queue) -> None:
        address = self.addresses[queue.kind.address]
        address.unbind(queue)
        self.quotas.queue_gone(queue.kind, queue.made_on)
        self.quotas.look(address)
        if queue.kind.is_forwarding:
            self.remotes.gone(queue)
        elif queue.kind.is_ring:
            self.retroactive.gone(queue)
        else:
            for each in self.queue_observers:
                each.queue_removed(queue)
        if queue.kind.is_draining:
            self.remotes.drains.gone(queue)
        if queue.alone is not None:
            queue.alone.unbind(queue)
        if address.is_empty:
            self.auto_delete.vacated(address)

    # -- messages ------------------------------------------------------------------------------------------------------

    def publish(self, address: Address, run: Run, origin: Origin = UNKNOWN, *, is_known: bool = False) -> bool:
        """Take a run in. True: its acceptance must wait for this step's append (`decisions.wait`).

        `is_known`: a person moves it, so that the id that was seen when it came first makes no duplicate of it.
        """
        waits = False
        settings = self.settings.of(address.name)
        if settings.enable_ingress_timestamp and not origin.moved_from and not is_known:
            parts = [part for one in stamped(run, self.at.wall_ms) for part in parts_of(one)]
        else:
            parts = parts_of(run)
        LOOK.has_touched = True
        for part in parts:
            is_new = bool(origin.moved_from) or is_known or not part.traits.duplicate_id
            if not is_new and not self.duplicates.remember(address.name, part):
                waits = self.duplicates.write_again(address.name, part) or waits
                continue
            part.arrived_ms = self.at.wall_ms
            if address.name in self.diverts.at:
                waits = self.diverts.publish(address, part, origin) or waits
                continue
            part.expires_ms = expires_ms(part, settings)
            waits = self._publish(address, part, origin) or waits
        return waits

    def take_in(self, address: Address, run: Run, origin: Origin, only: str) -> bool:
        """What diverts leave or bring; `only` queues of this routing type get it. True: as `publish`."""
        run.expires_ms = expires_ms(run, self.settings.of(address.name))
        return self._publish(address, run, origin, only)

    def _publish(self, address: Address, run: Run, origin: Origin, only: str = "") -> bool:
        self.number(run)
        waits, unrouted = False, list[Segment]()
        copied = reached(address, origin) if address.wildcards else ()
        ring = self.retroactive.ring_of(address) if address.retains_max else None
        for index, count, queues in self.route(address, run, origin, only):
            if queues:
                address.routed_total += count
                self.routed_total += count
            elif not copied:
                address.unrouted_total += count
                self.unrouted_total += count
                unrouted.append(Segment(run, index, count, 0))
            if ring is not None:
                unkept = self.dead_letters.unkept
                if queues or unkept is None:
                    queues = [*queues, ring]
                else:
                    unkept.append((address, Segment(run, index, count, 0)))
            if queues:
                waits = self.put(address, Segment(run, index, count, 0), queues) or waits
        for wildcard in copied:
            waits = self.wildcards.publish(wildcard, run, origin) or waits
        if unrouted and not origin.moved_from:
            # Behind all that was stored of the run, because ids ascend in the journal.
            waits = self.dead_letters.astray(address.target, unrouted, routing=only) or waits
        return waits

    def keep(self, address: Address, segment: Segment) -> None:
        """An address keeps these for queues that are made later, though none of its own took them."""
        self.retroactive.keep(address, segment)

    def route(self, address: Address, run: Run, origin: Origin = UNKNOWN, only: str = "") -> list[RoutedPart]:
        """As `Address.route`, with groups kept together in the cluster where somebody sees to that."""
        if self.grouping is None:
            return address.route(run, origin, only)
        return self.grouping.route(address, run, origin, only)

    def number(self, run: Run) -> None:
        """A run that came in gets its ids."""
        self.name_next(run)
        LOOK.has_touched = True
        self.received_total += run.count
        self.received_bytes_total += run.size_bytes(0, run.count)

    def name_next(self, run: Run) -> None:
        """A run that nobody sent, or sent before, gets its ids."""
        LOOK.has_touched = True
        run.first_id = self.next_id
        self.next_id += run.count
        run.deliver_at_ms = deliver_at_ms(run)

    def put(self, address: Address, part: Segment, queues: list[Queue]) -> bool:
        """Messages that have their ids go into these queues of an address. True: as `publish`."""
        run, index, count = part.run, part.start, part.n
        LOOK.has_touched = True
        self.added_total += count * len(queues)
        if self.message_observers:
            for each in self.message_observers:
                each.messages_entered(queues, part)
        durable: list[int] = []
        if run.section.is_durable:
            durable = [queue.journal_id for queue in queues if queue.journal_id]
        is_tight = self.memory.held_bytes >= self.memory.max_bytes or address.meter or self.paging.queues
        if address.pages and is_tight and (paged := self.paging.takers(address, queues)):
            self.paging.publish(part, tuple(durable), paged)
            queues = [queue for queue in queues if queue not in paged]
            if not queues:
                return bool(durable)
        elif durable:
            self.journal.store(run.first_id + index, count, durable, run.block(index, count), run.arrived_ms)
            for queue_id in durable if part.deliveries else ():
                self.journal.count(queue_id, part.first_id, count, part.deliveries)
        if not run.live:
            self.memory.hold(run)
        if durable:
            self.large.stored(run)
        run.live += count * len(queues)
        if address.meter is not None:
            metered = sum(queue.meter is not None for queue in queues)
            address.meter.add(run.size_bytes(index, count) * metered, count * metered)
        for queue in queues:
            if self._together is None:
                self._enqueue(queue, part)
            else:
                self._together.append((queue, part))
        return bool(durable)

    def publish_together(self, posted: list[tuple[Address, Run]], origin: Origin, *, must_wait: bool) -> bool:
        """Take runs in as one: where any of them must wait for this step's append, or `must_wait`, all of them do."""
        LOOK.has_touched = True
        together = self._together = []
        for address, run in posted:
            must_wait = self.publish(address, run, origin) or must_wait
        self._together = None
        for queue, segment in together:
            self._enqueue(queue, segment, must_wait=must_wait)
        return must_wait

    def _enqueue(self, queue: Queue, segment: Segment, *, must_wait: bool = False) -> None:
        run = segment.run
        if run.traits.group_id:
            queue.dispatcher.grouped()
        if must_wait or (run.section.is_durable and queue.journal_id):
            queue.add_waiting(segment)
            self.decisions.wait(self._release, queue)
        elif queue.waiting:
            queue.add_waiting(segment)
            self.decisions.wait_in_turn(self._release, queue)
        else:
            if run.deliver_at_ms > self.at.wall_ms and not queue.kind.is_internal:
                queue.add_scheduled(segment, run.deliver_at_ms)
            else:
                queue.add(segment)
            self.changed(queue)

    def _release(self, queue: Queue) -> None:
        if queue.release(self.at.wall_ms):
            self.changed(queue)

    def kind_changed(self, queue: Queue, before: QueueKind) -> None:
        """A queue is of another kind than `before`, with the same name and place: who hears of queues hears that."""
        if not queue.kind.is_internal:
            for each in self.queue_observers:
                each.queue_changed(queue, before)

    def changed(self, queue: Queue) -> None:
        """Messages of a queue moved: hand out, settle what left by itself, set the clock."""
        LOOK.has_touched = True
        self.dirty[queue] = None
        if queue.gone:
            self.dead_letters.clear(queue)
        if queue.scheduled or queue.next_expiry_ms:
            self.watch(queue)

    def dispatch(self, queue: Queue, count_max: int) -> int:
        """Hand out messages of a queue; says how much work that was."""
        work = queue.dispatch(count_max, self.at.wall_ms)
        if queue.redistributor is not None:
            queue.dispatcher.looks += self.redistribution.run(queue)
        if queue.pages is not None:
            self.paging.look(queue)
        if queue.gone:
            self.dead_letters.clear(queue)
        if queue.dispatcher.is_unfinished:
            self.dirty[queue] = None
        return work

    def settle(self, queue: Queue, segment: Segment, why: str = ACKNOWLEDGED) -> None:
        """Messages that were in delivery have left this queue for good: accepted by a consumer, or see `discard`."""
        run = segment.run
        if run.section.is_durable and queue.journal_id:
            self.journal.settle(queue.journal_id, segment.first_id, segment.n)
        LOOK.has_touched = True
        if queue.meter is not None:
            queue.meter.remove(segment)
        if queue.dispatcher.undeliverable_here:
            queue.dispatcher.forget(segment)
        if queue.pages is not None:
            self.dirty[queue] = None
        queue.settled(segment)
        if not queue.consumers:
            self.look_at_end(queue)
            self.auto_delete.drained(queue)
        self.acknowledged_total += segment.n
        self.memory.settle(run, segment.n)
        if self.message_observers:
            self.tell_left(queue, segment.first_id, segment.n, why)

    def discard(self, queue: Queue, segment: Segment, why: str) -> None:
        """Messages that were in delivery leave for good, and no consumer has accepted them; `why` is one of LEFT."""
        self.settle(queue, segment, why)
        LOOK.has_touched = True
        queue.acknowledged_total -= segment.n
        self.acknowledged_total -= segment.n
        self.dead_letters.left_totals[why] += segment.n

    def tell_left(self, queue: Queue, first_id: int, count: int, why: str) -> None:
        """Messages have left a queue for good: once of each, by whoever took it out."""
        for each in self.message_observers:
            each.messages_left(queue, first_id, count, why)

    def tell_returned(self, queue: Queue, segment: Segment) -> None:
        """Messages are in their queue again, and were with a consumer, or were to go elsewhere."""
        for each in self.message_observers:
            each.messages_returned(queue, segment)

    def give_back(self, queue: Queue, segment: Segment, *, was_delivered: bool) -> None:
        """Messages that were in delivery return to their place; `was_delivered` counts one delivery more."""
        due_ms = 0
        if was_delivered:
            settings = self.settings.of(queue.kind.address)
            segment = Segment(segment.run, segment.start, segment.n, segment.deliveries + 1)
            if 0 < settings.max_delivery_attempts <= segment.deliveries:
                self.dead_letters.reject(queue, segment, f"delivered {segment.deliveries} times in vain")
                return
            if delay_ms := redelivery_delay_ms(settings, segment.deliveries, segment.first_id):
                due_ms = self.at.wall_ms + delay_ms
        self.count(queue, segment, segment.deliveries, due_ms)
        queue.put_back(segment, due_ms)
        self.look_at_end(queue)
        LOOK.has_touched = True
        self.returned_total += segment.n
        if self.message_observers:
            self.tell_returned(queue, segment)
        self.changed(queue)

    def count(self, queue: Queue, segment: Segment, deliveries: int, due_ms: int = 0) -> None:
        """Write down how often messages were delivered."""
        if deliveries and segment.run.section.is_durable and queue.journal_id:
            self.journal.count(queue.journal_id, segment.first_id, segment.n, deliveries, due_ms)

    def look_at_end(self, queue: Queue) -> None:
        """A queue that is to go does so once nobody uses it."""
        LOOK.has_touched = True
        if queue.is_ending and not queue.delivering_count and not queue.consumers:
            self.ended[queue] = None

    # -- consumers -----------------------------------------------------------------------------------------------------

    def consume(self, queue: Queue, start: Callable[[], None], *, is_browser: bool = False) -> None:
        """Call `start` when the queue may hand out messages to one more consumer.

        After a crash every message of a queue that had a consumer may have been delivered; the journal knows which
        queues those are before the first message leaves. What goes to other nodes counts when it is delivered there,
        and copies for browsers do not count.
        """
        LOOK.has_touched = True
        if queue.journal_id and not (queue.is_consumed or is_browser or queue.kind.is_outbound):
            queue.is_consumed = True
            self.journal.consumed(queue.journal_id)
            self.decisions.wait(start)
        else:
            self.decisions.wait_in_turn(start)

    def check_consumers(self, queue: Queue, *, is_browser: bool = False) -> None:
        """Whether one more consumer is let in. Raises Refused."""
        check_consumers(queue, self.limits.consumers_per_queue_max, is_browser=is_browser)

    def join(self, queue: Queue, consumer: Consumer) -> None:
        """From now on the consumer gets messages of the queue."""
        delay_ms = queue.kind.delay_before_dispatch_ms
        is_first = not consumer.is_browser and not queue.takers_count
        LOOK.has_touched = True
        if is_first and delay_ms >= 0 and queue.kind.consumers_before_dispatch:
            queue.dispatcher.gate_ms = self.at.wall_ms + delay_ms
            self.watch(queue)
        queue.is_used = True
        queue.join(consumer)
        self.dirty[queue] = None
        if not consumer.is_browser and not queue.kind.is_outbound:
            for each in self.queue_observers:
                each.consumer_joined(queue, consumer)
            self.redistribution.look(queue)

    def leave(self, queue: Queue, consumer: Consumer) -> None:
        """The consumer is gone; so may be what is in the queue, and soon the queue."""
        LOOK.has_touched = True
        queue.leave(consumer)
        self.dirty[queue] = None
        if not consumer.is_browser and not queue.kind.is_outbound:
            for each in self.queue_observers:
                each.consumer_left(queue, consumer)
            self.redistribution.look(queue)
            if queue.kind.purge_on_no_consumers and not queue.takers_count:
                self.purge(queue)
        if not queue.consumers:
            self.auto_delete.left(queue)
            self.look_at_end(queue)

    def pause(self, queue: Queue, *, is_paused: bool) -> None:
        """Hand out nothing from this queue, or again; a durable queue stays so over restarts, and stays there."""
        LOOK.has_touched = True
        queue.kind = replace(queue.kind, paused=is_paused)
        queue.is_paused = is_paused or self.addresses[queue.kind.address].is_paused
        if not is_paused and not queue.consumers:
            queue.idle_until_ms = 0
            self.auto_delete.drained(queue)  # the pause spared it
        if queue.journal_id:
            self.journal.declare(queue.journal_id, queue.kind.encoded())
        self.changed(queue)

    def purge(self, queue: Queue) -> int:
        """Drop all that is not in delivery, which nobody gets from now on; says how many messages."""
        dropped = self.remains.purge(queue)
        paged = self.paging.drop(queue, is_settled=True).messages
        self.dead_letters.left_totals[PURGED] += paged
        return dropped + paged

    # -- time ----------------------------------------------------------------------------------------------------------

    def watch(self, queue: Queue) -> None:
        """Have a queue looked at when the next time that matters to it has come (`Queue.due_ms`)."""
        due_ms = queue.due_ms
        LOOK.has_touched = True
        if due_ms:
            queue.due_ns = self.at.monotonic_ns + max(due_ms - self.at.wall_ms, 1) * NS_PER_MS
            self.schedule(queue)

    # -- what comes back from disk -------------------------------------------------------------------------------------

    def set_times(self, queue: Queue, run: Run) -> None:
        """What a run that was read from disk is to know before anybody looks at it."""
        LOOK.has_touched = True
        run.expires_ms = expires_ms(run, self.settings.of(queue.kind.address))
        run.deliver_at_ms = deliver_at_ms(run)

    def hold_again(self, queue: Queue, segment: Segment) -> None:
        """Messages that were read from disk, and know their times, are in memory for one queue more."""
        run = segment.run
        LOOK.has_touched = True
        if not run.live:
            self.memory.hold(run)
        run.live += segment.n
        if queue.meter is not None:
            queue.meter.add(run.size_bytes(segment.start, segment.n), segment.n)

    # -- recovery ------------------------------------------------------------------------------------------------------

    def load(self, recovered: Recovered, large_files: Mapping[int, int]) -> None:
        """Take over what recovery found. `large_files`: id -> bytes of all files of large messages.

        Raises StorageFault for what cannot be read, or has no file."""
        self.address_records.load(recovered)
        self.arrivals.load(recovered)
        self.remotes.scale_down.load(recovered)
        self.remotes.cordon.load(recovered)
        by_id: dict[int, Queue] = {}
        for queue_id, kind in kinds_in(recovered):
            self._next_queue_id = max(self._next_queue_id, queue_id + 1)
            by_id[queue_id] = self._bind(kind, queue_id)
        self.remotes.drains.load(recovered)
        bring_back(self, recovered, by_id, large_files)
        for queue in by_id.values():
            self.auto_delete.restored(queue)
        self.duplicates.load(recovered)
