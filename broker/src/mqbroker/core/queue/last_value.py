"""The key by which a last-value queue tells messages apart: `_AMQ_LVQ_NAME`, or a property that the queue names itself.

The first is known since the message came (wire/parts.py) and each such message is a run of its own. The second is read
here, message by message.
"""

from __future__ import annotations

from collections.abc import Iterator

from mqbroker.base.errors import PeerFault
from mqbroker.core.queue.backlog import Segment
from mqbroker.core.queue.kinds import QueueKind
from mqbroker.core.queue.message_view import MessageView
from mqbroker.core.queue.moved_message import valid_ms
from mqbroker.wire.parts import last_value_of


def keyed(kind: QueueKind, segment: Segment) -> Iterator[tuple[str, Segment]]:
    """A segment of a last-value queue in pieces of one key each; the key is empty where a message has none."""
    if not kind.last_value_key:
        yield segment.run.traits.last_value, segment
    else:
        for index in range(segment.start, segment.start + segment.n):
            yield _property(kind.last_value_key, segment, index), segment.part(index, 1)


def values(kind: QueueKind, segment: Segment) -> Iterator[tuple[str, Segment]]:
    """The same, a message each."""
    for key, piece in keyed(kind, segment):
        for index in range(piece.start, piece.start + piece.n):
            yield key, piece.part(index, 1)


def age(segment: Segment) -> tuple[int, int]:
    """Orders values: by when they were valid, then by when they came."""
    return valid_ms(segment.run, segment.start), segment.first_id


def _property(name: str, segment: Segment, index: int) -> str:
    try:
        return last_value_of(MessageView(segment.run.payload(index)).value_of(name))
    except PeerFault:
        return ""  # what cannot be read has no key
