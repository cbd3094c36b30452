"""Queues that drain: their messages go to their namesakes at other nodes, as from store-and-forward queues.

Such a queue is what it was, with attributes that say where its messages go and under which name the other node knows
what came of it; the journal keeps them. Its one consumer is a link of a bridge. Invariant: it is served here again only
when no other node may have a message of it, or somebody said that this does not matter. Source: docs/adr/0025-drain.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from mqbroker.base.errors import Refused
from mqbroker.base.look import LOOK
from mqbroker.core.address.address import MULTICAST
from mqbroker.core.cluster.heard_by_link import HeardByLink
from mqbroker.core.cluster.remote_binding import cluster_name_of
from mqbroker.core.queue import draining
from mqbroker.core.queue.kinds import INTERNAL_PREFIX
from mqbroker.core.queue.unanswered_forwards import HandedOver

if TYPE_CHECKING:
    from collections.abc import Callable

    from mqbroker.core.address.address_store import AddressStore
    from mqbroker.core.queue.kinds import QueueKind
    from mqbroker.core.queue.queue import Queue
    from mqbroker.journal.recovered import Recovered

# What says which messages a queue takes, and which of them it keeps.
KEPT_BY: Final = (
    "address", "routing", "is_durable", "selector", "container", "no_local", "moved_from", "last_value",
    "last_value_key", "ring_size", "non_destructive", "purge_on_no_consumers",
)  # fmt: skip
SHOWN_AS: Final = {"routing": "routing_type", "is_durable": "durable"}  # the others by their own names
IN_USE: Final = "amqp:precondition-failed"
COME_PREFIX: Final = INTERNAL_PREFIX + "drain-has-come."  # before the name of a queue; as id its link
PAUSE_PREFIX: Final = INTERNAL_PREFIX + "drain-pauses."  # the same


class DrainProgress:
    """Of one queue. `moved_before`: what had left it when it began, or the process did, which was at `since_ns`;
    `has_said_come`: the other node was told that it has all of it; `has_said_pause`: and that nothing of it is handed
    out; `is_paused_there`: whether that hands out nothing of it, None where it has not said."""

    __slots__ = ("has_said_come", "has_said_pause", "is_paused_there", "moved_before", "since_ns", "why")

    def __init__(self, queue: Queue, since_ns: int) -> None:
        self.moved_before: Final = queue.acknowledged_total
        self.since_ns: Final = since_ns
        self.has_said_come = self.has_said_pause = False
        self.is_paused_there: bool | None = None
        self.why = ""  # it does not go on, as far as is known


class Drains:
    """The drains of the queues of one node: `queues` and `progress` by the names of queues."""

    def __init__(self, store: AddressStore, is_apart: Callable[[Queue], bool]) -> None:
        """`is_apart`: whether something of a queue waits for the answer of a node before."""
        self._store = store
        self._is_apart: Final = is_apart
        self.queues: dict[str, Queue] = {}
        self.progress: dict[str, DrainProgress] = {}
        self._numbers: dict[tuple[str, str], int] = {}  # of links, by connection and target
        self._come: Final = HeardByLink(store, COME_PREFIX, "which node has all of a queue")
        self._pauses: Final = HeardByLink(store, PAUSE_PREFIX, "which node knows that a queue pauses")

    def queues_to(self, target: str, connection: str) -> list[Queue]:
        """Those that drain to a node over a cluster connection."""
        kinds = ((queue, queue.kind) for queue in self.queues.values())
        return [queue for queue, kind in kinds if (kind.forwards_to, kind.connection) == (target, connection)]

    def number_max(self, connection: str, target: str) -> int:
        """The highest number in the names of links to this node since no queue drained; 0 where there are none."""
        return self._numbers.get((connection, target), 0)

    # -- begin ---------------------------------------------------------------------------------------------------------

    def check(self, queue: Queue) -> None:
        """Whether it can drain. Raises Refused."""
        kind = queue.kind
        if kind.is_draining:
            raise Refused(IN_USE, f"queue {kind.name!r} drains to node {kind.forwards_to} already")
        if what := hindrance_of(kind):
            raise Refused("amqp:not-implemented", f"queue {kind.name!r} {what}: such queues do not drain yet")
        if queue.consumers or queue.arriving_count:
            raise Refused(IN_USE, f"queue {kind.name!r} is in use")

    def begin(self, queue: Queue, connection: str, target: str, link: str) -> None:
        """Its messages go to its namesake there from now on."""
        LOOK.has_touched = True
        self._declare(
            queue,
            replace(queue.kind, connection=connection, forwards_to=target, route=self._route(queue, target),
                    drains_as=link),
        )  # fmt: skip
        self._added(queue)
        draining.begin(queue)
        self._store.changed(queue)

    def turn(self, queue: Queue, connection: str, target: str, link: str) -> None:
        """It drains to another node from now on; nothing that is in it may be at the one before."""
        LOOK.has_touched = True
        self._declare(
            queue,
            replace(queue.kind, connection=connection, forwards_to=target, route=self._route(queue, target),
                    drains_as=link, drain_ends=False),
        )  # fmt: skip
        self._added(queue)
        self._store.changed(queue)

    def _route(self, queue: Queue, target: str) -> tuple[str]:
        drain = f"{self._store.node_id}.{queue.journal_id}.{self._store.next_id}"  # no ring drains twice at one id
        return (cluster_name_of(queue.kind.name_elsewhere(target, drain), target),)

    def found(self, queue: Queue) -> None:
        """A queue drains that recovery found so. As long as its messages are read, each may have been sent."""
        LOOK.has_touched = True
        self._added(queue)
        assert queue.handed_over is not None
        queue.handed_over.begun_before(draining.ID_END)

    def _added(self, queue: Queue) -> None:
        LOOK.has_touched = True
        queue.handed_over = HandedOver()
        queue.redistributor = None
        kind = queue.kind
        self.queues[kind.name] = queue
        number = max(number_of(kind.drains_as), self.number_max(kind.connection, kind.forwards_to))
        self._numbers[kind.connection, kind.forwards_to] = number
        self.progress[queue.kind.name] = DrainProgress(queue, self._store.at.monotonic_ns)

    def _declare(self, queue: Queue, kind: QueueKind) -> None:
        LOOK.has_touched = True
        queue.kind = kind
        self._store.journal.declare(queue.journal_id, kind.encoded())

    def _progress_of(self, queue: Queue) -> DrainProgress | None:
        """None where it drains no more, and for what a node before may have of it."""
        return self.progress.get(queue.kind.name) if self.queues.get(queue.kind.name) is queue else None

    def said_come(self, queue: Queue, *, has_come: bool) -> None:
        """The other node is told whether it has all of it that is due."""
        progress = self._progress_of(queue)
        LOOK.has_touched = True
        if progress is not None:
            progress.has_said_come = has_come

    def has_said_come(self, queue: Queue) -> bool:
        """Whether the other node was told over the present link that it has all of the queue."""
        progress = self._progress_of(queue)
        return progress is not None and progress.has_said_come

    def heard_pause(self, queue: Queue, *, is_paused: bool) -> bool:
        """The other node says whether it hands out nothing of it; whether that is new."""
        progress = self._progress_of(queue)
        LOOK.has_touched = True
        if progress is None or progress.is_paused_there == is_paused:
            return False
        progress.is_paused_there = is_paused
        return True

    def said_pause(self, queue: Queue, *, is_paused: bool) -> None:
        """The other node is told whether what it has of it is handed out, where it makes the queue."""
        progress = self._progress_of(queue)
        LOOK.has_touched = True
        if progress is not None:
            progress.has_said_pause = is_paused

    def let_in(self, queue: Queue) -> None:
        """The other node has the queue, or has made it as it was told; on disk with this step's append."""
        progress = self._progress_of(queue)
        LOOK.has_touched = True
        if progress is not None and progress.has_said_pause:
            self._pauses.add(queue)

    def knows_pause(self, queue: Queue) -> bool:
        """Whether the other node of its present link was told that it pauses, and so it is theirs who are there."""
        return self._pauses.has(queue)

    def heard_come(self, queue: Queue) -> None:
        """The other node has heard that it has all of it; on disk with this step's append."""
        LOOK.has_touched = True
        self._come.add(queue)

    def has_come(self, queue: Queue) -> bool:
        """Whether the other node of its present link has heard that it has all of the queue."""
        return self._come.has(queue)

    def load(self, recovered: Recovered) -> None:
        """Take over what recovery found, when its queues are here. Raises StorageFault."""
        self._come.load(recovered, self.queues)
        self._pauses.load(recovered, self.queues)

    def has_to_say(self, queue: Queue) -> bool:
        """Whether that is still to be said: nobody asks of others than subscriptions and exclusive queues, and of those
        not where the other node refuses them, as it keeps nobody out then."""
        progress = self._progress_of(queue)
        if progress is None or progress.has_said_come:
            return False
        return queue.kind.routing == MULTICAST or (queue.kind.exclusive and not progress.why)

    def stuck(self, queue: Queue, why: str) -> bool:
        """It does not go on for this reason, empty: as far as is known it does; whether that is new."""
        progress = self._progress_of(queue)
        if progress is None:
            return False
        is_new = progress.why != why
        LOOK.has_touched = True
        progress.why = why
        progress.has_said_come = progress.has_said_come and not why  # who refuses its link has heard nothing
        return is_new

    # -- the end -------------------------------------------------------------------------------------------------------

    def call_off(self, queue: Queue, *, is_forced: bool = False) -> None:
        """Nothing more goes out but what the other node may have; it ends once that is answered. `is_forced`: or
        without, and that may come twice."""
        LOOK.has_touched = True
        if not queue.kind.drain_ends:
            self._declare(queue, replace(queue.kind, drain_ends=True))
        if is_forced:
            queue.handed_over = HandedOver()
        self.look(queue)

    def look(self, queue: Queue) -> None:
        """A drain ends that was called off, if it can by now."""
        is_served = queue.consumers or queue.arriving_count
        if queue.kind.drain_ends and not queue.is_deleted and not is_served and self.is_answered(queue):
            self.end(queue)

    def is_answered(self, queue: Queue) -> bool:
        """Whether no other node has a message of it without an answer that is on disk here."""
        handed_over = queue.handed_over
        assert handed_over is not None
        if handed_over.ids.count or self._is_apart(queue):
            return False
        if not handed_over.is_anything_old:
            return True
        if queue.paged_count or queue.delivering_count:
            return False  # nobody looks where these are
        return all(handed_over.free_count(each.first_id, each.n) == each.n for each in queue.segments())

    def end(self, queue: Queue) -> None:
        """It is served here again, and nobody serves the other node of it; what that has may come twice."""
        LOOK.has_touched = True
        self.gone(queue)
        queue.handed_over = None
        self._declare(
            queue, replace(queue.kind, connection="", forwards_to="", route=(), drains_as="", drain_ends=False)
        )
        draining.end(queue, self._store.at.wall_ms)
        queue.look_for_expired()
        self._store.changed(queue)

    def gone(self, queue: Queue) -> None:
        """It drains no more, or was deleted."""
        LOOK.has_touched = True
        self.queues.pop(queue.kind.name, None)
        self.progress.pop(queue.kind.name, None)
        self._come.gone(queue)
        self._pauses.gone(queue)
        if not self.queues:
            self._numbers.clear()


def number_of(link: str) -> int:
    """In the name of a link; 0 where it has none."""
    number = link.rpartition(".")[2]
    return int(number) if number.isascii() and number.isdigit() else 0


def hindrance_of(kind: QueueKind) -> str:
    """What a queue of this kind is that does not drain yet; empty where it does."""
    hindrances = (
        (kind.is_forwarding, f"is {kind.routing}"),
        (not kind.is_durable, "is not durable"),
    )
    return next((what for is_so, what in hindrances if is_so), "")


def terms_of(kind: QueueKind) -> dict[str, Any]:
    """What two queues of one name have to have alike for one to drain to the other, as administrators are shown it."""
    return {SHOWN_AS.get(name, name): getattr(kind, name) for name in KEPT_BY}


def other_terms(here: QueueKind, there: QueueKind) -> str:
    """What hinders one queue from taking all that another of its name has, and keeping what that would: by name, and as
    it is here; empty where nothing does."""
    terms = [name for name in KEPT_BY if getattr(here, name) != getattr(there, name)]
    return ", ".join(f"{name.replace('_', '-')} is {getattr(here, name)!r} here" for name in terms)
