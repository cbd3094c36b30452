"""Seeded bugs: what the checker must be able to find. Each is switched on by a patch that only tests make."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from mqbroker.amqp.events import Whole
from mqbroker.base.time import NS_PER_MS
from mqbroker.core.address.address import ANYCAST, MULTICAST, UNKNOWN, Address, Origin
from mqbroker.core.address.dead_letters import DeadLetters
from mqbroker.core.address.decisions import Decisions
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.address.settings import MoveTarget
from mqbroker.core.paging import paging
from mqbroker.core.paging.paging import Paging
from mqbroker.core.paging.upkeep import upkeep
from mqbroker.core.queue.dispatch import Dispatch
from mqbroker.core.queue.large import LargeFiles
from mqbroker.core.queue.moved_message import MessageOrigin, moved
from mqbroker.core.queue.pages import Page, PagePiece, Pages
from mqbroker.core.queue.queue import Queue, Segment
from mqbroker.core.store.retroactive import Retroactive
from mqbroker.core.store.store import Store
from mqbroker.core.store.transaction import Transaction
from mqbroker.journal.append import Append
from mqbroker.journal.duplicates import DuplicateIds
from mqbroker.journal.places import Written
from mqbroker.journal.plan import Journal
from mqbroker.node.amqp.links.consumer import LinkConsumer
from mqbroker.node.amqp.peers.large_messages import Completion, LargeMessages
from mqbroker.node.amqp.peers.uploads import Upload, Uploads
from mqbroker.node.broker.broker import Broker
from mqbroker.node.values.inputs import JournalSpace
from mqbroker.wire.parts import part_of
from mqbroker.wire.run import Run

from tests.sim.disk import SimDisk
from tests.support.values import replaced


def _accept_before_sync(self: Decisions, action: Callable[..., None], *arguments: Any) -> None:
    """A decision that does not wait for the disk."""
    if action.__name__ == "accept":
        action(*arguments)
    else:
        self._forming.append((action, arguments))


def _commit_before_sync(self: Decisions, action: Callable[..., None], *arguments: Any) -> None:
    """A commit whose discharge is answered without the disk."""
    if action.__name__ == "_committed":
        action(*arguments)
    else:
        self._forming.append((action, arguments))


def _publish_one_by_one(self: Store, posted: list[tuple[Address, Run]], origin: Origin, *, must_wait: bool) -> bool:
    """Messages of one commit that do not wait for each other."""
    for address, run in posted:
        must_wait = self.publish(address, run, origin) or must_wait
    return must_wait


def _publish_without_last(self: Store, posted: list[tuple[Address, Run]], origin: Origin, *, must_wait: bool) -> bool:
    """The last message of a large transaction is forgotten."""
    if sum(run.count for _, run in posted) > 3:
        address, run = posted[-1]
        rest = part_of(run, 0, run.count - 1) if run.count > 1 else None
        posted = posted[:-1] if rest is None else [*posted[:-1], (address, rest)]
    return _PUBLISH(self, posted, origin, must_wait=must_wait)


def _commit_by_rollback(self: Transaction, count_max: int) -> None:
    """What was posted is published by a rollback."""
    if self._gathering.posted:
        self._retired.clear()
        self.commit(self.prepare(BROKER))
    else:
        _ROLL_BACK(self, count_max)


_PUBLISH = Store.publish_together
_ROLL_BACK = Transaction.roll_back


def _put_back_at_the_end(self: Queue, segment: Segment, due_ms: int = 0) -> None:
    """What returns goes behind everything newer."""
    if due_ms:
        _PUT_BACK(self, segment, due_ms)
        return
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


def _drop_what_leaves(self: DeadLetters, queue: Queue) -> None:
    """Expired messages are settled and gone."""
    for _, segment in queue.take_gone():
        self._store.settle(queue, segment)


def _settle_and_note(
    self: DeadLetters, queue: Queue, segment: Segment, target: MoveTarget, cause: str, why: str
) -> None:
    """Settled now; what is to be stored at the new address is noted for later."""
    kind = queue.kind
    origin = MessageOrigin(kind.address, kind.queue_meant, ANYCAST if kind.is_shared else MULTICAST)
    due_ns = self._store.at.monotonic_ns + LATER_NS
    for index in range(segment.start, segment.start + segment.n):
        noted = (due_ns, target.address, moved(segment, index, origin, cause), origin.address)
        self._store.__dict__.setdefault("noted", []).append(noted)
    self._store.settle(queue, segment)


def _store_noted(store: Store) -> bool:
    """Some steps later."""
    noted = store.__dict__.get("noted", [])
    while noted and noted[0][0] <= store.at.monotonic_ns:
        _, target, run, origin = noted.pop(0)
        store.publish(store.address_for(target, BROKER), run, Origin(moved_from=origin))
    return _UPKEEP(store)


@contextmanager
def _move_in_two_steps() -> Iterator[None]:
    with (
        patch.object(DeadLetters, "_move", _settle_and_note),
        patch("mqbroker.node.broker.broker.upkeep", _store_noted),
    ):
        yield


def _put_back_in_front(self: Queue, segment: Segment, due_ms: int = 0) -> None:
    """What returns goes before everything else, whatever its priority."""
    if due_ms:
        _PUT_BACK(self, segment, due_ms)
        return
    self.delivering_count -= segment.n
    self.backlog._blocks.insert(0, [segment])
    self.backlog.count += segment.n


def _keep_no_ids(self: DuplicateIds, *of: Any) -> None:
    """Ids of duplicate detection that the journal does not learn of."""


def _never_expires(self: Queue, segment: Segment) -> None:
    """Messages that nobody looks at when their time has come."""


def _deliver_to_browser(self: LinkConsumer, queue: Queue, segment: Segment) -> int:
    """What a browser is shown it also has."""
    self.is_browser = False
    went = _DELIVER(self, queue, segment)
    self.is_browser = True
    return went


def _without_filter(self: Store, queue: Queue, consumer: Any) -> None:
    """A selector that is asked for and forgotten."""
    consumer.filter = None
    _JOIN(self, queue, consumer)


def _put_back_instead(self: DeadLetters, queue: Queue, segment: Segment, cause: str) -> None:
    """A dead letter stays where it is."""
    queue.put_back(segment)


def _pin_nobody(self: Dispatch, group: str, consumer: Any, segment: Segment) -> None:
    """Whoever has room gets the next message of a group."""


def _due_at_once(self: Queue, segment: Segment, due_ms: int) -> None:
    """A scheduled message that does not wait for its time."""
    self._arrive(segment)


def _without_last_queue(self: Address, run: Run, *rest: Any) -> list[tuple[int, int, list[Queue]]]:
    """Of several subscriptions the youngest gets no copies."""
    return [(index, n, queues[:-1] or queues) for index, n, queues in _ROUTE(self, run, *rest)]


_ROUTE = Address.route


def _arrive_unseen(self: Queue, segment: Segment) -> None:
    """What arrives before the place that a consumer has looked at is not shown to it."""
    self.backlog.add(segment)
    self.note_expiry(segment)


def _publish_as_new(
    self: Store, address: Address, run: Run, origin: Origin = UNKNOWN, *, is_known: bool = False
) -> bool:
    """What a person moves is looked up among the ids that were seen, and what was is taken for taken in."""
    routed = self.routed_total
    must_wait = _PUBLISH_ANY(self, address, run, origin)
    if is_known and self.routed_total == routed:
        self.routed_total += run.count
    return must_wait


LATER_NS = 60 * NS_PER_MS
_UPKEEP = upkeep
_PUBLISH_ANY = Store.publish
_PUT_BACK = Queue.put_back
_DELIVER = LinkConsumer.deliver
_JOIN = Store.join
_STORE = Journal.store


def _forget_pages_of_recovery(self: Paging, queue: Queue, piece: PagePiece, due_ms: int = 0) -> None:
    """What recovery left on disk is in no queue."""


def _page_only_when_full(self: Paging, address: Address, queues: list[Queue]) -> list[Queue]:
    """What comes while there are pages overtakes them."""
    if not self._store.memory.is_full and (address.meter is None or not address.meter.is_full):
        return []
    return _TAKERS(self, address, queues)


def _read_without_last(piece: PagePiece, runs: list[Run]) -> Iterator[Segment]:
    """The last message of a piece does not come back."""
    for segment in _SEGMENTS_IN(piece, runs):
        yield segment if segment.n == 1 else replaced(segment, n=segment.n - 1)


def _forget_pins(self: Pages, written: Written, count: int, size_bytes: int, position: int) -> None:
    """Segments go although pages are in them."""
    written.pins = 0
    _ADD(self, written, count, size_bytes, position)


def _take_without_pages(self: Paging, queue: Queue, page: Page, segment: Segment) -> Segment:
    """What is picked out of a page stays there as well."""
    self._store.hold_again(queue, segment)
    queue.delivering_count += segment.n
    return segment


def _give_without_newest(self: Retroactive, address: Address) -> list[Segment]:
    """A new subscription misses what came last."""
    return _FITTING(self, address)[:-1]


_FITTING = Retroactive._fitting
_TAKERS = Paging.takers
_SEGMENTS_IN = paging.segments_in
_ADD = Pages.add

BUGS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "acceptance before sync": lambda: patch.object(Decisions, "wait", _accept_before_sync),
    "returned messages lose their place": lambda: patch.object(Queue, "put_back", _put_back_at_the_end),
    "redelivery without a flag": lambda: patch.object(Store, "give_back", _forget_deliveries),
    "settlements are not journalled": lambda: patch.object(Journal, "settle", _settle_in_memory_only),
    "one message in seven is settled when it is stored": lambda: patch.object(Journal, "store", _store_without_last),
    "what a failed sync left in memory is not written again": lambda: patch(
        "mqbroker.journal.recover._Recovery._unproven", lambda self: None
    ),
}


def _finish_without_sync(self: LargeMessages, upload: Upload, completion: Completion, *, sync: bool) -> None:
    """A durable message is published when its file is written, and not on disk."""
    _FINISH(self, upload, completion, sync=False)


def _delete_before_sync(self: LargeFiles, file: int) -> None:
    """A file goes with its last message, whatever the disk knows of that."""
    self.release(file)


def _take_more_in(self: Uploads, event: Whole) -> None:
    """What follows a large message does not wait for it."""
    _WHOLE(self, event)
    self._peer.connection.is_held = False


_FINISH = LargeMessages.finish
_WHOLE = Uploads.whole

# Found in histories with messages in files.
LARGE_BUGS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "published before its file is on disk": lambda: patch.object(LargeMessages, "finish", _finish_without_sync),
    "files deleted before settlements are on disk": lambda: patch.object(LargeFiles, "settle", _delete_before_sync),
    "messages overtake one on its way to the disk": lambda: patch.object(Uploads, "whole", _take_more_in),
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
    "what is moved out of a page stays there": lambda: patch.object(Paging, "take", _take_without_pages),
}


def _go_on_without_room(self: SimDisk, what: str, group: list[Append]) -> int:
    """A write that found no room is passed over, and answered."""
    self.found_no_room[what] += 1
    self.synced_position = group[-1].position
    return self.synced_position


def _hear_of_no_room(self: Broker, space: JournalSpace) -> None:
    """What the node is told of the room on its disk changes nothing."""


# Found in histories whose disks are full for a while.
ROOM_BUGS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "what found no room on the disk is answered": lambda: patch.object(
        SimDisk, "_end_without_room", _go_on_without_room
    ),
    "publishers are not held back while the disk has little room": lambda: patch.object(
        Broker, "_space", _hear_of_no_room
    ),
}

# Found in histories whose clients use what queues can do.
FEATURE_BUGS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "expired messages are dropped": lambda: patch.object(DeadLetters, "clear", _drop_what_leaves),
    "a dead letter is settled in one append and stored in another": _move_in_two_steps,
    "returned messages overtake higher priorities": lambda: patch.object(Queue, "put_back", _put_back_in_front),
    "duplicate ids are not journalled": lambda: patch.object(DuplicateIds, "add", _keep_no_ids),
    "expired messages are given to consumers": lambda: patch.object(Queue, "note_expiry", _never_expires),
    "a browser takes what it sees": lambda: patch.object(LinkConsumer, "deliver", _deliver_to_browser),
    "a selector is forgotten": lambda: patch.object(Store, "join", _without_filter),
    "redelivery is not delayed": lambda: patch("mqbroker.core.store.store.redelivery_delay_ms", lambda *of: 0),
    "deliveries in vain are without end": lambda: patch.object(DeadLetters, "reject", _put_back_instead),
    "a group is with two consumers": lambda: patch.object(Dispatch, "_pin", _pin_nobody),
    "a scheduled message comes at once": lambda: patch.object(Queue, "schedule", _due_at_once),
    "one of several subscriptions gets nothing": lambda: patch.object(Address, "route", _without_last_queue),
    "a higher priority is not shown to whom a lower one was": lambda: patch.object(Queue, "_arrive", _arrive_unseen),
    "the newest of what is kept is not given": lambda: patch.object(Retroactive, "_fitting", _give_without_newest),
    "a retried message is a duplicate of itself": lambda: patch.object(Store, "publish", _publish_as_new),
    "a sender whose queue was deleted sends to nobody": lambda: patch(
        "mqbroker.node.amqp.links.address_end.AddressEnd._bind_again", lambda end, peer, event: True
    ),
}
