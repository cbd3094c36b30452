"""Frames and protocol headers: where one ends and the next begins.

Invariant: a size that is too small or too large is a fault as soon as its four bytes are there, so that no buffer grows
for a frame that will be refused. Source: AMQP 1.0 §2.2 and §2.3.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from mqbroker.base.errors import PeerFault, Scope
from mqbroker.base.value import Value
from mqbroker.wire.decode import Buffer

AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
TLS_HEADER: Final = b"AMQP\x02\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
HEADER_SIZE: Final = 8

AMQP_FRAME: Final = 0
SASL_FRAME: Final = 1

# The smallest maximum that both ends must accept (§2.7.1), and the fixed one of the SASL layer (§5.3.3.1).
FRAME_SIZE_MAX_LOWEST: Final = 512

EMPTY_FRAME: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"

_PREAMBLE: Final = Struct(">IBBH")
_unpack_preamble: Final = _PREAMBLE.unpack_from
_unpack_size: Final = Struct(">I").unpack_from
_FRAME_SIZE_MIN: Final = 8


class Frame(Value):
    """A whole frame in a buffer: its body is `buffer[body_offset:end]`, the extended header is left out."""

    __match_args__ = ("type", "channel", "body_offset", "end")
    __slots__ = __match_args__

    def __init__(self, type: int, channel: int, body_offset: int, end: int) -> None:
        self.type: Final = type
        self.channel: Final = channel
        self.body_offset: Final = body_offset
        self.end: Final = end


def header_at(buffer: Buffer, offset: int, limit: int) -> bytes | None:
    """The protocol header at `offset`, None while incomplete. Raises PeerFault at the first byte that is no AMQP.

    Which versions and layers are acceptable is the caller's matter: the answer to a wrong one is our own header.
    """
    head = bytes(buffer[offset : min(limit, offset + HEADER_SIZE)])
    if not AMQP_HEADER.startswith(head[:4]):
        raise _framing_fault(f"protocol header expected, got {head[:4]!r}", offset)
    return head if len(head) == HEADER_SIZE else None


def frame_at(
    buffer: Buffer, offset: int, limit: int, frame_size_max: int, expected_type: int | None = None
) -> Frame | None:
    """The frame at `offset`, None while it is incomplete. Bytes behind `limit` are not looked at.

    Raises PeerFault amqp:connection:framing-error, also for a frame that is not of `expected_type` where that is given.
    """
    have = limit - offset
    if have < 4:
        return None
    size: int = _unpack_size(buffer, offset)[0]
    if size < _FRAME_SIZE_MIN:
        raise _framing_fault(f"frame of {size} bytes, below the {_FRAME_SIZE_MIN} of its header", offset)
    if size > frame_size_max:
        raise _framing_fault(f"frame of {size} bytes, above the maximum of {frame_size_max}", offset)
    if have < _FRAME_SIZE_MIN:
        return None
    preamble: tuple[int, int, int, int] = _unpack_preamble(buffer, offset)
    _, doff, kind, channel = preamble
    if doff < 2 or doff * 4 > size:
        raise _framing_fault(f"data offset of {doff} words in a frame of {size} bytes", offset)
    if expected_type is not None and kind != expected_type:
        raise _framing_fault(f"frame of type {kind} where type {expected_type} is due", offset)
    if have < size:
        return None
    return Frame(kind, channel, offset + doff * 4, offset + size)


def needed_at(buffer: Buffer, offset: int, limit: int) -> int:
    """Bytes from `offset` on that make the frame there whole, as far as is known; `frame_at` says whether it may."""
    if limit - offset < 4:
        return _FRAME_SIZE_MIN
    size: int = _unpack_size(buffer, offset)[0]
    return max(size, _FRAME_SIZE_MIN)


def encode_frame(channel: int, body: bytes, payload: Buffer = b"", type: int = AMQP_FRAME) -> bytes:
    """One frame: `body` is an encoded performative, `payload` what follows it. The caller keeps the peer's maximum."""
    size = _FRAME_SIZE_MIN + len(body) + len(payload)
    return b"".join((_PREAMBLE.pack(size, 2, type, channel), body, payload))


def frame_head(channel: int, body: bytes, payload_size: int) -> bytes:
    """All of an AMQP frame but its payload, for who has that elsewhere and need not copy it."""
    return _PREAMBLE.pack(_FRAME_SIZE_MIN + len(body) + payload_size, 2, AMQP_FRAME, channel) + body


def _framing_fault(why: str, offset: int) -> PeerFault:
    return PeerFault("amqp:connection:framing-error", f"{why} at byte {offset}", Scope.CONNECTION)
