"""The checker by itself: which second copies of a message it takes for explained."""

from __future__ import annotations

from tests.support.checker import History, Sent, body_of

ID, QUEUE = "p-1", "orders"
BODY = body_of(ID, 20)


def history() -> History:
    found = History()
    found.send(ID, Sent("p", 1, QUEUE, is_durable=True, size=len(BODY)))
    found.outcome(ID, "accepted")
    return found


def received(found: History, *delivery_counts: int) -> list[str]:
    for delivery_count in delivery_counts:
        assert found.receive("c", QUEUE, BODY, delivery_count) == ID
    return found.violations


def test_a_second_copy_says_that_it_is_one() -> None:
    assert received(history(), 0, 1, 2) == []
    assert len(received(history(), 0, 0)) == 1


def test_one_release_explains_one_copy() -> None:
    found = history()
    received(found, 0)
    found.released.add(ID)
    assert received(found, 0) == []
    assert len(received(found, 0)) == 1


def test_it_explains_the_next_copy_whatever_that_says() -> None:
    found = history()
    received(found, 0)
    found.released.add(ID)
    assert received(found, 1) == []
    assert len(received(found, 0)) == 1


def test_each_copy_may_be_released_again() -> None:
    found = history()
    for _ in range(5):
        received(found, 0)
        found.released.add(ID)
    assert found.violations == []
