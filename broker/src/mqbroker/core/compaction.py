"""Journals what is still live of old segments once more, so that these can be deleted."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from mqbroker.core.backlog import Segment
from mqbroker.core.queue import Queue
from mqbroker.journal.plan import Journal
from mqbroker.wire.run import Run

# By the first id of a run: the run, and of each piece that is live (first id, id behind the last, journal id of the
# queue, delivery count).
Pieces = dict[int, tuple[Run, list[tuple[int, int, int, int]]]]


def store_again(journal: Journal, ranges: list[tuple[int, int]], live: Iterable[tuple[Queue, Segment]]) -> None:
    """Store what is live of these ids again, each message once with all its queues and its delivery counts."""
    low = min(first for first, _ in ranges)
    high = max(first + count for first, count in ranges)
    found: Pieces = {}
    for queue, segment in live:
        first = segment.first_id
        if first >= high or first + segment.n <= low:
            continue
        if not queue.journal_id or not segment.run.section.is_durable:
            continue
        for start, count in ranges:
            begin, end = max(first, start), min(first + segment.n, start + count)
            if begin < end:
                known = found.setdefault(segment.run.first_id, (segment.run, []))[1]
                known.append((begin, end, queue.journal_id, segment.deliveries))
    for run, pieces in found.values():
        _store_pieces(journal, run, pieces)


def _store_pieces(journal: Journal, run: Run, pieces: list[tuple[int, int, int, int]]) -> None:
    cuts = sorted({edge for begin, end, _, _ in pieces for edge in (begin, end)})
    for begin, end in pairwise(cuts):
        here = [piece for piece in pieces if piece[0] <= begin and end <= piece[1]]
        if not here:
            continue
        index, count = begin - run.first_id, end - begin
        queue_ids = [queue_id for _, _, queue_id, _ in here]
        journal.store(begin, count, queue_ids, run.block(index, count), run.arrived_ms)
        for _, _, queue_id, deliveries in here:
            if deliveries:
                journal.count(queue_id, begin, count, deliveries)
