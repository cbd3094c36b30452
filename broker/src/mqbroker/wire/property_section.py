"""Application properties where they lie: their bytes, and one value of them, while nothing else is decoded.

Invariant: of a message that is well-formed (wellformed.py) this finds what the general decoder finds (sections.py), or
says that it does not know the form; the caller then takes the general path, which is the reference. What is not asked
for is stepped over by its sizes. Source: AMQP 1.0 §3.2.5.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from mqbroker.wire.codes import LIST0, LIST8, LIST32, MAP8, MAP32, SMALLULONG, STR8, STR32
from mqbroker.wire.decode import compound_bounds, decode_fault, decode_value
from mqbroker.wire.run import Run
from mqbroker.wire.scan import APPLICATION_PROPERTIES, HEADER, PROPERTIES, skip_value

_U32: Final = Struct(">I")

# What sections before the body begin with: descriptor and constructor, and how wide the size behind it is.
_SIZE_WIDTHS: Final = {
    bytes((0, SMALLULONG, section, constructor)): width
    for section in range(HEADER, APPLICATION_PROPERTIES)
    for constructor, width in ((LIST0, 0), (LIST8, 1), (MAP8, 1), (LIST32, 4), (MAP32, 4))
}
_NARROW: Final = bytes((0, SMALLULONG, APPLICATION_PROPERTIES, MAP8))
_WIDE: Final = bytes((0, SMALLULONG, APPLICATION_PROPERTIES, MAP32))


def properties_bytes(run: Run, index: int) -> bytes | None:
    """The map of a message's application properties, empty where it has none; None where its form is unusual."""
    buffer, end = run.buffer, run.end(index)
    at = run.start(index) + run.head_size + run.section.size_bytes
    while at + 4 < end:
        lead = buffer[at : at + 4]
        width = _SIZE_WIDTHS.get(lead, -1)
        if width == 1:
            at += 5 + buffer[at + 4]
        elif width == 0:
            at += 4
        elif width == 4:
            at += 8 + _size_at(buffer, at + 4, end)
        elif lead in (_NARROW, _WIDE):
            after = at + (5 + buffer[at + 4] if lead == _NARROW else 8 + _size_at(buffer, at + 4, end))
            return buffer[at + 3 : after] if after <= end else None
        else:
            return b"" if lead[0] == 0 and lead[1] == SMALLULONG and lead[2] > APPLICATION_PROPERTIES else None
    is_short = at + 4 == end and buffer[at] == 0 and buffer[at + 1] == SMALLULONG and buffer[at + 2] >= PROPERTIES
    return b"" if at == end or is_short else None


def _size_at(buffer: bytes, at: int, end: int) -> int:
    """Where it is cut off, one that no message has."""
    return int(_U32.unpack_from(buffer, at)[0]) if at + 4 <= end else end


class PropertyReader:
    """Single values of what `properties_bytes` found. Each property is passed once, however many are asked for: whoever
    sends thousands of them and asks for hundreds that are not there would else keep everybody waiting.
    """

    __slots__ = ("_at", "_end", "_left", "_places", "_properties")

    def __init__(self, properties: bytes) -> None:
        self._properties: Final = properties
        self._places: Final[dict[bytes, int]] = {}  # of the values that were passed, by their keys
        self._at = self._end = self._left = -1

    def value_of(self, key: bytes) -> Any:
        """The value under a key of UTF-8, None for nothing. Raises PeerFault."""
        place = self._places.get(key, -1)
        if place < 0:
            place = self._found(key)
        return None if place < 0 else decode_value(self._properties, place, self._end, 1)[0]

    def _found(self, key: bytes) -> int:
        """Where the value under a key begins that lies behind those that were passed; -1 for nowhere."""
        properties = self._properties
        if not properties:
            return -1
        if self._left < 0:
            count, self._at, self._end = compound_bounds(properties, 1, len(properties), properties[0] == MAP32)
            self._left = count // 2
        while self._left:
            begin, after = self._key_at(self._at)
            self._at = skip_value(properties, after, self._end)
            self._left -= 1
            passed = properties[begin:after]
            self._places[passed] = after
            if passed == key:
                return after
        return -1

    def _key_at(self, at: int) -> tuple[int, int]:
        """Where a key begins, and its end. Raises PeerFault where it is none."""
        properties, end = self._properties, self._end
        code = properties[at] if at + 2 <= end else 0
        if code == STR8:
            return at + 2, at + 2 + properties[at + 1]
        if code == STR32 and at + 5 <= end:
            return at + 5, at + 5 + int(_U32.unpack_from(properties, at + 1)[0])
        raise decode_fault("key of application properties must be a string", at)
