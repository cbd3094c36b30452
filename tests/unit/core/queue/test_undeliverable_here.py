"""Pairs of messages and consumers: what is remembered, for how long, and how much of it."""

from __future__ import annotations

from mqbroker.core.queue.queue import Filter, Queue, Segment
from mqbroker.core.queue.undeliverable_here import PAIRS_MAX, UndeliverableHere
from mqbroker.wire.run import parse_run

from tests.support import frames
from tests.support.values import replaced


class Taker:
    """Takes nothing."""

    priority: int = 0
    filter: Filter | None = None
    is_browser: bool = False
    client = None

    def capacity(self) -> int:
        return 0

    def deliver(self, queue: Queue, segment: Segment) -> int:
        return 0


def segment(count: int, first_id: int = 1) -> Segment:
    block = b"".join(frames.transfer(number) for number in range(count))
    parsed = parse_run(block, 0, len(block), count, 1 << 20)
    assert parsed is not None
    parsed.run.first_id = first_id
    return Segment(parsed.run, 0, count, 0)


def test_each_message_of_a_range_is_barred_for_one_consumer_only() -> None:
    barred, one, two = UndeliverableHere(), Taker(), Taker()
    messages = segment(3)
    assert not barred
    assert barred.add(messages, one) == barred.add(replaced(messages, n=1), one) == []
    assert barred.count == 3
    assert [barred.has(messages.rank + at, one) for at in range(4)] == [True, True, True, False]
    assert not barred.has(messages.rank, two)


def test_it_ends_with_the_message_or_the_consumer() -> None:
    barred, one, two = UndeliverableHere(), Taker(), Taker()
    messages = segment(5)
    barred.add(messages, one)
    barred.add(replaced(messages, start=3, n=2), two)
    barred.forget(replaced(messages, n=1))
    assert not barred.has(messages.rank, one)
    barred.left(one)
    assert barred.count == 2
    barred.forget(messages)  # a range that is larger than what is remembered
    assert not barred


def test_the_oldest_message_is_forgotten_and_told() -> None:
    barred, one, two = UndeliverableHere(), Taker(), Taker()
    first, rest = segment(1), segment(PAIRS_MAX - 2, first_id=2)
    assert barred.add(first, one) == barred.add(first, two) == barred.add(rest, one) == []
    assert barred.count == PAIRS_MAX
    assert barred.add(segment(1, first_id=PAIRS_MAX), one) == [first.rank]
    assert barred.count == PAIRS_MAX - 1
    assert not barred.has(first.rank, two)
