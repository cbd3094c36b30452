"""What a store asks of whoever it is part of. It gets all of that when it is made, so nothing is missing later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mqbroker.base.time import Timed
    from mqbroker.core.address.permissions import Actor
    from mqbroker.core.cluster.cluster_store import ClusterStore
    from mqbroker.core.cluster.grouping import Grouping
    from mqbroker.core.queue.backlog import Segment
    from mqbroker.core.queue.queue import Queue
    from mqbroker.journal.places import Slice


class StoreSurroundings(Protocol):
    """See the module's docstring. `schedule` has somebody called when it is due."""

    @property
    def node_id(self) -> str:
        """Of the node whose messages these are."""

    @property
    def schedule(self) -> Callable[[Timed], None]:
        """The function by which somebody is called when it is due, as the class says."""

    def permit(self, actor: Actor | None, permission: str, address: str, queue: str = "") -> None:
        """Raises Refused where the actor has not this permission at this address, or that of this queue."""

    def in_delivery(self) -> Iterator[tuple[Queue, Segment]]:
        """What is with consumers and not settled: queues, and segments of them."""

    def read_page(self, slices: tuple[Slice, ...], then: Callable[[list[bytes]], None]) -> None:
        """Have this read; `then` gets the bytes of each slice."""

    def ends_itself(self, queue: Queue) -> bool:
        """Whether somebody else ends the queue."""

    def grouping_for(self, store: ClusterStore) -> Grouping | None:
        """What keeps groups of the store's messages together in the cluster; None: nothing does. Asked once, when all
        else of the store is there."""
