"""What the room of the cluster may ask of the store, besides what that of addresses may.

Source: docs/adr/0024-what-rooms-ask.md.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from mqbroker.core.address.address import UNKNOWN, Origin
from mqbroker.core.address.address_store import AddressStore
from mqbroker.core.address.quotas import NOBODY

if TYPE_CHECKING:
    from mqbroker.core.address.address import Address, RoutedPart
    from mqbroker.core.address.auto_delete import AutoDelete
    from mqbroker.core.address.message_observer import MessageObserver
    from mqbroker.core.cluster.forwarding import Remotes
    from mqbroker.core.cluster.queue_observer import QueueObserver
    from mqbroker.core.queue.backlog import Segment
    from mqbroker.core.queue.kinds import QueueKind
    from mqbroker.core.queue.meter import Meters
    from mqbroker.core.queue.queue import Queue
    from mqbroker.wire.run import Run


class ClusterStore(AddressStore):
    """See the module's docstring."""

    remotes: Remotes
    auto_delete: AutoDelete
    meters: Meters
    queue_observers: tuple[QueueObserver, ...]
    dirty: dict[Queue, None]  # something about them has changed

    @abstractmethod
    def add_queue(self, kind: QueueKind, maker: tuple[str, int] = NOBODY) -> Queue:
        """One that is not there, whoever wants it; it counts for its maker, and so does its address, if it is new."""

    @abstractmethod
    def observe_queues(self, observer: QueueObserver) -> None:
        """The observer hears of queues and consumers from now on."""

    @abstractmethod
    def observe_messages(self, observer: MessageObserver) -> None:
        """The observer hears of messages from now on: of all that there are, if that is before `load`."""

    @abstractmethod
    def stop_observing(self, observer: object) -> None:
        """The observer hears of nothing any more."""

    @abstractmethod
    def purge(self, queue: Queue) -> int:
        """Drop all that is not in delivery, which nobody gets from now on; says how many messages."""

    @abstractmethod
    def route(self, address: Address, run: Run, origin: Origin = UNKNOWN, only: str = "") -> list[RoutedPart]:
        """As `Address.route`, with groups kept together in the cluster where somebody sees to that."""

    @abstractmethod
    def number(self, run: Run) -> None:
        """A run that came in gets its ids."""

    @abstractmethod
    def put(self, address: Address, part: Segment, queues: list[Queue]) -> bool:
        """Messages that have their ids go into these queues of an address. True: as `publish`."""
