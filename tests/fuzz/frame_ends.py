"""What a peer may send in place of a frame: it cut off, with one field of another type, one byte flipped.

Deterministic: `broken(frame)` is the same list for the same frame. Each is to be fed as the last bytes of a read, so
that nothing behind it hides a look past its end. Every place where a frame may end is tried each time; of frames that
wait for their rest, and of bytes and whole fields that are others, one of SHARE, and all of them in a soak.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from mqbroker.wire.scan import skip_value

HEAD_SIZE = 8
_HEADS = {b"\xc0": 1, b"\xc1": 1, b"\xd0": 4, b"\xd1": 4}  # lists and maps: bytes of their size, and of their count
# No divisor of what is tried at each place, so that every place has its turn with something.
SHARE = 1 if "SOAK" in os.environ else 5
# Well-formed values of each type: constants, numbers at their bounds, texts, compounds, described ones.
VALUES = (
    b"\x40", b"\x41", b"\x43", b"\x54\xff", b"\x50\xff", b"\x60\xff\xff", b"\x70\xff\xff\xff\xff",
    b"\x80" + b"\xff" * 8,
    b"\x81\x80" + bytes(7), b"\x83\x7f" + b"\xff" * 7, b"\x72\x7f\xc0\0\0", b"\x82\x7f\xf8" + bytes(6), b"\x73\0\0\0A",
    b"\xa0\0", b"\xa0\x01\xff", b"\xa1\0", b"\xa1\x02\xc3\xa9", b"\xa3\0", b"\xa3\x01x", b"\x45", b"\xc0\x02\x01\x40",
    b"\xc1\x01\0", b"\xc1\x05\x02\xa3\x01x\x40", b"\xe0\x03\x00\xa3x", b"\x98" + bytes(16), b"\0\x53\x24\x45",
    b"\0\x53\x23\xc0\x03\x02\x43\x44", b"\0\x53\x34\xc0\x05\x02\xa0\x01t\x40",
    b"\0\x53\x28\x45", b"\0\x53\x1d\xc0\x04\x01\xa3\x01x",
)  # fmt: skip


def sized(frame: bytes) -> bytes:
    """The frame with the size that it has."""
    return len(frame).to_bytes(4, "big") + frame[4:]


def cut(frame: bytes) -> Iterator[bytes]:
    """The frame up to each of its bytes: as it is, which waits for the rest, and with a size that says it is whole."""
    for end in range(1, len(frame)):
        if end < HEAD_SIZE or end % SHARE == 0:
            yield frame[:end]
        if end >= HEAD_SIZE:
            yield sized(frame[:end])


def flipped(frame: bytes) -> Iterator[bytes]:
    """The frame with each byte as another one, of those that mean most: sizes, codes, bits."""
    for place in range(4, len(frame)):
        for value in {0, 1, 0x40, 0x45, 0x7F, 0xFF, frame[place] ^ 1, frame[place] ^ 0x80} - {frame[place]}:
            yield frame[:place] + bytes([value]) + frame[place + 1 :]


def retyped(frame: bytes) -> Iterator[bytes]:
    """The frame with each field of its performative as a value of every type."""
    fields = fields_of(frame)
    if fields is None:
        return
    lead, values, payload = fields
    for place in range(len(values) + 1):
        for value in VALUES:
            yield joined(lead, [*values[:place], value, *values[place + 1 :]], payload)
    for count in range(len(values)):
        yield joined(lead, values[:count], payload)


def nested(frame: bytes) -> Iterator[bytes]:
    """The frame with each value inside a field of its performative as one of every type: of maps, lists, described."""
    fields = fields_of(frame)
    if fields is None:
        return
    lead, values, payload = fields
    for place, value in enumerate(values):
        for other in _inside(value):
            yield joined(lead, [*values[:place], other, *values[place + 1 :]], payload)


def _inside(value: bytes) -> Iterator[bytes]:
    """The same of one value."""
    if value[:1] == b"\0":
        after = skip_value(value, 1, len(value))
        for other in _inside(value[after:]):
            yield value[:after] + other
        for other in VALUES:
            yield value[:after] + other
            yield b"\0" + other + value[after:]
        return
    code = value[:1]
    if code not in _HEADS:
        return
    size = _HEADS[code]
    count = int.from_bytes(value[1 + size : 1 + 2 * size], "big")
    parts, offset = [], 1 + 2 * size
    for _ in range(count):
        after = skip_value(value, offset, len(value))
        parts.append(value[offset:after])
        offset = after
    for place, part in enumerate(parts):
        for other in (*VALUES, *_inside(part)):
            body = b"".join([*parts[:place], other, *parts[place + 1 :]])
            wide = b"\xd0" if code in b"\xc0\xd0" else b"\xd1"
            yield wide + (len(body) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + body


def joined(lead: bytes, values: list[bytes], payload: bytes) -> bytes:
    """A frame of these fields."""
    body = b"".join(values)
    fields = b"\xd0" + (len(body) + 4).to_bytes(4, "big") + len(values).to_bytes(4, "big") + body
    return sized(lead + fields + payload)


def fields_of(frame: bytes) -> tuple[bytes, list[bytes], bytes] | None:
    """(all before the list, its values as bytes, what follows it); None where there is no list."""
    at = HEAD_SIZE + 3
    code = frame[at : at + 1]
    if code == b"\x45":
        return frame[:at], [], frame[at + 1 :]
    wide = code == b"\xd0"
    if not wide and code != b"\xc0":
        return None
    size_end = at + (5 if wide else 2)
    count_end = size_end + (4 if wide else 1)
    end = size_end + int.from_bytes(frame[at + 1 : size_end], "big")
    count = int.from_bytes(frame[size_end:count_end], "big")
    values, offset = [], count_end
    for _ in range(count):
        after = skip_value(frame, offset, end)
        values.append(frame[offset:after])
        offset = after
    return frame[:at], values, frame[end:]


def broken(frame: bytes) -> list[bytes]:
    """All of it but what is left to a soak, without doubles."""
    if frame.startswith(b"AMQP"):
        return list(dict.fromkeys([*(frame[:end] for end in range(1, 8)), *some(flipped(frame))]))
    return list(dict.fromkeys([*cut(frame), *some(flipped(frame)), *some(retyped(frame)), *nested(frame)]))


def some(found: Iterable[bytes]) -> list[bytes]:
    """One of SHARE, or in a soak all."""
    return list(found)[::SHARE]
