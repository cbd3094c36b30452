"""A link on which a peer consumes from a queue: what it may take now, and how messages go out on it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from mqbroker.amqp.links import SenderLink
from mqbroker.base.errors import Refused
from mqbroker.base.look import LOOK
from mqbroker.core.address.permissions import BROWSE, CONSUME
from mqbroker.core.queue.group_first import marked
from mqbroker.core.queue.queue import Client, Filter, Queue, Segment
from mqbroker.node.amqp.links.downloads import Download
from mqbroker.wire.composites import encode_composite
from mqbroker.wire.large_file import Large
from mqbroker.wire.run import Run, payload_with_count
from mqbroker.wire.sections import Header, decode_header

if TYPE_CHECKING:
    from mqbroker.amqp.events import Detached
    from mqbroker.node.amqp.peers.peer import Peer
    from mqbroker.wire.performatives import Attach, Error, Source

EMPTY_HEADER: Final = encode_composite(Header())  # what a message without one means (AMQP 1.0 §3.2.1)


class LinkConsumer:
    """A link of ours on which a peer consumes from a queue."""

    __slots__ = (
        "default_outcome",
        "download",
        "ends_queue",
        "filter",
        "is_arriving",
        "is_asking",
        "is_browser",
        "is_subscription",
        "lasts_as",
        "link",
        "peer",
        "priority",
        "queue",
    )

    def __init__(self, peer: Peer, link: SenderLink, queue: Queue) -> None:
        self.peer = peer
        self.link = link
        self.queue = queue
        self.priority = 0
        self.filter: Filter | None = None
        self.default_outcome: Any = None  # of what is settled without an outcome (§3.5.3); None: accepted
        self.is_arriving = False  # it has its answer, and waits for the disk before it gets messages
        self.is_asking = False  # it gets nothing: it asks what is there, to end it
        self.is_browser = False
        self.ends_queue = False  # the queue ends with the last of such links
        self.is_subscription = False
        self.lasts_as: Source | None = None  # of a subscription that may outlive its link although it is not durable
        self.download: Download | None = None  # of a large message; the link sends nothing else meanwhile

    # -- for those who ask who consumes --------------------------------------------------------------------------------

    @property
    def client(self) -> Client | None:
        """It takes messages for a connection."""
        return self

    @property
    def consumer(self) -> LinkConsumer | None:
        """The same, for those who attached its link."""
        return self

    @property
    def name(self) -> str:
        """The name of the link, which its container chose."""
        return self.link.name

    @property
    def conn(self) -> int:
        """The id of the connection that the link is of."""
        return self.peer.conn

    @property
    def far(self) -> str:
        """Where the other end of that is, for people."""
        return self.peer.far

    @property
    def is_there(self) -> bool:
        """Whether the link is attached at both ends."""
        return self.link.is_attached

    @property
    def has_unsettled(self) -> bool:
        """Whether it has taken messages that are not settled; what a browser has are copies."""
        is_copy = self.is_browser or self.queue.kind.is_read_by_all
        return not is_copy and self.link.session.unsettled.has_of(self.link)

    @property
    def may_return(self) -> bool:
        """Whether its subscription waits for its link for a time first, once its connection is gone."""
        return self.lasts_as is not None and self.lasts_as.timeout > 0

    @property
    def is_departing(self) -> bool:
        """Whether it gets nothing more, as its connection goes to another node; but what ends with that. Where the
        connection is closed for certain, that neither."""
        return self.peer.is_departing and (self.peer.farewell.is_final or not self.queue.kind.is_temporary)

    @property
    def settled_count(self) -> int:
        """What went over the link, but for what is unsettled."""
        link = self.link
        held: int = sum(taken.n for taken in link.session.unsettled if taken.link is link)
        return self.peer.broker.activity.of(link).count - held

    def refusal(self) -> Refused | None:
        """Why it would not be let in now."""
        broker = self.peer.broker
        try:
            permission = BROWSE if self.is_browser else CONSUME
            broker.store.permit(self.peer.actor, permission, self.queue.kind.address)
        except Refused as refused:
            return refused.without_trace()
        return None

    def end(self, condition: str, why: str) -> None:
        """Detach the link with this condition, where it is attached."""
        if self.link.is_attached:
            self.peer.detach(self.link, condition, why)

    def part(self) -> None:
        """If the link is over, what it had is handed back now."""
        if not self.link.is_attached:
            self.peer.part_with(self.link)

    def close(self, condition: str, why: str) -> None:
        """Close the whole connection with this condition, where the link is attached."""
        if self.link.is_attached:
            self.peer.close(condition, why)

    # -- as the end of its link ----------------------------------------------------------------------------------------

    is_shown = True

    def credit_given(self) -> None:
        """It has its turn, and what it may have then answers a drain."""
        LOOK.has_touched = True
        self.peer.broker.store.dirty[self.queue] = None
        if self.link.is_draining:
            self.peer.broker.draining[self.link] = self.peer

    @property
    def is_drained(self) -> bool:
        """Whether all that it may have was sent, and nothing more of it comes from the disk."""
        store = self.peer.broker.store
        return self.queue not in store.dirty and self.is_served and not store.paging.is_due(self.queue)

    def detached(self, peer: Peer, event: Detached) -> None:
        """The link is over. What becomes of the queue is said where links are attached (termini.py)."""
        if self.download is not None:
            self.download.end()

    def answered(self, peer: Peer, link: SenderLink, answer: Attach) -> None:
        """Clients ask for their links themselves."""

    def told_of(self, segment: Segment) -> None:
        """Nothing is kept of what it was sent."""

    def outcomes_taken(self) -> None:
        """Nothing follows from them."""

    def ended(self, error: Error | None) -> None:
        """What was on the link is back in its queue, for whoever is there."""

    # -- messages ------------------------------------------------------------------------------------------------------

    def capacity(self) -> int:
        """Messages that credit, window and the transport let through now."""
        link, peer = self.link, self.peer
        if not link.is_attached or peer.is_blocked or self.download is not None:
            return 0
        if peer.is_departing and self.is_departing:
            return 0
        LOOK.has_touched = True
        if peer.out_bytes > peer.out_bytes_max:
            peer.broker.next_turn[self.queue] = None
            return 0
        return min(link.credit, link.session.window)

    @property
    def is_served(self) -> bool:
        """Whether all that it may have was sent, where its queue had its turn: nothing but the queue held it back."""
        if self.is_arriving or self.download is not None:
            return False
        peer = self.peer
        is_held = peer.is_blocked or self.is_departing or not self.link.session.window
        is_held = is_held or self.queue in peer.broker.next_turn
        # A pause holds back nothing from who looks on.
        has_any = self.queue.ready_count > 0 and (self.is_browser or not self.queue.is_paused)
        return not has_any or not is_held

    def deliver(self, queue: Queue, segment: Segment) -> int:
        """Send them; a redelivery says so in its header (the general path)."""
        peer, link = self.peer, self.link
        if self.download is not None:
            return 0
        run, index, count, deliveries = segment.run, segment.start, segment.n, segment.deliveries
        is_copy = self.is_browser or queue.kind.is_read_by_all
        token = None if is_copy else (queue, segment)
        peer.touch()
        LOOK.has_touched = True
        if peer.out_bytes > peer.out_bytes_max:
            peer.broker.next_turn[queue] = None
            return 0
        if link.max_message_size and (
            run.frame_size_max - run.head_size > link.max_message_size or run.large is not None
        ):
            count = self._fitting(segment)
            if not count:
                link.detach("amqp:link:message-size-exceeded", "the next message exceeds the link's max-message-size")
                return 0
        if run.large is not None:
            return self._download(queue, segment, run.large, None if is_copy else (queue, segment))
        alike = self.rewritten_alike(segment, count) if count > 1 else []
        payload = None if alike else self.rewritten(queue, segment)
        if alike:
            went = link.session.send_payloads(link, alike, token)
        elif payload is not None:
            segment = Segment(run, index, 1, deliveries)
            went = link.session.send_message(link, payload, None if is_copy else (queue, segment))
        else:
            went = link.session.send_run(link, run, index, count, token)
        if went:
            if deliveries and token is not None:
                self._count(queue, Segment(run, index, went, deliveries))
            peer.out_bytes += run.size_bytes(index, went)
            peer.broker.activity.went(link, went, peer.broker.at.monotonic_ns)
        if went and link.send_settled and not is_copy:
            peer.broker.store.settle(queue, Segment(run, index, went, deliveries))
        return went

    def rewritten(self, queue: Queue, segment: Segment) -> list[bytes | memoryview] | None:
        """The first of the messages, or the head of a large one, as the peer is to get it; None: as it is."""
        first_key = queue.kind.group_first_key if queue.dispatcher.opens_group else ""
        # What a producer wrote there counts attempts that were not ours.
        if not segment.deliveries and not first_key and not segment.run.section.delivery_count:
            return None
        return _altered(segment.run, segment.start, segment.deliveries, first_key)

    def rewritten_alike(self, segment: Segment, count: int) -> list[bytes]:
        """The first `count` messages as the peer is to get them, a frame each; none: one at a time, or as they are."""
        return []

    def _download(self, queue: Queue, segment: Segment, large: Large, token: tuple[Queue, Segment] | None) -> int:
        """Begin to send a large message; its end comes later."""
        if not self.link.session.window:
            return 0
        payload = self.rewritten(queue, segment)
        head = bytes(segment.run.payload(segment.start)) if payload is None else b"".join(payload)
        self.download = Download(self, queue, large)
        # Its first transfer goes before its body is read, and there are clients that take an empty one for a fault.
        self.download.begin(head or EMPTY_HEADER, token)
        if segment.deliveries and token is not None:
            self._count(queue, segment.part(segment.start, 1))
        self.peer.broker.activity.went(self.link, 1, self.peer.broker.at.monotonic_ns)
        return 1

    def _count(self, queue: Queue, segment: Segment) -> None:
        """What went out again counts, should the process die before there is an outcome. All of the queue counts as
        delivered once then, so the first time costs nothing here."""
        if not queue.kind.is_outbound:
            self.peer.broker.store.count(queue, segment, segment.deliveries + 1)

    def _fitting(self, segment: Segment) -> int:
        """How many of the messages, from the first on, the receiver takes by their size."""
        run, index, count = segment.run, segment.start, segment.n
        sizes = (run.message_bytes(each) for each in range(index, index + count))
        return next((n for n, size in enumerate(sizes) if size > self.link.max_message_size), count)


def _altered(run: Run, index: int, deliveries: int, first_key: str) -> list[bytes | memoryview]:
    """The message with its count of deliveries, and marked as its group's first where a property is named for that."""
    payload: list[bytes | memoryview] = [run.payload(index)]
    if deliveries or run.section.delivery_count:
        header = _header_with(run.payload(index), run.section.size_bytes, deliveries)
        payload = payload_with_count(run, index, header)
    return [marked(b"".join(payload), first_key)] if first_key else payload


def _header_with(payload: memoryview, size: int, deliveries: int) -> bytes:
    """The message's header section with this delivery count; `first-acquirer` holds for the first one alone."""
    header = decode_header(bytes(payload[:size]), 0, size)[0] if size else Header()
    is_first = header.first_acquirer and not deliveries
    return encode_composite(replace(header, first_acquirer=is_first, delivery_count=deliveries))
