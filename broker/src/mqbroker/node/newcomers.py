"""Connections that are about to open, or behind: they are taken in over several steps, a thing of one peer at a time.

To accept one, and a header, a login, an open, a begin and an attach, which may come in one read, would hold up what
others have sent meanwhile six times as long as each alone, and clients that write without waiting for answers are many.
Who is open and makes more work than a step has room for is behind, and goes on here.
Invariants: what a peer sent stays in its order; nobody waits for more than one step that had other things to do; what
waits of one that is behind is bounded, because its socket is not read meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mqbroker.node.inputs import Accepted
    from mqbroker.node.peer import Peer

# Of so many that wait one is taken in a step: clients that all come back at once have to get in soon.
CROWD: Final = 2
# What one connection may make in a step, in units of amqp/work.py: some 2 ms. Who makes more is behind, and goes on
# when others had their turn. Runs of messages cost little, so who sends or takes many of them seldom gets there.
TURN_WORK: Final = 2000
# So many bytes of one that is behind may wait; then its socket is not read until half of them are taken in.
UNREAD_BYTES_MAX: Final = 128 << 10
# Of one that is gone, so many things are taken in at once. Who was further ahead of what it was answered was promised
# nothing of the rest.
FINISHED_MAX: Final = 64


class Newcomers:
    """Those who wait, in the order of their coming. Bounded by the number of connections."""

    def __init__(self, peers: dict[int, Peer], admit: Callable[[Accepted], None]) -> None:
        """`admit` makes the peer of a connection, or none."""
        self._peers = peers
        self._admit = admit
        self._waiting: dict[int, list[bytes]] = {}  # and what they said
        self._accepted: dict[int, Accepted] = {}  # those of them without a peer so far
        self._is_put_off = False
        self._inputs = 0  # of this step, that wait here

    @property
    def is_due(self) -> bool:
        """Whether another step is needed at once."""
        return bool(self._waiting)

    def accepted(self, accepted: Accepted) -> None:
        """It is there."""
        self._inputs += 1
        self._waiting[accepted.conn] = []
        self._accepted[accepted.conn] = accepted

    def received(self, conn: int, data: bytes) -> None:
        """It says something, and is not open yet or behind. Of a connection that is not known, nothing is kept."""
        said = self._waiting.get(conn)
        if said is not None:
            said.append(data)
        elif conn in self._peers:
            self._waiting[conn] = [data]
        else:
            return
        self._inputs += 1

    def behind(self, peer: Peer) -> None:
        """There is more to be taken in of what it said."""
        self._waiting.setdefault(peer.conn, [])
        _watch(peer)

    def go_on(self, inputs: int) -> None:
        """The next thing of the first connection, or of more where there is a crowd. `inputs`: how many this step has.
        Other things than newcomers go first if they did not do so last time.
        """
        is_busy, self._inputs = inputs > self._inputs, 0
        if not self._waiting:
            return
        self._is_put_off = is_busy and not self._is_put_off
        if self._is_put_off:
            return
        for conn in list(islice(self._waiting, max(1, len(self._waiting) // CROWD))):
            self._take(conn)
            peer = self._peers.get(conn)
            if peer is not None and peer.connection.allowance <= 0:
                return  # it made all the work that a step has room for

    def finish(self, conn: int) -> None:
        """It is gone: take in what it sent before, up to a bound, and drop the rest."""
        for _ in range(FINISHED_MAX):
            peer = self._peers.get(conn)
            if conn in self._waiting:
                self._take(conn)
            elif peer is not None and peer.connection.is_behind:
                peer.connection.allowance = TURN_WORK
                peer.received(b"")
            else:
                return
        self._waiting.pop(conn, None)
        self._accepted.pop(conn, None)

    def _take(self, conn: int) -> None:
        said = self._waiting.pop(conn)
        accepted = self._accepted.pop(conn, None)
        if accepted is not None:
            self._admit(accepted)
            if said and conn in self._peers:
                self._waiting[conn] = said
            return
        peer = self._peers.get(conn)
        if peer is not None and (said or peer.connection.is_behind):
            peer.connection.allowance = TURN_WORK
            peer.received(b"".join(said))
            _watch(peer)


def is_opening(peer: Peer) -> bool:
    """Whether what comes from it may wait for others: it is not open yet, or behind."""
    connection = peer.connection
    return connection.is_gradual and (connection.peer_open is None or connection.is_behind)


def _watch(peer: Peer) -> None:
    """Have its socket read, or not, by what of it waits for its turn."""
    connection = peer.connection
    unread_bytes_max = UNREAD_BYTES_MAX // 2 if peer.is_full else UNREAD_BYTES_MAX
    is_full = connection.is_behind and connection.unread_bytes > unread_bytes_max
    if is_full != peer.is_full:
        peer.is_full = is_full
        peer.pause_if_needed()
