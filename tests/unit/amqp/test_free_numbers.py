"""The lowest free number, against a set of those that are in use; and what it costs to find it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from mqbroker.amqp.free_numbers import Numbers
from mqbroker.wire.performatives import Attach, End

from tests.support import frames
from tests.support.bytecodes import Bytecodes
from tests.support.stage import Stage
from tests.unit.wire.strategies import steady


@steady
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 12)), max_size=60))
def test_the_lowest_that_is_free_is_taken(script: list[tuple[bool, int]]) -> None:
    numbers, used = Numbers(), set[int]()
    for is_taken, number in script:
        if is_taken:
            free = next((each for each in range(number) if each not in used), -1)
            assert numbers.take(number) == free
            used |= {free} - {-1}
        elif used:
            given_back = sorted(used)[number % len(used)]
            used.remove(given_back)
            numbers.give_back(given_back)


def work_of_a_link_beside(count: int) -> int:
    """Bytecodes to attach and detach a link in a session that has so many, and to begin and end a session."""
    stage, work = Stage(), Bytecodes()
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun())
    stage.talk(conn, b"".join(frames.sender("orders", handle=each) for each in range(count)))
    assert not frames.errors(bytes(stage.sent[conn]))
    step = stage.broker.step
    stage.broker.step = lambda inputs, at: work.of(lambda: step(inputs, at))  # type: ignore[method-assign]
    answer = stage.talk(conn, frames.sender("orders", handle=count) + frames.detach(count))
    assert [each.handle for each in frames.of_kind(answer, Attach)] == [count], "the lowest one that is free"
    answer = stage.talk(conn, frames.begun(1) + frames.end(1))
    assert len(frames.of_kind(answer, End)) == 1
    return work.count


def test_a_link_more_costs_the_same_among_many() -> None:
    assert work_of_a_link_beside(900) < 1.05 * work_of_a_link_beside(10)
