"""Links on which another node of the cluster forwards messages to us.

What was sent within the credit is always taken in, unless this node is about to close the connection: who is short of
room gives no more credit, whatever the address's policy for clients is, because a message that is refused here is
nobody's. Source: docs/adr/0012-cluster-connections.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mqbroker.amqp.events import Detached, Incoming
from mqbroker.amqp.links import ReceiverLink
from mqbroker.base.errors import PeerFault, Refused
from mqbroker.base.look import LOOK
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.cluster.arrivals import Arrival
from mqbroker.core.cluster.drains import other_terms
from mqbroker.core.cluster.duplicate_cargo import ADDRESS as DUPLICATE_IDS
from mqbroker.core.cluster.duplicate_cargo import unpacked
from mqbroker.core.cluster.remote_binding import cluster_name_of
from mqbroker.core.queue.kinds import NODE_ID_SIZE, QueueKind
from mqbroker.core.queue.meter import Meter
from mqbroker.core.store.store import Store
from mqbroker.node.amqp.links.ends import MadeEnd, ReceivingEnd, answer_to
from mqbroker.node.cluster.forwarding.forwarding_terms import (
    ADDRESS,
    CAME_BEFORE,
    CLOSES_FOR_GOOD,
    DRAIN_ENDS,
    ENDED,
    HAS_COME,
    NOT_FOUND,
    NUMBERED,
    QUEUE,
    ROUTE,
    SOURCE,
    STORE_AND_FORWARD,
    address_wanted,
    makes_queues,
    queue_wanted,
)
from mqbroker.node.cluster.membership.canary import ADDRESS as CANARY
from mqbroker.node.values.subscriptions import is_of_subscribers
from mqbroker.wire.parts import part_of
from mqbroker.wire.performatives import Attach, Error, Rejected, Target
from mqbroker.wire.scan import scan_sections
from mqbroker.wire.sections import body_values
from mqbroker.wire.types import Array, Symbol

if TYPE_CHECKING:
    from mqbroker.node.amqp.listeners.accepted_peer import AcceptedPeer
    from mqbroker.node.amqp.peers.peer import Peer

NAMES_MAX = 10_000  # queues of one route
SOURCE_BYTES_MAX = 4096  # what the journal keeps something under has less than 64 KiB, and the mark belongs to it


class ArrivalEnd(ReceivingEnd):
    """Takes in what is for queues of this node, each message once."""

    __slots__ = ("_closes_for_good", "_next_id", "_store", "arrival")

    checks_forms = False  # malformed.py says why

    def __init__(self, store: Store, arrival: Arrival, *, closes_for_good: bool) -> None:
        self._store = store
        self.arrival = arrival
        self._closes_for_good = closes_for_good
        self._next_id = 0

    def attached(self, peer: Peer) -> None:
        """What has come of the source is remembered for as long as it may send it again."""
        self._store.arrivals.attached(self.arrival.source)

    def detached(self, peer: Peer, event: Detached) -> None:
        """The link is gone, and with it the source if that says so."""
        LOOK.has_touched = True
        if self.arrival.meter is not None:
            self.arrival.meter.waiting.pop(event.link, None)
        is_for_good = self._closes_for_good and event.is_orderly and event.link.is_closed and event.error is None
        arrival, arrivals = self.arrival, self._store.arrivals
        arrivals.detached(arrival.source, is_for_good=is_for_good)
        if arrival.is_counted and not arrivals.has_link(arrival.source):  # what it said of it holds no longer than it
            self._store.remotes.awaited.moves_here(arrival.names[0], arrival.source[:NODE_ID_SIZE], has_come=False)
            if arrival.queue is not None and arrival.queue.kind.is_ring:
                self._store.retroactive.parted(arrival.queue)

    @property
    def meter(self) -> Meter | None:
        """The meter of the address that messages arrive at: what holds the other node back."""
        return self.arrival.meter

    @property
    def takes_when_full(self) -> bool:
        """Whether what comes can stay on disk while the memory is full."""
        return self.arrival.can_page and not self._store.memory.is_shut

    def numbered(self, first_id: int, mark: str | None) -> None:
        """The id of the next message where it comes from, and its mark where that is another one than before."""
        LOOK.has_touched = True
        self._next_id = first_id
        if mark is not None:
            self.arrival.numbered_under(mark)

    def incoming(self, peer: Peer, event: Incoming) -> None:
        """Take messages in, those that had come before as well: they are accepted and dropped."""
        link, run, first = event.link, event.run, event.delivery_id
        store = self._store
        # Ids of our own never come again.
        first_id = self._next_id if link.is_numbered else store.next_id
        LOOK.has_touched = True
        self._next_id += run.count
        peer.broker.activity.went(link, run.count, peer.broker.at.monotonic_ns)
        if self.arrival.is_counted:
            store.remotes.awaited.stirs(self.arrival.names[0], self.arrival.source[:NODE_ID_SIZE])
        waits = store.arrivals.publish(self.arrival, run, first_id)
        if waits is None and run.count > 1:
            for index in range(run.count):  # some may have come before
                one = part_of(run, index, index + 1)
                one_waits = store.arrivals.publish(self.arrival, one, first_id + index)
                self._answer(peer, Incoming(link, one, first + index, event.is_settled), one_waits)
        else:
            self._answer(peer, event, waits)
        peer.replenish(link)

    def not_stored(self, peer: Peer, event: Incoming, why: str) -> None:
        """What is refused here is nobody's: the other node keeps the message, and sends it again."""
        event.link.detach("amqp:internal-error", f"a large message cannot be stored: {why}")

    def _answer(self, peer: Peer, event: Incoming, waits: bool | None) -> None:
        link, run, first, is_settled = event.link, event.run, event.delivery_id, event.is_settled
        store = self._store
        if is_settled:
            pass
        elif waits is None:
            error = Error(condition=Symbol(NOT_FOUND), description="none of their queues is here any more")
            link.session.dispose(first, first + run.count - 1, Rejected(error=error), as_receiver=True)
        elif waits:
            store.decisions.wait(peer.accept, link, first, run.count)
        else:
            link.session.accept(first, run.count)


