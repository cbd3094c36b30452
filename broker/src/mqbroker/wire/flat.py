"""Flow and disposition without recursion or objects: the two performatives that come as often as messages do.

Invariant: a decoder here gives exactly the fields that the general decoder gives, in the same order, or None for any
shape that it does not know, malformed ones included; the caller then takes the general path, which is the reference.
Source: AMQP 1.0 §2.7.4, §2.7.6.
"""

from __future__ import annotations

from itertools import product
from struct import Struct
from typing import Any, Final, NamedTuple

from mqbroker.base.errors import PeerFault
from mqbroker.wire import codes
from mqbroker.wire.decode import Buffer
from mqbroker.wire.performatives import (
    Accepted,
    DeliveryState,
    Disposition,
    Modified,
    Rejected,
    Released,
    TransactionalState,
    decode_performative,
)

ACCEPTED: Final = Accepted()
RELEASED: Final = Released()

# (next-incoming-id, incoming-window, next-outgoing-id, outgoing-window, handle, delivery-count, link-credit, available,
#  drain, echo, properties)
FlowFields = tuple[
    int | None, int, int, int, int | None, int | None, int | None, int | None, bool, bool, dict[Any, Any] | None
]
# (role, first, last, settled, state, batchable)
DispositionFields = tuple[bool, int, int | None, bool, DeliveryState | None, bool]
# (settled, state, batchable)
DispositionTail = tuple[bool, DeliveryState | None, bool]

_FLOW: Final = b"\x00\x53\x13"
_DISPOSITION: Final = b"\x00\x53\x15"

_TRANSACTIONAL: Final = b"\x00\x53\x34"  # the descriptor of a state that names a transaction, behind `settled`
CACHE_SIZE_MAX: Final = 1024
CACHED_BYTES_MAX: Final = 64  # what a peer sends is kept only as far as sensible peers send it

_unpack_u32: Final = Struct(">I").unpack_from
_pack_u32: Final = Struct(">I").pack
_transactional_tails: Final[dict[tuple[int, bytes], DispositionTail | None]] = {}


def _list_at(buffer: Buffer, offset: int, end: int) -> tuple[int, int] | None:
    """(count, first field) of a list that ends exactly at `end`: neither performative has a payload."""
    if offset + 3 > end:
        return None
    code = buffer[offset]
    if code == codes.LIST8:
        return (buffer[offset + 2], offset + 3) if offset + 2 + buffer[offset + 1] == end else None
    if code == codes.LIST32 and offset + 9 <= end and offset + 5 + _unpack_u32(buffer, offset + 1)[0] == end:
        return _unpack_u32(buffer, offset + 5)[0], offset + 9
    return None


# -- flow -------------------------------------------------------------------------------------------------------------

_COUNTERS: Final = 8
_DEFAULTS: Final = (None, None, None, None, None, None, None, None, False, False, None)


def decode_flow_flat(buffer: Buffer, offset: int, end: int) -> FlowFields | None:
    """The fields of the flow that fills `offset` to `end`; None where its shape is unusual, as with properties."""
    head = _list_at(buffer, offset + 3, end)
    if head is None or buffer[offset : offset + 3] != _FLOW or not 4 <= head[0] <= 11:
        return None
    count, offset = head
    fields: list[Any] = []
    for _ in range(min(count, _COUNTERS)):
        code = buffer[offset] if offset < end else -1
        if code == codes.SMALLUINT and offset + 2 <= end:
            fields.append(buffer[offset + 1])
            offset += 2
        elif code == codes.UINT and offset + 5 <= end:
            fields.append(_unpack_u32(buffer, offset + 1)[0])
            offset += 5
        elif code == codes.UINT0 or code == codes.NULL:
            fields.append(0 if code == codes.UINT0 else None)
            offset += 1
        else:
            return None
    if None in fields[1:4]:
        return None
    flags = _FLOW_TAILS.get(bytes(buffer[offset:end])) if len(fields) + end - offset == count else None
    return (*fields, *_DEFAULTS[len(fields) : 8], *flags) if flags else None


