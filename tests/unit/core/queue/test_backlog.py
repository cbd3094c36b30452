"""The backlog against a plain sorted list of messages."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from mqbroker.core.queue import backlog as module
from mqbroker.core.queue.backlog import Backlog, Segment, rank_of
from mqbroker.wire.run import FrameLayout, Run, single

_SAMPLE = single(b"")


def run_of(first_id: int, count: int, priority: int = 4) -> Run:
    """Empty messages with these ids."""
    section = _SAMPLE.section._replace(priority=priority)
    found = Run(_SAMPLE.buffer, range(count), 1, FrameLayout(29, 17, 27, section))
    found.first_id = first_id
    return found


def whole(first_id: int, count: int, priority: int = 4) -> Segment:
    return Segment(run_of(first_id, count, priority), 0, count, 0)


def ranks(segments: object) -> list[int]:
    return [each.rank + index for each in segments for index in range(each.n)]  # type: ignore[attr-defined]


def id_of(rank: int) -> int:
    return rank & (1 << module.ID_BITS) - 1


def test_ids_are_found_by_priority() -> None:
    backlog = Backlog()
    for number in range(1, 5000):
        backlog.add(whole(number, 1, number % 3))
    # Priority 2 first, then 1, then 0.
    assert [each.first_id for each in backlog.of_ids(4000, 4007)] == [4001, 4004, 4000, 4003, 4006, 4002, 4005]


def test_higher_priority_comes_first_and_above_nine_is_nine() -> None:
    backlog = Backlog()
    for number, priority in enumerate((4, 9, 0, 255, 4), 1):
        backlog.add(whole(number, 1, priority))
    assert [backlog.take(10).first_id for _ in range(5)] == [2, 4, 1, 5, 3]
    assert rank_of(200, 7) == rank_of(9, 7)


def test_what_was_one_piece_becomes_one_again() -> None:
    backlog = Backlog()
    piece = whole(1, 9)
    backlog.add(piece)
    backlog.add(whole(100, 1))
    parts = [backlog.take(3) for _ in range(3)]
    for number in (2, 0, 1):
        backlog.add(parts[number])
    assert next(iter(backlog)) == piece
    assert backlog.count == 10


PIECES = st.lists(st.tuples(st.integers(1, 5), st.integers(3, 5)), min_size=1, max_size=40)


@given(PIECES, st.randoms(use_true_random=False))
def test_backlog_is_a_sorted_list(pieces: list[tuple[int, int]], random: object) -> None:
    before, module.BLOCK_SEGMENTS_MAX = module.BLOCK_SEGMENTS_MAX, 4
    try:
        against_a_list(pieces, random)
    finally:
        module.BLOCK_SEGMENTS_MAX = before


def against_a_list(pieces: list[tuple[int, int]], random: object) -> None:
    backlog, truth, out, next_id = Backlog(), [], [], 1
    choose = random.choice  # type: ignore[attr-defined]
    for count, priority in pieces:
        backlog.add(whole(next_id, count, priority))
        truth = sorted(truth + [rank_of(priority, next_id + index) for index in range(count)])
        next_id += count
        if choose((True, False)):
            taken = backlog.take(choose((1, 2, 3)))
            assert ranks([taken]) == truth[: taken.n]
            del truth[: taken.n]
            out.append(taken)
        if truth and choose((True, False)):
            rank = choose(truth)
            taken = backlog.take_at(rank, 1)
            assert ranks([taken]) == [rank]
            truth.remove(rank)
            out.append(taken)
        if out and choose((True, False)):
            back = out.pop(choose(range(len(out))))
            backlog.add(back)
            truth = sorted(truth + ranks([back]))
        assert ranks(backlog) == truth
        assert backlog.count == len(truth)
        assert backlog.last_rank == (truth[-1] if truth else -1)
        if truth:
            start = choose(truth)
            assert [rank for rank in ranks(backlog.from_rank(start)) if rank >= start] == [
                rank for rank in truth if rank >= start
            ]
        first, end = sorted((choose(range(next_id + 1)), choose(range(next_id + 1))))
        found = ranks(backlog.of_ids(first, end))
        assert [rank for rank in found if first <= id_of(rank) < end] == [
            rank for rank in truth if first <= id_of(rank) < end
        ]
        assert len(found) == len(set(found))


def test_what_is_walked_over_may_be_taken() -> None:
    backlog = Backlog()
    for number in range(1, 2000):
        backlog.add(whole(number, 1))
    for segment in backlog.from_rank(rank_of(4, 500)):
        if segment.first_id % 3:
            backlog.take_at(segment.rank, 1)
    assert [each.first_id for each in backlog][:502] == [*range(1, 500), 501, 504, 507]
    assert all(each.first_id % 3 == 0 for each in list(backlog)[499:])
