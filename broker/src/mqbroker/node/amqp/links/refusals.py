"""Messages that came in and are not taken: what their senders are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqbroker.amqp.events import Incoming
from mqbroker.node.values.counters import FULL
from mqbroker.wire.performatives import Error, Rejected
from mqbroker.wire.types import Symbol

if TYPE_CHECKING:
    from mqbroker.node.amqp.peers.peer import Peer


def refuse_run(peer: Peer, event: Incoming, why: str, condition: str = FULL) -> None:
    """None of them is taken; the link goes on where its sender can be told."""
    peer.broker.counters.count_refused(condition, event.run.count)
    refuse_range(event, 0, why, condition)
    peer.replenish(event.link)


def refuse_range(event: Incoming, begin: int, why: str, condition: str = FULL, *, count: int = 0) -> None:
    """Messages from one on, all or so many, are not taken. The sender of settled ones is told by its link's end."""
    if event.is_settled:
        event.link.detach(condition, why)
        return
    error = Error(condition=Symbol(condition), description=why)
    first, last = event.delivery_id + begin, event.delivery_id + (begin + count if count else event.run.count) - 1
    event.link.session.dispose(first, last, Rejected(error=error), as_receiver=True)
