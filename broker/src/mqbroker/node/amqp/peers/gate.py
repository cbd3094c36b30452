"""Who may have messages of a connection wait before they are taken in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mqbroker.core.address.address import Address
    from mqbroker.node.amqp.peers.peer import Peer
    from mqbroker.wire.run import Run


class Gate(ABC):
    """Asked by all who bring messages, where there is one (node/cluster/grouping/group_gate.py)."""

    @abstractmethod
    def act(self, peer: Peer, events: Sequence[Any]) -> None:
        """As `Peer.act`, which asks for this: as far as nothing has to wait. The rest comes again by `Peer.act`."""

    @abstractmethod
    def holds(self, peer: Peer, event: Any, again: Callable[[], None]) -> bool:
        """Whether the event waits. `again` is called when it does not any more, also where its connection is gone."""

    @abstractmethod
    def lost(self, peer: Peer) -> None:
        """The connection is gone: what it was to bring is dropped, what it has settled stays settled."""

    @abstractmethod
    def refusal(self, address: Address, runs: Sequence[Run], then: Callable[[str], None]) -> str | None:
        """For those who have no connection: why their messages are refused, empty where they go, None: `then` is told
        that later."""
