"""A bug that the bytes of one peer bring to light ends that peer's connection, where nothing else was touched.

All bytes of peers come through here: what connections read, whoever dialled, and datagrams. Any exception that is left
then is a bug of ours, also a PeerFault that nobody has answered; only what the disk says is not. Whether it may be
contained is said by base/look.py: had anything been changed that outlives the connection, it might be half done, and
the node stops, as it does for every bug elsewhere. What ends a connection here is what ends one that is lost; a bug in
that stops the node as well. Bounded: `TOLD_MAX` notices in `TOLD_NS`, the others are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from mqbroker.amqp.frame_costs import NO_BOUND
from mqbroker.base.errors import StorageFault
from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level
from mqbroker.base.time import NS_PER_MS
from mqbroker.node.values.effects import CloseConnection
from mqbroker.node.values.inputs import ConnectionAccepted, Datagram, Slipped

if TYPE_CHECKING:
    from mqbroker.node.amqp.peers.peer import Peer
    from mqbroker.node.values.base_broker import BaseBroker

TOLD_MAX: Final = 10
TOLD_NS: Final = 60_000 * NS_PER_MS
FRAMES_MAX: Final = 4  # of the traceback, the last ones
PACKAGE: Final = "mqbroker/"
CONDITION: Final = "amqp:internal-error"
WHY: Final = "a fault of the broker's own; its log says more"


class Containment:
    """The containment of one node: all bytes of peers are looked at in it."""

    def __init__(self, broker: BaseBroker) -> None:
        self._broker = broker
        self._told_from_ns = 0
        self._told_count = 0
        self._untold_count = 0

    def look(self, peer: Peer, take: Callable[[bytes], None], data: bytes) -> None:
        """Let `take` have bytes of the peer."""
        error = self._bug_in(take, data)
        if error is not None:
            self._tell(error, conn=peer.conn, peer=peer.far, user=peer.user or "")
            self._end(peer)

    def admit(self, take: Callable[[ConnectionAccepted], None], accepted: ConnectionAccepted) -> None:
        """Let `take` make a peer of a connection that came to a listener. Whoever is given none is closed at once."""
        error = self._bug_in(take, accepted)
        if error is not None:
            self._tell(error, conn=accepted.conn, peer=accepted.peer)
            self._broker.effects.append(CloseConnection(accepted.conn, 0))

    def heard(self, take: Callable[[Datagram], None], datagram: Datagram) -> None:
        """Let `take` have what came to a discovery group. It belongs to no connection, so nothing else ends with it."""
        error = self._bug_in(take, datagram)
        if error is not None:
            self._tell(error, group=datagram.group, source=datagram.source)

    def slipped(self, given: Slipped) -> None:
        """The same in `io/`, where bytes are no node's business: requests of monitoring, and gossip before its MAC."""
        self._count(what=given.what, source=given.source, error=given.error, place=given.place)

    @staticmethod
    def _bug_in(take: Callable[[Any], None], given: Any) -> Exception | None:
        LOOK.has_touched = False
        try:
            take(given)
        except StorageFault:
            raise
        except Exception as error:
            if LOOK.has_touched:
                raise
            return error
        finally:
            LOOK.has_touched = True
        return None

    def _end(self, peer: Peer) -> None:
        """What was not acted on comes to nothing, as if it had been lost on its way: it was promised to nobody."""
        connection = peer.connection
        connection.events.clear()
        connection.allowance = NO_BOUND  # all of its links at once: what they hold of unfinished messages is gone then
        peer.close_at_once(CONDITION, WHY)
        connection.shrink_partial(connection.partial_bytes)

    def _tell(self, error: Exception, **whose: str | int) -> None:
        self._count(**whose, error=type(error).__name__, place=place_of(error))

    def _count(self, **fields: str | int) -> None:
        broker = self._broker
        broker.counters.bugs_contained += 1
        now_ns = broker.at.monotonic_ns
        if now_ns >= self._told_from_ns + TOLD_NS or not self._told_count:
            self._told_from_ns, self._told_count = now_ns, 0
        if self._told_count >= TOLD_MAX:
            self._untold_count += 1
            return
        self._told_count += 1
        untold, self._untold_count = self._untold_count, 0
        more = {"untold": untold} if untold else {}
        broker.notice(Level.ERROR, "bug-contained", **fields, **more)


def place_of(error: BaseException) -> str:
    """Where it was raised and who called that, innermost first. What it says itself may hold what peers sent."""
    places: list[str] = []
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if PACKAGE in file:
            places.append(f"{file.rpartition(PACKAGE)[2]}:{trace.tb_lineno}")
        trace = trace.tb_next
    return " < ".join(reversed(places[-FRAMES_MAX:]))