# What may follow the counters: drain, echo, and properties that are null.
_FLAGS: Final = ((b"\x40", False), (b"\x42", False), (b"\x41", True))
_FLOW_TAILS: Final[dict[bytes, tuple[bool, bool, None]]] = {b"": (False, False, None)}
for (_drain, _drained), (_echo, _echoed), _none in product(_FLAGS, _FLAGS, (b"", b"\x40")):
    _FLOW_TAILS[_drain] = (_drained, False, None)
    _FLOW_TAILS[_drain + _echo + _none] = (_drained, _echoed, None)


class SessionFlow(NamedTuple):
    """Transfer counters of a session, each already wrapped to 32 bits."""

    next_incoming_id: int
    incoming_window: int
    next_outgoing_id: int
    outgoing_window: int


class LinkFlow(NamedTuple):
    """State of one link. `available` is only the sender's to say; a receiver leaves it None."""

    handle: int
    delivery_count: int
    link_credit: int
    available: int | None = None
    drain: bool = False


_SESSION_FLOW: Final = Struct(">IBBH 3s BBB BI BI BI BI")
_LINK_FLOW: Final = Struct(">BI BI BI")
_AVAILABLE: Final = Struct(">BI")


def encode_flow_frame(channel: int, session: SessionFlow, link: LinkFlow | None = None, echo: bool = False) -> bytes:
    """A whole flow frame; of the session alone where no link is given. Numbers take their full width, for speed."""
    tail, count = b"", 4
    if link is not None:
        counters = _LINK_FLOW.pack(0x70, link.handle, 0x70, link.delivery_count, 0x70, link.link_credit)
        available = b"\x40" if link.available is None else _AVAILABLE.pack(0x70, link.available)
        tail, count = counters + available + (b"\x41" if link.drain else b"\x42"), 9
    if echo:
        tail, count = tail + (b"\x41" if link is not None else b"\x40\x40\x40\x40\x40\x41"), 10
    incoming_id, incoming, outgoing_id, outgoing = session
    list_size = 21 + len(tail)
    head = _SESSION_FLOW.pack(
        13 + list_size, 2, 0, channel, _FLOW, codes.LIST8, list_size, count,
        0x70, incoming_id, 0x70, incoming, 0x70, outgoing_id, 0x70, outgoing,
    )  # fmt: skip
    return head + tail


# -- disposition ------------------------------------------------------------------------------------------------------


def decode_disposition_flat(buffer: Buffer, offset: int, end: int) -> DispositionFields | None:
    """The fields of the disposition that fills `offset` to `end`; None where its shape is unusual."""
    head = _list_at(buffer, offset + 3, end)
    if head is None or buffer[offset : offset + 3] != _DISPOSITION:
        return None
    count, offset = head
    role = buffer[offset] if offset + 1 < end else -1
    if role != codes.TRUE and role != codes.FALSE:
        return None
    code = buffer[offset + 1]
    if code == codes.SMALLUINT and offset + 3 <= end:
        first = buffer[offset + 2]
        offset += 3
    elif code == codes.UINT and offset + 6 <= end:
        first = _unpack_u32(buffer, offset + 2)[0]
        offset += 6
    elif code == codes.UINT0:
        first = 0
        offset += 2
    else:
        return None
    if count == 2:
        return (role == codes.TRUE, first, None, False, None, False) if offset == end else None
    return _with_last(buffer, (offset, end), count, (role == codes.TRUE, first))


def _with_last(buffer: Buffer, place: tuple[int, int], count: int, head: tuple[bool, int]) -> DispositionFields | None:
    offset, end = place
    code = buffer[offset] if offset < end else -1
    last: int | None
    if code == codes.UINT and offset + 5 <= end:
        last = int(_unpack_u32(buffer, offset + 1)[0])
        offset += 5
    elif code == codes.SMALLUINT and offset + 2 <= end:
        last = buffer[offset + 1]
        offset += 2
    elif code == codes.NULL or code == codes.UINT0:
        last = None if code == codes.NULL else 0
        offset += 1
    else:
        return None
    tail = bytes(buffer[offset:end])
    known = _DISPOSITION_TAILS.get((count, tail))
    if known is None:
        known = _transactional_tail(count, tail) if tail[1:4] == _TRANSACTIONAL else None
        if known is None:
            return None
    is_settled, state, is_batch = known
    return head[0], head[1], last, is_settled, state, is_batch


