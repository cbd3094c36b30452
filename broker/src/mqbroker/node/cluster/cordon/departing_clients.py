"""Clients of a node that is cordoned: they get nothing more, are read no more, and are closed with a redirect.

From the beginning on no message is delivered to them, so that what they have taken becomes less: once they have settled
it, none of it comes again at another node. Who has not, or has a transaction open, or a message on its way in that has
come in whole, stays for STAY_NS longer. When the others are closed, and where they are sent, is for those who
cordon it to say (scale_down.py, cordon.py); how, that is, that each is answered or not taken in, is
node/amqp/peers/farewell.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

from mqbroker.amqp.redirect import CONNECTION_REDIRECT, RedirectPlace, redirect_info
from mqbroker.amqp.states import ConnectionState
from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level
from mqbroker.base.time import NS_PER_MS, NS_PER_S
from mqbroker.core.cluster.parting_times import STAY_NS
from mqbroker.node.amqp.listeners.accepted_peer import accepted_among
from mqbroker.node.amqp.peers.clients import clients_of

if TYPE_CHECKING:
    from mqbroker.cluster.discovery.announcement import Connector
    from mqbroker.cluster.notices import Member
    from mqbroker.config.slices import ListenerOptions
    from mqbroker.core.queue.queue import Queue
    from mqbroker.node.amqp.listeners.accepted_peer import AcceptedPeer
    from mqbroker.node.amqp.listeners.accepting_broker import AcceptingBroker

TRANSACTION: Final = "has a transaction open"
COMING_IN: Final = "has sent a message that is not taken in yet"
UNSETTLED: Final = "has not settled all messages that it took"
LOOK_AGAIN_NS: Final = 500 * NS_PER_MS


def place_at(member: Member | None, listener: ListenerOptions) -> Connector | None:
    """How clients of such a listener reach another node, where it says so."""
    scheme = "amqps" if listener.has_tls else "amqp"
    told = () if member is None else member.clients
    return next((each for each in told if each.scheme == scheme), None)


class Doors(Protocol):
    """Whatever lets clients in, and can be closed to them."""

    def cordon(self) -> None:
        """None is let in from now on."""

    def uncordon(self) -> None:
        """Clients are let in again."""


class DepartingClients:
    """See the module's docstring. `held`: connections that are about to be closed, and are not read. It is another one
    each time, so a close that waits for the disk knows by it whether it is about those who are held now."""

    __slots__ = ("_broker", "_may_stay", "_since_ns", "_stay_ns", "held")

    def __init__(self, broker: AcceptingBroker) -> None:
        self._broker: Final = broker
        self._may_stay = False
        self._since_ns = 0
        self._stay_ns = STAY_NS
        self.held: dict[AcceptedPeer, None] = {}

    def clients(self) -> Iterator[AcceptedPeer]:
        """Connections of clients that are open."""
        for peer in accepted_among(self._broker.peers.values()):
            if peer.is_client and not peer.is_gone and peer.connection.state is ConnectionState.OPENED:
                yield peer

    def begin(self, stay_ns: int = STAY_NS) -> None:
        """Nothing is delivered to them from now on. `stay_ns`: so long nobody stays after the others at most."""
        LOOK.has_touched = True
        self._stay_ns = stay_ns
        self._may_stay, self._since_ns = True, self._broker.at.monotonic_ns
        for peer in self.clients():
            peer.departs(True)

    def staying(self) -> Iterator[tuple[AcceptedPeer, str, int]]:
        """Those that are waited for, why, and for how many seconds already."""
        for_s = (self._broker.at.monotonic_ns - self._since_ns) // NS_PER_S
        for peer in self.clients():
            if peer.is_departing and self._may_stay and (why := _why_it_stays(peer)):
                yield peer, why, for_s

    def waits_for(self, queue: Queue) -> bool:
        """Whether somebody may still settle messages of a queue."""
        return self._may_stay and any(client.has_unsettled for client in clients_of(queue))

    def hold_back(self, why: str, late_ns: int) -> None:
        """They are read no more: what they send from now on is another node's. `late_ns`: since their grace was over;
        some seconds later nobody stays: open transactions are rolled back, and messages return, for this reason."""
        LOOK.has_touched = True
        self._may_stay = late_ns < self._stay_ns
        self.held = {}
        for peer in self.clients():
            stays = _why_it_stays(peer)
            if stays and self._may_stay:
                continue
            if stays:
                self._tell_of(peer, why)
            self.held[peer] = None
            peer.farewell.hold(peer, why)
            peer.pause_if_needed()

    def _tell_of(self, peer: AcceptedPeer, why: str) -> None:
        """Of one that had time enough."""
        if open_count := peer.transactions.open_count:
            self._broker.notice(Level.WARNING, "transactions-rolled-back", conn=peer.conn, peer=peer.far,
                                count=open_count, why=why)  # fmt: skip
        if any(client.has_unsettled for client in peer.clients()):
            self._broker.notice(Level.WARNING, "messages-not-settled", conn=peer.conn, peer=peer.far, why=why)

    def close(
        self, held: dict[AcceptedPeer, None], place_of: Callable[[AcceptedPeer], Connector | None], why: str
    ) -> None:
        """Those that are `held` go, with a redirect where there is a place for them. Who is held since has perhaps sent
        what is not on disk yet, and goes with a close that waits for that."""
        if held is not self.held:
            return
        LOOK.has_touched = True
        self.held = {}
        for peer in held:
            place = place_of(peer)
            if place is None:
                peer.close_at_once("amqp:connection:forced", why)
            else:
                peer.close_at_once(CONNECTION_REDIRECT, why, redirect_info(RedirectPlace(place.host, place.port)))

    def let_go_on(self) -> None:
        """All clients that are here may stay; those who are held are read again."""
        LOOK.has_touched = True
        self._may_stay = False
        held, self.held = self.held, {}
        for peer in held:
            peer.farewell.let_go_on(peer)
        for peer in self.clients():
            if peer.is_departing:
                peer.departs(False)


def _why_it_stays(peer: AcceptedPeer) -> str:
    """Empty where nothing of it would be lost, or come again, if it left now."""
    if peer.transactions.open_count:
        return TRANSACTION
    if peer.uploads.is_finishing:
        return COMING_IN
    return UNSETTLED if any(client.has_unsettled for client in peer.clients()) else ""
