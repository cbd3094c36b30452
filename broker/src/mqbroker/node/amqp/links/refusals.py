"""Messages that came in and are not taken: what their senders are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mqbroker.amqp.events import Incoming
from mqbroker.base.errors import Refused
from mqbroker.wire.performatives import Error, Rejected
from mqbroker.wire.types import Symbol

if TYPE_CHECKING:
    from mqbroker.node.amqp.peers.peer import Peer

FULL: Final = "amqp:resource-limit-exceeded"


def refuse_run(peer: Peer, event: Incoming, refused: Refused) -> None:
    """None of them is taken; the link goes on where its sender can be told."""
    peer.broker.counters.count_refused(refused, event.run.count)
    refuse_range(event, 0, refused.description, refused.condition)
    peer.replenish(event.link)


def refuse_range(event: Incoming, begin: int, why: str, condition: str = FULL, *, count: int = 0) -> None:
    """Messages from one on, all or so many, are not taken. The sender of settled ones is told by its link's end."""
    if event.is_settled:
        event.link.detach(condition, why)
        return
    error = Error(condition=Symbol(condition), description=why)
    first, last = event.delivery_id + begin, event.delivery_id + (begin + count if count else event.run.count) - 1
    event.link.session.dispose(first, last, Rejected(error=error), as_receiver=True)
