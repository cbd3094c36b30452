"""Seeded bugs: what the checker must be able to find. Each is switched on by a patch that only tests make."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from mqbroker.core import paging
from mqbroker.core.address import Address
from mqbroker.core.decisions import Decisions
from mqbroker.core.pages import Pages, Piece
from mqbroker.core.paging import Paging
from mqbroker.core.queue import Queue, Segment
from mqbroker.core.store import Store
from mqbroker.core.transaction import Transaction
from mqbroker.journal.places import Written
from mqbroker.journal.plan import Journal
from mqbroker.wire.run import Run


def _accept_before_sync(self: Decisions, action: Callable[..., None], *arguments: Any) -> None:
    """A decision that does not wait for the disk."""
    if action.__name__ == "_accept":
        action(*arguments)
    else:
        self._forming.append((action, arguments))


def _commit_before_sync(self: Decisions, action: Callable[..., None], *arguments: Any) -> None:
    """A commit whose discharge is answered without the disk."""
    if action.__name__ == "_committed":
        action(*arguments)
    else:
        self._forming.append((action, arguments))


def _publish_one_by_one(self: Store, posted: list[tuple[Address, Run]], *, must_wait: bool) -> bool:
    """Messages of one commit that do not wait for each other."""
    for address, run in posted:
        must_wait = self.publish(address, run) or must_wait
    return must_wait


def _publish_without_last(self: Store, posted: list[tuple[Address, Run]], *, must_wait: bool) -> bool:
    """The last message of a large transaction is forgotten."""
    return _PUBLISH(self, posted[:-1] if len(posted) > 3 else posted, must_wait=must_wait)


def _commit_by_rollback(self: Transaction) -> None:
    """What was posted is published by a rollback."""
    if self._posted:
        self._retired.clear()
        self.commit(self.prepare())
    else:
        _ROLL_BACK(self)


_PUBLISH = Store.publish_together
_ROLL_BACK = Transaction.roll_back


def _put_back_at_the_end(self: Queue, segment: Segment) -> None:
    """What returns goes behind everything newer."""
    self.delivering_count -= segment.n
    self.backlog._blocks.append([segment])
    self.backlog.count += segment.n


def _forget_deliveries(self: Store, queue: Queue, segment: Segment, *, was_delivered: bool) -> None:
    """A message that comes back does not say that it was delivered before."""
    queue.put_back(segment)
    self.dirty[queue] = None


def _settle_in_memory_only(self: Journal, queue_id: int, first_id: int, n: int) -> None:
    """A settlement that the journal does not learn of."""


def _store_without_last(self: Journal, first_id: int, count: int, queue_ids: Any, *rest: Any) -> None:
    """The last message of a run is not stored for any queue."""
    _STORE(self, first_id, count, queue_ids, *rest)
    if count == 1 and first_id % 7 == 0:
        for queue_id in queue_ids:
            self.settle(queue_id, first_id, count)


_STORE = Journal.store


def _forget_pages_of_recovery(self: Paging, queue: Queue, piece: Piece) -> None:
    """What recovery left on disk is in no queue."""


def _page_only_when_full(self: Paging, address: Address, queues: list[Queue]) -> list[Queue]:
    """What comes while there are pages overtakes them."""
    if not self._store.memory.is_full and (address.meter is None or not address.meter.is_full):
        return []
    return _TAKERS(self, address, queues)


def _read_without_last(piece: Piece, data: bytes) -> Iterator[Segment]:
    """The last message of a piece does not come back."""
    for segment in _SEGMENTS_IN(piece, data):
        yield segment if segment.n == 1 else segment._replace(n=segment.n - 1)


def _forget_pins(self: Pages, written: Written, count: int, size_bytes: int, position: int) -> None:
    """Segments go although pages are in them."""
    written.pins = 0
    _ADD(self, written, count, size_bytes, position)


_TAKERS = Paging.takers
_SEGMENTS_IN = paging.segments_in
_ADD = Pages.add

BUGS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "acceptance before sync": lambda: patch.object(Decisions, "wait", _accept_before_sync),
    "returned messages lose their place": lambda: patch.object(Queue, "put_back", _put_back_at_the_end),
    "redelivery without a flag": lambda: patch.object(Store, "give_back", _forget_deliveries),
    "settlements are not journalled": lambda: patch.object(Journal, "settle", _settle_in_memory_only),
    "one message in seven is settled when it is stored": lambda: patch.object(Journal, "store", _store_without_last),
}

# Found in histories with transactions.
TRANSACTION_BUGS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "commit acknowledged before its sync": lambda: patch.object(Decisions, "wait", _commit_before_sync),
    "parts of a commit are seen before the rest is stored": lambda: patch.object(
        Store, "publish_together", _publish_one_by_one
    ),
    "part of a transaction is not stored": lambda: patch.object(Store, "publish_together", _publish_without_last),
    "a rollback publishes": lambda: patch.object(Transaction, "roll_back", _commit_by_rollback),
}

# Found in histories with paging.
PAGING_BUGS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "recovery forgets pages": lambda: patch.object(Paging, "restore", _forget_pages_of_recovery),
    "new messages overtake pages": lambda: patch.object(Paging, "takers", _page_only_when_full),
    "the last message of a piece is not read": lambda: patch.object(paging, "segments_in", _read_without_last),
    "pages do not keep their segments": lambda: patch.object(Pages, "add", _forget_pins),
}
