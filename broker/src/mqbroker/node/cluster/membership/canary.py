"""Canaries: a message over each link to another node, and how long it took until that node had it.

A canary goes the way of every message for another node: it is stored and synced here in a store-and-forward queue of
its own, sent on a link of the bridge, taken in there, synced there, and accepted. It is bound to an address that no
client may name, the other node keeps nothing of it (node/cluster/membership/arrival_links.py), and queue and address go
when it was accepted. What is not accepted in time is taken out again; what a crash left is taken out at the next start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from mqbroker.base.errors import Refused
from mqbroker.base.look import LOOK
from mqbroker.base.time import NS_PER_MS
from mqbroker.cluster.notices import Member
from mqbroker.core.cluster.forwarding import ForwardingRoute
from mqbroker.core.queue.kinds import INTERNAL_PREFIX
from mqbroker.core.queue.queue import Client, Filter, Queue, Segment
from mqbroker.node.values.bridge_states import BridgeState
from mqbroker.wire.run import single
from mqbroker.wire.sections import build_message

if TYPE_CHECKING:
    from mqbroker.core.store.store import Store
    from mqbroker.node.cluster.membership.bridge import Bridge
    from mqbroker.node.cluster.membership.cluster_broker import ClusterBroker

ADDRESS: Final = INTERNAL_PREFIX + "canary"
RUNS_MAX: Final = 8  # at a time
TICK_MS: Final = 100
WAITING, CONFIRMED, FAILED, TIMEOUT = "waiting", "confirmed", "failed", "timeout"
MISSING = "missing"  # a node that is listed or a member, and to which no link leads
# Links of which nothing can be said, and which are no fault: the node has stopped, or its release knows no canaries.
GONE, UNSUPPORTED = "gone", "unsupported"
GOOD: Final = (CONFIRMED, GONE, UNSUPPORTED)
UNANSWERED: Final = "no answer from DNS yet that leads anywhere, so nobody knows which nodes there should be"
NOT_FOUND: Final = "amqp:not-found"


@dataclass(slots=True, eq=False)
class Crossing:
    """A canary's way over one link; `took_ns`: there and back. `why` says what is wrong, where something is."""

    bridge: Bridge
    began_ns: int
    state: str = WAITING
    took_ns: int = 0
    why: str = ""

    def row(self) -> dict[str, Any]:
        """The row of an answer that administrators get; times in ms."""
        bridge, connection = self.bridge, self.bridge.of
        member = connection.topology.get(bridge.node_id)
        return {
            "connection": connection.options.name,
            "node": None if member is None else member.name,
            "node_id": bridge.node_id or None,
            "connector": bridge.connector.uri,
            "state": self.state,
            "round_trip_ms": round(self.took_ns / NS_PER_MS, 3) if self.state == CONFIRMED else None,
            "why": self.why or None,
        }


@dataclass(slots=True, eq=False)
class CanaryRequest:
    """One request, and a crossing for each link."""

    request_id: int
    crossings: list[Crossing]
    due_ns: int
    missing: list[dict[str, Any]]  # rows of members without a link


def _missing(connection: str, connector: str | None, why: str, member: Member | None = None) -> dict[str, Any]:
    """For administrators, of a place or a member without a link, or of a name that leads to no place."""
    node, node_id = (None, None) if member is None else (member.name, member.node_id)
    return {
        "connection": connection, "node": node, "node_id": node_id, "connector": connector,
        "state": MISSING, "round_trip_ms": None, "why": why,
    }  # fmt: skip


class Remover:
    """A consumer that takes out what was not accepted in time."""

    priority = 0
    filter: Filter | None = None
    is_browser = False
    client: Client | None = None

    def __init__(self, store: Store) -> None:
        self._store = store

    def capacity(self) -> int:
        """How many messages it takes: the one that there is."""
        return 1

    def deliver(self, queue: Queue, segment: Segment) -> int:
        """Settle what was not accepted in time."""
        self._store.settle(queue, segment)
        return segment.n


