"""Seeded bugs of clusters: what the checker must be able to find in histories of several nodes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from mqbroker.core.address.address import Address, Origin, RoutedPart
from mqbroker.core.address.quotas import NOBODY
from mqbroker.core.cluster import arrivals
from mqbroker.core.cluster.arrivals import Arrival, Arrivals, ArrivedRanges
from mqbroker.core.cluster.cluster_bindings import ClusterQueue, ClusterQueueMember
from mqbroker.core.cluster.forwarding import Forwarding
from mqbroker.core.cluster.group_owners import GroupOwners
from mqbroker.core.cluster.grouping import Grouping
from mqbroker.core.cluster.redistribution import Redistribution
from mqbroker.core.cluster.remote_binding import RemoteBinding
from mqbroker.core.queue.backlog import Segment
from mqbroker.core.queue.kinds import QueueKind
from mqbroker.core.queue.message_view import MessageView
from mqbroker.core.queue.queue import Queue
from mqbroker.core.store.store import Store
from mqbroker.journal.recovered import Recovered
from mqbroker.wire.run import Run

from tests.support.values import replaced

_ARRIVE, _FRESH, _FORWARD, _GIVE_BACK = Arrivals.publish, ArrivedRanges.fresh, Redistribution.forward, Store.give_back
_ADD_QUEUE = Store.add_queue
_LOOK, _RUN, _QUEUES_FOR, _MEMBERS = (
    Redistribution.look,
    Redistribution.run,
    Forwarding.queues_for,
    ClusterQueue.members,
)


def _answer_at_once(self: Arrivals, arrival: Arrival, run: Run, first_id: int) -> bool | None:
    """The source is told before the messages are on disk here."""
    waits = _ARRIVE(self, arrival, run, first_id)
    return False if waits else waits


def _load_no_arrivals(self: Arrivals, recovered: Recovered) -> None:
    """What arrived before a restart is forgotten."""


def _all_fresh(self: ArrivedRanges, first: int, count: int) -> list[tuple[int, int]]:
    """What is sent again is taken again."""
    return [(0, count)]


def _some_known(self: ArrivedRanges, first: int, count: int) -> list[tuple[int, int]]:
    """A message that never came is taken for one that did."""
    return [] if count == 1 and first % 5 == 0 else _FRESH(self, first, count)


def _forward_twice(self: Redistribution, address: Address, part: Segment, queues: list[Queue]) -> None:
    """A redistributed message goes to another node twice."""
    _FORWARD(self, address, part, queues)
    if part.first_id % 3 == 0:
        _FORWARD(self, address, part, queues)


def _forward_uncounted(self: Redistribution, address: Address, part: Segment, queues: list[Queue]) -> None:
    """Nobody knows elsewhere how often it was delivered here."""
    _FORWARD(self, address, replaced(part, deliveries=0), queues)


def _forget_unanswered(self: Store, queue: Queue, segment: Segment, *, was_delivered: bool) -> None:
    """What was on a link that is lost counts as taken."""
    if queue.kind.is_forwarding:
        self.settle(queue, segment)
    else:
        _GIVE_BACK(self, queue, segment, was_delivered=was_delivered)


def _in_memory_only(self: Store, kind: QueueKind, maker: tuple[str, int] = NOBODY) -> Queue:
    """A store-and-forward queue that does not outlive its process."""
    return _ADD_QUEUE(self, replace(kind, is_durable=False) if kind.is_forwarding else kind, maker)


def _choose_anew(self: Grouping, address: Address, run: Run, origin: Origin, only: str) -> list[RoutedPart]:
    """Messages of a group go where those without one go, whoever owns it."""
    return address.route(run, origin, only)


def _load_no_pins(self: GroupOwners, recovered: Recovered) -> None:
    """The node that decides forgets by a restart what it has decided."""


def _never(self: Redistribution, queue: Queue, *, is_new: bool = False) -> None:
    """Messages stay where they are."""


def _same_turn(self: ClusterQueue, members: list[Any], count: int) -> list[Any]:
    """Whoever is first gets the next one too."""
    return members


def _not_for_newcomers(self: Redistribution, queue: Queue, *, is_new: bool = False) -> None:
    """A consumer that comes elsewhere later finds nothing."""
    if not is_new:
        _LOOK(self, queue)


def _wait_for_the_clock(self: Redistribution, queue: Queue) -> int:
    """Messages of which the clock says that they have not come yet hold up the queue."""
    is_early = any(each.run.arrived_ms > self._store.at.wall_ms for each in queue.backlog.from_rank(0))
    return 0 if is_early else _RUN(self, queue)


def _one_for_each_node(self: Forwarding, address: Address, bindings: list[RemoteBinding]) -> list[Queue]:
    """A node that has two subscriptions gets a message for one of them."""
    return _QUEUES_FOR(self, address, bindings[:1])


def _connected_only(self: ClusterQueue, queue: Queue | None, view: MessageView | None) -> list[ClusterQueueMember]:
    """Subscriptions at a node whose link is lost are not owed anything."""
    found = _MEMBERS(self, queue, view)
    return [each for each in found if isinstance(each, Queue) or each.binding.is_connected]


CLUSTER_BUGS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "the source is answered before the disk": lambda: patch.object(Arrivals, "publish", _answer_at_once),
    "arrivals are forgotten at a restart": lambda: patch.object(Arrivals, "load", _load_no_arrivals),
    "what is sent again is taken again": lambda: patch.object(ArrivedRanges, "fresh", _all_fresh),
    "a new message is taken for an old one": lambda: patch.object(ArrivedRanges, "fresh", _some_known),
    "redistribution doubles": lambda: patch.object(Redistribution, "forward", _forward_twice),
    "redistribution forgets deliveries": lambda: patch.object(Redistribution, "forward", _forward_uncounted),
    "a lost link loses what was on it": lambda: patch.object(Store, "give_back", _forget_unanswered),
    "store-and-forward queues are not durable": lambda: patch.object(Store, "add_queue", _in_memory_only),
    "groups go the ordinary way": lambda: patch.object(Grouping, "route", _choose_anew),
    "pins are forgotten at a restart": lambda: patch.object(GroupOwners, "load", _load_no_pins),
    "nothing is redistributed": lambda: patch.object(Redistribution, "look", _never),
    "the turn never changes": lambda: patch.object(ClusterQueue, "_turn", _same_turn),
    "a late consumer elsewhere finds nothing": lambda: patch.object(Redistribution, "look", _not_for_newcomers),
    "redistribution waits for the wall clock": lambda: patch.object(Redistribution, "run", _wait_for_the_clock),
    "one copy for all subscriptions of a node": lambda: patch.object(Forwarding, "queues_for", _one_for_each_node),
    "subscriptions behind a lost link are skipped": lambda: patch.object(ClusterQueue, "members", _connected_only),
    "only the last arrivals are known": lambda: patch.object(arrivals, "IDS_MAX", 5),
}

GROUP_BUGS = ("groups go the ordinary way", "pins are forgotten at a restart")  # seen only where there are groups
