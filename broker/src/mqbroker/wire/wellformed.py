"""Whether what a publisher sends is a message: sections in order and each once, one kind of body, every value readable.

Messages of one link look alike, so each is first held against the form of the last one that was looked into: bytes
that say what is where are the same, text is ASCII, and what lies between may be anything. Only what does not fit is
walked through, value by value and in linear time. Keys of maps are compared before the body, which is what the broker
itself reads, and of the footer's own. Invariants: what fits a form is well-formed, and says no more of itself than the
form does (parts.py); nothing else is decoded. A message may lack a body, and its application properties may hold lists
and maps, against §3.2.5: Proton sends such, and no client fails over them. Source: AMQP 1.0 §1.6, §3.2.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from mqbroker.base.errors import PeerFault
from mqbroker.wire.codes import (
    LIST0,
    LIST8,
    LIST32,
    MAP8,
    MAP32,
    NULL,
    SMALLUINT,
    SMALLULONG,
    STR8,
    STR32,
    SYM8,
    SYM32,
    TIMESTAMP,
    UINT,
    UINT0,
    ULONG,
    ULONG0,
    UUID,
    VBIN8,
    VBIN32,
)
from mqbroker.wire.decode import compound_bounds, decode_fault, decode_value
from mqbroker.wire.parts import DELIVERY_DELAY, DELIVERY_TIME, DUPLICATE_ID, LAST_VALUE
from mqbroker.wire.run import Run
from mqbroker.wire.scan import (
    APPLICATION_PROPERTIES,
    DATA,
    FOOTER,
    HEADER,
    PROPERTIES,
    SECTION_COUNT_MAX,
    SEQUENCE,
    VALUE,
    section_at,
)
from mqbroker.wire.walk import VALUES_MAX, Walk, check_pairs, check_value

FORM_BYTES_MAX: Final = 1024  # what is longer before its body is walked through each time
COLUMNS_MIN: Final = 16  # below this many messages a look at each is faster than one at whole columns
COLUMNS_PER_MESSAGE_MAX: Final = 2  # and where there are more columns than this for each

_U32: Final = Struct(">I")
_BYTE: Final = [bytes([value]) for value in range(256)]

SAME: Final = 0xFF
ASCII: Final = 0x80
SIZE_OF_NONE: Final = 1 << 62  # no message is as long
_SIZE_WIDTHS: Final = {VBIN8: 1, VBIN32: 4, STR8: 1, STR32: 4}

_ID: Final = bytes((NULL, SMALLULONG, ULONG0, ULONG, UUID, VBIN8, VBIN32, STR8, STR32))
_STRING: Final = bytes((NULL, STR8, STR32))
_SYMBOL: Final = bytes((NULL, SYM8, SYM32))
_TIMESTAMP: Final = bytes((NULL, TIMESTAMP))
_FIELDS: Final = (
    ("message-id", _ID), ("user-id", bytes((NULL, VBIN8, VBIN32))), ("to", _STRING), ("subject", _STRING),
    ("reply-to", _STRING), ("correlation-id", _ID), ("content-type", _SYMBOL), ("content-encoding", _SYMBOL),
    ("absolute-expiry-time", _TIMESTAMP), ("creation-time", _TIMESTAMP), ("group-id", _STRING),
    ("group-sequence", bytes((NULL, SMALLUINT, UINT, UINT0))), ("reply-to-group-id", _STRING),
)  # fmt: skip
_TELLING: Final = (8, 10, 11)  # absolute-expiry-time, group-id, group-sequence
_ANNOTATION_KEYS: Final = bytes((SYM8, SYM32, SMALLULONG, ULONG, ULONG0))
_PROPERTY_KEYS: Final = bytes((STR8, STR32))
_MARKS: Final = frozenset(name.encode() for name in (DELIVERY_TIME, DELIVERY_DELAY, DUPLICATE_ID, LAST_VALUE))


class MalformedMessage(NamedTuple):
    """The first message of a run that is none, and why."""

    place: int
    why: str


class Form:
    """What messages have in common that are well-formed because one of them is; from the end of the header section on.

    `lead` is the same in all of them; of the bytes from there to `size_bytes` those that `kept` keeps are. Where the
    body's content has a size of its own, `width` bytes of it follow, and then the content, which is_text or any bytes.
    `is_plain`: none says anything special of itself (parts.py).
    """

    __slots__ = ("_columns", "expected", "is_plain", "is_text", "kept", "lead", "mask", "size_bytes", "width")

    def __init__(self, shared: bytes, mask: bytes, code: int, is_plain: bool, is_alone: bool) -> None:
        """`shared`: such a message; `mask`: 0xff for a byte that says what is where, 0x80 for text, 0 for others.

        `code`: the format code of content that follows. `is_alone`: no other message is compared with this one.
        """
        lead_size = len(mask) - len(mask.lstrip(b"\xff"))
        self.lead: Final = shared[:lead_size]
        self.mask: Final = mask
        self.size_bytes: Final = SIZE_OF_NONE if is_alone else len(mask)
        self.kept: Final = int.from_bytes(mask[lead_size:], "big")
        self.expected: Final = int.from_bytes(shared[lead_size : len(mask)], "big") & self.kept
        self.is_text: Final = code in (STR8, STR32)
        self.width: Final = _SIZE_WIDTHS.get(code, 0)
        self.is_plain: Final = is_plain
        self._columns: tuple[list[int], list[int]] | None = None

    def fits(self, buffer: bytes, begin: int, end: int) -> bool:
        """Whether these bytes, without their header section, are such a message."""
        at = begin + self.size_bytes
        after = at + self.width
        if after > end or not buffer.startswith(self.lead, begin):
            return False
        if self.kept and int.from_bytes(buffer[begin + len(self.lead) : at], "big") & self.kept != self.expected:
            return False
        if not self.width:
            return at == end
        size: int = buffer[at] if self.width == 1 else _U32.unpack_from(buffer, at)[0]
        return size == end - after and (not self.is_text or is_text(buffer, after, end))

    def fits_all(self, run: Run, skip: int) -> bool:
        """Whether messages of one size surely do, of which the first one does: their bytes column by column."""
        buffer, stride, count = run.buffer, run.stride, run.count
        fixed, texts = self._columns or self._find_columns()
        if self.size_bytes > stride or len(self.mask) > COLUMNS_PER_MESSAGE_MAX * count:
            return False
        begin, end = run.first_start + skip, run.first_start + stride * count
        for place in fixed:
            column = buffer[begin + place : end : stride]
            if column != _BYTE[column[0]] * count:
                return False
        for place in texts:
            if not buffer[begin + place : end : stride].isascii():
                return False
        if not self.is_text:
            return True
        at = begin + self.size_bytes + self.width
        size = run.first_start + stride - at
        return all(is_text(buffer, each, each + size) for each in range(at, end, stride))

    def _find_columns(self) -> tuple[list[int], list[int]]:
        """Of the bytes that are the same in all, and of those of text."""
        size = len(self.mask)
        fixed = [*(place for place in range(size) if self.mask[place] == SAME), *range(size, size + self.width)]
        self._columns = fixed, [place for place in range(size) if self.mask[place] == ASCII]
        return self._columns


class Forms:
    """What the messages of one link looked like last."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: Form | None = None

    def malformed(self, run: Run) -> MalformedMessage | None:
        """The first message of the run that is none. Where there is no such, the run knows whether it is plain."""
        skip = run.head_size + run.section.size_bytes
        form = self._known
        index = 0
        try:
            if form is None or not form.fits(run.buffer, run.first_start + skip, run.end(0)):
                form = self._formed(run, 0)
            is_plain = form.is_plain
            if run.count > 1 and not (run.stride and run.count >= COLUMNS_MIN and form.fits_all(run, skip)):
                for index in range(1, run.count):
                    if not form.fits(run.buffer, run.start(index) + skip, run.end(index)):
                        form = self._formed(run, index)
                        is_plain = is_plain and form.is_plain
        except PeerFault as fault:
            return MalformedMessage(index, fault.description)
        run.is_plain = is_plain
        return None

    def _formed(self, run: Run, index: int) -> Form:
        payload = run.buffer[run.start(index) + run.head_size : run.end(index)]
        form = self._known = form_of(payload, run.section.size_bytes)
        return form


