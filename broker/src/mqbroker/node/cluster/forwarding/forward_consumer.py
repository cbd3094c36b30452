"""The consumer of a store-and-forward queue, or of one that drains: a link of a bridge on which its messages leave.

It is a LinkConsumer, so credit, windows, runs and large messages are those of clients. What is added: the other node is
told the ids of messages where they do not follow on each other, so that it takes each once; queues whose routes share a
binding take turns by message id, so that the order of that binding's queue is kept; what may be at another node goes
nowhere else. Source: docs/adr/0012-cluster-connections.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from mqbroker.amqp.links import SenderLink
from mqbroker.amqp.session import FIRST_ID, MARK
from mqbroker.base.errors import Refused
from mqbroker.base.look import LOOK
from mqbroker.config.slices import ClusterConnectionOptions
from mqbroker.core.cluster.marks import NONE
from mqbroker.core.queue.id_ranges import IdRanges
from mqbroker.core.queue.moved_message import forwarded, forwarded_alike
from mqbroker.core.queue.queue import Queue, Segment
from mqbroker.node.amqp.links.consumer import LinkConsumer
from mqbroker.wire.performatives import Attach, Error
from mqbroker.wire.run import Run
from mqbroker.wire.types import Symbol, ULong

if TYPE_CHECKING:
    from mqbroker.node.amqp.peers.peer import Peer
    from mqbroker.node.cluster.forwarding.competing_queues import CompetingWaits

HEADER_GROWTH: Final = 64  # bytes that a transfer and a header section may grow by on their way
REROUTED_MAX: Final = 1000  # messages of a queue that are routed again at a time


class ForwardLinks(Protocol):
    """The links of one bridge, as one of them knows them (forwards.py)."""

    @property
    def peer(self) -> Peer:
        """The peer of the bridge whose links these are."""

    @property
    def options(self) -> ClusterConnectionOptions:
        """The options of the cluster connection that the bridge is of."""

    @property
    def competing_waits(self) -> CompetingWaits:
        """Which queues wait for the turn of another one."""

    def attached(self, consumer: ForwardConsumer, answer: Attach) -> None:
        """The other node has answered the attach of a link."""

    def detached(self, consumer: ForwardConsumer, error: Error | None) -> None:
        """The link of a consumer is gone, and with which error."""

    def wait_for_disk(self, consumer: ForwardConsumer, gone: list[tuple[int, int]]) -> None:
        """Messages that have left the queue are not sent again once their settlement is on disk."""

    def look(self, consumer: ForwardConsumer) -> None:
        """The other node has answered for some of its messages, and that is done."""

    def stuck(self, queue: Queue, why: str) -> None:
        """What keeps a queue from draining."""


class ForwardConsumer(LinkConsumer):
    """The one consumer of a store-and-forward queue."""

    __slots__ = (
        "_again", "_mark", "_next_id", "_unanswered_bytes", "competing", "forwards", "handed_over", "is_refused",
    )  # fmt: skip

    def __init__(self, forwards: ForwardLinks, link: SenderLink, queue: Queue) -> None:
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
        if self.competing and self.queue.backlog.count and not self._ahead(self.queue.backlog.head.rank, 1):
            return 0
        return super().capacity()

    @property
    def _window_bytes(self) -> int:
        """What may go before the other node has answered some of what went."""
        size_bytes = self._options.confirmation_window_size
        return size_bytes - self._unanswered_bytes if size_bytes >= 0 else 1 << 62

    @property
    def _options(self) -> ClusterConnectionOptions:
        return self.forwards.options

    def deliver(self, queue: Queue, segment: Segment) -> int:
        """Send them, behind the number of the first where the other node cannot count on."""
        held = self.peer.broker.store.remotes.scale_down.held
        if held.by_name and queue.part_of is None:
            aside, fresh = held.aside(queue, segment)
            if not fresh:
                return aside
            segment = segment.part(segment.start, fresh)
        if self.is_refused:
            self.peer.broker.store.remotes.reroute(queue, segment)
            return segment.n
        if self.competing:
            turn = self._ahead(segment.rank, segment.n)
            if not turn:
                return 0  # a competing queue has something from before it
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

    def _ahead(self, place: int, count: int) -> int:
        return self.forwards.competing_waits.ahead(self.queue, place, count, self.competing)

    def keep_to_old(self) -> None:
        """The drain is to end: what the other node may have goes, wherever it lies, and nothing else."""
        LOOK.has_touched = True
        self._find_old()
        self.peer.broker.store.dirty[self.queue] = None

    def _find_old(self) -> None:
        """But for what waits for another node, which may have it: that is apart, or stays where it is."""
        held, is_whole = self.peer.broker.store.remotes.scale_down.held, self.queue.part_of is None
        LOOK.has_touched = True
        if is_whole:
            held.take_out(self.queue)
        for segment in self.queue.backlog if self.handed_over.is_anything_old else ():
            if count := self.handed_over.awaited_count(segment.first_id, segment.n):
                self._again.add(segment.first_id, segment.first_id + count)
        if is_whole:
            self._again = held.fresh(self.queue, self._again)

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
        """Whether a last-value queue may have it, of a key of its own or by a property that a queue names; or a ring,
        which tells by that what is newest."""
        address = self.peer.broker.store.addresses.get(queue.kind.address)
        return queue.kind.is_ring or bool(run.traits.last_value) or (address is not None and address.has_last_value_key)

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

    def outcomes_taken(self) -> None:
        """What the other node has answered for is done."""
        self.forwards.look(self)

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