class Canaries:
    """See the module's docstring. `waiting` are the queues of canaries that are under way."""

    judges_others: ClassVar[bool] = True

    def __init__(self, broker: ClusterBroker) -> None:
        self._broker = broker
        self.waiting: dict[Queue, Crossing] = {}
        self._runs: list[CanaryRequest] = []
        self._number = 0
        self._removers: dict[Queue, Remover | None] = {}  # of queues that are to go
        self.due_ns = 0
        self.scheduled_ns = 0

    def start(self) -> None:
        """Take out what a crash has left."""
        LOOK.has_touched = True
        for queue in self._broker.store.remotes.queues.values():
            if queue.kind.address == ADDRESS:
                self._removers[queue] = None
        self._plan()

    def send(self, request_id: int, timeout_ms: int) -> None:
        """One canary over each link; answered when all are accepted, or the time is over. Raises Refused."""
        if len(self._runs) >= RUNS_MAX:
            raise Refused("amqp:resource-limit-exceeded", f"{RUNS_MAX} requests for canaries wait already; try again")
        now_ns = self._broker.at.monotonic_ns
        bridges = [
            bridge
            for connection in self._broker.cluster.connections.values()
            for bridge in [*connection.bridges.values(), *connection.listed_places.sought]
            if not bridge.is_tried_once
        ]
        crossings = [Crossing(each, now_ns) for each in bridges]
        run = CanaryRequest(request_id, crossings, now_ns + timeout_ms * NS_PER_MS, self._unlinked())
        LOOK.has_touched = True
        self._runs.append(run)
        for crossing in run.crossings:
            self._begin(crossing)
        self._look()
        self._plan()

    def _unlinked(self) -> list[dict[str, Any]]:
        """Members and listed places that should have a bridge and have none."""
        rows = []
        for connection in self._broker.cluster.connections.values():
            name = connection.options.name
            rows += [
                _missing(
                    name,
                    member.connectors[0].uri if member.connectors else None,
                    "it is a member, and no link leads to it",
                    member,
                )
                for member in connection.topology.others
                if member.node_id not in connection.bridges and connection.may_dial(member.connectors[:1])
            ]
            rows += [_missing(name, named, UNANSWERED) for named in connection.listed_places.unanswered]
            places = connection.listed_places.missing()
            rows += [_missing(name, each.uri, "it is listed, and no link leads to a node there") for each in places]
        return rows

    def _begin(self, crossing: Crossing) -> None:
        bridge, store = crossing.bridge, self._broker.store
        if bridge.is_missing:
            crossing.state, crossing.why = MISSING, bridge.why
            return
        if bridge.state is BridgeState.GONE and bridge.node_id in self._broker.cluster.inbound:
            crossing.state, crossing.why = MISSING, f"it has a link to this node, and none leads back: {bridge.why}"
            return
        if bridge.state is BridgeState.GONE:
            crossing.state, crossing.why = GONE, bridge.why
            return
        if bridge.state is not BridgeState.UP:
            crossing.state = FAILED
            crossing.why = f"the link is {bridge.state.value}" + (f": {bridge.why}" if bridge.why else "")
            return
        store.remotes.reserve_ids()
        self._number += 1
        name = f"{ADDRESS}.{self._number}"
        queue = store.remotes.make(
            ForwardingRoute(bridge.of.options.name, bridge.node_id, ADDRESS, (name,), is_shared=False)
        )
        run = single(build_message("", durable=True))
        run.arrived_ms = store.at.wall_ms
        store.number(run)
        store.put(store.addresses[ADDRESS], Segment(run, 0, 1, 0), [queue])
        self.waiting[queue] = crossing

    # -- what became of it ---------------------------------------------------------------------------------------------

    def accepted(self, queue: Queue) -> None:
        """The other node has it on disk."""
        crossing = self._over(queue, CONFIRMED, "")
        LOOK.has_touched = True
        if crossing is not None:
            crossing.took_ns = self._broker.at.monotonic_ns - crossing.began_ns
            self._look()

    def refused(self, queue: Queue, condition: str, description: str) -> None:
        """The other node does not take it."""
        state, why = FAILED, f"{condition}: {description[:200]}"
        if condition == NOT_FOUND:
            state, why = UNSUPPORTED, "the other node runs a release that knows no canaries"
        if self._over(queue, state, why) is not None:
            self._look()

    def _over(self, queue: Queue, state: str, why: str) -> Crossing | None:
        LOOK.has_touched = True
        crossing = self.waiting.pop(queue, None)
        if crossing is not None:
            crossing.state, crossing.why = state, why
            self._removers.setdefault(queue, None)
            self._plan()
        return crossing

    def _look(self) -> None:
        """Answer those who wait for nothing any more."""
        LOOK.has_touched = True
        for run in [each for each in self._runs if all(one.state != WAITING for one in each.crossings)]:
            self._runs.remove(run)
            rows = [crossing.row() for crossing in run.crossings] + run.missing
            is_whole = all(row["state"] in GOOD for row in rows)
            self._broker.reply(run.request_id, {"is_whole": is_whole, "links": rows})

    # -- time ----------------------------------------------------------------------------------------------------------

    def _plan(self) -> None:
        is_idle = not self._runs and not self._removers
        LOOK.has_touched = True
        self.due_ns = 0 if is_idle else self._broker.at.monotonic_ns + TICK_MS * NS_PER_MS
        self._broker.timers.add(self)

    def on_time(self, now_ns: int) -> None:
        """Give up what takes too long, and clean up."""
        late = [one for run in self._runs if now_ns >= run.due_ns for one in run.crossings]
        for queue in [queue for queue, crossing in self.waiting.items() if crossing in late]:
            self._over(queue, TIMEOUT, "it was not accepted in time")
        self._look()
        for queue in list(self._removers):
            self._remove(queue)
        if not self._removers and not self.waiting:
            self._broker.store.forget_address(ADDRESS)
        self._plan()

    def _remove(self, queue: Queue) -> None:
        store = self._broker.store
        remover = self._removers[queue]
        LOOK.has_touched = True
        if queue.message_count and remover is None:
            remover = self._removers[queue] = Remover(store)
            store.join(queue, remover)
        elif not queue.message_count and not queue.is_deleted:
            if remover is not None and remover in queue.consumers:
                store.leave(queue, remover)
            store.remotes.tidy([queue])
        if queue.is_deleted:
            del self._removers[queue]
