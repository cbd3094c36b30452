"""Whether bytes are a value, without decoding it: the way through one message that the form of its likes comes from.

Invariant: what is passed here decodes, in linear time, and bytes that the mask of a walk lets be others do so too. Keys
of maps are compared before the body, which is what the broker itself reads. Source: AMQP 1.0 §1.6.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from mqbroker.wire.codes import (
    ARRAY8,
    ARRAY32,
    BOOLEAN,
    CHAR,
    DEPTH_MAX,
    DESCRIBED,
    LIST8,
    LIST32,
    MAP8,
    MAP32,
    SYM8,
    SYM32,
    VBIN8,
    VBIN32,
    ZERO_WIDTH,
    ZERO_WIDTH_COUNT_MAX,
)
from mqbroker.wire.decode import COMPOUNDS, READERS, compound_bounds, decode_fault, decode_value
from mqbroker.wire.values import Encoded

VALUES_MAX: Final = 1 << 16  # time for a message is bounded: what else its body holds is stepped over by its sizes
ALIKE_MIN: Final = 64

_U32: Final = Struct(">I")
_BYTE: Final = [bytes([value]) for value in range(256)]
_KNOWN: Final = bytes(READERS[code] is not None for code in range(256))
_WIDTHS: Final = (0, 0, 0, 0, 0, 1, 2, 4, 8, 16)  # by the high digit of a format code, of those without a size (§1.2)
_NO_MASK: Final = bytearray()


class Walk:
    """One way through a message. `mask`: as a Form has it; `left`: so many values may still be looked into.

    `is_before_body`: the broker itself reads what is there, so all of it is looked into.
    """

    __slots__ = ("is_before_body", "left", "mask")

    def __init__(self, size_bytes: int) -> None:
        self.mask = bytearray(b"\xff" * size_bytes)
        self.left = VALUES_MAX
        self.is_before_body = False


def check_pairs(count: int, at: int, end: int) -> None:
    if count % 2 or count > end - at:
        raise decode_fault(f"map of {count} keys and values in {end - at} bytes", at)


def check_value(payload: bytes, at: int, end: int, depth: int, walk: Walk) -> int:
    """Checks the value whose format code is at `at`, and takes out of `mask` what may be another; the offset behind."""
    if at >= end:
        raise decode_fault("value expected, nothing left", at)
    code = payload[at]
    if code == DESCRIBED:
        _check_depth(depth, at)
        at = check_value(payload, at + 1, end, depth + 1, walk)
        return check_value(payload, at, end, depth + 1, walk)
    return _content(payload, code, at + 1, (end, depth), walk)


def _content(payload: bytes, code: int, at: int, place: tuple[int, int], walk: Walk) -> int:
    """The same of what stands behind a format code."""
    end, depth = place
    if not _KNOWN[code]:
        raise decode_fault(f"unknown format code 0x{code:02x}", at - 1)
    if code < VBIN8:
        after = at + _WIDTHS[code >> 4]
        if after > end:
            raise decode_fault(f"{after - at} bytes expected", at)
        if code in (BOOLEAN, CHAR):
            check_fixed(payload, code, at, at)
        elif after <= len(walk.mask):
            walk.mask[at:after] = bytes(after - at)
        return after
    if code < LIST8:
        return _sized(payload, code, at, end, walk)
    _check_depth(depth, at)
    count, at, body_end = compound_bounds(payload, at, end, code in (LIST32, MAP32, ARRAY32))
    if code in (ARRAY8, ARRAY32):
        at = _array(payload, count, at, (body_end, depth), walk)
    else:
        if code in (MAP8, MAP32):
            check_pairs(count, at, body_end)
        elif count > body_end - at:
            raise decode_fault(f"list of {count} values in {body_end - at} bytes", at)
        is_told_apart = walk.is_before_body and code in (MAP8, MAP32)
        if count > ALIKE_MIN and not is_told_apart and _are_alike(payload, count, at, body_end):
            return body_end
        if not _spend(walk, count, at):
            return body_end
        if is_told_apart:
            at = _pairs(payload, count, at, (body_end, depth + 1), walk)
        else:
            for _ in range(count):
                at = check_value(payload, at, body_end, depth + 1, walk)
    if at != body_end:
        raise decode_fault(f"compound has {body_end - at} bytes behind its last value", at)
    return body_end


def _pairs(payload: bytes, count: int, at: int, place: tuple[int, int], walk: Walk) -> int:
    """Checks a map within a value: keys of two types are two keys, and none may be what another message has there."""
    end, depth = place
    mask = walk.mask
    seen: set[tuple[type, Any]] = set()
    for _ in range(count // 2):
        begin = at
        walk.mask = _NO_MASK
        at = check_value(payload, begin, end, depth, walk)
        walk.mask = mask
        key = Encoded(payload[begin:at]) if payload[begin] in COMPOUNDS else decode_value(payload, begin, at)[0]
        seen.add((type(key), key))
        at = check_value(payload, at, end, depth, walk)
    if len(seen) != count // 2:
        raise decode_fault("map with a key twice", at)
    return at


def _spend(walk: Walk, count: int, at: int) -> bool:
    """Look into so many values more, if that may be. Raises PeerFault where none may be left out."""
    walk.left -= count
    if walk.left < 0 and walk.is_before_body:
        raise decode_fault(f"over {VALUES_MAX} values before the body", at)
    return walk.left >= 0


def check_fixed(payload: bytes, code: int, at: int, offset: int) -> None:
    """Whether a value without a size, which is at `at`, is one. `offset`: where that is in the message."""
    if code == BOOLEAN:
        if payload[at] > 1:
            raise decode_fault("boolean must be 0x00 or 0x01", offset)
    elif code == CHAR:
        point: int = _U32.unpack_from(payload, at)[0]
        if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
            raise decode_fault(f"0x{point:x} is no Unicode character", offset)


def _sized(payload: bytes, code: int, at: int, end: int, walk: Walk) -> int:
    """The same of binary, string and symbol: behind their code stands a size."""
    begin = at + (1 if code < VBIN32 else 4)
    if begin > end:
        raise decode_fault("size cut off", at)
    size: int = payload[at] if code < VBIN32 else _U32.unpack_from(payload, at)[0]
    after = begin + size
    if after > end:
        raise decode_fault(f"{size} bytes do not fit their surroundings", at)
    if code in (VBIN8, VBIN32):
        if after <= len(walk.mask):
            walk.mask[begin:after] = bytes(size)
        return after
    piece = payload[begin:after]
    if piece.isascii():
        if after <= len(walk.mask):
            walk.mask[begin:after] = b"\x80" * size
        return after
    if code in (SYM8, SYM32):
        raise decode_fault("a symbol is not ascii", begin)
    try:
        piece.decode()
    except UnicodeDecodeError as error:
        raise decode_fault("text is not utf-8", begin + error.start) from None
    return after


def _array(payload: bytes, count: int, at: int, place: tuple[int, int], walk: Walk) -> int:
    """The same of an array, behind its count: its values share one format code and their descriptors."""
    end, depth = place
    depth += 1
    descriptors = 0
    while at < end and payload[at] == DESCRIBED:
        _check_depth(depth + descriptors, at)
        at = check_value(payload, at + 1, end, depth + 1, walk)
        descriptors += 1
    if at >= end:
        raise decode_fault("array without a constructor", at)
    code = payload[at]
    at += 1
    limit = ZERO_WIDTH_COUNT_MAX if code in ZERO_WIDTH else end - at
    if count > limit:
        raise decode_fault(f"array of {count} values where {limit} are possible", at)
    if not _KNOWN[code]:
        raise decode_fault(f"unknown format code 0x{code:02x}", at - 1)
    if code < VBIN8 and code != CHAR and at + count * _WIDTHS[code >> 4] == end:
        if code == BOOLEAN and payload[at:end].strip(b"\0\1"):
            raise decode_fault("booleans must be 0x00 or 0x01", at)
        return end
    if not _spend(walk, count, at):
        return end
    for _ in range(count):
        at = _content(payload, code, at, (end, depth), walk)
    return at


def _are_alike(payload: bytes, count: int, at: int, end: int) -> bool:
    """Whether a list surely holds numbers or the like of one format code only, of which any bytes are a value."""
    code = payload[at]
    if code == DESCRIBED or code >= VBIN8 or not _KNOWN[code] or code in (BOOLEAN, CHAR):
        return False
    step = 1 + _WIDTHS[code >> 4]
    return end - at == count * step and payload[at:end:step] == _BYTE[code] * count


def _check_depth(depth: int, at: int) -> None:
    if depth >= DEPTH_MAX:
        raise decode_fault(f"values nested deeper than {DEPTH_MAX}", at)
