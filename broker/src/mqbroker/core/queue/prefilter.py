"""Messages of a backlog that lack what a selector asks for, passed over many at a time.

A selector such as `kind = 'rare'` matches no message in whose bytes the text is not. These bytes, the needles, are
searched for in the buffer where the frames of a segment lie one behind the other, and only messages in which one is
found are looked at. Invariant: what is passed over has none of the needles. What has one may still be anything: the
text may be in its body, or reach from a message into the next one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Set
from typing import Final

from mqbroker.core.queue.backlog import Segment
from mqbroker.wire.run import Run

NEEDLES_MAX: Final = 8  # each is searched for by itself
NEEDLE_SIZE_MAX: Final = 16  # a long one can make a search slow whose beginning is all over the place
STRETCH_BYTES: Final = 16 * 1024  # that are searched at a time
LOOK_BYTES: Final = 1024  # so many searched bytes cost as much as one look at a message
CALL_BYTES: Final = 256  # what it costs to begin, in searched bytes
FRAME_BYTES_MAX: Final = 2048  # of larger messages a look costs less, which reads nothing of their bodies
VAIN_MAX: Final = 8  # searches one after the other that pass over nothing: there is a needle in each message


def needles_of(required: Set[str]) -> tuple[bytes, ...]:
    """The bytes by which one of these texts is in a message, whatever the type of its value; none where one of them
    may be without such bytes, or is in nearly all messages.
    """
    if len(required) > NEEDLES_MAX or any(len(text) < 2 for text in required):
        return ()  # a text of one character equals a `char`, which is not encoded as texts are
    return tuple(sorted(map(_needle, required)))


def _needle(text: str) -> bytes:
    # The last byte of a size stands before the text in all encodings (str8, str32, sym8, sym32).
    encoded = text.encode("utf-8", "surrogatepass")
    return (bytes((len(encoded) & 0xFF,)) + encoded)[:NEEDLE_SIZE_MAX]


class Prefilter:
    """A search for needles through segments, one after the other."""

    __slots__ = ("_at", "_buffer", "_needles", "_places", "_searched_bytes", "_vain_count")

    def __init__(self, needles: tuple[bytes, ...]) -> None:
        self._needles: Final = needles
        self._buffer = b""
        self._at = 0  # where the last search began
        # In the buffer, for each needle: it does not begin between there and here.
        self._places = [-1] * len(needles)
        self._searched_bytes = 0
        self._vain_count = 0

    def next_index(self, segment: Segment, index: int) -> int:
        """The first message of the segment from `index` on that may have a needle; behind it where none has."""
        run = segment.run
        stop = segment.start + segment.n
        if run.frame_size_max > FRAME_BYTES_MAX or self._vain_count >= VAIN_MAX:
            return index
        at = run.start(index)
        # Runs of one buffer may be in another order than their bytes: by priority, or as their transactions ended.
        if run.buffer is not self._buffer or at < self._at:
            self._buffer = run.buffer
            self._places = [-1] * len(self._needles)
        self._at = at
        end = run.end(stop - 1)
        place = self._nearest(at, end)
        candidate = stop if place >= end else _index_at(run, place, index, stop)
        self._vain_count = self._vain_count + 1 if candidate == index else 0
        return candidate

    def _nearest(self, at: int, end: int) -> int:
        """Before this place no needle begins; the search is over behind a stretch, where it may be none either."""
        nearest = min(end, at + STRETCH_BYTES)
        self._searched_bytes += CALL_BYTES
        for number, needle in enumerate(self._needles):
            place = self._places[number]
            if place < at:
                behind = min(nearest + len(needle) - 1, end)
                place = self._buffer.find(needle, at, behind)
                if place < 0:
                    place = nearest
                self._places[number] = place
                self._searched_bytes += place - at
            nearest = min(nearest, place)
        return nearest

    def looks(self) -> int:
        """What was searched since this was asked, in looks at messages."""
        looks, self._searched_bytes = divmod(self._searched_bytes, LOOK_BYTES)
        return looks


def _index_at(run: Run, place: int, low: int, high: int) -> int:
    """Which of the messages from `low` to before `high` is at this place of the buffer."""
    if run.stride:
        return (place - run.first_start) // run.stride
    return bisect_right(run.starts, place, low, high) - 1
