"""Large messages: a Run of one whose frame holds the head of the message and names the file that holds the rest.

    size u32 | 2 | TYPE | channel 0 u16 | file u64 | bytes of the rest u64 | head

The head is every section before the body. No peer can send such a frame: what comes from the wire has type 0 or 1.
Source: docs/adr/0009-large-messages.md; AMQP 1.0 §2.3.1, §3.2.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from mqbroker.base.errors import PeerFault, Scope
from mqbroker.wire.header_section import section_of
from mqbroker.wire.large_file import Large
from mqbroker.wire.run import FrameLayout, Run
from mqbroker.wire.scan import APPLICATION_PROPERTIES, section_at, skip_value

HEAD_BYTES_MAX: Final = 64 << 10  # a message with a longer head stays in memory as a whole
TYPE: Final = 0x4C
_FRAME: Final = Struct(">IBBHQQ")


def body_offset(payload: bytes) -> int | None:
    """Where the body begins. None: that has not come yet, or the sections before it are not those of a message."""
    offset = 0
    last = -1
    try:
        if section_of(payload, 0, len(payload)) is None:
            return None
        while True:
            section, value = section_at(payload, offset, len(payload))
            if section > APPLICATION_PROPERTIES:
                return offset
            if section <= last:
                return None
            last = section
            offset = skip_value(payload, value, len(payload))
    except (PeerFault, IndexError):
        return None


def large_run(head: bytes, large: Large) -> Run:
    """A message in a file, by its head. Raises PeerFault where the head's header section is malformed."""
    section = section_of(head, 0, len(head))
    if section is None:
        raise PeerFault("amqp:decode-error", "the message's header section is malformed", Scope.LINK)
    size = _FRAME.size + len(head)
    buffer = _FRAME.pack(size, 2, TYPE, 0, *large) + head
    run = Run(buffer, range(0, size, size), size, FrameLayout(_FRAME.size, 8, _FRAME.size, section))
    run.large = large
    return run


def is_large(frames: bytes) -> bool:
    """Whether what the journal stored is such a frame."""
    return frames[5:6] == bytes([TYPE])


def large_in(frames: bytes) -> Run | None:
    """The run of a stored frame, None where it is damaged."""
    if len(frames) < _FRAME.size:
        return None
    size, offset, _, channel, file, rest = _FRAME.unpack_from(frames)
    if (size, offset, channel) != (len(frames), 2, 0) or not rest:
        return None
    try:
        return large_run(frames[_FRAME.size :], Large(file, rest))
    except PeerFault:
        return None
