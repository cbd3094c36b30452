"""What the room of paging may ask of the store, besides what those of addresses and of the cluster may.

Source: docs/adr/0024-what-rooms-ask.md.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from mqbroker.core.cluster.cluster_store import ClusterStore

if TYPE_CHECKING:
    from mqbroker.core.address.purged_messages import Remains
    from mqbroker.core.paging.paging import Paging
    from mqbroker.core.queue.backlog import Segment
    from mqbroker.core.queue.large import LargeFiles
    from mqbroker.core.queue.queue import Queue
    from mqbroker.journal.places import Slice
    from mqbroker.wire.run import Run


class PagingStore(ClusterStore):
    """See the module's docstring."""

    paging: Paging
    remains: Remains
    large: LargeFiles
    in_delivery: Callable[[], Iterator[tuple[Queue, Segment]]]  # what is with consumers
    read_page: Callable[[tuple[Slice, ...], Callable[[list[bytes]], None]], None]  # the second gets the bytes of each

    @abstractmethod
    def set_times(self, queue: Queue, run: Run) -> None:
        """What a run that was read from disk is to know before anybody looks at it."""

    @abstractmethod
    def hold_again(self, queue: Queue, segment: Segment) -> None:
        """Messages that were read from disk, and know their times, are in memory for one queue more."""
