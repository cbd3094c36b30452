"""Whether the body of a message that comes in pieces is one, as wellformed.py says it of a message that is there.

Nothing is kept but the beginning of a value that is cut off between two pieces, and the footer. Invariant: whatever the
pieces, the answer is the same; a byte is looked at once. Source: AMQP 1.0 §1.6, §3.2.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from typing import Final

from mqbroker.base.errors import PeerFault
from mqbroker.wire import codes
from mqbroker.wire.decode import READERS, compound_bounds, decode_fault
from mqbroker.wire.scan import FOOTER, section_at
from mqbroker.wire.walk import VALUES_MAX, check_fixed
from mqbroker.wire.wellformed import check_kind, check_order, form_of

FOOTER_BYTES_MAX: Final = 64 << 10
SECTION_START_BYTES_MAX: Final = 64  # of a descriptor, however it is spelt
ENDLESS: Final = 1 << 62
NO_CODE: Final = -1  # each value says its own
ARRAY_HEAD: Final = -2  # the format code of an array's values comes next

_WIDTHS: Final = (0, 0, 0, 0, 0, 1, 2, 4, 8, 16)


class _Level:
    """A compound whose values come: so many, up to `end`; `code`: which format code they share."""

    __slots__ = ("code", "count", "descriptors", "end", "is_sized")

    def __init__(self, count: int, end: int, code: int, is_sized: bool) -> None:
        self.count = count
        self.end = end
        self.code = code
        self.descriptors = 0  # that came before the format code
        self.is_sized = is_sized  # it has an end of its own, which its last value must reach


class BodyCheck:
    """Give it the bytes behind the head, in order, and say when that was all."""

    def __init__(self, offset: int) -> None:
        """`offset`: bytes of the message before its body."""
        self._offset = offset  # of the first byte that was not looked at
        self._rest = b""
        self._skip = 0  # bytes of content that are still to come
        self._decoder = getincrementaldecoder("utf-8")()
        self._is_text = self._is_symbol = False
        self._levels: list[_Level] = []
        self._last = 0
        self._count = 0
        self._left = VALUES_MAX

    def feed(self, data: bytes) -> None:
        """The next bytes. Raises PeerFault."""
        buffer, self._rest = self._rest + data if self._rest else data, b""
        at, end = 0, len(buffer)
        while at < end:
            if self._last == FOOTER:
                self._rest = buffer[at:]
                if len(self._rest) > FOOTER_BYTES_MAX:
                    raise decode_fault(f"footer of over {FOOTER_BYTES_MAX} bytes behind a body in pieces", self._offset)
                return
            after = self._step(buffer, at)
            if after < 0:
                self._rest = buffer[at:]
                return
            self._offset += after - at
            at = after

    def finish(self) -> None:
        """There is no more. Raises PeerFault."""
        self._close_levels()
        if self._last == FOOTER:
            try:
                form_of(self._rest, 0)
            except PeerFault as fault:
                raise decode_fault(f"the footer is malformed: {fault.description}; it begins", self._offset) from None
        elif self._rest or self._skip or self._levels:
            raise decode_fault("the body is cut off", self._offset + len(self._rest))
        elif self._is_text:
            self._end_text()

    def _step(self, buffer: bytes, at: int) -> int:
        """Look at what comes next; the place behind it, -1 where not all of it is there."""
        if self._skip:
            return self._content(buffer, at)
        if self._is_text:
            self._end_text()
        self._close_levels()
        if not self._levels:
            return self._section(buffer, at)
        level = self._levels[-1]
        if level.code == ARRAY_HEAD:
            return self._array_head(level, buffer[at], at)
        if level.code == NO_CODE:
            if buffer[at] == codes.DESCRIBED:
                level.count -= 1
                self._enter(_Level(2, level.end, NO_CODE, False))
                return at + 1
            return self._value(level, buffer, buffer[at], at + 1)
        return self._value(level, buffer, level.code, at)

    def _close_levels(self) -> None:
        while self._levels and not self._levels[-1].count and self._levels[-1].code != ARRAY_HEAD and not self._skip:
            level = self._levels.pop()
            if level.is_sized and level.end != self._offset:
                raise decode_fault(f"compound has {level.end - self._offset} bytes behind its last value", self._offset)

    def _enter(self, level: _Level, descriptors: int = 0) -> None:
        # The lowest level is the section, which is no value around its own.
        if len(self._levels) + descriptors > codes.DEPTH_MAX:
            raise decode_fault(f"values nested deeper than {codes.DEPTH_MAX}", self._offset)
        self._levels.append(level)

    def _section(self, buffer: bytes, at: int) -> int:
        try:
            section, value = section_at(buffer, at, len(buffer))
        except PeerFault as fault:
            if len(buffer) - at < SECTION_START_BYTES_MAX:
                return -1  # perhaps it is only cut off
            raise decode_fault(fault.description.rpartition(" at byte")[0], self._offset) from None
        if value >= len(buffer):
            return -1
        self._count += 1
        check_order(section, self._last, self._count, self._offset)
        self._last = section
        if section == FOOTER:
            return at
        check_kind(section, buffer[value], self._offset + value - at)
        self._levels.append(_Level(1, ENDLESS, NO_CODE, False))
        return value

    def _content(self, buffer: bytes, at: int) -> int:
        """Bytes of binary or of text."""
        after = min(at + self._skip, len(buffer))
        self._skip -= after - at
        if self._is_text:
            piece = buffer[at:after]
            if self._is_symbol and not piece.isascii():
                raise decode_fault("a symbol is not ascii", self._offset)
            try:
                self._decoder.decode(piece)
            except UnicodeDecodeError:
                raise decode_fault("text is not utf-8 behind the character", self._offset) from None
        return after

    def _end_text(self) -> None:
        self._is_text = False
        try:
            self._decoder.decode(b"", True)
        except UnicodeDecodeError:
            raise decode_fault("text ends within a character", self._offset) from None

    def _value(self, level: _Level, buffer: bytes, code: int, at: int) -> int:
        """What stands behind a format code."""
        begin = at if level.code != NO_CODE else at - 1
        offset = self._offset + at - begin
        if READERS[code] is None:
            raise decode_fault(f"unknown format code 0x{code:02x}", self._offset)
        width = _WIDTHS[code >> 4] if code < codes.VBIN8 else 1 if code >> 4 in (0xA, 0xC, 0xE) else 4
        if code >= codes.LIST8:
            width *= 2
        after = at + width
        if offset + width > level.end:
            raise decode_fault("value does not fit its surroundings", offset)
        if after > len(buffer):
            return -1
        level.count -= 1
        if code < codes.VBIN8:
            check_fixed(buffer, code, at, offset)
        elif code < codes.LIST8:
            self._skip = int.from_bytes(buffer[at:after], "big")
            if offset + width + self._skip > level.end:
                raise decode_fault(f"{self._skip} bytes do not fit their surroundings", offset)
            self._is_text = code not in (codes.VBIN8, codes.VBIN32)
            self._is_symbol = code in (codes.SYM8, codes.SYM32)
        else:
            self._compound(level, (buffer, code, at), offset)
        return after

    def _compound(self, outer: _Level, place: tuple[bytes, int, int], offset: int) -> None:
        buffer, code, at = place
        is_wide = code in (codes.LIST32, codes.MAP32, codes.ARRAY32)
        # Only what is said is looked at here: how long it may be is known, whether it is all there is not.
        count, body, end = compound_bounds(buffer, at, ENDLESS, is_wide)
        body_end = offset + end - at
        size = end - body
        if body_end > outer.end:
            raise decode_fault(f"compound of {size} bytes does not fit its surroundings", offset)
        is_array = code in (codes.ARRAY8, codes.ARRAY32)
        if (not is_array and count > size) or (code in (codes.MAP8, codes.MAP32) and count % 2):
            raise decode_fault(f"compound of {count} values in {size} bytes", offset)
        self._enter(_Level(count, body_end, ARRAY_HEAD if is_array else NO_CODE, True))
        self._left -= 0 if is_array else count
        if self._left < 0:
            self._step_over(self._levels[-1], size)

    def _array_head(self, level: _Level, code: int, at: int) -> int:
        if self._offset >= level.end:
            raise decode_fault("array without a constructor", self._offset)
        if code == codes.DESCRIBED:
            self._enter(_Level(1, level.end, NO_CODE, False), level.descriptors)
            level.descriptors += 1
            return at + 1
        if READERS[code] is None:
            raise decode_fault(f"unknown format code 0x{code:02x}", self._offset)
        limit = codes.ZERO_WIDTH_COUNT_MAX if code in codes.ZERO_WIDTH else level.end - self._offset - 1
        if level.count > limit:
            raise decode_fault(f"array of {level.count} values where {limit} are possible", self._offset)
        level.code = code
        rest = level.end - self._offset - 1
        is_fixed = code < codes.VBIN8 and code not in (codes.BOOLEAN, codes.CHAR)
        if is_fixed and level.count * _WIDTHS[code >> 4] == rest:
            self._step_over(level, rest)  # any bytes are such values
        else:
            self._left -= level.count
            if self._left < 0:
                self._step_over(level, rest)
        return at + 1

    def _step_over(self, level: _Level, size: int) -> None:
        """What is left of a level is not looked into."""
        level.count = 0
        self._skip, self._is_text = size, False
