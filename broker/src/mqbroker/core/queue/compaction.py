"""Journals what is still live of old segments once more, so that these can be deleted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from mqbroker.core.queue.backlog import Segment
from mqbroker.core.queue.queue import Queue
from mqbroker.journal.places import Written
from mqbroker.journal.plan import Journal
from mqbroker.journal.ranges import RangeMap
from mqbroker.wire.run import Run


class Live(NamedTuple):
    """Messages of a queue, and when they are due. `is_paged`: it has only their place, and wants the new one."""

    queue: Queue
    segment: Segment
    due_ms: int = 0
    is_paged: bool = False


class LiveIds(NamedTuple):
    """Ids from `begin` to before `end` that are live in a queue."""

    begin: int
    end: int
    live: Live


# What was stored for queues that have to know its place.
Stored = tuple[Written, list[Queue]]


def store_again(
    journal: Journal, ranges: list[tuple[int, int]], live: Iterable[Live], sources: Sequence[Run] = ()
) -> list[Stored]:
    """Store what is live of these ids again, each message once with all its queues, its delivery counts and due times.

    `sources` ascend by id: what they hold is taken from them, whichever run a queue has it in, so that queues which
    have the same message from different reads still share one record.
    """
    low = min(first for first, _ in ranges)
    high = max(first + count for first, count in ranges)
    by_id = _by_id(sources)
    # By whether it is a source, and the first id: a run, and its pieces.
    pieces_of: dict[tuple[bool, int], tuple[Run, list[LiveIds]]] = {}
    for one in live:
        segment = one.segment
        first = segment.first_id
        if first >= high or first + segment.n <= low:
            continue
        if not one.is_paged and (not one.queue.journal_id or not segment.run.section.is_durable):
            continue
        for start, count in ranges:
            begin, end = max(first, start), min(first + segment.n, start + count)
            for at, stop, source in by_id.pieces(begin, end) if begin < end else ():
                run = source or segment.run
                pieces_of.setdefault((source is not None, run.first_id), (run, []))[1].append(LiveIds(at, stop, one))
    stored: list[Stored] = []
    for run, pieces in pieces_of.values():
        stored += _store_pieces(journal, run, pieces)
    return stored


def _by_id(sources: Sequence[Run]) -> RangeMap[Run]:
    by_id: RangeMap[Run] = RangeMap()
    for run in sources:
        by_id.assign(run.first_id, run.first_id + run.count, run)
    return by_id


def _store_pieces(journal: Journal, run: Run, pieces: list[LiveIds]) -> list[Stored]:
    stored: list[Stored] = []
    cuts = sorted({edge for piece in pieces for edge in (piece.begin, piece.end)})
    for begin, end in pairwise(cuts):
        here = [piece.live for piece in pieces if piece.begin <= begin and end <= piece.end]
        if not here:
            continue
        block, count = run.block(begin - run.first_id, end - begin), end - begin
        durable = [one for one in here if one.queue.journal_id and run.section.is_durable]
        queue_ids = tuple(one.queue.journal_id for one in durable)
        paged = [one.queue for one in here if one.is_paged]
        if paged:
            written = journal.store_paged((begin, count), queue_ids, block, run.arrived_ms, None)
            written.pins += 1
            stored.append((written, paged))
        else:
            journal.store(begin, count, queue_ids, block, run.arrived_ms)
        for one in durable:
            if one.segment.deliveries:
                journal.count(one.queue.journal_id, begin, count, one.segment.deliveries, one.due_ms)
    return stored
