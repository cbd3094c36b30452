"""What a peer says of its deliveries, and what returns of its links that are over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mqbroker.amqp import frame_costs
from mqbroker.amqp.states import MAPPED
from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level
from mqbroker.core.store.outcomes import apply_outcome
from mqbroker.node.values.link_ends import consumer_of, sending_end
from mqbroker.node.values.open_transaction import segment_of
from mqbroker.wire.performatives import Modified, Received, Rejected

if TYPE_CHECKING:
    from mqbroker.amqp.events import Detached, Returned, Settled
    from mqbroker.amqp.links import SenderLink
    from mqbroker.node.amqp.peers.peer import Peer
    from mqbroker.node.values.ends import SendingEndOf


def outcome_of(link: SenderLink, said: Any) -> Any:
    """What a settled delivery comes to: the outcome that the peer told, else the default of its link (§3.5.3)."""
    if said is not None and not isinstance(said, Received):
        return said
    end: SendingEndOf[Peer] | None = sending_end(link)
    return end.default_outcome if end is not None else None


def take_outcomes(peer: Peer, event: Settled) -> None:
    """Deliveries have their outcome."""
    store = peer.broker.store
    if peer.connection.is_transactional:
        event = peer.transactions.settled(event)
    is_durable, followed = False, store.diverts.followed_total
    LOOK.has_touched = True
    for taken in event.taken:
        if taken.token is None:
            continue  # a copy: the message itself never left
        outcome = outcome_of(taken.link, event.outcome)
        queue, segment = segment_of(taken)
        consumer = consumer_of(taken.link) if isinstance(outcome, Modified) else None  # no other one asks for it
        is_durable = apply_outcome(store, queue, segment, outcome, consumer) or is_durable
        if isinstance(outcome, Rejected):
            peer.rejected_count += taken.n
    peer.connection.allowance -= (store.diverts.followed_total - followed) * frame_costs.FOLLOWED
    if peer.rejected_count and not event.has_more:
        _tell_rejected(peer)
    if event.owes_settlement and is_durable:
        store.decisions.wait(_settle, peer, event)
    elif event.owes_settlement:
        _settle(peer, event)


def _tell_rejected(peer: Peer) -> None:
    """Once for an outcome, however many pieces it was taken in."""
    count, peer.rejected_count = peer.rejected_count, 0
    peer.broker.counters.rejected += count
    peer.broker.notice(Level.WARNING, "message-rejected", conn=peer.conn, count=count)


def _settle(peer: Peer, event: Settled) -> None:
    """The receiver asked for our settlement: it may forget the delivery only when we cannot send it again."""
    if not peer.connection.is_dead and event.session.state is MAPPED:
        event.session.dispose(event.first, event.last, event.outcome, as_receiver=False)
        peer.touch()


def take_back(peer: Peer, event: Detached | Returned) -> None:
    """Deliveries of a link that is over return, but for those that a transaction keeps. What a peer holds when it
    leaves in order was not delivered in vain: it tells an outcome of what it has seen, and the rest was prefetched.
    From one that is lost nobody knows, so each counts. Both as in Artemis.
    """
    store = peer.broker.store
    followed = store.diverts.followed_total
    LOOK.has_touched = True
    for taken in peer.transactions.kept_out(event.returned):
        if taken.token is not None:
            store.give_back(*segment_of(taken), was_delivered=not event.is_orderly)
    peer.connection.allowance -= (store.diverts.followed_total - followed) * frame_costs.FOLLOWED