def is_text(buffer: bytes, begin: int, end: int) -> bool:
    """Whether the bytes from `begin` to before `end` are UTF-8."""
    piece = buffer[begin:end]
    if piece.isascii():
        return True
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True


# -- one message, value by value --------------------------------------------------------------------------------------


def form_of(payload: bytes, begin: int) -> Form:
    """The form of a message whose header section, if it has one, ends at `begin`. Raises PeerFault.

    The description counts bytes from the beginning of the message.
    """
    end = len(payload)
    walk = Walk(min(end, FORM_BYTES_MAX))
    at, last, count, body = begin, HEADER, 0, -1
    is_plain = True
    while at < end:
        section, value = section_at(payload, at, end)
        count += 1
        check_order(section, last, count, at)
        walk.is_before_body = section < DATA
        if DATA <= section <= VALUE:
            body = value if body < 0 else end
            at = _body(payload, section, value, walk)
        elif section == PROPERTIES:
            at, is_telling = _properties(payload, value, walk)
            is_plain = is_plain and not is_telling
        else:
            at, is_telling = _map(payload, section, value, walk)
            is_plain = is_plain and not is_telling
        last = section
    code = payload[body] if 0 <= body < end and last != FOOTER else NULL
    if code in _SIZE_WIDTHS:
        end = body + 1
    else:
        code = NULL
    if end > len(walk.mask):
        return Form(b"", b"", NULL, is_plain, True)
    return Form(payload[begin:end], bytes(walk.mask[begin:end]), code, is_plain, False)


