"""The checker by itself: which second copies of a message it takes for explained."""

from __future__ import annotations

from tests.support.checker import History, Sent, body_of
from tests.support.cluster_load import Whereabouts

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


REFUSED = "no connection (a:5672: nobody listens); the next round begins in 200 ms"
LOST_AT_A = "the connection was lost: a:5672: the broker closed the transport"
STOPPED_AT_A = "the connection was lost: a:5672 closed the connection: the broker stops"


def twice(*told: str, outcome: str = "unknown", answers_at_stop: bool = True) -> list[str]:
    """What is wrong where a connection tells this, and the message comes twice."""
    found = History(is_several_nodes=True)
    found.send(ID, Sent("p", 1, QUEUE, is_durable=True, size=len(BODY), outcome=outcome))
    whereabouts = Whereabouts(found, "p", answers_at_stop=answers_at_stop)
    for text in told:
        whereabouts.note(text)
    return received(found, 0, 0)


def test_what_a_node_that_ended_without_a_word_may_have_comes_twice_where_it_was_sent_to_another() -> None:
    at_a, at_b = "connected to a:5672", "connected to b:5672"
    assert twice(at_a, LOST_AT_A, REFUSED, at_b) == []
    assert len(twice(at_a, LOST_AT_A, REFUSED, at_a)) == 1, "it knows what it has seen"
    assert len(twice(at_a, STOPPED_AT_A, REFUSED, at_b)) == 1, "it has answered what it took in"
    assert twice(at_a, STOPPED_AT_A, REFUSED, at_b, answers_at_stop=False) == [], "the release before may not have"
    assert len(twice(at_a, STOPPED_AT_A, REFUSED, at_a, answers_at_stop=False)) == 1
    assert len(twice(at_a, LOST_AT_A, at_b, outcome="accepted")) == 1
    found = History(is_several_nodes=True)
    found.send(ID, Sent("p", 1, QUEUE, is_durable=True, size=len(BODY), outcome="accepted"))
    found.sent_elsewhere.add(ID)
    assert found.lost() == [ID]
