"""Messages that are moved to another address: dead letters and expired ones, with where they came from and why.

A moved message is a new message: a new id, no delivery count, no time to live, and no time of expiry, because clients
drop by themselves what has expired (Qpid JMS does). The rest of its bare message is what it was; the annotations say
where it comes from. Names are Artemis's (`x-opt-ORIG-ADDRESS` …), and the cause is ours. What a person moves is another
matter: `transferred` keeps what is left of its time and says nothing of its own, `retried` undoes `moved`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, NamedTuple

from mqbroker.base.errors import PeerFault
from mqbroker.core.queue.backlog import Segment
from mqbroker.core.queue.message_view import MessageView
from mqbroker.wire.composites import encode_composite
from mqbroker.wire.large import large_run
from mqbroker.wire.large_file import Large
from mqbroker.wire.parts import DELIVERY_TIME, ORIGIN_ADDRESS
from mqbroker.wire.run import Run, single
from mqbroker.wire.scan import MESSAGE_ANNOTATIONS, Sections, scan_sections
from mqbroker.wire.sections import Header, decode_annotations, decode_header, decode_properties, encode_section
from mqbroker.wire.values import Byte, Long, Symbol

ORIGIN_QUEUE: Final = Symbol("x-opt-ORIG-QUEUE")
ORIGIN_ROUTING: Final = Symbol("x-opt-ORIG-ROUTING-TYPE")
ORIGIN_ID: Final = Symbol("x-opt-ORIG-MESSAGE-ID")
CAUSE: Final = Symbol("x-opt-CAUSE")
INGRESS_TIME: Final = Symbol("x-opt-ingress-time")  # when it came, in ms since 1970
CAUSE_SIZE_MAX: Final = 500
NOT_TAKEN: Final = "no queue of its address takes it"
NOT_MADE: Final = "what its divert leads to cannot be made"  # so that nobody had a copy there
NOTES: Final = (ORIGIN_ADDRESS, ORIGIN_QUEUE, ORIGIN_ROUTING, ORIGIN_ID, CAUSE)
ROUTING_NUMBERS: Final = {"multicast": Byte(0), "anycast": Byte(1)}  # Artemis's
DELIVERY_PREFIX: Final = "x-opt-delivery-"
TTL_MS_MAX: Final = 0xFFFFFFFF


class MessageOrigin(NamedTuple):
    """Where a message was before it was moved, or what it was sent to where it came to no queue: an address, and one
    queue of it, or empty.

    `routing`: anycast where it was for one of those that share, multicast where it was a copy, or for those that get
    one; empty: nobody says, or for all of them.
    """

    address: str
    queue: str = ""
    routing: str = ""

    @staticmethod
    def said_by(view: MessageView) -> MessageOrigin | None:
        """What a moved message says, which may come of anybody who may send there; None: nothing."""
        address, queue = view.annotation(ORIGIN_ADDRESS), view.annotation(ORIGIN_QUEUE)
        if not isinstance(address, str) or not address:
            return None
        number = view.annotation(ORIGIN_ROUTING)
        is_number = isinstance(number, int) and not isinstance(number, bool)
        # An older release leaves what was said of an earlier queue, and writes its own notes behind it.
        is_own = is_number and view.annotation_stands_behind(ORIGIN_ROUTING, ORIGIN_ADDRESS)
        routing = next((name for name, each in ROUTING_NUMBERS.items() if is_own and each == number), "")
        return MessageOrigin(str(address), str(queue or ""), routing)


def moved(segment: Segment, index: int, origin: MessageOrigin, cause: str, *, is_value: bool = False) -> Run:
    """Message `index` of the segment's run as it goes to another address.

    `is_value`: it was the value of a key, and says when it came, so that it replaces no later one where it is sent
    back.
    """
    run = segment.run
    payload = run.payload(index)
    notes = {
        ORIGIN_ADDRESS: origin.address,
        **({ORIGIN_QUEUE: origin.queue} if origin.queue else {}),
        **({ORIGIN_ROUTING: ROUTING_NUMBERS[origin.routing]} if origin.routing else {}),
        ORIGIN_ID: Long(run.first_id + index),
        CAUSE: cause[:CAUSE_SIZE_MAX],
        **({INGRESS_TIME: Long(valid_ms(run, index))} if is_value else {}),
    }
    try:
        return made(_rewritten(bytes(payload), notes), run.large)
    except PeerFault:
        # Whatever is wrong with it, it must not be lost for that.
        return made(bytes(payload), run.large)


def transferred(segment: Segment, index: int, now_ms: int) -> Run:
    """Message `index` as a person moves it: it expires and comes due when it would have in its old place."""
    run = segment.run
    payload = bytes(run.payload(index))
    if not run.section.ttl_ms and not run.deliver_at_ms:
        return made(payload, run.large)
    left_ms = max(run.expires_ms - now_ms, 1) if run.expires_ms else None
    notes: dict[Any, object] = {DELIVERY_TIME: Long(run.deliver_at_ms)} if run.deliver_at_ms > now_ms else {}
    try:
        ttl_ms = min(left_ms, TTL_MS_MAX) if left_ms else None
        return made(_with_head(payload, ttl_ms, (DELIVERY_PREFIX,), notes), run.large)
    except PeerFault:
        return made(payload, run.large)


def forwarded(segment: Segment, index: int, now_ms: int, *, is_value: bool = False) -> bytes | None:
    """Message `index` as another node is to get it, None: as it is. Its clock need not agree with ours on ends.

    What is left of its time to live goes with it, a delay becomes the time at which it is due, and how often it was
    delivered is said. One that is the value of a key (`is_value`) says when it came, because what waited on its way
    must not replace a later one.
    """
    run = segment.run
    is_late = _is_late(run)
    if not run.expires_ms and not is_late and not _is_counted(segment) and not is_value:
        return None
    payload, ttl_ms = bytes(run.payload(index)), _ttl_left_ms(run, now_ms)
    notes: dict[Any, object] = {DELIVERY_TIME: Long(run.deliver_at_ms)} if is_late else {}
    if is_value:
        notes[INGRESS_TIME] = Long(came_ms(run, index))
    try:
        return _with_head(payload, ttl_ms, (DELIVERY_PREFIX,) if is_late else (), notes, segment.deliveries)
    except PeerFault:
        return None  # what cannot be read says nothing of all that, as in parts.py


def came_ms(run: Run, index: int) -> int:
    """When a message came to the first node that had it, in ms of that node's clock; never later than it came here."""
    said = MessageView(run.payload(index)).annotation(INGRESS_TIME)
    return min(int(said), run.arrived_ms) if isinstance(said, int) else run.arrived_ms


