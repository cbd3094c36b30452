"""Connections that have sent ahead what opens them: it is taken in over several steps, a thing of one peer at a time.

A header, a login, an open, a begin and an attach that come in one read would hold up what others have sent meanwhile
five times as long as each alone, and clients that write without waiting for answers are many. Invariants: a peer is
here at most once; what it sent stays in its order; nobody waits for more than one step that had other things to do.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mqbroker.node.peer import Peer

# Of so many that wait one is taken in a step: clients that all come back at once have to get in soon.
CROWD: Final = 2


class Newcomers:
    """Those who are behind, in the order of their coming. Bounded by the number of connections."""

    def __init__(self) -> None:
        self._peers: dict[Peer, None] = {}
        self._is_put_off = False

    @property
    def is_due(self) -> bool:
        """Whether another step is needed at once."""
        return bool(self._peers)

    def add(self, peer: Peer) -> None:
        """It is behind."""
        self._peers[peer] = None

    def go_on(self, *, is_busy: bool) -> None:
        """The next thing of the first peer, or of more where there is a crowd. `is_busy`: this step has other things to
        do, which go first if they did not do so last time.
        """
        if not self._peers:
            return
        self._is_put_off = is_busy and not self._is_put_off
        if self._is_put_off:
            return
        for peer in list(islice(self._peers, max(1, len(self._peers) // CROWD))):
            del self._peers[peer]
            if peer.connection.is_behind:
                peer.received(b"")

    def finish(self, peer: Peer) -> None:
        """It is gone: take in at once what it sent before."""
        self._peers.pop(peer, None)
        while peer.connection.is_behind:
            peer.received(b"")
