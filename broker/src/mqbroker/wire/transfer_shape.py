"""The first frame of a run, taken apart without recursion: most transfers have this shape. Source: AMQP 1.0 §2.7.5."""

from __future__ import annotations

from struct import Struct
from typing import Final

from mqbroker.base.value import Value
from mqbroker.wire.header_section import Section, section_of
from mqbroker.wire.transfer_tail import TRANSFER, TransferTail, tail_of

FRAME_SIZE_MIN: Final = 20  # a smaller transfer has next to no message
TAG_SIZE_MAX: Final = 32  # AMQP 1.0 §2.8.7

_U32: Final = Struct(">I")


class RunShape(Value):
    """The first frame of a run, taken apart. Sizes and offsets are relative to the frame's start."""

    __match_args__ = (
        "size",
        "handle",
        "id_offset",
        "id_size",
        "delivery_id",
        "tag_offset",
        "tag_end",
        "head_size",
        "tail",
        "section",
    )
    __slots__ = __match_args__

    def __init__(
        self,
        size: int,
        handle: int,
        id_offset: int,
        id_size: int,
        delivery_id: int,
        tag_offset: int,
        tag_end: int,
        head_size: int,
        tail: TransferTail,
        section: Section,
    ) -> None:
        self.size: Final = size
        self.handle: Final = handle
        self.id_offset: Final = id_offset
        self.id_size: Final = id_size
        self.delivery_id: Final = delivery_id
        self.tag_offset: Final = tag_offset
        self.tag_end: Final = tag_end
        self.head_size: Final = head_size
        self.tail: Final = tail
        self.section: Final = section


def shape_of(buffer: bytes, start: int, limit: int, size_max: int) -> RunShape | None:
    """Take a transfer frame apart without recursion; None for whatever is not the usual shape, or incomplete."""
    if limit - start < FRAME_SIZE_MIN:
        return None
    size: int = _U32.unpack_from(buffer, start)[0]
    end = start + size
    if size > size_max or end > limit or buffer[start + 4 : start + 6] != b"\x02\x00":
        return None
    constructor = buffer[start + 11]
    if constructor == 0xC0:
        list_end = start + 13 + buffer[start + 12]
        at, field_count = start + 14, buffer[start + 13]
    elif constructor == 0xD0:
        list_end = start + 16 + int(_U32.unpack_from(buffer, start + 12)[0])
        at, field_count = start + 20, int(_U32.unpack_from(buffer, start + 16)[0])
    else:
        return None
    if list_end > end or at + 4 > list_end or buffer[start + 8 : start + 11] != TRANSFER:
        return None
    code = buffer[at]
    if code == 0x52:
        handle, at = buffer[at + 1], at + 2
    elif code == 0x43:
        handle, at = 0, at + 1
    elif code == 0x70 and at + 5 <= list_end:
        handle, at = int(_U32.unpack_from(buffer, at + 1)[0]), at + 5
    else:
        return None
    return _shape_from_id(buffer, (start, at, list_end, end), handle, field_count)


def _shape_from_id(buffer: bytes, places: tuple[int, int, int, int], handle: int, field_count: int) -> RunShape | None:
    start, at, list_end, end = places
    if at + 2 > list_end:
        return None
    code = buffer[at]
    id_offset = at + 1 - start
    if code == 0x70 and at + 5 <= list_end:
        id_size, delivery_id = 4, int(_U32.unpack_from(buffer, at + 1)[0])
    elif code == 0x52:
        id_size, delivery_id = 1, buffer[at + 1]
    elif code == 0x43:
        id_size, delivery_id = 0, 0
    else:
        return None
    at += 1 + id_size
    if at + 2 > list_end or buffer[at] != 0xA0:
        return None
    tag_offset = at + 2
    tag_end = tag_offset + buffer[at + 1]
    if tag_end > list_end or buffer[at + 1] > TAG_SIZE_MAX:
        return None
    tail = tail_of(field_count, bytes(buffer[tag_end:list_end]))
    if tail is None:
        return None
    section = section_of(buffer, list_end, end)
    if section is None:
        return None
    return RunShape(end - start, handle, id_offset, id_size, delivery_id, tag_offset - start, tag_end - start,
                  list_end - start, tail, section)  # fmt: skip
