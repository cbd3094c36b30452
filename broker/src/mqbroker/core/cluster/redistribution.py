"""Redistribution: messages that lie where nobody wants them go to nodes where somebody does.

A queue has a redistributor while a node that can be reached has a consumer for a queue of its name and this one has
none, or none that takes what is at its head. After `redistribution-delay` it moves what is wanted elsewhere: a copy
with a new id goes into the store-and-forward queue and the original is settled, in one append. Messages of groups stay,
and what cannot be placed does not hold up what comes behind it. Each part is bounded, the rest comes in later steps.
Source: Artemis's manual, "Message redistribution"; docs/adr/0012-cluster-connections.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from mqbroker.base.errors import Refused
from mqbroker.base.look import LOOK
from mqbroker.base.time import NS_PER_MS
from mqbroker.core.address.address import ANYCAST, MULTICAST
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.cluster.cluster_bindings import ClusterQueue, bindings_at, is_choosy, queues_of, takes
from mqbroker.core.queue.backlog import Segment
from mqbroker.core.queue.leaving_reasons import MOVED
from mqbroker.core.queue.message_view import MessageView, view_at
from mqbroker.core.queue.redistributor import Redistributor
from mqbroker.wire.parts import part_of

if TYPE_CHECKING:
    from mqbroker.core.address.address import Address
    from mqbroker.core.cluster.cluster_store import ClusterStore
    from mqbroker.core.queue.queue import Queue

# In looks of a dispatcher (dispatch.py), of which it is told what was done here.
LOOKS_MAX: Final = 500  # of one queue at a time
MOVED_LOOKS: Final = 12  # for each piece that is moved,
MESSAGES_SHIFT: Final = 4  # and one for each so many messages of it, a power of 2
CHOSEN_LOOKS: Final = 6  # for each message that is looked into, because elsewhere not all are wanted,
CHOSEN_MAX: Final = 20  # so many of a piece


class Redistribution:
    """All queues of a node. `moved_total` counts messages since the process began."""

    def __init__(self, store: ClusterStore) -> None:
        self._store = store
        self.moved_total = 0

    def look(self, queue: Queue, *, is_new: bool = False) -> None:
        """Consumers have come or gone, here or elsewhere: start, go on or stop. `is_new`: elsewhere."""
        delay_ms = self._store.settings.of(queue.kind.address).redistribution_delay
        group = self._group_of(queue)
        LOOK.has_touched = True
        if delay_ms < 0 or group is None or takes(queue, None) or not group.is_wanted(None):
            if queue.redistributor is not None:
                queue.redistributor.due_ns = 0
                queue.redistributor = None
            return
        if queue.redistributor is not None:
            if is_new:
                queue.redistributor.seen = 0
                self._store.dirty[queue] = None
            if is_new or not queue.takers_count:
                return
        # One that is new, or a consumer has come or gone: it waits from now on.
        redistributor = queue.redistributor = Redistributor(lambda due: self._due(queue, due))
        if delay_ms == 0:
            self._begin(queue, redistributor)
        else:
            redistributor.due_ns = self._store.at.monotonic_ns + delay_ms * NS_PER_MS
            self._store.schedule(redistributor)

    def _due(self, queue: Queue, redistributor: Redistributor) -> None:
        """The delay of one that was put there is over; the queue may have none by now, or another one."""
        if queue.redistributor is redistributor:
            self._begin(queue, redistributor)

    def _begin(self, queue: Queue, redistributor: Redistributor) -> None:
        """Move what can be moved, from the next dispatch on."""
        LOOK.has_touched = True
        redistributor.is_running = True
        if not queue.takers_count:
            for segment in queue.take_scheduled(self._store.at.wall_ms):
                self._move_taken(queue, segment)
        self._store.changed(queue)

    def run(self, queue: Queue) -> int:
        """Move some messages of a queue; says how much work that was, in looks of a dispatcher."""
        redistributor, group = queue.redistributor, self._group_of(queue)
        if redistributor is None or not redistributor.is_running or group is None or queue.is_paused:
            return 0
        end = queue.dispatcher.refused_below if queue.takers_count else 1 << 62
        looks, most = 0, CHOSEN_MAX if any(is_choosy(each.binding) for each in group.remotes) else end
        LOOK.has_touched = True
        for segment in queue.backlog.from_rank(redistributor.seen):
            while redistributor.seen < segment.rank + segment.n:
                rank = max(segment.rank, redistributor.seen)
                if rank >= end:
                    return looks
                if looks >= LOOKS_MAX:
                    self._store.dirty[queue] = None
                    return looks
                count = min(segment.rank + segment.n, end, rank + most) - rank
                if segment.run.traits.group_id or 0 < segment.run.expires_ms <= self._store.at.wall_ms:
                    looks += 1
                else:
                    looks += self._place(queue, group, (rank, count), segment)
                redistributor.seen = rank + count
        return looks

    def _place(self, queue: Queue, group: ClusterQueue, bounds: tuple[int, int], segment: Segment) -> int:
        """Messages of a segment (place, count) go where they are wanted; how much work that was."""
        rank, count = bounds
        looks = count * CHOSEN_LOOKS
        if not any(is_choosy(each.binding) for each in group.remotes):
            self._move(queue, group, queue.take_at(rank, count), None)
            return MOVED_LOOKS + (count >> MESSAGES_SHIFT)
        for index in range(rank - segment.rank, rank - segment.rank + count):
            view = MessageView(segment.run.payload(segment.start + index), beyond_bytes=segment.run.beyond_bytes)
            if group.is_wanted(view):
                self._move(queue, group, queue.take_at(segment.rank + index, 1), view)
                looks += MOVED_LOOKS
        return looks

    def _move_taken(self, queue: Queue, segment: Segment) -> None:
        """Scheduled messages, one by one: they go with their schedule, or back to it."""
        group = self._group_of(queue)
        for index in range(segment.n):
            one = segment.part(segment.start + index, 1)
            view = MessageView(one.run.payload(one.start), beyond_bytes=one.run.beyond_bytes)
            if group is None or not group.is_wanted(view) or one.run.traits.group_id:
                queue.put_back(one, one.run.deliver_at_ms)
            else:
                self._move(queue, group, one, view)

    def _move(self, queue: Queue, group: ClusterQueue, segment: Segment, view: MessageView | None) -> None:
        """Messages in delivery go to bindings elsewhere."""
        address = self._store.addresses[queue.kind.address]
        at = segment.start
        LOOK.has_touched = True
        for count, remote in group.elsewhere(segment.n, view):
            part = segment.part(at, count)
            self.forward(address, part, remote.via.queues_for(address, [remote.binding]))
            self._store.discard(queue, part, MOVED)
            at += count
        self.moved_total += segment.n

    def forward(self, address: Address, part: Segment, queues: list[Queue]) -> None:
        """Copies of messages of an address, with new ids, go into these queues."""
        store, run = self._store, part.run
        copy = part_of(run, part.start, part.start + part.n, run.traits)
        LOOK.has_touched = True
        copy.first_id = store.next_id
        store.next_id += part.n
        copy.arrived_ms, copy.expires_ms, copy.deliver_at_ms = run.arrived_ms, run.expires_ms, run.deliver_at_ms
        store.put(address, Segment(copy, 0, part.n, part.deliveries), queues)

    def route_again(self, queue: Queue, segment: Segment) -> bool:
        """Messages in delivery that wait for a shared queue elsewhere take the way that is open now. False: none is."""
        store = self._store
        try:
            address = store.address_for(queue.kind.address, BROKER, anycast=True)
        except Refused:
            address = store.addresses[queue.kind.address]
        copy = part_of(segment.run, segment.start, segment.start + segment.n, segment.run.traits)
        parts = store.route(address, copy, only=ANYCAST)
        if not all(queues for _, _, queues in parts):
            return False
        for index, count, queues in parts:
            if any(each.kind.last_value for each in queues):
                self._give_back(address, segment.part(segment.start + index, count), queues)
            else:
                self.forward(address, segment.part(segment.start + index, count), queues)
        store.discard(queue, segment, MOVED)
        return True

    def hand_on(self, queue: Queue, segment: Segment, names: Iterable[str]) -> None:
        """Copies in delivery that were owed to subscriptions of these names at a node that has them no more go where
        another node, or this one, has the same."""
        address = self._store.addresses[queue.kind.address]
        for index in range(segment.start, segment.start + segment.n):
            one = segment.part(index, 1)
            view = view_at(one.run, index, address.name)
            if takers := self.takers(address, names, view):
                self.forward(address, one, takers)

    def takers(self, address: Address, names: Iterable[str], view: MessageView) -> list[Queue]:
        """Where a message goes that was owed to subscriptions of these names which are gone: to the same ones here, or
        at another node."""
        bindings = bindings_at(address)
        takers: dict[Queue, None] = {}
        for name in names:
            here = self._store.queues.get(name)
            if here is not None and (here.kind.address, here.kind.routing) != (address.name, MULTICAST):
                here = None
            group = None if bindings is None else bindings.group(MULTICAST, name)
            members = (group or ClusterQueue(MULTICAST, name)).members(here, view)
            takers.update(dict.fromkeys(queues_of(address, members[:1])))
        return list(takers)

    def _give_back(self, address: Address, segment: Segment, queues: list[Queue]) -> None:
        """Values that were on their way elsewhere are in queues of this node again, but for those that are outdated."""
        for index in range(segment.start, segment.start + segment.n):
            one = segment.part(index, 1)
            takers = [each for each in queues if not each.is_outdated(one, is_ours=True)]
            self._store.dead_letters.outdated((each for each in queues if each not in takers), one.first_id)
            if takers:
                self.forward(address, one, takers)

    def _group_of(self, queue: Queue) -> ClusterQueue | None:
        if queue.kind.non_destructive or queue.kind.is_draining:
            return None  # everybody may read it, and nothing leaves it; or what is in it may be elsewhere
        address = self._store.addresses.get(queue.kind.address)
        bindings = None if address is None else bindings_at(address)
        return None if bindings is None else bindings.group_of(queue)
