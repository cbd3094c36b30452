"""A picker takes what is wanted once, in order, whatever its budgets are, and leaves the queue in order."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from mqbroker.core.queue.backlog import Segment
from mqbroker.core.queue.picking import Budget, Picker
from mqbroker.core.queue.queue import Queue, QueueKind
from mqbroker.wire.run import FrameLayout, Run, single
from mqbroker.wire.sections import Header, build_message


def run_of(first_id: int, count: int, priority: int) -> Run:
    """`count` messages of one shape under ids from `first_id` on."""
    one = single(build_message("body", header=Header(priority=priority)))
    layout = FrameLayout(one.head_size, one.vary_start, one.vary_end, one.section)
    run = Run(one.buffer * count, range(0, one.stride * count, one.stride), one.stride, layout)
    run.first_id = first_id
    return run


CONTENTS = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 9), st.booleans()), max_size=12)


def filled(contents: list[tuple[int, int, bool]]) -> tuple[Queue, int]:
    """A queue with runs of (count, priority, whether scheduled), and the next id."""
    queue, next_id = Queue(QueueKind("q", "q"), 1), 1
    for count, priority, is_scheduled in contents:
        segment = Segment(run_of(next_id, count, priority), 0, count, 0)
        if is_scheduled:
            queue.add_scheduled(segment, 1000 + priority)
        else:
            queue.add(segment)
        next_id += count
    return queue, next_id


def ids(segments: list[Segment]) -> list[int]:
    return [segment.first_id + each for segment in segments for each in range(segment.n)]


@given(CONTENTS, st.tuples(st.integers(1, 5), st.integers(1, 7), st.integers(1, 200)), st.integers(1, 4))
def test_everything_that_is_wanted_is_taken_once(
    contents: list[tuple[int, int, bool]], bounds: tuple[int, int, int], modulus: int
) -> None:
    queue, next_id = filled(contents)
    before = [*queue.backlog, *(segment for _, _, segment in sorted(queue.scheduled))]
    wanted = [number for number in ids(before) if number % modulus == 0]

    def wants(segment: Segment, index: int) -> bool:
        return (segment.run.first_id + index) % modulus == 0

    picker = Picker(queue, (0, next_id), None if modulus == 1 else wants)
    taken: list[Segment] = []
    while not picker.is_done:
        piece = picker.piece(Budget(*bounds))
        assert sum(segment.n for segment in piece) <= bounds[0]
        taken += piece
    assert ids(taken) == wanted
    assert queue.delivering_count == len(wanted)
    assert queue.message_count == next_id - 1
    left = sorted(ids(list(queue.segments())))
    assert left == sorted(set(ids(before)) - set(wanted))
    ranks = [segment.rank for segment in queue.backlog]
    assert ranks == sorted(ranks)
    assert queue.scheduled_count == sum(segment.n for _, _, segment in queue.scheduled)


@given(CONTENTS, st.integers(0, 10))
def test_no_more_than_so_many(contents: list[tuple[int, int, bool]], count_max: int) -> None:
    queue, next_id = filled(contents)
    picker = Picker(queue, (0, next_id), count_max=count_max)
    taken: list[int] = []
    while not picker.is_done:
        taken += ids(picker.piece(Budget(2, 100, 1 << 20)))
    assert len(taken) == min(count_max, next_id - 1)


def test_what_comes_while_it_works_is_passed_over() -> None:
    queue, next_id = filled([(2, 4, False)])
    picker = Picker(queue, (0, next_id))
    first = picker.piece(Budget(1, 100, 1 << 20))
    queue.add(Segment(run_of(next_id, 3, 4), 0, 3, 0))
    queue.add(Segment(run_of(next_id + 3, 3, 0), 0, 3, 0))
    rest = []
    while not picker.is_done:
        rest += picker.piece(Budget(10, 100, 1 << 20))
    assert ids(first) + ids(rest) == [1, 2]


EVENTS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 3)), min_size=1, max_size=4)


@example([(1, number, True) for number in range(8)], [(0, 0, 0), (0, 0, 1), (0, 0, 0), (0, 0, 0)])
@given(CONTENTS, EVENTS)
def test_whatever_is_scheduled_or_due_meanwhile_each_that_was_scheduled_is_looked_at(
    contents: list[tuple[int, int, bool]], events: list[tuple[int, int, int]]
) -> None:
    """`events`, one for each piece: so many messages, when they are due, and how many entries are brought."""
    queue, next_id = filled([(count, priority, True) for count, priority, _ in contents])
    picker, taken, new_id = Picker(queue, (0, next_id)), list[int](), next_id
    while not picker.is_done:
        taken += ids(picker.piece(Budget(1, 100, 10_000)))
        count, priority, brought = events[len(taken) % len(events)]
        if count:
            queue.add_scheduled(Segment(run_of(new_id, count, priority), 0, count, 0), 999 + priority)
        new_id += count
        queue.bring_scheduled(2000, brought)
        assert len(queue.scheduled) < 2 or queue.scheduled[0] == min(queue.scheduled)
    gone = [*taken, *ids(list(queue.backlog))]
    assert sorted(set(gone)) == sorted(gone)
    assert {*range(1, next_id)} <= {*gone}
    assert not [each for each in taken if each >= next_id]


class CountedSorts(list[tuple[int, int, Segment]]):
    """What is scheduled, and how often it was put in order."""

    sorts = 0

    def sort(self, **how: Any) -> None:
        self.sorts += 1
        super().sort(**how)


def test_what_is_scheduled_is_put_in_order_once_as_long_as_nothing_more_is() -> None:
    queue, next_id = filled([(1, number % 10, True) for number in range(40)])
    queue.scheduled = entries = CountedSorts(queue.scheduled)
    picker = Picker(queue, (0, next_id))
    for _ in range(4):
        assert len(picker.piece(Budget(5, 100, 10_000))) == 5
    assert entries.sorts == 1
    queue.add_scheduled(Segment(run_of(next_id, 1, 4), 0, 1, 0), 1005)
    for _ in range(2):
        assert len(picker.piece(Budget(5, 100, 10_000))) == 5
    assert entries.sorts == 2
