"""Links of topology: clients whose connections stand hear of the other members of the cluster as these come and go.

A client attaches a receiver to `mq:topology`. At once and after each change it gets one settled message, whose body is
an AMQP value: the list that `failover-server-list` in the answer to its open would be now. Who has no credit, no
window, or does not read is told the newest list when that is over, and none of those before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mqbroker.amqp.links import SETTLE_SETTLED, SenderLink
from mqbroker.amqp.redirect import TOPOLOGY, RedirectPlace
from mqbroker.base.errors import Refused
from mqbroker.base.look import LOOK
from mqbroker.node.amqp.links.ends import set_sending_end
from mqbroker.node.amqp.links.told_links import FRAME_HEAD_BYTES, ToldEnd
from mqbroker.wire.performatives import Attach, Source

if TYPE_CHECKING:
    from mqbroker.node.amqp.listeners.accepted_peer import AcceptedPeer


class TopologyEnd(ToldEnd):
    """Our end of a link on which one client is told of the cluster's nodes."""

    __slots__ = ("_link", "_peer", "_told")

    is_shown = False  # nothing is consumed

    def __init__(self, peer: AcceptedPeer, link: SenderLink) -> None:
        self._peer = peer
        self._link = link
        self._told: tuple[RedirectPlace, ...] | None = None

    def pump(self) -> None:
        """Tell what is news to this client, as credit, window and transport let through, and answer a drain."""
        link, peer = self._link, self._peer
        if not link.is_attached or peer.is_blocked or peer.connection.is_dead:
            return
        known = peer.acceptor.failover_list.known(peer.listener)
        LOOK.has_touched = True
        if known != self._told:
            if link.credit < 1 or link.session.window < 1:
                return
            self._told = known
            self._send(peer.acceptor.failover_list.message(peer.listener))
        if link.is_attached and link.is_draining:
            link.drained()
        peer.touch()

    def _send(self, message: bytes) -> None:
        link, peer = self._link, self._peer
        if 0 < link.max_message_size < len(message):
            link.detach("amqp:link:message-size-exceeded", f"the list of brokers takes {len(message)} bytes")
        elif len(message) + FRAME_HEAD_BYTES <= peer.connection.peer_frame_size:
            link.session.send_payloads(link, [message], None)
        else:
            link.session.send_message(link, [message], None)

    def end(self) -> None:
        """The link is gone: the client is told of no further change."""
        LOOK.has_touched = True
        self._peer.acceptor.failover_list.remove(self._peer.conn)


def attach(peer: AcceptedPeer, link: SenderLink, attach: Attach) -> bool:
    """A client asks for it, or for what is of another kind. It needs no permission: the open told it the same.

    Raises Refused.
    """
    if attach.source is None or attach.source.address != TOPOLOGY:
        return False
    elsewhere = peer.acceptor.failover_list
    if peer.listener.kind == "cluster":
        raise Refused("amqp:not-allowed", f"{TOPOLOGY} is for clients; nodes of the cluster are told by notices")
    if elsewhere.is_told(peer.conn):
        why = f"this connection has a link to {TOPOLOGY} already, and one tells all"
        raise Refused("amqp:resource-limit-exceeded", why)
    # Whatever settle mode was wished for: an outcome would change nothing. The answer says so (§2.6.3).
    link.accept(replace(attach, snd_settle_mode=SETTLE_SETTLED), Source(address=TOPOLOGY))
    LOOK.has_touched = True
    end = set_sending_end(link, TopologyEnd(peer, link))
    elsewhere.add(peer.conn, end)
    return True
