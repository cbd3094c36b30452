"""Clients of a node that is cordoned: they are read no more, and their connections are closed with a redirect.

Whether and when that is, and where they are sent, is for those who cordon it to say (scaling_down.py, cordoning.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

from mqbroker.amqp.redirect import CONNECTION_REDIRECT, RedirectPlace, redirect_info
from mqbroker.amqp.states import ConnectionState
from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level
from mqbroker.base.time import NS_PER_MS
from mqbroker.node.amqp.accepted_peer import AcceptedPeer

if TYPE_CHECKING:
    from mqbroker.cluster.discovery.announcement import Connector
    from mqbroker.cluster.notices import Member
    from mqbroker.config.slices import ListenerOptions
    from mqbroker.node.amqp.accepting_broker import AcceptingBroker

GRACE_NS: Final = 1_000 * NS_PER_MS  # so long clients that are here may go on
TRANSACTIONS_NS: Final = 10_000 * NS_PER_MS  # so much longer those with an open transaction
LOOK_AGAIN_NS: Final = 500 * NS_PER_MS
CLUSTER: Final = "cluster"


def place_at(member: Member | None, listener: ListenerOptions) -> Connector | None:
    """How clients of such a listener reach another node, where it says so."""
    scheme = "amqps" if listener.has_tls else "amqp"
    told = () if member is None else member.clients
    return next((each for each in told if each.scheme == scheme), None)


class Doors(Protocol):
    """What lets clients in."""

    def cordon(self) -> None:
        """None is let in from now on."""

    def uncordon(self) -> None:
        """They are again."""


class DepartingClients:
    """See the module's docstring. `held`: connections that are about to be closed, and are not read."""

    __slots__ = ("_broker", "held")

    def __init__(self, broker: AcceptingBroker) -> None:
        self._broker: Final = broker
        self.held: dict[AcceptedPeer, None] = {}

    def clients(self) -> Iterator[AcceptedPeer]:
        """Connections of clients that are open."""
        for peer in list(self._broker.peers.values()):
            if not isinstance(peer, AcceptedPeer) or peer.listener.kind == CLUSTER:
                continue
            if not peer.connection.is_dead and peer.connection.state is ConnectionState.OPENED:
                yield peer

    def hold_back(self, why: str, *, is_last: bool) -> None:
        """They are read no more: what they send from now on is another node's. `is_last`: those with open transactions,
        too, which are rolled back, for this reason."""
        broker = self._broker
        for peer in self.clients():
            open_count = peer.transactions.open_count
            if open_count and not is_last:
                continue
            if open_count:
                broker.notice(Level.WARNING, "transactions-rolled-back", conn=peer.conn, peer=peer.far,
                              count=open_count, why=why)  # fmt: skip
            LOOK.has_touched = True
            self.held[peer] = None
            peer.connection.is_held = True
            peer.pause_if_needed()

    def close(self, place_of: Callable[[AcceptedPeer], Connector | None], why: str) -> None:
        """Those that are held back go, with a redirect where there is a place for them."""
        LOOK.has_touched = True
        held, self.held = self.held, {}
        for peer in held:
            place = place_of(peer)
            if place is None:
                peer.close("amqp:connection:forced", why)
            else:
                peer.close(CONNECTION_REDIRECT, why, redirect_info(RedirectPlace(place.host, place.port)))

    def let_go_on(self) -> None:
        """Those that are held back stay."""
        LOOK.has_touched = True
        held, self.held = self.held, {}
        for peer in held:
            if not peer.connection.is_dead:
                peer.go_on()
                peer.pause_if_needed()