class CanaryEnd(ReceivingEnd):
    """Where canaries of another node end: each is accepted when the disk here has taken something, and is forgotten.

    One that comes twice harms nobody, so their ids say nothing here.
    """

    __slots__ = ("_store",)

    def __init__(self, store: Store) -> None:
        self._store = store

    def incoming(self, peer: Peer, event: Incoming) -> None:
        """Canaries came: each is accepted once the disk has taken something."""
        link, run, first, is_settled = event.link, event.run, event.delivery_id, event.is_settled
        if not is_settled:
            self._store.remotes.touch()
            self._store.decisions.wait(peer.accept, link, first, run.count)
        peer.replenish(link)


class DuplicateIdsEnd(ReceivingEnd):
    """Where a node that leaves tells which ids of duplicate detection it has seen (core/cluster/duplicate_cargo.py)."""

    __slots__ = ("_store",)

    def __init__(self, store: Store) -> None:
        self._store = store

    def incoming(self, peer: Peer, event: Incoming) -> None:
        """Some ids of an address in each message: it is accepted once they are on disk."""
        link, run, first, is_settled = event.link, event.run, event.delivery_id, event.is_settled
        LOOK.has_touched = True
        for index in range(run.count):
            payload = run.payload(index)
            try:
                _, values = body_values(payload, scan_sections(payload, 0, len(payload)))
                address, ids = unpacked(b"".join(values))
            except (PeerFault, TypeError, ValueError) as fault:
                link.detach("amqp:decode-error", f"no ids of an address: {fault}")
                return
            self._store.duplicates.take_over(address, ids)
        if not is_settled:
            self._store.remotes.touch()
            self._store.decisions.wait(peer.accept, link, first, run.count)
        peer.replenish(link)


def end_for(peer: AcceptedPeer, link: ReceiverLink, attach: Attach) -> MadeEnd | None:
    """Another node wants to forward messages of an address. Raises Refused."""
    target = attach.target
    if not isinstance(target, Target) or STORE_AND_FORWARD not in (target.capabilities or ()):
        return None
    if peer.listener.kind != "cluster":
        why = "nodes of the cluster forward messages over listeners of kind cluster"
        raise Refused("amqp:unauthorized-access", why)
    LOOK.has_touched = True
    if target.address == CANARY:
        return MadeEnd(CanaryEnd(peer.broker.store), answer_to(target))
    if target.address == DUPLICATE_IDS:
        return MadeEnd(DuplicateIdsEnd(peer.broker.store), answer_to(target))
    said = attach.properties or {}
    source, names = said.get(SOURCE), _names(said.get(ROUTE))
    link.is_numbered = said.get(NUMBERED) is not False
    if not isinstance(source, str) or not source or not names or not isinstance(target.address, str):
        raise Refused("amqp:invalid-field", "a link that forwards has an address, mq:source and mq:route")
    key = f"{source}.{link.name}" if link.is_numbered else f"{source}.{link.name}.unnumbered"
    if len(key.encode()) > SOURCE_BYTES_MAX:
        why = f"mq:source and the name of its link have at most {SOURCE_BYTES_MAX} bytes together"
        raise Refused("amqp:invalid-field", why)
    answer = answer_to(target)
    if QUEUE in said:
        ends = _ends(peer.broker.store, said, key)
        if not ends and not peer.broker.store.arrivals.had_here(key):
            _check_stays(peer.broker.store)
        kind = queue_wanted(said[QUEUE], target.address)
        if said.get(CAME_BEFORE) is True and kind is not None:
            _check_goes_on(peer.broker.store, kind, key)
        place = _address_wanted(said.get(ADDRESS))
        _make_queue(peer.broker.store, kind, names, source, ends=ends)
        if "routing_types" in place:
            peer.broker.store.address_records.adopt(peer.broker.store.addresses[target.address])
    arrival = peer.broker.store.arrivals.address_for(target.address, key, names)
    if arrival is None:
        raise Refused(NOT_FOUND, f"none of the queues is here: {', '.join(names[:5])}")
    if QUEUE in said:
        namesake = None if kind is None else peer.broker.store.queues.get(kind.name)
        is_paused = namesake is not None and namesake.is_paused
        answer = makes_queues(answer, peer.broker.store.arrivals.counted(arrival), is_paused=is_paused)
        peer.broker.store.remotes.awaited.begins(names[0], source)
        peer.broker.store.remotes.awaited.moves_here(names[0], source, has_come=said.get(HAS_COME) is True)
        if said.get(HAS_COME) is True:
            peer.broker.store.arrivals.come(key)
            if arrival.queue is not None and arrival.queue.kind.is_ring:
                peer.broker.store.retroactive.all_came(arrival.queue)
    end = ArrivalEnd(peer.broker.store, arrival, closes_for_good=said.get(CLOSES_FOR_GOOD) is True)
    return MadeEnd(end, answer)