def valid_ms(run: Run, index: int) -> int:
    """From when on a message is the value of its key, by the same clock: one with a delay is so when it is due."""
    return max(came_ms(run, index), run.deliver_at_ms)


def forwarded_alike(segment: Segment, count: int, now_ms: int) -> list[bytes]:
    """The first `count` messages as another node is to get them, where they differ from what is here by their header
    alone, which is the same in all of them; none: they go as they are, or one by one."""
    run = segment.run
    if run.large is not None or not (run.expires_ms or _is_counted(segment)) or _is_late(run):
        return []
    ttl_ms = _ttl_left_ms(run, now_ms)
    try:
        size = run.section.size_bytes
        header = decode_header(bytes(run.payload(segment.start)[:size]), 0, size)[0] if size else Header()
    except PeerFault:
        return []
    head = encode_composite(replace(header, ttl=ttl_ms, first_acquirer=False, delivery_count=segment.deliveries))
    places = range(segment.start, segment.start + count)
    return [b"".join((head, run.payload(place)[size:])) for place in places]


def _is_counted(segment: Segment) -> bool:
    """Whether they were delivered in vain, or say so: the other node takes the count of their header for ours."""
    return bool(segment.deliveries or segment.run.section.delivery_count)


def _is_late(run: Run) -> bool:
    """Whether messages have a delay, which becomes a time on their way."""
    return run.traits.delay_ms > 0 and run.deliver_at_ms > 0


def _ttl_left_ms(run: Run, now_ms: int) -> int | None:
    return min(max(run.expires_ms - now_ms, 1), TTL_MS_MAX) if run.expires_ms else None


def retried(run: Run, index: int) -> Run:
    """A dead letter or an expired message as it was before. Raises PeerFault where it cannot be read."""
    return made(_with_head(bytes(run.payload(index)), None, NOTES, {}), run.large)


def made(payload: bytes, large: Large | None) -> Run:
    """A message made anew; of a large one that is its head, and its file is the same."""
    return single(payload) if large is None else large_run(payload, large)


def _rewritten(payload: bytes, notes: dict[Symbol, object]) -> bytes:
    sections = scan_sections(payload, 0, len(payload))
    lasting = payload[: sections.bare] + _lasting(payload, sections)
    return _with_head(lasting, None, (DELIVERY_PREFIX, *NOTES), notes)


def _with_head(
    payload: bytes, ttl_ms: int | None, dropped: tuple[str, ...], notes: dict[Any, object], deliveries: int = 0
) -> bytes:
    """The bare message behind a new header and new annotations: `dropped` go, `notes` come.

    DELIVERY_PREFIX among `dropped` is all that begin with it.
    """
    sections = scan_sections(payload, 0, len(payload))
    header = Header()
    if sections.header >= 0:
        header = decode_header(payload, sections.header, sections.end)[0]
    annotations: dict[Any, Any] = {}
    if sections.message_annotations >= 0:
        annotations.update(decode_annotations(payload, sections.message_annotations, sections.end)[0])
    prefixes = (DELIVERY_PREFIX,) if DELIVERY_PREFIX in dropped else ()
    annotations = {
        name: value for name, value in annotations.items() if name not in dropped and not str(name).startswith(prefixes)
    } | notes
    head = encode_composite(replace(header, ttl=ttl_ms, first_acquirer=False, delivery_count=deliveries))
    shown = encode_section(MESSAGE_ANNOTATIONS, annotations) if annotations else b""
    return b"".join((head, shown, payload[sections.bare :]))


def _lasting(payload: bytes, sections: Sections) -> bytes:
    """The bare message without an absolute expiry time; one that has none stays as it is, byte for byte."""
    bare = payload[sections.bare :]
    if sections.properties < 0:
        return bare
    try:
        properties, end = decode_properties(payload, sections.properties, sections.end)
    except PeerFault:
        return bare  # what cannot be read says nothing, as in parts.py
    if properties.absolute_expiry_time is None:
        return bare
    return encode_composite(replace(properties, absolute_expiry_time=None)) + payload[end:]