def _transactional_tail(count: int, tail: bytes) -> DispositionTail | None:
    """Those of one transaction end in the same bytes: decoded once, then looked up. None where they are unusual."""
    key = (count, tail)
    if key in _transactional_tails:
        return _transactional_tails[key]
    if len(tail) > CACHED_BYTES_MAX:
        return None
    if len(_transactional_tails) >= CACHE_SIZE_MAX:
        _transactional_tails.clear()
    known = _transactional_tails[key] = _decoded_tail(count, tail)
    return known


def _decoded_tail(count: int, tail: bytes) -> DispositionTail | None:
    fields = _pack_u32(count) + b"\x41\x43\x40" + tail
    body = _DISPOSITION + b"\xd0" + _pack_u32(len(fields)) + fields
    try:
        told, end = decode_performative(body, 0, len(body))
    except PeerFault:
        return None
    if end != len(body) or not isinstance(told, Disposition) or not isinstance(told.state, TransactionalState):
        return None
    return bool(told.settled), told.state, bool(told.batchable)


# The same empty list in the three encodings that clients choose from.
_EMPTY_LISTS: Final = (b"\x45", b"\xc0\x01\x00", b"\xd0\x00\x00\x00\x04\x00\x00\x00\x00")
_EMPTY_STATES: Final[tuple[tuple[bytes, DeliveryState], ...]] = (
    (b"\x24", ACCEPTED),
    (b"\x25", Rejected()),
    (b"\x26", RELEASED),
    (b"\x27", Modified()),
)
_STATES: Final[tuple[tuple[bytes, DeliveryState | None], ...]] = (
    (b"\x40", None),
    *((b"\x00\x53" + code + empty, state) for code, state in _EMPTY_STATES for empty in _EMPTY_LISTS),
)

# (count of all fields, bytes behind `last`) -> (settled, state, batchable)
_DISPOSITION_TAILS: Final[dict[tuple[int, bytes], DispositionTail]] = {(3, b""): (False, None, False)}
for _settled, _is_settled in _FLAGS:
    _DISPOSITION_TAILS[4, _settled] = (_is_settled, None, False)
    for _raw, _state in _STATES:
        _DISPOSITION_TAILS[5, _settled + _raw] = (_is_settled, _state, False)
        for _batch, _is_batch in _FLAGS:
            _DISPOSITION_TAILS[6, _settled + _raw + _batch] = (_is_settled, _state, _is_batch)

# Size, data offset, type; channel; descriptor, list of 5, role, constructor; first; last; settled, state. What is the
# same in all of them is packed as bytes: a number is an object more.
_ACCEPTED_RANGE: Final = Struct(">6sH8sIcI5s")
_ACCEPTED_ONE: Final = Struct(">6sH8sIc5s")
_RANGE_HEAD: Final = b"\x00\x00\x00\x1e\x02\x00"
_ONE_HEAD: Final = b"\x00\x00\x00\x1a\x02\x00"
_RANGE_AS_RECEIVER: Final = b"\x00\x53\x15\xc0\x11\x05\x41\x70"
_RANGE_AS_SENDER: Final = b"\x00\x53\x15\xc0\x11\x05\x42\x70"
_ONE_AS_RECEIVER: Final = b"\x00\x53\x15\xc0\x0d\x05\x41\x70"
_ONE_AS_SENDER: Final = b"\x00\x53\x15\xc0\x0d\x05\x42\x70"
_ACCEPTED_SETTLED: Final = b"\x41\x00\x53\x24\x45"
_ACCEPTED_UNSETTLED: Final = b"\x42\x00\x53\x24\x45"


def encode_disposition_accepted(channel: int, role: bool, first: int, last: int, settled: bool) -> bytes:
    """A whole disposition frame that accepts `first` to `last`, both wrapped to 32 bits."""
    end = _ACCEPTED_SETTLED if settled else _ACCEPTED_UNSETTLED
    if first == last:
        lead = _ONE_AS_RECEIVER if role else _ONE_AS_SENDER
        return _ACCEPTED_ONE.pack(_ONE_HEAD, channel, lead, first, b"\x40", end)
    lead = _RANGE_AS_RECEIVER if role else _RANGE_AS_SENDER
    return _ACCEPTED_RANGE.pack(_RANGE_HEAD, channel, lead, first, b"\x70", last, end)
