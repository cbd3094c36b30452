"""Runs: many transfers of one link handled as one value.

A Run is a block of consecutive AMQP transfer frames, one frame per message, that share the shape of their transfer
header and the bytes of their message header section. It keeps the read buffer and offsets into it; no message is an
object. `parse_run` finds the longest run at an offset and gives None for anything unusual, which then takes the
general path (`single`) and becomes a Run of one in canonical form; so everything above knows only Runs.
`encode_run` copies the block and patches the transfer headers in place, letting the delivery tag take up the slack.

Invariants: `0 <= live`; frames lie back to back, except where `compact` dropped dead ones; a buffer is never written.
Source: AMQP 1.0 §2.7.5 (transfer), §3.2.1 (header); docs/adr/0001-runs.md.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from operator import sub
from struct import Struct
from typing import Final

from mqbroker.base.value import Value
from mqbroker.wire.header_section import HEADER_LEAD, Section, section_fault, section_of
from mqbroker.wire.large_file import Large
from mqbroker.wire.traits import PLAIN, Traits
from mqbroker.wire.transfer_shape import TAG_SIZE_MAX, RunShape, shape_of
from mqbroker.wire.transfer_tail import TransferTail

COLUMNS_MIN: Final = 16  # below this many frames a loop over frames is faster than whole columns
CACHE_SIZE_MAX: Final = 1024
SIZE_MAX: Final = 0xFFFFFFFF

_U32: Final = Struct(">I")
_BYTE: Final = [bytes([value]) for value in range(256)]


class FrameLayout(Value):
    """What the frames of a run share. Sizes and offsets in bytes, relative to a frame's start.

    Delivery id and tag, which differ, lie between `vary_start` and `vary_end`; the message begins at `head_size`.
    """

    __match_args__ = ("head_size", "vary_start", "vary_end", "section")
    __slots__ = __match_args__

    def __init__(self, head_size: int, vary_start: int, vary_end: int, section: Section) -> None:
        self.head_size: Final = head_size
        self.vary_start: Final = vary_start
        self.vary_end: Final = vary_end
        self.section: Final = section


class Run:
    """Messages with ids `first_id`…; see the module's docstring for what they share."""

    __slots__ = (
        "arrived_ms",
        "buffer",
        "count",
        "deliver_at_ms",
        "expires_ms",
        "first_id",
        "first_start",
        "frame_size_max",
        "head_size",
        "held_bytes",
        "is_plain",
        "large",
        "live",
        "references",
        "section",
        "starts",
        "stride",
        "traits",
        "unused_bytes",
        "vary_end",
        "vary_start",
    )

    def __init__(self, buffer: bytes, starts: Sequence[int], stride: int, layout: FrameLayout) -> None:
        self.buffer = buffer
        self.starts = starts
        self.count = len(starts)
        self.stride = stride  # frame size in bytes where all are equal, else 0
        self.first_start = starts[0]
        self.head_size = layout.head_size
        self.vary_start = layout.vary_start
        self.vary_end = layout.vary_end
        self.section = layout.section
        self.frame_size_max = stride or _largest(buffer, starts)
        self.first_id = 0
        self.traits: Traits = PLAIN
        self.is_plain = False  # no message says anything special, as was found out before (wellformed.py)
        self.large: Large | None = None  # of a run of one: where the rest of the message is
        self.arrived_ms = 0  # wall clock, as the next two
        self.expires_ms = 0  # 0: never
        self.deliver_at_ms = 0  # 0: at once
        self.live = 0  # references from queues that are not settled yet
        self.references = 0  # what `live` was before the first of them was settled
        self.held_bytes = 0
        self.unused_bytes = 0  # of these, as far as they are known to be of settled messages

    def start(self, index: int) -> int:
        """Offset of a frame in the buffer."""
        # Most runs are of equal frames, and to compute costs less than to ask a sequence of Python's.
        return self.first_start + index * self.stride if self.stride else self.starts[index]

    def end(self, index: int) -> int:
        """Offset behind a frame in the buffer."""
        if self.stride:
            return self.first_start + (index + 1) * self.stride
        start = self.starts[index]
        size: int = _U32.unpack_from(self.buffer, start)[0]
        return start + size

    def block(self, index: int, count: int) -> memoryview:
        """The frames `index`… as they lie in the buffer, without a copy."""
        return memoryview(self.buffer)[self.start(index) : self.end(index + count - 1)]

    def size_bytes(self, index: int, count: int) -> int:
        """The bytes of the frames of `count` messages from `index` on."""
        if self.stride and count == 1:
            return self.stride
        return self.end(index + count - 1) - self.start(index)

    def payload(self, index: int) -> memoryview:
        """The message's sections, from its header section on."""
        return memoryview(self.buffer)[self.start(index) + self.head_size : self.end(index)]

    @property
    def beyond_bytes(self) -> int:
        """Bytes of a large message that are in its file."""
        return 0 if self.large is None else self.large.size_bytes

    def message_bytes(self, index: int) -> int:
        """Bytes of one message, wherever they are."""
        return self.size_bytes(index, 1) - self.head_size + self.beyond_bytes

    def compact(self, live: Iterable[tuple[int, int]]) -> None:
        """Keep only the frames of the ranges (index, count), in a buffer of their own. Indexes stay as they are."""
        starts = array("I", bytes(4 * self.count))
        parts: list[memoryview] = []
        at = 0
        for index, count in live:
            first = self.start(index)
            for each in range(index, index + count):
                starts[each] = at + self.start(each) - first
            parts.append(self.block(index, count))
            at += len(parts[-1])
        self.buffer = b"".join(parts)
        self.stride = 0
        self.starts = starts
        self.first_start = 0


