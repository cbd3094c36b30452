"""That this node is to leave, where its messages go, and what became of each queue's since it began.

The record of it is in the journal as ids of duplicate detection are, under names that no address has, so that a node
that dies half-way goes on by itself. A queue's tally counts its durable messages: how many there were, came, went to
the other node or otherwise. It is written in the append in which that happened, so both are there after a crash, or
neither. Others than durable ones end with the process; their ids are remembered so that nobody counts them. Invariant:
before + came = consumed + moved + left. Source: docs/adr/0027-scale-down.md.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from mqbroker.base.errors import Bug
from mqbroker.base.look import LOOK
from mqbroker.core.address.message_observer import MessageObserver
from mqbroker.core.address.stored_tables import unreadable
from mqbroker.core.cluster.drains import number_of
from mqbroker.core.cluster.held_back import HeldBack, kind_for, stored_in
from mqbroker.core.cluster.queue_observer import QueueObserver
from mqbroker.core.cluster.queue_tally import COUNTS, HeirShare, QueueTally
from mqbroker.core.queue.id_ranges import IdRanges
from mqbroker.core.queue.kinds import DUPLICATE_IDS, INTERNAL_PREFIX
from mqbroker.core.queue.leaving_reasons import ACKNOWLEDGED
from mqbroker.journal.records import as_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mqbroker.core.address.address_store import AddressStore
    from mqbroker.core.cluster.held_back import Held
    from mqbroker.core.cluster.id_digest import IdDigest
    from mqbroker.core.queue.queue import Queue, Segment
    from mqbroker.journal.recovered import Recovered

NAME: Final = INTERNAL_PREFIX + "scale-down"
TALLY_PREFIX: Final = INTERNAL_PREFIX + "scale-down-tally."
NUMBER: Final = 1  # of the one id that stands under each name
HEIRS_MAX: Final = 100  # before the one of now, of which it is known that they were
OWED_MAX: Final = 500  # nodes of which it is known how much waited for them


class ScaleDown(MessageObserver, QueueObserver):
    """See the module's docstring. `target` is empty where this node stays. `pending`: queues that were not looked at
    since they were made, or since the process began."""

    def __init__(self, store: AddressStore, observes: Callable[[ScaleDown, bool], None]) -> None:
        """`observes`: it is to hear of queues and messages from now on, or no more."""
        self._store = store
        self._observes = observes
        self.target = self.connection = ""
        self.since_ms = 0
        self.is_forced = self.is_ending = False
        self.is_at_stop = False  # this process was to end then: the next one does not go on with it
        self.tallies: dict[str, QueueTally] = {}
        self.pending: dict[Queue, None] = {}
        self.changed: dict[str, QueueTally] = {}  # since the last append
        self.number_max = 0  # in the names of links of its queues
        self.owed_before: dict[str, int] = {}  # node -> messages that waited here to be sent to it when this began
        self.passed_over: tuple[str, ...] = ()  # ids of nodes that never become the heir by themselves
        self.past: list[tuple[str, str]] = []  # heirs before this one, by connection and node; what it has come to
        self.held = HeldBack(store)  # what they may have, and that waits for their answers
        self._kept: dict[tuple[str, str, int], IdRanges] = {}  # of that, as recovery found it

    @property
    def is_on(self) -> bool:
        """Whether this node is to leave, or was, and that is not over."""
        return bool(self.target)

    def begin(self, connection: str, target: str, *, is_forced: bool, is_at_stop: bool = False) -> None:
        """This node leaves, and that is its heir; on disk with this step's append. Raises Bug where it does already."""
        if self.is_on:
            raise Bug(f"scales down to node {target}, and to {self.target} before that is over")
        LOOK.has_touched = True
        self.target, self.connection, self.is_forced, self.is_at_stop = target, connection, is_forced, is_at_stop
        self.since_ms = self._store.at.wall_ms
        self.owed_before = dict(list(self.owed().items())[:OWED_MAX])
        self._observes(self, True)
        self._say()

    def owed(self) -> dict[str, int]:
        """Node -> messages that wait here to be sent to it, where any do. Ids of duplicate detection are none."""
        owed: dict[str, int] = {}
        for queue in self._store.queues.values():
            if queue.kind.is_forwarding and queue.message_count and queue.kind.address != DUPLICATE_IDS:
                owed[queue.kind.owner] = owed.get(queue.kind.owner, 0) + queue.message_count
        return owed

    def force(self) -> None:
        """What cannot move may stay from now on, as where that was said when it began."""
        LOOK.has_touched = True
        self.is_forced = True
        self._say()

    def pass_over(self, node_ids: Sequence[str]) -> None:
        """None of these takes the place of the heir where that falls out, as they are to leave as well."""
        LOOK.has_touched = True
        self.passed_over = tuple(node_ids)
        self._say()

    def go_on_to(self, connection: str, target: str) -> None:
        """Another node is the heir from now on; what the one before may have is kept apart before that."""
        LOOK.has_touched = True
        self.past = [*self.past, (self.connection, self.target)][-HEIRS_MAX:]
        self.connection, self.target = connection, target
        for tally in self.tallies.values():
            if not tally.now.went.count and not self._is_held(tally, tally.now):
                tally.shares.pop()  # nothing of it ever went there
            tally.shares.append(HeirShare(connection, target))
            self.changed[tally.name] = tally
        self._say()

    def _is_held(self, tally: QueueTally, share: HeirShare) -> bool:
        return any(each.kind.drains_as == share.link for each in self.held.by_name.get(tally.name, ()))

    def give_up(self, node_id: str) -> int:
        """Nobody waits for what a node would say: what it may have is in its queues again; how many messages. It goes
        to the heir, and may come twice."""
        count = 0
        LOOK.has_touched = True
        for tally in self.tallies.values():
            for share in tally.shares:
                if share.target == node_id and not share.is_given_up:
                    share.is_given_up = True
                    self.changed[tally.name] = tally
        for held in self.held:
            if held.kind.forwards_to == node_id:
                count += self.held.give_back(held)
        return count

    def keep_apart(self, queue: Queue) -> Held | None:
        """What the heir may have of a queue, which is to go on to another one: it waits for its answer, or that is
        still to be asked for; None: nothing does."""
        tally = self.tallies[queue.kind.name]
        ids = IdRanges() if queue.handed_over is None else self.held.fresh(queue, queue.handed_over.awaited)
        if not ids.count and not tally.now.has_to_ask:
            return None
        return self.held.begin(queue, kind_for(queue.kind, tally.now), ids)

    def restore_held(self) -> None:
        """A start, when queues are there: what the process before kept apart is apart again."""
        kept, self._kept = self._kept, {}
        for tally in self.tallies.values():
            queue = self._store.queues.get(tally.name)
            for share in tally.shares[:-1] if queue is not None else ():
                ids = kept.pop((tally.name, share.target, number_of(share.link)), IdRanges())
                if queue is not None and (ids.count or share.has_to_ask) and not share.is_given_up:
                    self.held.add(queue, kind_for(queue.kind, share), ids)
        for (name, node_id, _), ids in kept.items():
            queue = self._store.queues.get(name)
            if queue is not None and queue.kind.is_forwarding:
                self.held.add(queue, replace(queue.kind, forwards_to=node_id), ids)

    def goes_by(self, tally: QueueTally, link: str) -> None:
        """The other node knows what comes of it under this name."""
        LOOK.has_touched = True
        tally.now.connection, tally.now.target, tally.now.link = self.connection, self.target, link
        tally.now.is_given_up = False
        self.number_max = max(self.number_max, number_of(link))
        self.changed[tally.name] = tally

    def look_at_all(self) -> None:
        """All queues that there are have to be looked at."""
        LOOK.has_touched = True
        self.pending.update(dict.fromkeys(self._store.queues.values()))

    def call_off(self) -> None:
        """What is here stays; that is over when no queue drains any more."""
        LOOK.has_touched = True
        self.is_ending = True
        self.pending.clear()
        self._say()

    def end(self) -> None:
        """This node stays: what was counted is forgotten, in the journal as well."""
        journal = self._store.journal.duplicates
        LOOK.has_touched = True
        for name in self.tallies:
            journal.drop(TALLY_PREFIX + name)
        for held in self.held:
            self.held.end(held)
        journal.drop(NAME)
        self._observes(self, False)
        self.target = self.connection = ""
        self.is_forced = self.is_ending = self.is_at_stop = False
        self.tallies, self.pending, self.changed = {}, {}, {}
        self.number_max = 0
        self.past, self.passed_over = [], ()
        self.owed_before = {}

    def _say(self) -> None:
        said: dict[str, Any] = {
            "target": self.target, "connection": self.connection, "since_ms": self.since_ms,
            "is_forced": self.is_forced, "is_ending": self.is_ending,
            "is_at_stop": self.is_at_stop,
        }  # fmt: skip
        if self.past:
            said["past"] = self.past
        if self.passed_over:
            said["passed_over"] = self.passed_over
        if self.owed_before:
            said["owed_before"] = self.owed_before
        self._store.journal.duplicates.add(NAME, NUMBER, as_json(said).encode(), NUMBER)

    def load(self, recovered: Recovered) -> None:
        """Take over what recovery found. Raises StorageFault."""
        stored = recovered.duplicates.get(NAME)
        if not stored:
            return
        LOOK.has_touched = True
        try:
            said = json.loads(stored[-1].duplicate_id)
            self.target, self.connection = str(said["target"]), str(said["connection"])
            self.since_ms = int(said["since_ms"])
            self.is_forced, self.is_ending = bool(said["is_forced"]), bool(said["is_ending"])
            self.is_at_stop = bool(said.get("is_at_stop", False))  # earlier releases do not say it
            self.owed_before = {str(node): int(count) for node, count in said.get("owed_before", {}).items()}
            self.passed_over = tuple(str(node) for node in said.get("passed_over", ()))
            self.past = [(str(connection), str(target)) for connection, target in said.get("past", ())]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise unreadable("where this node's messages go", str(error)) from error
        for name, ids in recovered.duplicates.items():
            if name.startswith(TALLY_PREFIX) and ids:
                queue = name.removeprefix(TALLY_PREFIX)
                tally = self.tallies[queue] = QueueTally.of(queue, ids[-1].duplicate_id)
                self.number_max = max(self.number_max, *(number_of(share.link) for share in tally.shares))
        self._kept = stored_in(recovered)
        self._observes(self, True)

    # -- what is counted -----------------------------------------------------------------------------------------------

    def count(self, queue: Queue, delivering: int) -> QueueTally:
        """What is in a queue is counted from now on, when nothing of it is in delivery; `delivering`: how many were
        with consumers before they had to go."""
        known = self.tallies.get(queue.kind.name)
        LOOK.has_touched = True
        if known is not None:
            return known
        sizes, large, volatile = 0, 0, IdRanges()
        for segment in queue.segments():
            sizes += segment.run.size_bytes(segment.start, segment.n)
            large += segment.n if segment.run.large is not None else 0
            if not segment.run.section.is_durable:
                volatile.add(segment.first_id, segment.first_id + segment.n)
        pages = queue.pages
        if pages is not None:
            sizes += pages.size_bytes
            for first, n in pages.volatile():
                volatile.add(first, first + n)
        messages = queue.message_count - volatile.count
        values = (messages, sizes, delivering, queue.scheduled_count, queue.paged_count, large)
        tally = QueueTally(queue.kind.name, queue.kind.address, dict(zip(COUNTS, values, strict=True)))
        tally.now.connection, tally.now.target = self.connection, self.target
        tally.volatile, tally.volatile_came = volatile, volatile.count
        self.tallies[tally.name] = self.changed[tally.name] = tally
        return tally

    def left_in(self, queue: Queue) -> int:
        """How many durable messages a queue that is counted has."""
        return queue.message_count - self.tallies[queue.kind.name].volatile.count

    def write(self) -> None:
        """Near the end of a step: what was counted in it goes with its append."""
        LOOK.has_touched = True
        changed, self.changed = self.changed, {}
        for name, tally in changed.items():
            self._store.journal.duplicates.add(TALLY_PREFIX + name, NUMBER, tally.encoded(), NUMBER)

    def heard(self, queue: Queue, arrived: IdDigest | None) -> bool:
        """The other node has told, by the answer to an attach, what has arrived of a queue; None: an older one does
        not. Whether nothing may go before this step's append is on disk."""
        tally = self.tallies.get(queue.kind.name)
        LOOK.has_touched = True
        if tally is None:
            return False
        share = tally.share_of(queue.kind.drains_as)
        if arrived is None:
            share.asked_at = share.went.count  # it does not know; to ask again at once would go on for ever
            return False
        is_first = share.arrived_before is None
        if share.arrived_before is None:
            share.arrived_before = arrived
        self.changed[tally.name] = tally
        share.arrived, share.asked_at = arrived.since(share.arrived_before), share.went.count
        return is_first

    def heard_pause(self, queue: Queue, *, is_paused: bool) -> None:
        """The other node says whether it hands out nothing of it."""
        tally = self.tallies.get(queue.kind.name)
        LOOK.has_touched = True
        if tally is not None and tally.share_of(queue.kind.drains_as).is_paused_there is not is_paused:
            tally.share_of(queue.kind.drains_as).is_paused_there = is_paused
            self.changed[tally.name] = tally

    def heard_come(self, queue: Queue) -> None:
        """The other node has heard that it has all of it."""
        tally = self.tallies.get(queue.kind.name)
        LOOK.has_touched = True
        if tally is not None and not tally.share_of(queue.kind.drains_as).has_come:
            tally.share_of(queue.kind.drains_as).has_come = True
            self.changed[tally.name] = tally

    def has_come(self, queue: Queue) -> bool:
        """Whether the heir of its present link ever had all of the queue, and was told so."""
        tally = self.tallies.get(queue.kind.name)
        return tally is not None and tally.share_of(queue.kind.drains_as).has_come

    def has_to_ask(self, queue: Queue) -> bool:
        """Whether more has gone to the other node than it has said that it has."""
        tally = self.tallies.get(queue.kind.name)
        return tally is not None and tally.share_of(queue.kind.drains_as).has_to_ask

    # -- observers -----------------------------------------------------------------------------------------------------

    def messages_entered(self, queues: Sequence[Queue], segment: Segment) -> None:
        """Count them for the receipt of each queue (core/address/message_observer.py:MessageObserver)."""
        for queue in queues:
            tally = self.tallies.get(queue.kind.name)
            if tally is None:
                continue
            LOOK.has_touched = True
            if segment.run.section.is_durable:
                tally.came += segment.n
                self.changed[tally.name] = tally
            else:
                tally.volatile.add(segment.first_id, segment.first_id + segment.n)
                tally.volatile_came += segment.n

    def messages_left(self, queue: Queue, first_id: int, count: int, why: str) -> None:
        """Count where they went, by `why` (core/address/message_observer.py:MessageObserver)."""
        tally = self.tallies.get(queue.kind.name)
        if tally is None:
            return
        LOOK.has_touched = True
        is_gone, volatile_before = why == ACKNOWLEDGED and queue.kind.is_draining, tally.volatile.count
        share = tally.share_of(queue.kind.drains_as)
        for first, end in tally.volatile.missing(first_id, first_id + count):
            if is_gone:
                share.went = share.went.plus(first, end - first)
            else:
                tally.consumed += end - first
            self.changed[tally.name] = tally
        tally.volatile.remove(first_id, first_id + count)
        tally.volatile_went += is_gone and volatile_before - tally.volatile.count

    def queue_added(self, queue: Queue) -> None:
        """A queue was made: it has to go as well (core/cluster/queue_observer.py:QueueObserver)."""
        if not self.is_ending:
            LOOK.has_touched = True
            self.pending[queue] = None

    def queue_removed(self, queue: Queue) -> None:
        """A queue is gone: nothing of it has to go (core/cluster/queue_observer.py:QueueObserver)."""
        LOOK.has_touched = True
        self.pending.pop(queue, None)
