"""What is done about each kind of event of a connection, whoever opened it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mqbroker.amqp.events import (
    Aborted,
    Began,
    CreditGiven,
    CreditUsed,
    Dead,
    Detached,
    Empty,
    Ended,
    Incoming,
    LinksLeft,
    MessagePiece,
    Numbered,
    Posted,
    Retired,
    Returned,
    SenderSettled,
    Settled,
    Unposted,
    Whole,
    WorkDone,
)  # fmt: skip
from mqbroker.node.amqp.peers.peer import Peer
from mqbroker.node.amqp.peers.settlements import take_back, take_outcomes
from mqbroker.node.values.link_ends import receiving_end


def _numbered(_peer: Peer, event: Numbered) -> None:
    receiving_end(event.link).numbered(event.first_id, event.mark)


def _nothing(_peer: Peer, event: Began | SenderSettled) -> None:
    """Links bring their own events, and what we owe goes out by itself."""


HANDLERS: dict[type, Callable[[Any, Any], None]] = {
    Incoming: Peer.incoming,
    MessagePiece: lambda peer, event: peer.uploads.piece(event),
    Whole: lambda peer, event: peer.uploads.whole(event),
    Aborted: Peer._aborted,
    Empty: Peer._came_empty,
    Posted: Peer._posted,
    Settled: take_outcomes,
    Numbered: _numbered,
    Retired: lambda peer, event: peer.transactions.retire(event),
    CreditGiven: Peer._credit_given,
    CreditUsed: Peer._credit_used,
    Unposted: lambda peer, event: peer.transactions.unposted(event),
    SenderSettled: _nothing,
    Began: _nothing,
    Returned: take_back,
    Detached: Peer._detached,
    WorkDone: lambda _peer, event: event.then(),
    LinksLeft: lambda peer, _event: peer.broker.turns.parts(peer),
    Ended: lambda peer, event: peer.broker.scope_ended(peer, event.session),
    Dead: Peer._dead,
}
"""One handler for each kind of event that is the same whoever opened the connection."""
