"""Queues against a plain list, single steps, and who gets what."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from mqbroker.core.queue.dispatch import DROPPED_MAX
from mqbroker.core.queue.queue import Filter, Queue, QueueKind, Segment
from mqbroker.core.queue.unanswered_forwards import HandedOver
from mqbroker.wire.run import FrameLayout, Run, single

from tests.support.values import replaced
from tests.unit.wire.strategies import steady, steady_few

_BUFFER = single(b"").buffer
_LAYOUT = FrameLayout(29, 17, 27, single(b"").section)


def run_of(first_id: int, count: int) -> Run:
    """Empty messages with these ids."""
    found = Run(_BUFFER, range(count), 1, _LAYOUT)
    found.first_id = first_id
    return found


def queue() -> Queue:
    return Queue(QueueKind("orders", "orders"), 1)


def ids(segment: Segment) -> list[int]:
    return list(range(segment.first_id, segment.first_id + segment.n))


class Taker:
    """A consumer that takes as much as it has credit for, at most `bite` at a time."""

    client = None

    def __init__(
        self,
        credit: int,
        bite: int = 1 << 30,
        *,
        priority: int = 0,
        takes: Filter | None = None,
        is_browser: bool = False,
    ) -> None:
        self.priority = priority
        self.filter = takes
        self.is_browser = is_browser
        self.credit = credit
        self.bite = bite
        self.got: list[int] = []
        self.segments: list[Segment] = []

    def capacity(self) -> int:
        return self.credit

    def deliver(self, queue: Queue, segment: Segment) -> int:
        count = min(segment.n, self.bite, self.credit)
        taken = replaced(segment, n=count)
        self.credit -= count
        self.got += ids(taken)
        if count:
            self.segments.append(taken)
        return count


# -- order ------------------------------------------------------------------------------------------------------------


def test_segments_are_cut_where_a_consumer_has_enough() -> None:
    orders = queue()
    orders.add(Segment(run_of(1, 10), 0, 10, 0))
    assert [ids(orders.take(3)), ids(orders.take(100))] == [[1, 2, 3], [4, 5, 6, 7, 8, 9, 10]]
    assert (orders.ready_count, orders.delivering_count, orders.message_count) == (0, 10, 10)


def test_what_comes_back_goes_to_its_place_and_joins_its_neighbours() -> None:
    orders = queue()
    run = run_of(1, 9)
    orders.add(Segment(run, 0, 9, 0))
    parts = [orders.take(3) for _ in range(3)]
    for number in (2, 0, 1):
        orders.put_back(parts[number])
    assert list(orders.backlog) == [Segment(run, 0, 9, 0)]
    assert ids(orders.take(100)) == list(range(1, 10))


def test_returned_messages_of_another_count_stay_apart_and_in_order() -> None:
    orders = queue()
    run = run_of(1, 3)
    orders.add(Segment(run, 0, 3, 0))
    one, two, three = (orders.take(1) for _ in range(3))
    orders.put_back(three)
    orders.put_back(replaced(two, deliveries=1))
    orders.put_back(one)
    assert [(segment.first_id, segment.deliveries) for segment in orders.segments()] == [(1, 0), (2, 1), (3, 0)]


def test_what_waits_for_the_disk_is_not_handed_out() -> None:
    orders, taker = queue(), Taker(100)
    orders.join(taker)
    orders.add_waiting(Segment(run_of(1, 2), 0, 2, 0))
    orders.add_waiting(Segment(run_of(3, 2), 0, 2, 0))
    assert orders.dispatch(100) == 0
    orders.release()
    assert (orders.dispatch(100), taker.got, orders.waiting_count) == (2, [1, 2], 2)


# -- a model ----------------------------------------------------------------------------------------------------------


class QueueMachine(RuleBasedStateMachine):
    """The same calls on a queue and on plain lists of message ids."""

    @initialize()
    def start(self) -> None:
        self.queue = queue()
        self.next_id = 1
        self.ready: list[int] = []
        self.waiting: list[list[int]] = []
        self.delivering: list[Segment] = []
        self.counts: Counter[int] = Counter()

    @rule(count=st.integers(1, 6), is_durable=st.booleans())
    def publish(self, count: int, is_durable: bool) -> None:
        segment = Segment(run_of(self.next_id, count), 0, count, 0)
        self.next_id += count
        if is_durable or self.waiting:
            self.queue.add_waiting(segment)
            self.waiting.append(ids(segment))
        else:
            self.queue.add(segment)
            self.ready += ids(segment)

    @precondition(lambda self: self.waiting)
    @rule()
    def sync(self) -> None:
        self.queue.release()
        self.ready += self.waiting.pop(0)

    @precondition(lambda self: self.ready)
    @rule(count=st.integers(1, 8))
    def take(self, count: int) -> None:
        segment = self.queue.take(count)
        assert 0 < segment.n <= count
        self.ready.sort()
        assert ids(segment) == self.ready[: segment.n]
        assert {self.counts[each] for each in ids(segment)} == {segment.deliveries}
        del self.ready[: segment.n]
        self.delivering.append(segment)

    def _part(self, choice: st.DataObject) -> Segment:
        segment = self.delivering.pop(choice.draw(st.integers(0, len(self.delivering) - 1)))
        skip = choice.draw(st.integers(0, segment.n - 1))
        count = choice.draw(st.integers(1, segment.n - skip))
        for start, n in ((segment.start, skip), (segment.start + skip + count, segment.n - skip - count)):
            if n:
                self.delivering.append(replaced(segment, start=start, n=n))
        return replaced(segment, start=segment.start + skip, n=count)

    @precondition(lambda self: self.delivering)
    @rule(choice=st.data(), counts=st.booleans())
    def give_back(self, choice: st.DataObject, counts: bool) -> None:
        segment = self._part(choice)
        self.queue.put_back(replaced(segment, deliveries=segment.deliveries + counts))
        self.counts.update(dict.fromkeys(ids(segment), int(counts)))
        self.ready += ids(segment)

    @precondition(lambda self: self.delivering)
    @rule(choice=st.data())
    def settle(self, choice: st.DataObject) -> None:
        self.queue.settled(self._part(choice))

    @invariant()
    def same(self) -> None:
        in_delivery = sum(segment.n for segment in self.delivering)
        assert self.queue.ready_count == len(self.ready)
        assert self.queue.waiting_count == sum(map(len, self.waiting))
        assert self.queue.delivering_count == in_delivery
        held = [each for segment in self.queue.segments() for each in ids(segment)]
        assert held == sorted(self.ready) + [each for group in self.waiting for each in group]


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = steady_few


# -- round robin ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [3, 30, 3000])
def test_a_backlog_is_shared_evenly(count: int) -> None:
    orders = queue()
    orders.add(Segment(run_of(1, count), 0, count, 0))
    takers = [Taker(10_000) for _ in range(3)]
    for taker in takers:
        orders.join(taker)
    assert orders.dispatch(100_000) == count
    assert [len(taker.got) for taker in takers] == [count // 3] * 3


def test_single_messages_go_in_turn() -> None:
    orders = queue()
    takers = [Taker(10_000) for _ in range(3)]
    for taker in takers:
        orders.join(taker)
    for number in range(300):
        orders.add(Segment(run_of(1 + number, 1), 0, 1, 0))
        assert orders.dispatch(100) == 1
    assert [taker.got[:3] for taker in takers] == [[1, 4, 7], [2, 5, 8], [3, 6, 9]]
    assert [len(taker.got) for taker in takers] == [100] * 3


def test_one_without_credit_is_passed_over_and_loses_nothing() -> None:
    orders = queue()
    poor, rich = Taker(2), Taker(1000)
    orders.join(poor)
    orders.join(rich)
    orders.add(Segment(run_of(1, 100), 0, 100, 0))
    orders.dispatch(1000)
    assert (len(poor.got), len(rich.got)) == (2, 98)
    poor.credit = 5
    orders.add(Segment(run_of(101, 4), 0, 4, 0))
    orders.dispatch(1000)
    assert len(poor.got) >= 4


def test_a_step_hands_out_no_more_than_it_is_told() -> None:
    orders, taker = queue(), Taker(1 << 30)
    orders.join(taker)
    orders.add(Segment(run_of(1, 10_000), 0, 10_000, 0))
    assert orders.dispatch(100) == 100
    assert orders.dispatch(100) == 100
    assert taker.got == list(range(1, 201))


def test_a_consumer_that_takes_nothing_after_all_stops_the_round() -> None:
    orders, stubborn = queue(), Taker(10, bite=0)
    orders.join(stubborn)
    orders.add(Segment(run_of(1, 5), 0, 5, 0))
    assert orders.dispatch(100) == 0
    assert (orders.ready_count, orders.delivering_count) == (5, 0)


@steady
@given(
    st.lists(st.tuples(st.integers(1, 20), st.lists(st.integers(0, 9), min_size=1, max_size=4)), max_size=15),
    st.integers(1, 4),
)
def test_everything_goes_out_once_and_in_order(rounds: list[tuple[int, list[int]]], bite: int) -> None:
    orders, next_id = queue(), 1
    takers = [Taker(0, bite) for _ in range(4)]
    for taker in takers:
        orders.join(taker)
    for count, credits in rounds:
        orders.add(Segment(run_of(next_id, count), 0, count, 0))
        next_id += count
        for taker, credit in zip(takers, credits, strict=False):
            taker.credit += credit
        orders.dispatch(1000)
        while orders.dispatcher.is_unfinished:
            orders.dispatch(1000)
        assert not orders.ready_count or not any(taker.credit for taker in takers)
    got = [each for taker in takers for each in taker.got]
    assert sorted(got) == list(range(1, len(got) + 1))
    for taker in takers:
        assert all(before < after for before, after in pairwise(taker.got))


def expired_at_two_nodes(awaited: tuple[int, int]) -> tuple[Queue, Taker]:
    """Five messages, 1 to 5, that have expired, of which another node may have some (the first, how many)."""
    found, taker = queue(), Taker(100)
    found.handed_over = HandedOver()
    found.handed_over.sent(*awaited)
    run = run_of(1, 5)
    run.expires_ms = 10
    found.add(Segment(run, 0, 5, 0))
    found.join(taker)
    return found, taker


@pytest.mark.parametrize(("awaited", "dropped", "handed_out"), [
    ((1, 2), [], [1, 2, 3, 4, 5]), ((3, 1), [1, 2], [3, 4, 5]), ((5, 1), [1, 2, 3, 4], [5]),
    ((9, 1), [1, 2, 3, 4, 5], []),
])  # fmt: skip
def test_what_another_node_may_have_is_handed_out_though_it_has_expired(
    awaited: tuple[int, int], dropped: list[int], handed_out: list[int]
) -> None:
    found, taker = expired_at_two_nodes(awaited)
    for _ in range(len(dropped) // DROPPED_MAX + 1):
        found.dispatch(100, 20)
    assert [each for _, segment in found.gone for each in ids(segment)] == dropped
    assert taker.got == handed_out


@pytest.mark.parametrize(("awaited", "handed_out"), [((1, 1), 5), ((3, 1), 5), ((5, 1), 5), ((9, 1), 0)])
def test_also_where_each_is_looked_at(awaited: tuple[int, int], handed_out: int) -> None:
    """None behind one that stays is passed for good."""
    found, taker = expired_at_two_nodes(awaited)
    found.dispatcher.grouped()
    for _ in range(6):
        found.dispatch(100, 20)
    assert len(taker.got) == handed_out
