"""Ids of duplicate detection that go to the heir of a node that leaves, before senders could repeat them there.

They are the bodies of messages in a store-and-forward queue of their own, some ids of one address in each, so they go
and come again as all messages between nodes do. The heir adds them to its own; those that it has it has already, so
what comes twice changes nothing. Source: docs/adr/0027-scale-down.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct, error
from typing import TYPE_CHECKING, Final

from mqbroker.base.look import LOOK
from mqbroker.core.queue.backlog import Segment
from mqbroker.core.queue.kinds import DUPLICATE_IDS
from mqbroker.wire.run import single
from mqbroker.wire.sections import build_message

if TYPE_CHECKING:
    from mqbroker.core.address.duplicates import Duplicates
    from mqbroker.core.cluster.cluster_store import ClusterStore
    from mqbroker.core.cluster.forwarding import Remotes
    from mqbroker.core.queue.queue import Queue

ADDRESS: Final = DUPLICATE_IDS
IDS_MAX: Final = 1_000  # of one message
BYTES_MAX: Final = 32 << 10  # about, so that it fits where anything does
_SIZE: Final = Struct(">I")


class DuplicateCargo:
    """What a node that leaves has told its heir of its ids. `todo` are addresses of which some are not on their way."""

    def __init__(self, store: ClusterStore, duplicates: Duplicates) -> None:
        self._store = store
        self._duplicates = duplicates
        self._told: dict[str, int] = {}  # by address: ids with numbers up to this one are on their way, or there
        self.todo: dict[str, None] = {}

    def look(self) -> None:
        """Note in `todo` the addresses of which newer ids are to be told than those on their way."""
        newest = self._duplicates.newest()
        LOOK.has_touched = True
        self.todo = {address: None for address, number in newest.items() if number > self._told.get(address, 0)}

    def forget(self) -> None:
        """What was told may have been of another heir."""
        LOOK.has_touched = True
        self._told, self.todo = {}, {}

    def go_on(self, remotes: Remotes, connection: str, target: str) -> None:
        """A message more for the heir."""
        address = next(iter(self.todo))
        ids, last = self._duplicates.behind(address, self._told.get(address, 0), IDS_MAX, BYTES_MAX)
        LOOK.has_touched = True
        if not ids:
            del self.todo[address]
            return
        self._told[address] = last
        store, queue = self._store, remotes.internal_queue(connection, target, ADDRESS)
        run = single(build_message(packed(address, ids), durable=True))
        run.arrived_ms = store.at.wall_ms
        store.number(run)
        store.put(store.addresses[ADDRESS], Segment(run, 0, 1, 0), [queue])

    @staticmethod
    def is_of(queue: Queue) -> bool:
        """Whether a queue is for such messages."""
        return queue.kind.address == ADDRESS


def packed(address: str, ids: list[bytes]) -> bytes:
    """The body of a message: the address and the ids, each behind its size."""
    return b"".join(_SIZE.pack(len(each)) + each for each in (address.encode(), *ids))


def unpacked(body: bytes) -> tuple[str, list[bytes]]:
    """The way back. Raises ValueError."""
    address, *ids = _parts(body)
    return address.decode(), ids


def _parts(body: bytes) -> Iterator[bytes]:
    offset = 0
    while offset < len(body):
        try:
            (size,) = _SIZE.unpack_from(body, offset)
        except error as fault:
            raise ValueError(str(fault)) from None
        offset += _SIZE.size + size
        if offset > len(body):
            raise ValueError("it ends within an id")
        yield body[offset - size : offset]
