"""Messages that are none (wire/wellformed.py): consumers would fall over them, so they end the link that brought them.

What came before them is taken in, what comes behind them on that link is not; the connection and its other links go on.
What other nodes forward is not looked at here: an older release took it in and told its publisher so, and a link that
ends over a message which comes again is no link any more. Whoever may act as a node is trusted for more than that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mqbroker.amqp.events import Incoming
from mqbroker.amqp.links import ReceiverLink
from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level
from mqbroker.wire.parts import part_of
from mqbroker.wire.wellformed import MalformedMessage

if TYPE_CHECKING:
    from mqbroker.node.amqp.peers.peer import Peer

CONDITION: Final = "amqp:decode-error"


def take_before(peer: Peer, event: Incoming, malformed: MalformedMessage) -> None:
    """Take in what comes before such a message, and end the link there."""
    if malformed.place:
        before = part_of(event.run, 0, malformed.place)
        peer.incoming(Incoming(event.link, before, event.delivery_id, event.is_settled))
    end_link(peer, event.link, malformed.why)


def end_link(peer: Peer, link: ReceiverLink, why: str) -> None:
    """Tell the sender what is wrong, and at which byte of its message."""
    LOOK.has_touched = True
    peer.broker.counters.malformed += 1
    if not peer.is_told_malformed:
        peer.is_told_malformed = True  # once a connection: peers do not decide how much is logged
        peer.broker.notice(Level.WARNING, "message-malformed", conn=peer.conn, peer=peer.far, why=why[:200])
    if link.is_attached:
        link.detach(CONDITION, why)
        peer.touch()
