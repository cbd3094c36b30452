"""Bindings of one neighbour, as it tells of them: its own queues, and those that it reaches further on.

What routing sees of it goes through `RemoteBindings`. While everything is told anew, what is known stays in force: a
binding that is not told again ends with RESET_COMPLETE, and consumers that are counted anew take the place of the old
ones then. Queues of ours, internal ones and those that were not asked for are passed over without a word.

Of several neighbours that lead to one queue, routing knows the nearest of those whose links stand; the others wait. Of
two that are as near, the first one stays as long as its link does. This also ends circles, but for one: two neighbours
that lose their links to a third each take the way over the other, which both withdraw by that, for ever. So who was
withdrawn a way CIRCLES_MAX times in a row while its own link is lost takes it no more from a neighbour with a higher
node id, until that has withdrawn none for CIRCLE_NS: a neighbour whose own link comes and goes is no circle.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from mqbroker.base.errors import PeerFault, Scope
from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level, Notice
from mqbroker.cluster.address_match import AddressPrefixes, is_internal
from mqbroker.cluster.notices import (
    BindingAdded,
    BindingRemoved,
    ConsumerClosed,
    ConsumerCreated,
    Reset,
    ResetComplete,
)
from mqbroker.cluster.remote_table_states import TABLE_STATES, TableEvent, TableState
from mqbroker.core.address.address import ANYCAST
from mqbroker.core.cluster.remote_binding import RemoteBinding

BINDINGS_MAX: Final = 100_000  # of one neighbour
CIRCLES_MAX: Final = 3
CIRCLE_NS: Final = 30_000_000_000  # far more than one round takes: a notice there and one back
SELECTORS_MAX: Final = 100_000  # of its consumers, those of one text at one queue counted once

BindingClusterNotice = Reset | BindingAdded | BindingRemoved | ConsumerCreated | ConsumerClosed | ResetComplete
BINDING_NOTICES: Final = (Reset, BindingAdded, BindingRemoved, ConsumerCreated, ConsumerClosed, ResetComplete)
Counts = dict[str, int]  # consumers by the text of their selector


class PassedOver(enum.Enum):
    """Why something that a neighbour told does not count, with what to do about it."""

    REPEATED = "its queue is reached through another node; lower max-hops, or give connections addresses of their own"
    BINDINGS = f"the node has told of more than {BINDINGS_MAX} queues; narrow `address` or remove queues"
    SELECTORS = f"the node has told of more than {SELECTORS_MAX} selectors; consumers beyond them get nothing from here"
    UNREADABLE = "the node has a selector that this release cannot read; nothing matches it here"


class RemoteBindings(Protocol):
    """Whoever routes to bindings of other nodes, and is told of them."""

    def add(self, binding: RemoteBinding) -> None:
        """The binding is there from now on, and may be routed to."""

    def remove(self, binding: RemoteBinding) -> None:
        """The binding is there no more."""

    def replace(self, before: RemoteBinding, binding: RemoteBinding) -> None:
        """The same queue is there on other terms from now on. There is no time at which it is not."""

    def changed(self, binding: RemoteBinding) -> None:
        """Its consumers are others, or its link was lost or stands again."""


@dataclass(slots=True)
class Around:
    """What tables of one cluster connection have in common. `known` is shared by all tables of the node.

    By cluster name it has the tables that hold the binding; the first is the one that routing knows of. `withdrawn`
    counts, by cluster name and neighbour, ways that were withdrawn in a row while the link to the queue's own node was
    lost, and says when the last one was.
    """

    node_id: str
    max_hops: int
    address: AddressPrefixes
    remotes: RemoteBindings
    log: Callable[[Notice], None]
    now_ns: Callable[[], int]
    known: dict[str, list[RemoteTable]] = field(default_factory=dict)
    withdrawn: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)


class RemoteTable:
    """See the module's docstring. `bindings` are by cluster name."""

    def __init__(self, around: Around, neighbour: str) -> None:
        self._around = around
        self.neighbour = neighbour
        self.state = TableState.UNSYNCED
        self.bindings: dict[str, RemoteBinding] = {}
        self.passed_over = dict.fromkeys(PassedOver, 0)
        self._told: set[PassedOver] = set()
        self._selectors_count = 0
        # While everything is told anew: what is not told again yet, and consumers of what is.
        self._stale: dict[str, None] = {}
        self._recounted: dict[str, Counts] = {}
        self._recounted_selectors = 0
        self._retold_left = 0  # consumers that are told again behind a binding whose terms have changed

    @property
    def is_live(self) -> bool:
        """Whether all that the neighbour has is known."""
        return self.state is TableState.LIVE

    def hear(self, notice: BindingClusterNotice) -> None:
        """What the neighbour tells. Raises PeerFault of the link."""
        LOOK.has_touched = True
        if isinstance(notice, Reset):
            self.state = TABLE_STATES.after(self.state, TableEvent.RESET)
            self._begin()
        elif isinstance(notice, ResetComplete):
            before, self.state = self.state, TABLE_STATES.after(self.state, TableEvent.COMPLETE)
            if before is TableState.RESETTING:
                self._complete()
        else:
            self.state = TABLE_STATES.after(self.state, TableEvent.CHANGE)
            if self.state is not TableState.UNSYNCED:
                self._change(notice)

    def lost(self) -> None:
        """The link is gone. What is known stays, unconnected, until it is told again or given up."""
        LOOK.has_touched = True
        self.state = TABLE_STATES.after(self.state, TableEvent.LOST)
        self._stale.clear()
        self._recounted.clear()
        for name, binding in self.bindings.items():
            if binding.is_connected:
                binding.is_connected = False
                if self._is_first(name):
                    self._step_back(name)

    def still_lost(self) -> None:
        """The link was dialled in vain. By now a way may be taken that seemed to lead in a circle."""
        for name in list(self._around.withdrawn):
            if name in self.bindings and self._is_first(name) and not self.bindings[name].is_connected:
                self._step_back(name)

    def stopped(self) -> None:
        """The neighbour has stopped, or is not dialled any more. Others have its share of messages from now on; what is
        owed to subscriptions that will be there again waits for them."""
        self.lost()
        for name, binding in list(self.bindings.items()):
            if binding.routing == ANYCAST or binding.is_volatile:
                self._remove(name)

    def clear(self) -> None:
        """The neighbour is given up: it has no queues any more."""
        self.lost()
        for name in list(self.bindings):
            self._remove(name)

    # -- everything anew -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._told.clear()
        self._stale = dict.fromkeys(self.bindings)
        self._recounted = {}
        self._recounted_selectors = 0
        self._retold_left = 0

    def _complete(self) -> None:
        for name in list(self._stale):
            # Who has it tells of all that it has; others may have forgotten the way.
            self._remove(name, is_deleted=self.bindings[name].node_id == self.neighbour)
        self._stale = {}
        self._settle()

    def _settle(self) -> None:
        """All consumers are told again: they take the place of those before."""
        LOOK.has_touched = True
        recounted, self._recounted = self._recounted, {}
        self._recounted_selectors = 0
        self._retold_left = 0
        for name, counts in recounted.items():
            binding = self.bindings[name]
            if counts != counts_of(binding):
                self._recount(binding, counts)
                self._tell_changed(name)

    def _recount(self, binding: RemoteBinding, counts: Counts) -> None:
        self._selectors_count -= len(binding.consumer_filters)
        binding.forget_consumers()
        for selector, count in counts.items():
            for _ in range(count):
                self._create(binding, selector)

    def _count(self, notice: ConsumerCreated | ConsumerClosed) -> None:
        """A consumer of a binding that is told again."""
        counts = self._recounted[notice.cluster_name]
        before = counts.get(notice.selector, 0)
        LOOK.has_touched = True
        if isinstance(notice, ConsumerCreated):
            is_new = bool(notice.selector) and not before
            if is_new and self._recounted_selectors >= SELECTORS_MAX:
                self._pass_over(PassedOver.SELECTORS, self.bindings[notice.cluster_name].queue)
                return
            self._recounted_selectors += is_new
            counts[notice.selector] = before + 1
        elif before > 1:
            counts[notice.selector] = before - 1
        elif before:
            self._recounted_selectors -= bool(notice.selector)
            del counts[notice.selector]

    # -- changes -------------------------------------------------------------------------------------------------------

    def _change(self, notice: BindingAdded | BindingRemoved | ConsumerCreated | ConsumerClosed) -> None:
        is_retold = isinstance(notice, ConsumerCreated) and notice.cluster_name in self._recounted
        if self.is_live and self._recounted and not is_retold:
            self._settle()
        if isinstance(notice, BindingAdded):
            self._added(notice)
        elif notice.cluster_name not in self.bindings or notice.cluster_name in self._stale:
            return  # what was passed over, or is told of only later
        elif isinstance(notice, BindingRemoved):
            if not notice.deleted:
                self._withdrew(notice.cluster_name)
            self._remove(notice.cluster_name, is_deleted=notice.deleted)
        elif notice.cluster_name in self._recounted:
            self._count(notice)
            self._retold_left -= 1
            if self.is_live and self._retold_left <= 0:
                self._settle()
        else:
            binding = self.bindings[notice.cluster_name]
            if isinstance(notice, ConsumerCreated):
                has_changed = self._create(binding, notice.selector)
            else:
                has_changed = self._close(binding, notice.selector)
            if has_changed:
                self._tell_changed(notice.cluster_name)

    def _added(self, notice: BindingAdded) -> None:
        name, around = notice.cluster_name, self._around
        if notice.distance == 0 and notice.node_id not in (self.neighbour, around.node_id):
            why = f"node {self.neighbour} calls a queue of node {notice.node_id} its own"
            raise PeerFault("amqp:invalid-field", why, Scope.LINK)
        if notice.node_id == around.node_id or not self._is_wanted(notice):
            return
        if name in self.bindings:
            if self._told_again(notice):
                return
            if self._is_first(name) and notice.distance < self.bindings[name].distance:
                self._replace(notice)
                return
            self._remove(name)
        self._add(notice)

    def _is_wanted(self, notice: BindingAdded) -> bool:
        if is_internal(notice.queue) or not self._around.address.matches(notice.address):
            return False
        return notice.distance < self._around.max_hops

    def _told_again(self, notice: BindingAdded) -> bool:
        """Whether it is the same binding as before, which then stays."""
        name = notice.cluster_name
        binding = self.bindings[name]
        told = (
            notice.address, notice.routing, notice.selector, notice.distance + 1, notice.volatile, notice.exclusive,
            notice.moved_from,
        )  # fmt: skip
        known = (
            binding.address, binding.routing, binding.selector, binding.distance, binding.is_volatile,
            binding.is_exclusive, binding.moved_from,
        )  # fmt: skip
        if name not in self._stale or told != known:
            return False
        del self._stale[name]
        self._recounted[name] = {}
        if binding.is_connected:
            return True
        binding.is_connected = True
        self._forget_circles(binding)
        if self._is_first(name):
            self._around.remotes.changed(binding)
        else:
            self._step_forward(name)
        return True

    def _add(self, notice: BindingAdded) -> None:
        if len(self.bindings) >= BINDINGS_MAX:
            self._pass_over(PassedOver.BINDINGS, notice.queue)
            return
        binding = self._know(notice)
        name = binding.cluster_name
        holders = self._around.known.setdefault(name, [])
        holders.append(self)
        if len(holders) == 1:
            self._around.remotes.add(binding)
        else:
            self._step_forward(name)

    def _replace(self, notice: BindingAdded) -> None:
        """What routing knows of has other terms, and is no further than it was. Its consumers are those that it had
        until all of them are told again."""
        name = notice.cluster_name
        before = self.bindings[name]
        LOOK.has_touched = True
        self._selectors_count -= len(before.consumer_filters)
        self._stale.pop(name, None)
        binding, counts = self._know(notice), counts_of(before)
        self._recount(binding, counts)
        if counts or not self.is_live:
            self._recounted[name] = {}
            self._retold_left = sum(counts.values())
        self._around.remotes.replace(before, binding)

    def _know(self, notice: BindingAdded) -> RemoteBinding:
        binding = RemoteBinding(
            notice.queue, notice.address, notice.routing, notice.selector, notice.node_id, self.neighbour,
            notice.distance + 1, notice.volatile, notice.exclusive, notice.moved_from,
        )  # fmt: skip
        LOOK.has_touched = True
        self.bindings[binding.cluster_name] = binding
        if binding.fault:
            self._pass_over(PassedOver.UNREADABLE, binding.queue, binding.fault)
        self._forget_circles(binding)
        return binding

    def _remove(self, name: str, *, is_deleted: bool = False) -> None:
        LOOK.has_touched = True
        binding, is_first = self.bindings.pop(name), self._is_first(name)
        binding.is_deleted = is_deleted
        self._selectors_count -= len(binding.consumer_filters)
        self._forget_circles(binding)
        self._stale.pop(name, None)
        self._recounted.pop(name, None)
        holders = self._around.known[name]
        holders.remove(self)
        if is_first:
            self._around.remotes.remove(binding)
            self._follow(name)
        if not holders:
            del self._around.known[name]

    # -- queues that several neighbours tell of ------------------------------------------------------------------------

    def _is_first(self, name: str) -> bool:
        return self._around.known[name][0] is self

    def _tell_changed(self, name: str) -> None:
        if self._is_first(name):
            self._around.remotes.changed(self.bindings[name])

    def _withdrew(self, name: str) -> None:
        """The neighbour leads there no more: perhaps because it takes the way over this node."""
        holders, node_id = self._around.known[name], self.bindings[name].node_id
        if any(each.neighbour == node_id and not each.bindings[name].is_connected for each in holders):
            counts = self._around.withdrawn.setdefault(name, {})
            LOOK.has_touched = True
            counts[self.neighbour] = self._circles(name) + 1, self._around.now_ns()

    def _forget_circles(self, binding: RemoteBinding) -> None:
        """The link to the queue's own node stands again, or is of no use any more."""
        if binding.node_id == self.neighbour:
            LOOK.has_touched = True
            self._around.withdrawn.pop(binding.cluster_name, None)

    def _stands(self, name: str) -> bool:
        """Whether the way may be taken: its link stands, and it does not lead in a circle."""
        is_circle = self._circles(name) >= CIRCLES_MAX and self._around.node_id < self.neighbour
        return self.bindings[name].is_connected and not is_circle

    def _circles(self, name: str) -> int:
        """How often the neighbour has withdrawn the way in a row."""
        count, last_ns = self._around.withdrawn.get(name, {}).get(self.neighbour, (0, 0))
        return count if self._around.now_ns() - last_ns < CIRCLE_NS else 0

    def _step_forward(self, name: str) -> None:
        """The binding is there, after others: it takes over from one that is further, or whose link is lost."""
        holders, binding = self._around.known[name], self.bindings[name]
        first = holders[0].bindings[name]
        if first.is_connected:
            self._pass_over(PassedOver.REPEATED, binding.queue)
            if binding.distance >= first.distance:
                return
        elif not self._stands(name):
            return
        holders[0]._around.remotes.remove(first)
        holders.remove(self)
        holders.insert(0, self)
        self._around.remotes.add(binding)

    def _step_back(self, name: str) -> None:
        """The link of the binding is lost: another way to it takes over, where one stands."""
        holders = self._around.known[name]
        if any(each._stands(name) for each in holders):
            self._around.remotes.remove(self.bindings[name])
            holders.append(holders.pop(0))
            self._follow(name)
        else:
            self._around.remotes.changed(self.bindings[name])

    def _follow(self, name: str) -> None:
        """Routing knows of none: the nearest of those whose links stand, or else of all, is there for it now."""
        holders = self._around.known[name]
        LOOK.has_touched = True
        if holders:
            holders.sort(key=lambda each: (not each._stands(name), each.bindings[name].distance))
            holders[0]._around.remotes.add(holders[0].bindings[name])

    def _create(self, binding: RemoteBinding, selector: str) -> bool:
        is_new = bool(selector) and selector not in binding.consumer_filters
        if is_new and self._selectors_count >= SELECTORS_MAX:
            self._pass_over(PassedOver.SELECTORS, binding.queue)
            return False
        self._selectors_count += is_new
        fault = binding.consumer_created(selector)
        if fault:
            self._pass_over(PassedOver.UNREADABLE, binding.queue, fault)
        return True

    def _close(self, binding: RemoteBinding, selector: str) -> bool:
        before = len(binding.consumer_filters)
        has_closed = binding.consumer_closed(selector)
        self._selectors_count -= before - len(binding.consumer_filters)
        return has_closed

    def _pass_over(self, why: PassedOver, queue: str, fault: str = "") -> None:
        """Counted, and told once between two RESETs."""
        LOOK.has_touched = True
        self.passed_over[why] += 1
        if why not in self._told:
            self._told.add(why)
            fields: dict[str, str | int] = {"node_id": self.neighbour, "queue": queue, "why": why.value}
            if fault:
                fields["fault"] = fault
            self._around.log(Notice(Level.WARNING, "cluster-notice-passed-over", fields))


def counts_of(binding: RemoteBinding) -> Counts:
    """Its consumers by selector."""
    counts = {selector: count for selector, (_, count) in binding.consumer_filters.items()}
    return counts | {"": binding.unfiltered_count} if binding.unfiltered_count else counts
