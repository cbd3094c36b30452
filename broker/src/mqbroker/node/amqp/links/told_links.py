"""Links on which we tell rather than deliver: what goes out is news of the node, of no queue."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Final

from mqbroker.node.amqp.links.ends import SendingEnd

if TYPE_CHECKING:
    from mqbroker.amqp.events import Detached
    from mqbroker.node.amqp.peers.peer import Peer

FRAME_HEAD_BYTES: Final = 64


class ToldEnd(SendingEnd):
    """Our end of such a link. All that it sends is settled."""

    __slots__ = ()

    @abstractmethod
    def pump(self) -> None:
        """Send what there is, as credit, window and transport let through."""

    @abstractmethod
    def end(self) -> None:
        """The link is gone: nothing more is told on it."""

    def credit_given(self) -> None:
        """The peer gave credit, or its window or the transport is open again."""
        self.pump()

    def detached(self, peer: Peer, event: Detached) -> None:
        """Nothing more is told here."""
        self.end()