def _ends(store: Store, said: Mapping[Symbol, Any], source: str) -> bool:
    """Whether only what this node may have comes again: a queue that is not let in stays closed until it is answered
    for. Earlier releases do not say so; of theirs all goes on that has begun, as they refuse what comes back."""
    return bool(said.get(DRAIN_ENDS, store.arrivals.had_here(source)))


def _address_wanted(said: Any) -> dict[str, Any]:
    try:
        return address_wanted(said)
    except (ValueError, RecursionError) as error:
        raise Refused("amqp:invalid-field", f"a queue that drains says what its address is: {error}") from None


def _check_stays(store: Store) -> None:
    """Raises Refused where this node is cordoned or leaves: no drain to it begins, as that would have to go on."""
    if store.remotes.cordon.is_on:
        raise Refused("amqp:precondition-failed", "this node is cordoned: it takes no queues of others")
    leaves = store.remotes.scale_down
    if leaves.is_on and not leaves.is_ending:
        raise Refused("amqp:precondition-failed", f"this node scales down itself, to node {leaves.target}")


def _check_goes_on(store: Store, kind: QueueKind, source: str) -> None:
    """Raises Refused where a subscription that all had come of, and was on disk here, was ended by its subscriber here
    since, or changed by it: it is not made anew, and who changed it gets nothing more of what it was. Where somebody
    else changed it, such as an operator's file, nobody has ended it."""
    namesake = store.queues.get(kind.name)
    is_ended = namesake is None or (is_of_subscribers(namesake.kind) and other_terms(namesake.kind, kind))
    if is_ended and store.arrivals.had_here(source):
        raise Refused(ENDED, f"subscription {kind.name!r} was ended here")


def _make_queue(store: Store, kind: QueueKind | None, names: tuple[str, ...], node_id: str, *, ends: bool) -> None:
    """A queue of another node drains to its namesake here, which is made where it is not there. `ends`: only what may
    be here comes, which cannot go in a circle. Raises Refused."""
    if kind is None or names != (cluster_name_of(kind.name, store.node_id),):
        raise Refused("amqp:invalid-field", "a queue that drains says its attributes, and its route is its namesake")
    namesake = store.queues.get(kind.name)
    if namesake is None and kind.is_ring:
        store.creation.check_ring(kind)
        store.retroactive.moves_here(kind)
    elif namesake is None:
        store.creation.check_queue(kind, BROKER)
        store.add_queue(kind)  # it is not new in the cluster: what its address keeps for later queues it has had
    elif namesake.kind.is_draining and not namesake.kind.drain_ends and not ends:  # one that ends keeps what comes
        why = f"queue {kind.name!r} drains itself, to node {namesake.kind.forwards_to}"
        raise Refused("amqp:precondition-failed", why)
    elif not kind.is_ring and (what := other_terms(namesake.kind, kind)):
        store.remotes.awaited.moves_here(
            names[0], node_id, has_come=True
        )  # nothing does, and nobody has to wait for it
        why = f"queue {kind.name!r} is here on other terms, and would not keep what that one does: {what}"
        raise Refused("amqp:precondition-failed", why)


def _names(value: Any) -> tuple[str, ...]:
    """Names in the cluster, empty where they are not well-formed."""
    items = value.values if isinstance(value, Array) else value
    if not isinstance(items, list | tuple) or len(items) > NAMES_MAX:
        return ()
    return tuple(items) if all(isinstance(each, str) and each for each in items) else ()