def _largest(buffer: bytes, starts: Sequence[int]) -> int:
    """The size of the largest of these frames, which lie back to back."""
    last: int = _U32.unpack_from(buffer, starts[-1])[0]
    return max(last, max(map(sub, starts[1:], starts), default=0))


class Parsed(Value):
    """A run as it was found on the wire, with what the session needs to know of its transfers."""

    __match_args__ = ("run", "handle", "delivery_id", "tail", "next_offset")
    __slots__ = __match_args__

    def __init__(self, run: Run, handle: int, delivery_id: int, tail: TransferTail, next_offset: int) -> None:
        self.run: Final = run
        self.handle: Final = handle
        self.delivery_id: Final = delivery_id
        self.tail: Final = tail
        self.next_offset: Final = next_offset


# -- parsing ----------------------------------------------------------------------------------------------------------


def parse_run(buffer: bytes, offset: int, limit: int, count_max: int, size_max: int) -> Parsed | None:
    """The longest run of usual transfers at `offset`, at most `count_max` messages of `size_max` bytes a frame.

    None where the first frame is incomplete or unusual: the caller takes the general path for it.
    """
    first = shape_of(buffer, offset, limit, size_max)
    if first is None or count_max < 1:
        return None
    stride = first.size
    count = min(count_max, (limit - offset) // stride)
    if first.id_size < 4:
        count = min(count, 256 - first.delivery_id if first.id_size else 1)
    starts: Sequence[int] = range(offset, offset + count * stride, stride)
    if offset + stride == limit:
        pass  # one message: what publishers with one in flight send
    elif count < COLUMNS_MIN or not _columns_agree(buffer, offset, count, first):
        starts = _walk(buffer, (offset, limit), (count_max, size_max), first)
        stride = _common_size(buffer, starts, stride)
    run = Run(buffer, starts, stride, FrameLayout(first.head_size, first.id_offset, first.tag_end, first.section))
    return Parsed(run, first.handle, first.delivery_id, first.tail, run.end(run.count - 1))


def _common_size(buffer: bytes, starts: array[int], size: int) -> int:
    """`size` where all these frames have it, else 0. Unequal sizes can add up to an even total: look at each."""
    last: int = _U32.unpack_from(buffer, starts[-1])[0]
    is_even = last == size and starts == array("I", range(starts[0], starts[0] + len(starts) * size, size))
    return size if is_even else 0


_structs: dict[tuple[int, int, int, int, int], Struct] = {}


def _frame_struct(before: int, id_size: int, between: int, tag: int, behind: int) -> Struct:
    key = (before, id_size, between, tag, behind)
    struct = _structs.get(key)
    if struct is None:
        if len(_structs) >= CACHE_SIZE_MAX:
            _structs.clear()
        struct = _structs[key] = Struct(f">I{before}s{'I' if id_size == 4 else 'B'}{between}s{tag}x{behind}s")
    return struct


def _walk(buffer: bytes, span: tuple[int, int], most: tuple[int, int], first: RunShape) -> array[int]:
    """Offsets of the frames in `span` that look like the first, found one frame at a time; `most`: count and size."""
    offset, limit = span
    count_max, size_max = most
    starts = array("I", [offset])
    if not first.id_size:
        return starts  # delivery id 0 in its shortest form: the next has another
    need = first.head_size + first.section.size_bytes
    id_end = first.id_offset + first.id_size
    unpack = _frame_struct(first.id_offset - 4, first.id_size, first.tag_offset - id_end,
                           first.tag_end - first.tag_offset, need - first.tag_end).unpack_from  # fmt: skip
    _, before, delivery_id, between, behind = unpack(buffer, offset)
    at = offset + first.size
    append = starts.append
    room = count_max - 1
    while room and at + need <= limit:
        size, this_before, this_id, this_between, this_behind = unpack(buffer, at)
        delivery_id = (delivery_id + 1) & 0xFFFFFFFF
        end = at + size
        if (
            this_behind != behind or this_id != delivery_id or this_before != before or this_between != between
            or size < need or size > size_max or end > limit
        ):  # fmt: skip
            break
        # A message without a header section must not be followed by one that has it, in any spelling.
        if not first.section.size_bytes and not _begins_without_header(buffer, at + need, end):
            break
        append(at)
        at = end
        room -= 1
    return starts


def _begins_without_header(buffer: bytes, offset: int, end: int) -> bool:
    """Whether a message surely starts with another section than its header (or is empty)."""
    lead = buffer[offset : min(offset + 3, end)]
    return lead[:2] == b"\x00\x53" and lead != HEADER_LEAD


def _columns_agree(buffer: bytes, offset: int, count: int, first: RunShape) -> bool:
    """Whether `count` frames of one size share every byte that must be shared: compared column by column."""
    stride = first.size
    end = offset + count * stride
    head = first.head_size + first.section.size_bytes
    id_end = first.id_offset + first.id_size
    for column in (*range(first.id_offset), *range(id_end, first.tag_offset), *range(first.tag_end, head)):
        at = offset + column
        if buffer[at:end:stride] != _BYTE[buffer[at]] * count:
            return False
    if not first.section.size_bytes:
        codes = [buffer[offset + head + place : end : stride] for place in range(min(3, stride - head))]
        if len(codes) < 3 or codes[:2] != [b"\x00" * count, b"\x53" * count] or b"\x70" in codes[2]:
            return False
    ids = id_columns(first.delivery_id, count)[-first.id_size :]
    return all(buffer[offset + first.id_offset + place : end : stride] == column for place, column in enumerate(ids))


_LOW: Final = bytes(range(256)) * 257
_MIDDLE: Final = b"".join(_BYTE[value] * 256 for value in range(256))


def id_columns(first: int, count: int) -> list[bytes]:
    """`count` ascending serial numbers from `first` as four columns of bytes, highest first, wrapping at 2**32.

    Slices of two tables: a third of the cost of packing the numbers.
    """
    low = first & 0xFFFF
    here = min(count, 0x10000 - low)
    columns = [
        _BYTE[first >> 24 & 0xFF] * here,
        _BYTE[first >> 16 & 0xFF] * here,
        _MIDDLE[low : low + here],
        _LOW[low & 0xFF : (low & 0xFF) + here],
    ]
    if here == count:
        return columns
    rest = id_columns((first + here) & 0xFFFFFFFF, count - here)
    return [column + more for column, more in zip(columns, rest, strict=True)]


# -- the canonical form of the general path ---------------------------------------------------------------------------

_CANONICAL: Final = Struct(">I4s6s2s5s6s2s")
CANONICAL_SIZE: Final = 29  # of the head that `single` gives a message
_CANONICAL_VARY: Final = (17, 27)


def single(payload: bytes) -> Run:
    """A Run of one from a whole message, framed in canonical form, however it came over the wire.

    Its frame may be larger than any negotiated maximum: sending splits it again.
    """
    section = section_of(payload, 0, len(payload))
    if section is None:
        raise section_fault(payload)
    size = CANONICAL_SIZE + len(payload)
    head = _CANONICAL.pack(size, b"\x02\x00\x00\x00", b"\x00\x53\x14\xc0\x10\x05", b"\x52\x00", b"\x70\x00\x00\x00\x00",
                           b"\xa0\x04\x00\x00\x00\x00", b"\x43\x42")  # fmt: skip
    return Run(
        b"".join((head, payload)), range(0, size, size), size, FrameLayout(CANONICAL_SIZE, *_CANONICAL_VARY, section)
    )


# -- encoding ---------------------------------------------------------------------------------------------------------


class Heading(Value):
    """The constant part of outgoing transfers of one link: everything between frame size and delivery id."""

    __match_args__ = ("prefix", "tail")
    __slots__ = ("fixed_size", "pack", "prefix", "short_prefix", "tail")

    def __init__(self, prefix: bytes, tail: bytes) -> None:
        self.prefix: Final = prefix
        self.tail: Final = tail
        self.fixed_size: Final = 4 + len(prefix) + 4 + 2 + len(tail)  # of a transfer frame's head without its tag
        # What heads with a tag of 4 bytes are made of; those are made one by one.
        self.short_prefix: Final = _sized_prefix(prefix, self.fixed_size + 4)
        self.pack: Final[Callable[..., bytes]] = _head_struct(len(prefix), 4).pack


def heading(channel: int, handle: int, is_settled: bool) -> Heading:
    """What `encode_run` needs to know of a link. The list size in it is a placeholder."""
    place = b"\x52" + _BYTE[handle] if handle < 256 else b"\x70" + _U32.pack(handle)
    prefix = b"\x02\x00" + channel.to_bytes(2, "big") + b"\x00\x53\x14\xc0\x00\x05" + place + b"\x70"
    return Heading(prefix, b"\x43\x41" if is_settled else b"\x43\x42")


_heads: Final[dict[tuple[int, int], Struct]] = {}


def _head_struct(prefix_size: int, tag_size: int) -> Struct:
    struct = _heads.get((prefix_size, tag_size))
    if struct is None:
        struct = _heads[(prefix_size, tag_size)] = Struct(f">I{prefix_size}sI2sI{tag_size - 4}x2s")
    return struct


def _sized_prefix(prefix: bytes, head_size: int) -> bytes:
    return prefix[:8] + _BYTE[head_size - 13] + prefix[9:]


def encode_run(run: Run, index: int, count: int, head: Heading, delivery_id: int) -> bytes | bytearray:
    """Transfer frames of these messages under new delivery ids: a copy of the block with its heads patched.

    The tag is the delivery id, padded with zeros to whatever the old head's size leaves (4 to 32 bytes).
    """
    tag_size = run.head_size - head.fixed_size
    if count == 1 or not 4 <= tag_size <= TAG_SIZE_MAX:
        return _encode_joined(run, index, count, head, delivery_id)
    block = bytearray(run.block(index, count))
    prefix = _sized_prefix(head.prefix, run.head_size)
    constants = prefix, b"\xa0" + _BYTE[tag_size], head.tail
    if run.stride and count >= COLUMNS_MIN:
        _patch_columns(block, run, count, constants, delivery_id)
        return block
    pack_into = _head_struct(len(prefix), tag_size).pack_into
    prefix, tag_head, tail = constants
    offset = run.start(index)
    for each in range(index, index + count):
        start = run.start(each)
        pack_into(block, start - offset, run.end(each) - start, prefix, delivery_id, tag_head, delivery_id, tail)
        delivery_id = (delivery_id + 1) & 0xFFFFFFFF
    return block


def _encode_joined(run: Run, index: int, count: int, head: Heading, delivery_id: int) -> bytes:
    pack, prefix, tail = head.pack, head.short_prefix, head.tail
    head_size = head.fixed_size + 4
    parts: list[bytes | memoryview] = []
    view = memoryview(run.buffer)
    for each in range(index, index + count):
        start, end = run.start(each) + run.head_size, run.end(each)
        parts.append(pack(head_size + end - start, prefix, delivery_id, b"\xa0\x04", delivery_id, tail))
        parts.append(view[start:end])
        delivery_id = (delivery_id + 1) & 0xFFFFFFFF
    return b"".join(parts)


def encode_payloads(payloads: Sequence[bytes], head: Heading, delivery_id: int) -> bytes:
    """Transfer frames of whole messages under ascending delivery ids, one frame each."""
    pack, prefix, tail = head.pack, head.short_prefix, head.tail
    head_size = head.fixed_size + 4
    parts: list[bytes] = []
    for payload in payloads:
        parts.append(pack(head_size + len(payload), prefix, delivery_id, b"\xa0\x04", delivery_id, tail))
        parts.append(payload)
        delivery_id = (delivery_id + 1) & 0xFFFFFFFF
    return b"".join(parts)


def _patch_columns(block: bytearray, run: Run, count: int, constants: tuple[bytes, bytes, bytes], first: int) -> None:
    """Write whole columns; those that already hold the right byte in every frame are left alone."""
    stride = run.stride
    prefix, tag_head, tail = constants
    id_at = 4 + len(prefix)
    tag_at = id_at + 4 + len(tag_head)
    wanted = b"\x00\x00\x00\x00" + prefix + b"\x00\x00\x00\x00" + tag_head
    wanted += bytes(run.head_size - len(wanted) - len(tail)) + tail
    for column in range(4, run.head_size):
        if run.vary_start <= column < run.vary_end or block[column] != wanted[column]:
            block[column::stride] = _BYTE[wanted[column]] * count
    for place, column_bytes in enumerate(id_columns(first, count)):
        block[id_at + place :: stride] = block[tag_at + place :: stride] = column_bytes


def payload_with_count(run: Run, index: int, header: bytes) -> list[bytes | memoryview]:
    """A message under another header section (a redelivery): nothing else of it changes."""
    return [header, run.payload(index)[run.section.size_bytes :]]


# -- whole messages as runs -------------------------------------------------------------------------------------------

_NO_LINK: Final = heading(0, 0, False)  # its heads are as large as those of `single`


def runs_of(payloads: Sequence[bytes]) -> list[Run]:
    """Whole messages in as few runs as they can be, which share a buffer."""
    frames = encode_payloads(payloads, _NO_LINK, 0)
    runs: list[Run] = []
    offset = place = 0
    while place < len(payloads):
        parsed = parse_run(frames, offset, len(frames), len(payloads) - place, SIZE_MAX)
        if parsed is None:
            return runs + [single(payload) for payload in payloads[place:]]
        runs.append(parsed.run)
        place += parsed.run.count
        offset = parsed.next_offset
    return runs


def canonical(run: Run) -> Run:
    """The messages of a run in a buffer of their own, framed as by `single`: as if nothing had been said of them."""
    if run.count == 1:
        made = single(bytes(run.payload(0)))
        made.is_plain = run.is_plain
        return made
    frames = _encode_joined(run, 0, run.count, _NO_LINK, 0)
    smaller = run.head_size - CANONICAL_SIZE
    stride = run.stride and run.stride - smaller
    first = run.start(0)
    starts: Sequence[int] = range(0, len(frames), stride or 1)
    if not stride:
        starts = array("I", [run.start(each) - first - each * smaller for each in range(run.count)])
    made = Run(frames, starts, stride, FrameLayout(CANONICAL_SIZE, *_CANONICAL_VARY, run.section))
    made.is_plain = run.is_plain
    return made


def joined(runs: Sequence[Run]) -> Run | None:
    """Whole messages in canonical form as one run, None where they are none. Only `parse_run` knows: recovery asks it
    again."""
    sizes = [run.size_bytes(each, 1) for run in runs for each in range(run.count)]
    count = len(sizes)
    stride = sizes[0] if sizes.count(sizes[0]) == count else 0
    frames = b"".join([run.buffer for run in runs])
    starts = range(0, len(frames), stride) if stride else array("I", accumulate(sizes[:-1], initial=0))
    together = Run(frames, starts, stride, FrameLayout(CANONICAL_SIZE, *_CANONICAL_VARY, runs[0].section))
    frames = bytes(encode_run(together, 0, count, _NO_LINK, 0))
    parsed = parse_run(frames, 0, len(frames), count, SIZE_MAX)
    return parsed.run if parsed is not None and parsed.run.count == count else None
