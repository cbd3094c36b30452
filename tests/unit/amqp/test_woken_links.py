"""Links that may send again are told one after the other, in what work there is for their connection."""

from __future__ import annotations

import pytest
from mqbroker.amqp.woken_links import LOOKED_AT_MAX, Waking
from mqbroker.node.amqp.peers.turns import BESIDE_WORK, CALM_WORK
from mqbroker.node.values import inputs as given
from mqbroker.wire.frames import EMPTY_FRAME
from mqbroker.wire.performatives import Transfer

from tests.support import frames
from tests.support.stage import Stage
from tests.unit.node.test_bystander_work import GO, Site
from tests.unit.node.test_flood_work import TURN_BYTECODES

LINKS = 60  # more than one turn has room for


def standing(count: int = LINKS, *, credit: int = 10, window: int = 2048, sessions: int = 1) -> tuple[Stage, int]:
    """A connection with so many consumers in each session, each of a queue of its own."""
    stage = Stage()
    conn = stage.accept()
    stage.talk(conn, GO)
    for channel in range(sessions):
        begun = frames.begun(channel) if channel else b""
        links = b"".join(
            frames.receiver(f"q{channel}-{each}", handle=each, channel=channel, credit=credit)
            + frames.flow(None, 0, channel=channel, window=window)
            for each in range(count)
        )
        stage.talk(conn, begun + links)
    return stage, conn


def fill(stage: Stage) -> None:
    """A message in each queue."""
    producer = stage.accept()
    stage.talk(producer, GO)
    for number, name in enumerate(sorted(stage.broker.store.queues)):
        stage.talk(producer, frames.sender(name, handle=number) + frames.transfer(number, handle=number))


def got(stage: Stage, conn: int, before: int) -> int:
    heard = frames.heard(bytes(stage.sent[conn][before:]))
    return sum(isinstance(each, tuple) and isinstance(each[0], Transfer) for each in heard)


@pytest.mark.parametrize("sessions", [1, 3])
def test_all_links_get_what_there_is_when_the_transport_takes_something_again(sessions: int) -> None:
    stage, conn = standing(LINKS // sessions, sessions=sessions)
    stage.give(given.WriteBlocked(conn, True))
    stage.turn()
    fill(stage)
    before = len(stage.sent[conn])
    stage.give(given.WriteBlocked(conn, False))
    stage.run()
    assert got(stage, conn, before) == LINKS
    assert not stage.broker.peers[conn].connection.is_behind


def test_all_links_get_what_there_is_when_the_window_opens() -> None:
    stage, conn = standing()
    stage.talk(conn, frames.flow(None, 0, window=0))
    fill(stage)
    before = len(stage.sent[conn])
    stage.talk(conn, frames.flow(None, 0, window=2 * LINKS))
    assert got(stage, conn, before) == LINKS


def test_it_begins_anew_where_the_transport_was_full_again_meanwhile() -> None:
    stage, conn = standing()
    stage.give(given.WriteBlocked(conn, True))
    stage.turn()
    fill(stage)
    before = len(stage.sent[conn])
    for is_blocked in (False, True):
        stage.give(given.WriteBlocked(conn, is_blocked))
    stage.turn()
    assert stage.broker.peers[conn].connection.is_parting, "it is under way"
    stage.run()
    assert got(stage, conn, before) == 0
    stage.give(given.WriteBlocked(conn, False))
    stage.run()
    assert got(stage, conn, before) == LINKS


def test_what_is_sent_meanwhile_waits_and_is_taken_in() -> None:
    stage, conn = standing()
    stage.talk(conn, frames.sender("later", handle=LINKS))
    stage.give(given.WriteBlocked(conn, True))
    stage.give(given.WriteBlocked(conn, False))
    stage.give(given.BytesReceived(conn, frames.transfer(0, handle=LINKS)))
    stage.step()
    assert stage.broker.store.queues["later"].message_count == 1


def test_who_closes_meanwhile_leaves_nothing() -> None:
    stage, conn = standing()
    stage.give(given.WriteBlocked(conn, True))
    stage.give(given.WriteBlocked(conn, False))
    stage.give(given.BytesReceived(conn, frames.close()))
    stage.give(given.Closed(conn, "gone"))
    stage.run()
    assert conn not in stage.broker.peers
    assert not any(queue.consumers for queue in stage.broker.store.queues.values())


def test_a_window_that_stays_open_is_no_news() -> None:
    stage, conn = standing(4)
    connection = stage.broker.peers[conn].connection
    connection.receive(frames.flow(None, 0, window=3000))
    assert connection.events == []
    connection.receive(frames.flow(None, 0, window=0) + frames.flow(None, 0, window=1))
    assert [event.link.credit for event in connection.events] == [10] * 4


def test_the_link_that_a_flow_names_is_told_once_and_those_without_credit_are_not() -> None:
    stage, conn = standing(3)
    stage.talk(conn, frames.flow(1, 0) + frames.flow(None, 0, window=0))
    connection = stage.broker.peers[conn].connection
    connection.receive(frames.flow(2, 20))
    assert [(event.link.peer_handle, event.link.credit) for event in connection.events] == [(0, 10), (2, 20)]


@pytest.mark.parametrize("credit", [0, 10])
def test_it_costs_what_it_is_charged(credit: int) -> None:
    stage, conn = standing(4 * LOOKED_AT_MAX, credit=credit)
    connection = stage.broker.peers[conn].connection
    waking = Waking(connection.sessions)
    pieces, before = 0, connection.allowance
    while not waking.is_over:
        waking.go_on()
        pieces += 1
    assert pieces == 4
    assert before - connection.allowance >= 4 * LOOKED_AT_MAX * (5 if credit else 0) + 4
    assert len(connection.events) == (4 * LOOKED_AT_MAX if credit else 0)


@pytest.mark.slow
@pytest.mark.parametrize("is_window", [False, True])
def test_how_many_links_were_held_back_is_nothing_to_a_bystander(*, is_window: bool) -> None:
    site = Site()
    links = b"".join(frames.receiver(f"q{each}", handle=each, credit=10) for each in range(900))
    conn = site.standing(GO)
    stage = site.stage
    stage.talk(conn, links)
    stage.wait(1000)
    alone = site.work_of_message(is_answered=True)
    for _ in range(3):
        if is_window:
            news: given.Input = given.BytesReceived(conn, frames.flow(None, 0, window=0) + frames.flow(None, 0))
        else:
            stage.give(given.WriteBlocked(conn, True))
            stage.turn()
            news = given.WriteBlocked(conn, False)
        for _ in range(4):
            assert site.work_of_message(news, is_answered=True) <= alone + TURN_BYTECODES * CALM_WORK / BESIDE_WORK
            news = given.BytesReceived(conn, EMPTY_FRAME)
        stage.run()
        stage.wait(1000)
