"""Messages on their way to another node: one link for each store-and-forward queue of a bridge.

The consumer of such a link is a LinkConsumer, so credit, windows, runs and large messages are those of clients. What is
added: the other node is told the ids of messages where they do not follow on each other, so that it takes each once;
queues whose routes share a binding take turns by message id, so that the order of that binding's queue is kept; what
the other node has no queue for is routed again. Source: docs/adr/0012-cluster-connections.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from mqbroker.amqp.events import Settled
from mqbroker.amqp.links import SenderLink
from mqbroker.amqp.session import FIRST_ID, MARK
from mqbroker.base.errors import PeerFault, Refused
from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level
from mqbroker.config.slices import ClusterConnectionOptions
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.cluster.marks import NONE
from mqbroker.core.queue.handed_over import ANSWERED_MAX
from mqbroker.core.queue.id_ranges import IdRanges
from mqbroker.core.queue.moved_message import forwarded, forwarded_alike
from mqbroker.core.queue.queue import Queue, Segment
from mqbroker.node.amqp.consumer import LinkConsumer
from mqbroker.node.cluster.drain_links import attach_of, heard
from mqbroker.node.cluster.forwarding_terms import ENDED, NOT_FOUND, OLDER, has_made
from mqbroker.node.cluster.rivals import rivals_at, turn_rank
from mqbroker.node.values.open_transaction import segment_of
from mqbroker.wire.performatives import Accepted, Attach, Error, Rejected
from mqbroker.wire.run import Run
from mqbroker.wire.types import Symbol, ULong

if TYPE_CHECKING:
    from mqbroker.node.amqp.peer import Peer
    from mqbroker.node.cluster.bridge_peer import BridgePeer

HEADER_GROWTH: Final = 64  # bytes that a transfer and a header section may grow by on their way
REROUTED_MAX: Final = 1000  # messages of a queue that are routed again at a time


class ForwardConsumer(LinkConsumer):
    """The one consumer of a store-and-forward queue."""

    __slots__ = (
        "_again", "_mark", "_next_id", "_unanswered_bytes", "competing", "forwards", "handed_over", "is_refused",
    )  # fmt: skip

    def __init__(self, forwards: Forwards, link: SenderLink, queue: Queue) -> None:
        super().__init__(forwards.peer, link, queue)
        self.forwards = forwards
        self.competing: list[Queue] = []  # others whose messages go to some of the same queues
        self.is_refused = False  # the other node has no queue for it: everything is routed again
        assert queue.handed_over is not None
        self.handed_over = queue.handed_over
        self._again = IdRanges()  # what went out on earlier links, may be sent again, and did not on this one
        for first, end in self.handed_over.ids:
            self._again.add(first, end)
        self._next_id = 0  # that the other node expects
        self._mark = NONE  # of which it expects it
        self._unanswered_bytes = 0
        if queue.kind.drain_ends:
            self.keep_to_old()

    def capacity(self) -> int:
        """Messages that may go now."""
        if self.is_refused:
            return REROUTED_MAX
        if self._window_bytes <= 0:
            return 0
        if self.competing and self.queue.backlog.count and self.queue.backlog.head.rank >= turn_rank(self.competing):
            return 0
        return super().capacity()

    @property
    def _window_bytes(self) -> int:
        """What may go before the other node has answered some of what went."""
        size_bytes = self._options.confirmation_window_size
        return size_bytes - self._unanswered_bytes if size_bytes >= 0 else 1 << 62

    @property
    def _options(self) -> ClusterConnectionOptions:
        return self.forwards.bridge.of.options

    def deliver(self, queue: Queue, segment: Segment) -> int:
        """Send them, behind the number of the first where the other node cannot count on."""
        if self.is_refused:
            self.peer.broker.store.remotes.reroute(queue, segment)
            return segment.n
        if self.competing:
            turn = min(segment.n, turn_rank(self.competing) - segment.rank)
            if turn <= 0:
                return 0  # a rival has something from before it
            segment = segment.part(segment.start, turn)
        segment = segment.part(segment.start, self._fitting_window(segment))
        if segment.n > 0 and queue.kind.drain_ends:
            awaited = self.handed_over.awaited_count(segment.first_id, segment.n)
            if not awaited:
                if not self._again.count:
                    self._find_old()  # what has come from the disk since may lie behind what is new
                self._send_again(queue, segment)
            segment = segment.part(segment.start, awaited)
        if segment.n <= 0:
            return 0
        if not self._numbers:
            return self._send(queue, segment)
        known = self.handed_over.fitting(segment.first_id, segment.n)
        if not known:
            self._send_again(queue, segment)
            return 0
        return self._send(queue, segment if known == segment.n else segment.part(segment.start, known))

    def keep_to_old(self) -> None:
        """The drain is to end: what the other node may have goes, wherever it lies, and nothing else."""
        LOOK.has_touched = True
        self._find_old()
        self.peer.broker.store.dirty[self.queue] = None

    def _find_old(self) -> None:
        LOOK.has_touched = True
        for segment in self.queue.backlog if self.handed_over.is_anything_old else ():
            if count := self.handed_over.awaited_count(segment.first_id, segment.n):
                self._again.add(segment.first_id, segment.first_id + count)

    def _send(self, queue: Queue, segment: Segment) -> int:
        if self._is_too_large(segment):
            return self._give_up(queue, segment)
        LOOK.has_touched = True
        if self.download is None and segment.first_id != self._next_id and self._numbers:
            self._say_number(segment.first_id)
        went = super().deliver(queue, segment)
        self._next_id += went
        self._unanswered_bytes += self._size_bytes(segment, went)
        if went and self._numbers:
            self.handed_over.sent(segment.first_id, went)
            if self._again.count:
                self._again.remove(segment.first_id, segment.first_id + went)
        self.peer.broker.store.dirty.update(dict.fromkeys(self.competing if went else ()))
        return went

    def _say_number(self, number: int) -> None:
        """Which number the next message has, and under which mark where that is another one than before."""
        said: dict[Symbol, Any] = {FIRST_ID: ULong(number)}
        mark = self.peer.broker.store.remotes.marks.of(number)
        LOOK.has_touched = True
        if mark != self._mark:
            said[MARK] = self._mark = mark
        self.link.session.send_flow(self.link, said)
        self._next_id = number

    def _send_again(self, queue: Queue, held: Segment) -> None:
        """What went out on earlier links goes before anything new, although it lies behind that: `held`, which is not
        in the queue now. What is not there either has left it otherwise."""
        self._again.remove(held.first_id, held.first_id + held.n)
        gone: list[tuple[int, int]] = []
        for first, end in self._again:
            if not self._stretch_again(queue, first, end):
                break
            gone += self._again.within(first, end)
        for first, end in gone:
            self._again.remove(first, end)
        self.forwards.wait_for_disk(self, gone)

    def _stretch_again(self, queue: Queue, first: int, end: int) -> bool:
        """Send what the queue has of these ids; whether all of it went."""
        for segment in queue.backlog.of_ids(first, end):
            skip = max(first - segment.first_id, 0)
            count = min(end - segment.first_id, segment.n) - skip
            part = segment.part(segment.start + skip, count)
            able = min(count, super().capacity(), self._fitting_window(part))
            taken = queue.take_at(part.rank, able) if able > 0 else None
            went = self._send(queue, taken) if taken is not None else 0
            if taken is not None and went < taken.n:
                queue.put_back(taken.part(taken.start + went, taken.n - went))
            if went < count:
                return False
        return True

    def rewritten(self, queue: Queue, segment: Segment) -> list[bytes | memoryview] | None:
        """With what is left of its times, how often it was delivered, and where it is a value, when it came."""
        is_value = self._is_value(queue, segment.run)
        payload = forwarded(segment, segment.start, self.peer.broker.at.wall_ms, is_value=is_value)
        return None if payload is None else [payload]

    def rewritten_alike(self, segment: Segment, count: int) -> list[bytes]:
        """The same for many, where each fits a frame of the other node's."""
        if segment.run.frame_size_max + HEADER_GROWTH > self.peer.connection.peer_frame_size:
            return []
        if self._is_value(self.queue, segment.run):
            return []
        return forwarded_alike(segment, count, self.peer.broker.at.wall_ms)

    def _is_value(self, queue: Queue, run: Run) -> bool:
        """Whether a last-value queue may have it: of a key of its own, or by a property that a queue names."""
        address = self.peer.broker.store.addresses.get(queue.kind.address)
        return bool(run.traits.last_value) or (address is not None and address.has_last_value_key)

    @property
    def _numbers(self) -> bool:
        return self._options.use_duplicate_detection or self.queue.kind.is_draining

    def _fitting_window(self, segment: Segment) -> int:
        """About how many of the messages the window has room for; one where it is open at all."""
        room, size_bytes = self._window_bytes, self._size_bytes(segment, segment.n)
        if room <= 0 or size_bytes <= room:
            return segment.n if room > 0 else 0
        return max(segment.n * room // size_bytes, 1)

    def _is_too_large(self, segment: Segment) -> bool:
        """Whether the other node takes no message of this size, now or ever."""
        return 0 < self.link.max_message_size < segment.run.message_bytes(segment.start)

    def _give_up(self, queue: Queue, segment: Segment) -> int:
        store, size_max = self.peer.broker.store, self.link.max_message_size
        why = f"node {queue.kind.forwards_to} takes messages of at most {size_max} bytes: its max-message-size-bytes"
        if queue.kind.is_draining:
            self.forwards.stuck(queue, why)
            return 0  # it is no dead letter here, and whoever drains has to see to it
        store.dead_letters.reject(queue, segment.part(segment.start, 1), why)
        return 1

    @staticmethod
    def _size_bytes(segment: Segment, count: int) -> int:
        return segment.run.size_bytes(segment.start, count) if count else 0

    def answered(self, peer: Peer, link: SenderLink, answer: Attach) -> None:
        """The other node has answered the attach."""
        self.forwards.attached(self, answer)

    def ended(self, error: Error | None) -> None:
        """The link is over, and what was on it is back in its queue."""
        self.forwards.detached(self, error)

    def refusal(self) -> Refused | None:
        """Nobody's permission lets messages to another node."""
        return None

    def told_of(self, segment: Segment) -> None:
        """The other node has said something of these messages."""
        LOOK.has_touched = True
        self._unanswered_bytes = max(self._unanswered_bytes - self._size_bytes(segment, segment.n), 0)
        self.handed_over.answered.add(segment.first_id, segment.first_id + segment.n)
        self.peer.broker.store.dirty[self.queue] = None


class Forwards:
    """The links of one bridge. They begin when the other node has told which queues it has."""

    def __init__(self, peer: BridgePeer) -> None:
        self.broker, self._conn = peer.bridge.of.broker, peer.conn
        self.bridge = peer.bridge
        self.is_begun = False
        self.consumers: dict[Queue, ForwardConsumer] = {}

    @property
    def peer(self) -> BridgePeer:
        """Whose they are, while it is there. Looked up, as each of the two would keep the other one for ever."""
        return cast("BridgePeer", self.broker.peers[self._conn])

    def begin(self) -> None:
        """Ask for a link for each queue that is there."""
        LOOK.has_touched = True
        self.is_begun = True
        for queue in self.bridge.of.queues_for(self.bridge.node_id):
            self.attach(queue)

    def attach(self, queue: Queue) -> None:
        """A queue that this bridge serves."""
        peer, session, remotes = self.peer, self.peer.session, self.broker.store.remotes
        if not self.is_begun or queue in self.consumers or session is None or peer.connection.is_dead:
            return
        is_numbered = peer.bridge.of.options.use_duplicate_detection or queue.kind.is_draining
        try:
            link = session.attach_sender(attach_of(remotes, queue, peer.broker.node_id, is_numbered=is_numbered))
        except PeerFault as fault:
            self._refused(queue, fault.description)
            return
        LOOK.has_touched = True
        consumer = link.end = self.consumers[queue] = ForwardConsumer(self, link, queue)
        consumer.is_arriving = True
        queue.arriving_count += 1
        self._look(queue)
        peer.touch()

    def attached(self, consumer: ForwardConsumer, answer: Attach) -> None:
        """The other node answered. A refusal follows as a detach."""
        if consumer.queue.kind.is_draining:
            if answer.target is None:
                return  # it was not let in, and has nothing to ask for
            self.stuck(consumer.queue, "" if has_made(answer) else OLDER)
            if not has_made(answer):
                self.peer.detach(consumer.link, is_closed=False)
            elif heard(self.broker.store.remotes, consumer.queue, answer):
                self.broker.store.decisions.wait(self._join, consumer)
                return
        if consumer.is_arriving and consumer.link.is_attached:
            # Nothing leaves before it is on disk how far ids go (core/cluster/forwarding.py).
            self.broker.store.decisions.wait_for_earlier(self._join, consumer)

    def _join(self, consumer: ForwardConsumer) -> None:
        LOOK.has_touched = True
        if consumer.is_arriving and consumer.link.is_attached:
            consumer.is_arriving = False
            consumer.queue.arriving_count -= 1
            self.broker.store.join(consumer.queue, consumer)
            self._look_at_drain(consumer)

    def detached(self, consumer: ForwardConsumer, error: Error | None) -> None:
        """Its link is gone, and what was on it is back in its queue."""
        queue, broker = consumer.queue, self.broker
        condition, description = ("", "") if error is None else (str(error.condition), error.description or "")
        LOOK.has_touched = True
        if self.consumers.pop(queue, None) is not None:
            self._look(queue)
        broker.store.remotes.drains.look(queue)
        if self.peer.connection.is_dead or queue.is_deleted:
            return
        if condition == ENDED and queue.kind.is_draining:
            broker.store.delete_queue(queue, BROKER)  # what has come to it since is for nobody
            return
        if condition and queue in broker.canaries.waiting:
            broker.canaries.refused(queue, condition, description)
        if condition == NOT_FOUND and not queue.kind.is_draining and not broker.store.remotes.is_owed_beyond(queue):
            self._route_again(queue, consumer.link)
        elif condition:
            self._refused(queue, f"{condition}: {description[:200]}")

    def _refused(self, queue: Queue, why: str) -> None:
        """It has no link, and one is asked for again."""
        if queue.kind.is_draining:
            self.stuck(queue, why)
        else:
            self.broker.notice(Level.WARNING, "forwarding-refused", queue=queue.kind.name, why=why)
            self.bridge.again_soon()

    def _route_again(self, queue: Queue, link: SenderLink) -> None:
        """The other node has none of the queues any more: what is for them takes the ways that are open now."""
        store, refused = self.broker.store, ForwardConsumer(self, link, queue)
        refused.is_refused = True
        self.consumers[queue] = refused
        store.join(queue, refused)
        self.bridge.again_soon()

    def told(self, name: str) -> None:
        """The other node tells of a queue. A link that it refused for want of it is asked for anew before anything goes
        there: routed again, messages would take with them what is known of the queue by now."""
        for queue, consumer in list(self.consumers.items()):
            if consumer.is_refused and name in queue.kind.route:
                self.leave(consumer)
                self.attach(queue)

    def settled(self, event: Settled) -> bool:
        """Whether the outcome was ours to act on: there was no queue for the messages."""
        for taken in event.taken:
            if taken.token is not None and taken.link.end is not None:
                taken.link.end.told_of(segment_of(taken)[1])
        if self.broker.canaries.waiting and isinstance(event.outcome, Accepted):
            for taken in event.taken:
                if taken.token is not None:
                    self.broker.canaries.accepted(segment_of(taken)[0])
        error = event.outcome.error if isinstance(event.outcome, Rejected) else None
        if error is None or error.condition != NOT_FOUND:
            return False
        for queue, segment in [segment_of(taken) for taken in event.taken if taken.token is not None]:
            if queue.kind.is_draining or self.broker.store.remotes.is_owed_beyond(queue):
                self._hold(queue, segment)
            else:
                self.broker.store.remotes.reroute(queue, segment)
        return True

    def _hold(self, queue: Queue, segment: Segment) -> None:
        """The other node has forgotten the way to a subscription beyond it: it is asked again when it may know it."""
        if queue.handed_over is not None:
            queue.handed_over.refused(segment.first_id, segment.first_id + segment.n)
        self.broker.store.give_back(queue, segment, was_delivered=False)
        consumer = self.consumers.get(queue)
        if consumer is not None and consumer.link.is_attached:
            self.peer.detach(consumer.link, is_closed=False)
        self.bridge.again_soon()

    def look(self, consumer: ForwardConsumer) -> None:
        """The other node has answered for some of its messages, and that is done."""
        handed_over = consumer.handed_over
        if handed_over.answered.count >= ANSWERED_MAX or handed_over.room < ANSWERED_MAX:
            self.wait_for_disk(consumer, handed_over.take_answered())
        self.tidy(consumer)

    def wait_for_disk(self, consumer: ForwardConsumer, gone: list[tuple[int, int]]) -> None:
        """Messages that have left the queue are not sent again once their settlement is on disk."""
        store = self.broker.store
        if not gone:
            return
        may_say = store.journal.latest_position == store.journal.position  # what this step appends may say it
        wait = store.decisions.wait if may_say else store.decisions.wait_for_earlier
        wait(self._settled_on_disk, consumer, gone)

    def _settled_on_disk(self, consumer: ForwardConsumer, gone: list[tuple[int, int]]) -> None:
        for first, end in gone:
            consumer.handed_over.settled(first, end)
        LOOK.has_touched = True
        self.broker.store.dirty[consumer.queue] = None
        self.tidy(consumer)
        self.broker.store.remotes.drains.look(consumer.queue)

    def tidy(self, consumer: ForwardConsumer) -> None:
        """A queue that is empty, and whose bindings are gone, needs no link, and nobody needs the queue.

        The other node forgets what came from it when the link is closed, so nothing may be sent again by then.
        """
        queue, remotes = consumer.queue, self.broker.store.remotes
        if queue.kind.is_draining:
            self._look_at_drain(consumer)
            return
        is_known = all(name in remotes.by_name for name in queue.kind.route)
        if queue.message_count or (is_known and not consumer.is_refused) or self.consumers.get(queue) is not consumer:
            return
        if consumer.handed_over.ids.count:
            self.wait_for_disk(consumer, list(consumer.handed_over.ids))
            return
        if consumer.link.is_attached:
            self.peer.detach(consumer.link)
        else:
            self.leave(consumer)
        remotes.tidy([queue])

    def _look_at_drain(self, consumer: ForwardConsumer) -> None:
        """A drain that was called off ends when all that went out is answered, and that is on disk."""
        queue, handed_over = consumer.queue, consumer.handed_over
        is_empty = queue.message_count == queue.scheduled_count  # but for what waits for its time
        if is_empty and not queue.kind.drain_ends and self.broker.store.remotes.scale_down.is_on:
            self._look_at_receipt(consumer)
        if not queue.kind.drain_ends or self.consumers.get(queue) is not consumer:
            return
        if handed_over.ids.count and is_empty:
            self.wait_for_disk(consumer, list(handed_over.ids))
        elif handed_over.answered.count:
            self.wait_for_disk(consumer, handed_over.take_answered())
        elif self.broker.store.remotes.drains.is_answered(queue):
            self.peer.detach(consumer.link)  # for good: the other node forgets what came

    def _look_at_receipt(self, consumer: ForwardConsumer) -> None:
        """A queue is empty: once that is on disk the other node is asked what has arrived, by a link that is new."""
        queue, handed_over, remotes = consumer.queue, consumer.handed_over, self.broker.store.remotes
        if self.consumers.get(queue) is not consumer or consumer.is_arriving:
            return
        if handed_over.ids.count:
            self.wait_for_disk(consumer, list(handed_over.ids))
        elif consumer.link.is_attached and (remotes.scale_down.has_to_ask(queue) or remotes.drains.has_to_say(queue)):
            self.peer.detach(consumer.link, is_closed=False)
            self.attach(queue)

    def called_off(self, queue: Queue, *, is_forced: bool) -> None:
        """A drain is to end; `is_forced`: whatever is without an answer."""
        consumer = self.consumers.get(queue)
        if consumer is not None and is_forced:
            self.peer.detach(consumer.link, is_closed=False)
        elif consumer is not None:
            consumer.keep_to_old()
            self.tidy(consumer)

    def stuck(self, queue: Queue, why: str) -> None:
        """What keeps a queue from draining, empty: nothing."""
        if why:
            self.bridge.again_soon()
        if self.broker.store.remotes.drains.stuck(queue, why) and why:
            self.broker.notice(Level.WARNING, "drain-stuck", queue=queue.kind.name, node_id=self.bridge.node_id,
                               why=why[:200])  # fmt: skip

    def leave(self, consumer: ForwardConsumer) -> None:
        """The consumer serves its queue no more."""
        LOOK.has_touched = True
        self.consumers.pop(consumer.queue, None)
        if consumer in consumer.queue.consumers:
            self.broker.store.leave(consumer.queue, consumer)
        self._look(consumer.queue)

    def tidy_all(self) -> None:
        """Bindings are gone."""
        for consumer in list(self.consumers.values()):
            self.tidy(consumer)

    def again(self) -> None:
        """Links that were refused are asked for once more."""
        self.tidy_all()
        if any(consumer.is_refused for consumer in self.consumers.values()):
            self.bridge.again_soon()
        self.begin()

    def end(self) -> None:
        """The connection is gone: consumers without a link go with it."""
        for consumer in list(self.consumers.values()):
            self.leave(consumer)

    def _look(self, changed: Queue) -> None:
        """Which queues have to take turns: only those of one address may."""
        address = self.broker.store.addresses.get(changed.kind.address)
        for queue, rivals in rivals_at(address, self.consumers).items():
            self.consumers[queue].competing = rivals
            self.broker.store.dirty[queue] = None