def check_order(section: int, last: int, count: int, at: int) -> None:
    """Whether a section may follow the last one, as the `count`th of its message (§3.2). Raises PeerFault."""
    if count > SECTION_COUNT_MAX:
        raise decode_fault(f"message of more than {SECTION_COUNT_MAX} sections", at)
    if section < last or (section == last and section not in (DATA, SEQUENCE)):
        raise decode_fault(f"section 0x{section:02x} behind section 0x{last:02x}", at)
    if DATA <= last <= VALUE and section != last and section != FOOTER:
        raise decode_fault(f"body of section 0x{last:02x} goes on with section 0x{section:02x}", at)


def _body(payload: bytes, section: int, at: int, walk: Walk) -> int:
    """Checks the value of a section of a body; the offset behind it."""
    check_kind(section, payload[at] if at < len(payload) else NULL, at)
    return check_value(payload, at, len(payload), 0, walk)


def check_kind(section: int, code: int, at: int) -> None:
    """Whether a section of a body may hold a value with this format code. Raises PeerFault."""
    if section == DATA and code != VBIN8 and code != VBIN32:
        raise decode_fault(f"binary expected in a data section, got format code 0x{code:02x}", at)
    if section == SEQUENCE and code != LIST0 and code != LIST8 and code != LIST32:
        raise decode_fault(f"list expected in an amqp-sequence section, got format code 0x{code:02x}", at)


def _properties(payload: bytes, at: int, walk: Walk) -> tuple[int, bool]:
    """Checks the list of properties; the offset behind it, and whether they make the message special."""
    code = payload[at] if at < len(payload) else NULL
    if code == LIST0:
        return at + 1, False
    if code != LIST8 and code != LIST32:
        raise decode_fault(f"list expected in the properties section, got format code 0x{code:02x}", at)
    count, at, end = compound_bounds(payload, at + 1, len(payload), code == LIST32)
    if count > len(_FIELDS):
        raise decode_fault(f"properties section of {count} fields, there are {len(_FIELDS)}", at)
    is_telling = False
    for field in range(count):
        name, allowed = _FIELDS[field]
        if at >= end:
            raise decode_fault(f"the properties section ends before its {name}", at)
        if payload[at] not in allowed:
            raise decode_fault(f"properties, {name}: format code 0x{payload[at]:02x} is not of its type", at)
        if payload[at] != NULL:
            is_telling = is_telling or field in _TELLING
            at = check_value(payload, at, end, 1, walk)
        else:
            at += 1
    if at != end:
        raise decode_fault(f"properties section has {end - at} bytes behind its last field", at)
    return end, is_telling


def _map(payload: bytes, section: int, at: int, walk: Walk) -> tuple[int, bool]:
    """Checks the map of annotations, application properties or a footer; the offset behind it, and as above."""
    code = payload[at] if at < len(payload) else NULL
    if code != MAP8 and code != MAP32:
        raise decode_fault(f"map expected in section 0x{section:02x}, got format code 0x{code:02x}", at)
    is_of_properties = section == APPLICATION_PROPERTIES
    allowed = _PROPERTY_KEYS if is_of_properties else _ANNOTATION_KEYS
    count, at, end = compound_bounds(payload, at + 1, len(payload), code == MAP32)
    check_pairs(count, at, end)
    if count > VALUES_MAX:
        raise decode_fault(f"section 0x{section:02x} of over {VALUES_MAX} keys and values", at)
    is_telling = False
    seen: set[bytes] = set()
    keys = Walk(0)
    for _ in range(count // 2):
        if at >= end or payload[at] not in allowed:
            what = "string" if is_of_properties else "symbol or ulong"
            raise decode_fault(f"key of section 0x{section:02x} must be a {what}", at)
        after = check_value(payload, at, end, 1, keys)  # keys are the same in all messages of a form
        said = _key(payload, at, after)
        if said in seen:
            raise decode_fault(f"section 0x{section:02x} has a key twice", at)
        seen.add(said)
        is_telling = is_telling or said in _MARKS
        at = check_value(payload, after, end, 1, walk)
    if at != end:
        raise decode_fault(f"section 0x{section:02x} has {end - at} bytes behind its last value", at)
    return end, is_telling


def _key(payload: bytes, at: int, after: int) -> bytes:
    """What tells one key of a map from another, however it is written."""
    code = payload[at]
    if code in (STR8, SYM8):
        return payload[at + 2 : after]
    if code in (STR32, SYM32):
        return payload[at + 5 : after]
    number: int = decode_value(payload, at, after)[0]
    return b"\0%d" % number
