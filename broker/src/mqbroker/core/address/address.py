"""Addresses and bindings: which queues a message that is sent to an address reaches.

Three things, not one: an address is a name that senders use, a queue holds messages, a binding connects them. Anycast
bindings share the messages (each goes to one queue in turn), multicast bindings get a copy each: one message, many
queues. A binding may have a filter, and then gets what matches. Bindings of other nodes are in `cluster_bindings`
(core/cluster/cluster_bindings.py), and what is on its way to them in store-and-forward queues, which are bound here and
get nothing by routing of their own. So is the ring of what is kept for queues that are made later (retroactive.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mqbroker.base.look import LOOK
from mqbroker.base.value import Value
from mqbroker.core.address.bindings_elsewhere import BindingsElsewhere
from mqbroker.core.queue.kinds import FORWARD, RING_PREFIX
from mqbroker.core.queue.message_view import view_at
from mqbroker.core.queue.meter import Meter
from mqbroker.core.queue.queue import Queue
from mqbroker.wire.run import Run

ANYCAST, MULTICAST = "anycast", "multicast"
FULLY_QUALIFIED: Final = "::"
RoutedPart = tuple[int, int, list[Queue]]  # index of a run's first message, count, and where they go


class Origin(Value):
    """Where messages come from: the address that the broker moves them from, or the container that publishes them."""

    __match_args__ = ("moved_from", "publisher")
    __slots__ = __match_args__

    def __init__(self, moved_from: str = "", publisher: str = "") -> None:
        self.moved_from: Final = moved_from
        self.publisher: Final = publisher


UNKNOWN: Final = Origin()  # an administrator, for example, has no container


class Address:
    """A name that senders use, its bindings to queues, and what is counted there."""

    __slots__ = (
        "_is_choosy", "_is_keyed", "_on_idle", "_origins", "anycast", "can_page", "cluster_bindings", "copied_count",
        "cursor", "due_ns", "forwarding", "founder", "is_alone", "is_configured", "is_pause_kept", "is_paused",
        "is_topic", "is_whole", "made_on", "maker", "meter", "multicast", "name", "pages", "producers_count",
        "retains_max", "ring", "rings", "routed_total", "routing_types", "scheduled_ns", "target", "unrouted_total",
        "was_bound", "wildcards",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        meter: Meter | None = None,
        on_idle: Callable[[Address], None] | None = None,
        *,
        pages: bool = False,
    ) -> None:
        self.name = name
        self.pages = pages  # what is too much stays on disk, in queues that allow it
        self.can_page = pages  # and all of them do
        self.target = name  # what leads here again: the name, or `address::queue`
        self.is_alone = False  # it leads to one queue, whatever that takes of what comes to its address
        self.is_whole = True  # diverts and addresses with wildcards get copies of what is sent here
        self.meter = meter
        self.maker = ""  # the user and the connection that it counts for (quotas.py)
        self.made_on = 0
        self.founder = ("", 0)  # and those that it counts for while it has no queue
        self.anycast: list[Queue] = []
        self.multicast: list[Queue] = []
        self.copied_count = 0  # of these, those for what is sent here: for what is moved only where it is named
        self.forwarding: list[Queue] = []  # hold messages of this address for other nodes
        self.wildcards: tuple[Address, ...] = ()  # those that it matches (wildcards.py)
        self.cluster_bindings: BindingsElsewhere | None = None  # bindings of other nodes, where there are any
        self.ring: Queue | None = None  # keeps the newest messages for queues that are made later,
        self.rings: tuple[Queue, ...] = ()  # that one, and what came of those of nodes that have left,
        self.retains_max = 0  # so many messages of all of them
        self.routed_total = 0
        self.unrouted_total = 0
        self.cursor = 0
        self._is_choosy = False
        self._is_keyed = False
        self._origins: frozenset[str] = frozenset()  # addresses for what is moved from which it has a queue alone
        self._on_idle = on_idle  # is told when the address has been idle for a while
        self.was_bound = False  # it had a queue
        self.producers_count = 0  # links on which messages may come
        self.due_ns = 0
        self.scheduled_ns = 0
        self.is_topic = False  # somebody wants copies of what is sent here, so no queue of its name is made
        self.routing_types: tuple[str, ...] = ()  # what its queues may be; empty: no administrator made it
        self.is_configured = False  # the file of options declares it, or did
        self.is_paused = False  # its queues hand out nothing
        self.is_pause_kept = False  # also after a restart

    def on_time(self, now_ns: int) -> None:
        """The address has been idle for a while."""
        LOOK.has_touched = True
        self.due_ns = 0
        if self._on_idle is not None:
            self._on_idle(self)

    def bind(self, queue: Queue) -> None:
        """Messages of this address reach the queue from now on."""
        LOOK.has_touched = True
        if queue.kind.is_ring:
            self.rings = (*self.rings, queue)  # beyond the bounds of the address, whose producers would wait for ever
            if queue.kind.name.startswith(RING_PREFIX):
                self.ring = queue
            return
        self._bound_as(queue.kind.routing).append(queue)
        queue.meter = self.meter
        if not queue.kind.is_forwarding:
            queue.is_paused = queue.is_paused or self.is_paused
            self.was_bound = True
        self.look()

    def unbind(self, queue: Queue) -> None:
        """Messages of this address do not reach the queue from now on."""
        LOOK.has_touched = True
        if queue.kind.is_ring:
            self.rings = tuple(each for each in self.rings if each is not queue)
            self.ring = None if queue is self.ring else self.ring
            return
        self._bound_as(queue.kind.routing).remove(queue)
        self.look()

    def _bound_as(self, routing: str) -> list[Queue]:
        if routing == FORWARD:
            return self.forwarding
        return self.anycast if routing == ANYCAST else self.multicast

    def look(self) -> None:
        """Something about its queues has changed."""
        LOOK.has_touched = True
        self.can_page = self.pages and all(queue.kind.may_page for queue in self.queues)
        if self.meter is not None and self.is_whole:
            self.meter.set_queues(self.queues + self.forwarding, can_page=self.can_page)
        self.copied_count = sum(self.is_alone or not queue.kind.moved_from for queue in self.multicast)
        self._origins = frozenset(queue.kind.moved_from for queue in self.queues if queue.kind.moved_from)
        self._is_keyed = any(queue.kind.last_value_key for queue in self.queues)
        self._is_choosy = any(
            queue.filter is not None or queue.kind.moved_from or queue.kind.no_local for queue in self.queues
        )

    def alone(self, queue: str) -> Address:
        """One that leads to a single queue of this address, which is to be bound to it."""
        alone = Address(self.name, self.meter, pages=self.pages)
        LOOK.has_touched = True
        alone.target = self.name + FULLY_QUALIFIED + queue
        alone.is_alone, alone.is_whole = True, False
        return alone

    def again(self, wildcards: tuple[Address, ...] = (), only: str = "", *, is_whole: bool = False) -> Address:
        """For what was here and comes again, in this step: one with the same queues, and with nobody who had a copy.

        `wildcards`: those addresses with wildcards that had none. `only`: queues of this routing type alone.
        `is_whole`: diverts had none either, nor what it keeps for later queues.
        """
        if not self.is_whole:
            return self
        again = Address(self.name, self.meter, pages=self.pages)
        elsewhere = self.cluster_bindings
        LOOK.has_touched = True
        again.is_whole = False
        again.anycast = self.anycast if only != MULTICAST else []
        again.multicast = self.multicast if only != ANYCAST else []
        again.cluster_bindings = elsewhere.of(only) if only and elsewhere is not None else elsewhere
        again.wildcards = wildcards
        again.cursor = self.cursor
        self.cursor += 1  # so that another one begins with the next queue
        again.look()
        again.retains_max = self.retains_max if is_whole else 0
        again.is_whole = is_whole  # by now, as the meter is not to hear of these queues
        return again

    @property
    def is_declared(self) -> bool:
        """Whether a person made or paused it, so that it does not go by itself."""
        return bool(self.routing_types) or self.is_configured or self.is_paused

    @property
    def copied_elsewhere(self) -> int:
        """Queues of the cluster that other nodes alone have, and that get a copy each of what is sent here."""
        elsewhere = self.cluster_bindings
        return 0 if elsewhere is None else elsewhere.copied_beyond(self.multicast)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is bound here, neither of this node nor of others, and nothing waits here for those."""
        return self.is_unbound and not self.forwarding

    @property
    def is_unbound(self) -> bool:
        """Whether nobody has a queue here, neither this node nor another."""
        return not (self.anycast or self.multicast or self.cluster_bindings)

    @property
    def has_way(self) -> bool:
        """Whether a queue gets what is sent here: one of this node, or one of another node that messages go to."""
        return bool(self.anycast or self.copied_count) or self.has_way_elsewhere

    @property
    def has_way_elsewhere(self) -> bool:
        """Whether a queue of another node gets what is sent here."""
        elsewhere = self.cluster_bindings
        return elsewhere is not None and (elsewhere.takes(MULTICAST) or elsewhere.takes(ANYCAST))

    @property
    def goes_elsewhere(self) -> bool:
        """Whether messages that are shared out go to other nodes alone."""
        return not self.anycast and self.cluster_bindings is not None and self.cluster_bindings.takes(ANYCAST)

    def takes_each(self, only: str = "") -> bool:
        """As `has_way`, for every message, whatever it says and whoever publishes it: no filter is in the way.

        `only`: queues of this routing type alone.
        """
        if any(each.filter is None and not each.kind.no_local for each in self.open_to(UNKNOWN, only)):
            return True
        elsewhere = self.cluster_bindings
        return elsewhere is not None and any(map(elsewhere.takes_each, (only,) if only else (ANYCAST, MULTICAST)))

    @property
    def is_shared(self) -> bool:
        """Whether a queue shares its messages out, here or on another node."""
        return bool(self.anycast) or (self.cluster_bindings is not None and self.cluster_bindings.has(ANYCAST))

    @property
    def gives_copies(self) -> bool:
        """Whether somebody wants copies of what is sent here."""
        elsewhere = self.cluster_bindings
        return bool(self.copied_count) or self.is_topic or (elsewhere is not None and elsewhere.takes(MULTICAST))

    @property
    def has_copies(self) -> bool:
        """Whether somebody wants copies of what is sent here, or is moved here: whoever reads here gets them too."""
        elsewhere = self.cluster_bindings
        return self.gives_copies or bool(self.multicast) or (elsewhere is not None and elsewhere.has(MULTICAST))

    def keeps_apart(self, origin: str) -> bool:
        """Whether there is a queue, here or at another node, that takes only what is moved from this address."""
        elsewhere = self.cluster_bindings
        return origin in self._origins or (elsewhere is not None and elsewhere.keeps_apart(origin))

    @property
    def queues(self) -> list[Queue]:
        """All bound queues that clients know."""
        return self.anycast + self.multicast

    @property
    def looks_at_each(self) -> bool:
        """Whether messages of a run are dealt with one by one: they go different ways, or a filter or a key asks."""
        if self._is_choosy or self._is_keyed or len(self.anycast) > 1:
            return True
        return self.cluster_bindings is not None and self.cluster_bindings.looks_at_each(self.queues)

    @property
    def has_last_value_key(self) -> bool:
        """Whether a property of its messages is the key of a last-value queue."""
        return self._is_keyed

    def route(self, run: Run, origin: Origin = UNKNOWN, only: str = "") -> list[RoutedPart]:
        """Which queues get which part of the run: (index, count, queues).

        `only`: queues of this routing type alone. The usual case, at most one shared queue and no filters, is one part.
        """
        if self.cluster_bindings is not None:
            return self.cluster_bindings.route(self, run, origin, only)
        if len(self.anycast) <= 1 and not self._is_choosy and not only:
            queues = self.anycast + self.multicast if self.multicast else self.anycast
            return [(0, run.count, queues)]
        open_to = self.open_to(origin, only)
        return parts_by(run.count, lambda index: self._queues_for(run, index, open_to))

    def open_to(self, origin: Origin, only: str = "") -> list[Queue]:
        """Its queues that may have messages of this origin, whatever these say."""
        return [queue for queue in self.queues if self._may_take(queue, origin, only)]

    def may_get(self, queue: Queue, run: Run, origin: Origin, only: str = "") -> bool:
        """Whether a queue is one of those that may have the first message of a run, by what that says too."""
        return (
            queue in self.queues
            and self._may_take(queue, origin, only)
            and (queue.filter is None or queue.filter.matches(view_at(run, 0, self.name)))
        )

    def _may_take(self, queue: Queue, origin: Origin, only: str) -> bool:
        """Whether the queue is open to messages of this origin, whatever they say."""
        kind = queue.kind
        if only and kind.routing != only:
            return False
        if kind.moved_from and kind.moved_from != origin.moved_from and not self.is_alone:
            return False
        # What is moved by the broker itself was published before.
        return not kind.no_local or kind.no_local != origin.publisher or bool(origin.moved_from)

    def _queues_for(self, run: Run, index: int, open_to: list[Queue]) -> list[Queue]:
        view = None
        if self._is_choosy:
            view = view_at(run, index, self.name)
        taking = [each for each in open_to if each.filter is None or view is None or each.filter.matches(view)]
        shared = [queue for queue in taking if queue.kind.routing == ANYCAST]
        LOOK.has_touched = True
        if shared:
            shared = [shared[self.cursor % len(shared)]]
            self.cursor += 1
        return shared + [queue for queue in taking if queue.kind.routing != ANYCAST]


def parts_by(count: int, queues_for: Callable[[int], list[Queue]]) -> list[RoutedPart]:
    """Message by message, with neighbours that go to the same queues as one part."""
    parts: list[RoutedPart] = []
    LOOK.has_touched = True
    for index in range(count):
        queues = queues_for(index)
        if parts and parts[-1][2] == queues:
            parts[-1] = (parts[-1][0], parts[-1][1] + 1, queues)
        else:
            parts.append((index, 1, queues))
    return parts
