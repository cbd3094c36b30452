"""The scanner's table, whom it dials and when it gives up."""

from __future__ import annotations

from itertools import product

import pytest
from mqbroker.base.errors import Bug
from mqbroker.base.time import NS_PER_MS
from mqbroker.cluster.fields import Connector
from mqbroker.cluster.notices import Member, Version
from mqbroker.cluster.topology_scanner import NEXT, Event, State, TopologyScanner, after

from tests.unit.cluster.neighbours import B, C
from tests.unit.cluster.options import connection

OWN, TWO, THREE = (Connector(f"c{number}", "amqp", f"192.0.2.{number}", 5673) for number in (1, 2, 3))
MEMBER_TWO = Member(B, "b" * 32, "mq2", (TWO,), Version(1, 0))
MEMBER_THREE = Member(C, "c" * 32, "mq3", (THREE,), Version(1, 0))
STEP_NS = 500 * NS_PER_MS


def scanner(attempts: int = 3, interval_ms: int = 500) -> TopologyScanner:
    return TopologyScanner(connection(topology_scanner_attempts=attempts, retry_interval=interval_ms), OWN)


def dials(made: TopologyScanner, count: int, start_ns: int = STEP_NS) -> list[list[str]]:
    """Whom it dials at each of so many steps."""
    return [[one.name for one in made.due(start_ns + step * STEP_NS)[0]] for step in range(count)]


EXPECTED = {
    State.IDLE: {Event.ABSENT: State.SCANNING, Event.COMPLETE: State.IDLE},
    State.SCANNING: {Event.ABSENT: State.SCANNING, Event.COMPLETE: State.IDLE, Event.LAST: State.GIVEN_UP},
    State.GIVEN_UP: {Event.ABSENT: State.SCANNING, Event.COMPLETE: State.IDLE},
}


@pytest.mark.parametrize(("state", "event"), list(product(State, Event)))
def test_every_pair(state: State, event: Event) -> None:
    expected = EXPECTED[state].get(event)
    if expected is not None:
        assert after(state, event) is expected
        return
    assert (state, event) not in NEXT
    with pytest.raises(Bug, match=f"is {state.value}, and got {event.value}"):
        after(state, event)


@pytest.mark.option("cluster-connections.topology-scanner-attempts")
@pytest.mark.parametrize(("attempts", "rounds"), [(0, 0), (1, 1), (3, 3), (-1, 40)])
def test_it_dials_as_often_as_it_may_and_then_tells_once(attempts: int, rounds: int) -> None:
    made = scanner(attempts)
    made.listed([OWN, TWO, THREE], STEP_NS)
    found = [made.due(step * STEP_NS) for step in range(1, 41)]
    assert [[one.name for one in dialled] for dialled, _ in found] == [["c2", "c3"]] * rounds + [[]] * (40 - rounds)
    told = [logged for _, logged in found if logged is not None]
    assert len(told) == (attempts > 0)
    for logged in told:
        assert (logged.event, logged.fields["attempts"]) == ("cluster-topology-incomplete", attempts)
        assert logged.fields["missing"] == "amqp://192.0.2.2:5673, amqp://192.0.2.3:5673"
        assert (made.state, made.next_due_ns) == (State.GIVEN_UP, 0)


def test_it_waits_for_its_interval() -> None:
    made = scanner(interval_ms=700)
    made.listed([TWO], 5)
    assert (made.next_due_ns, len(made.due(5)[0])) == (5, 1)
    assert made.next_due_ns == 5 + 700 * NS_PER_MS
    assert made.due(made.next_due_ns - 1) == ([], None)


def test_members_are_not_dialled_whatever_their_connectors_are_called() -> None:
    made = scanner()
    made.listed([TWO, THREE], STEP_NS)
    made.members_changed([Member(B, "b" * 32, "mq2", (Connector("x", "amqp", "192.0.2.2", 5673),), Version(1, 0))])
    assert dials(made, 1) == [["c3"]]
    made.members_changed([MEMBER_TWO, MEMBER_THREE])
    assert (made.state, made.next_due_ns, made.attempts, made.absent) == (State.IDLE, 0, 0, [])


def test_who_was_a_member_once_is_for_its_own_link_to_reach() -> None:
    made = scanner()
    made.listed([TWO], STEP_NS)
    made.members_changed([MEMBER_TWO])
    made.members_changed([])
    assert (made.state, dials(made, 2)) == (State.IDLE, [[], []])


def test_who_is_a_member_before_it_is_listed_is_not_dialled() -> None:
    made = scanner()
    made.members_changed([MEMBER_TWO])
    made.listed([TWO], STEP_NS)
    assert (made.state, made.absent) == (State.IDLE, [])


def test_who_comes_to_be_listed_makes_counting_begin_anew() -> None:
    made = scanner(2)
    made.listed([TWO], STEP_NS)
    assert dials(made, 4) == [["c2"], ["c2"], [], []]
    made.listed([TWO], 9 * STEP_NS)
    assert made.state is State.GIVEN_UP
    made.listed([THREE], 10 * STEP_NS)
    assert dials(made, 3, 10 * STEP_NS) == [["c2", "c3"], ["c2", "c3"], []]


def test_who_is_listed_no_more_is_not_dialled_and_may_come_back() -> None:
    made = scanner()
    made.listed([TWO, THREE], STEP_NS)
    made.unlisted([TWO])
    assert dials(made, 1) == [["c3"]]
    made.unlisted([THREE])
    assert made.state is State.IDLE
    made.listed([TWO], 2 * STEP_NS)
    assert dials(made, 1, 2 * STEP_NS) == [["c2"]]


def test_this_node_is_not_looked_for() -> None:
    made = scanner()
    made.listed([Connector("other", "amqp", "192.0.2.1", 5673)], STEP_NS)
    assert (made.state, made.due(STEP_NS)) == (State.IDLE, ([], None))
