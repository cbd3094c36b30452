"""What opens a connection, and what makes much work, is taken in over several steps: others need not wait for it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from mqbroker.amqp import frame_costs
from mqbroker.base.time import NS_PER_MS
from mqbroker.node.amqp.peers import turns
from mqbroker.node.amqp.peers.turns import ALONE_WORK, LOST_BESIDE_WORK, LOST_WORK, TURN_WORK, UNREAD_BYTES_MAX
from mqbroker.node.values import inputs as given
from mqbroker.node.values.batch import Batch
from mqbroker.node.values.effects import PauseReading, Send
from mqbroker.wire.frames import EMPTY_FRAME
from mqbroker.wire.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    SaslMechanisms,
    SaslOutcome,
)

from tests.support import frames
from tests.support.stage import Stage, options_with

AHEAD = frames.anonymous() + frames.opened() + frames.begun() + frames.sender("orders")
STEPS = 5  # the header, the login, the open, the begin, and what follows them


def bare(stage: Stage) -> int:
    """A connection that stands and has said nothing."""
    conn = stage.accept()
    stage.step()
    return conn


def steps(stage: Stage, *inputs: given.Input) -> list[Batch]:
    """Step by step, until no more is wanted at once."""
    batches = [stage.broker.step(list(inputs), stage.at)]
    while batches[-1].more:
        assert len(batches) < 50
        batches.append(stage.broker.step([], stage.at))
    return batches


def steps_of(stage: Stage, *inputs: given.Input) -> None:
    """As many steps as the node wants, with what they bring written down."""
    for each in inputs:
        stage.give(each)
    stage.step()


def sent_to(conn: int, batch: Batch) -> bytes:
    return b"".join(bytes(chunk) for effect in batch.effects if isinstance(effect, Send) and effect.conn == conn
                    for chunk in effect.chunks)  # fmt: skip


def test_what_was_sent_ahead_takes_several_steps_and_is_answered_in_one_piece() -> None:
    stage = Stage()
    conn = bare(stage)
    batches = steps(stage, given.BytesReceived(conn, AHEAD))
    answers = [sent_to(conn, batch) for batch in batches]
    assert len(answers) == STEPS
    assert not any(answers[:-1])
    for kind in (SaslOutcome, Open, Begin, Attach, Flow):
        assert len(frames.of_kind(answers[-1], kind)) == 1


def test_each_step_takes_one_thing_of_one_peer() -> None:
    stage = Stage()
    conns = [bare(stage) for _ in range(3)]
    batches = steps(stage, *(given.BytesReceived(conn, AHEAD) for conn in conns))
    assert len(batches) == len(conns) * STEPS
    ended = [next(at for at, batch in enumerate(batches) if sent_to(conn, batch)) for conn in conns]
    assert ended == [12, 13, 14]  # in turn, in the order in which they came


def test_a_crowd_gets_in_together() -> None:
    stage = Stage()
    conns = [bare(stage) for _ in range(100)]
    batches = steps(stage, *(given.BytesReceived(conn, AHEAD) for conn in conns))
    answered = [sum(bool(sent_to(conn, batch)) for conn in conns) for batch in batches]
    assert sum(answered) == len(conns)
    assert 10 < max(answered) <= len(conns) // 2
    assert len(batches) < 30


def test_other_work_goes_first_once_and_not_twice() -> None:
    stage = Stage()
    conn, other = bare(stage), bare(stage)
    stage.talk(other, AHEAD)
    busy = given.BytesReceived(other, frames.flow(None, 0, echo=True))
    assert stage.broker.step([given.BytesReceived(conn, AHEAD)], stage.at).more
    states = []
    for _ in range(2 * (STEPS - 1)):
        assert len(stage.broker.peers) == 2
        batch = stage.broker.step([busy], stage.at)
        states.append((batch.more, bool(sent_to(conn, batch))))
    assert states == [*[(True, False)] * (2 * (STEPS - 1) - 1), (False, True)]


def test_what_comes_together_with_other_work_goes_after_it() -> None:
    stage = Stage()
    other = stage.connect("busy")
    busy = given.BytesReceived(other.conn, frames.flow(None, 0, echo=True))
    came = given.ConnectionAccepted(77, "clients", "203.0.113.1:5", bytes(32), True)
    assert stage.broker.step([came, given.BytesReceived(77, frames.SASL_HEADER), busy], stage.at).more
    assert 77 not in stage.broker.peers
    stage.broker.step([busy], stage.at)
    assert 77 in stage.broker.peers
    assert not sent_to(77, stage.broker.step([busy], stage.at))
    assert frames.of_kind(sent_to(77, stage.broker.step([busy], stage.at)), SaslMechanisms)


def test_who_came_and_left_before_its_turn_is_told_of_as_everybody() -> None:
    stage = Stage()
    other = stage.connect("busy")
    busy = given.BytesReceived(other.conn, frames.flow(None, 0, echo=True))
    said = AHEAD + frames.transfer(0, durable=True) + frames.close()
    came = given.ConnectionAccepted(77, "clients", "203.0.113.1:5", bytes(32), True)
    before = stage.broker.counters.connections
    stage.give(came)
    stage.give(given.BytesReceived(77, said[:40]))
    stage.give(busy)
    stage.step()
    stage.give(given.BytesReceived(77, said[40:]))
    stage.give(given.Closed(77, "closed by the peer"))
    stage.run()
    assert stage.broker.counters.connections == before + 1
    assert stage.broker.store.queues["orders"].message_count == 1
    assert list(stage.broker.peers) == [other.conn]


def test_who_waits_for_answers_has_them_at_once() -> None:
    stage = Stage()
    conn = bare(stage)
    login = frames.anonymous().removeprefix(frames.SASL_HEADER)
    said_and_answers = (
        (frames.SASL_HEADER, SaslMechanisms), (login, SaslOutcome), (frames.opened(), Open), (frames.begun(), Begin)
    )  # fmt: skip
    for said, answer in said_and_answers:
        (batch,) = steps(stage, given.BytesReceived(conn, said))
        assert frames.of_kind(sent_to(conn, batch), answer)


def test_bytes_that_come_meanwhile_stay_behind_those_that_wait() -> None:
    stage = Stage()
    conn = bare(stage)
    first = stage.broker.step([given.BytesReceived(conn, AHEAD[:-20])], stage.at)
    rest = steps(stage, given.BytesReceived(conn, AHEAD[-20:]))
    answers = b"".join(sent_to(conn, batch) for batch in (first, *rest))
    assert not frames.errors(answers)
    assert len(frames.of_kind(answers, Attach)) == 1


def test_what_a_peer_sent_before_it_left_is_taken_in() -> None:
    stage = Stage()
    conn = bare(stage)
    said = AHEAD + frames.transfer(0, durable=True) + frames.close()
    stage.give(given.BytesReceived(conn, said))
    stage.give(given.Closed(conn, "closed by the peer"))
    stage.run()
    assert stage.broker.store.queues["orders"].message_count == 1
    assert not stage.broker.peers


def test_a_fault_in_what_was_sent_ahead_ends_it_and_the_rest_is_not_read() -> None:
    stage = Stage()
    conn = bare(stage)
    again = frames.frame(Open(container_id="again"))
    said = frames.anonymous() + frames.opened() + again + frames.begun() + frames.sender("orders")
    assert [condition for _, condition in frames.errors(stage.talk(conn, said))] == ["amqp:not-allowed"]
    assert "orders" not in stage.broker.store.queues


def test_a_client_that_writes_all_at_once_gets_in_while_others_keep_the_node_busy() -> None:
    stage = Stage(options_with(listener={"login_timeout_ms": 1000}))
    talker = stage.connect("busy")
    conn = bare(stage)
    stage.give(given.BytesReceived(conn, AHEAD))
    for _ in range(10):
        stage.now_ns += NS_PER_MS
        stage.give(given.BytesReceived(talker.conn, frames.flow(None, 0, echo=True)))
        stage.step()
    assert frames.of_kind(bytes(stage.sent[conn]), Flow)
    assert stage.broker.peers[conn].connection.peer_open is not None


@pytest.mark.slow
def test_a_crowd_that_takes_longer_than_a_login_may_gets_in_all_the_same() -> None:
    stage = Stage(options_with(listener={"login_timeout_ms": 200}))
    talker = stage.connect("busy")
    conns = [stage.accept() for _ in range(100)]
    for conn in conns:
        stage.give(given.BytesReceived(conn, AHEAD))
    silent = stage.accept()
    stage.give(given.BytesReceived(silent, frames.SASL_HEADER))
    started_ns = stage.now_ns
    while not all(frames.of_kind(bytes(stage.sent[conn]), Flow) for conn in conns):
        stage.give(given.BytesReceived(talker.conn, frames.flow(None, 0, echo=True)))
        stage.turn()
        stage.now_ns += NS_PER_MS
        assert stage.now_ns - started_ns < 2000 * NS_PER_MS
        assert not set(conns) & set(stage.closed)
    assert stage.now_ns - started_ns > 2 * 200 * NS_PER_MS
    stage.wait(1500)
    assert set(stage.closed) == {silent}, "who says nothing more is late"


@pytest.mark.slow
def test_a_large_crowd_gets_in_twice_as_fast_beside_others_as_a_small_one() -> None:
    """Steps for each client of it, beside one that has an answer in each of them."""
    took = {}
    for count in (50, 250):
        stage = Stage()
        talker = stage.connect("busy")
        conns = [stage.accept() for _ in range(count)]
        for conn in conns:
            stage.give(given.BytesReceived(conn, AHEAD))
        steps_count = 0
        while not all(frames.of_kind(bytes(stage.sent[conn]), Flow) for conn in conns):
            stage.give(given.BytesReceived(talker.conn, frames.flow(None, 0, echo=True)))
            stage.turn()
            steps_count += 1
            assert steps_count < 20 * count
        took[count] = steps_count / count
    assert took[250] < 0.6 * took[50], took


def begun_and_ended(count: int) -> bytes:
    """So many sessions, one after the other."""
    return (frames.begun(1) + frames.end(1)) * count


def pauses(batch: Batch, conn: int) -> list[bool]:
    return [effect.is_paused for effect in batch.effects if isinstance(effect, PauseReading) and effect.conn == conn]


@pytest.mark.slow
def test_who_begins_sessions_faster_than_they_are_taken_in_is_not_read_meanwhile() -> None:
    stage = Stage()
    conn = bare(stage)
    stage.talk(conn, AHEAD)
    sent = begun_and_ended(5000)
    assert len(sent) > UNREAD_BYTES_MAX
    seen: list[bool] = []
    answered = 0
    batch = stage.broker.step([given.BytesReceived(conn, sent)], stage.at)
    while True:
        for is_paused in pauses(batch, conn):
            seen.append(is_paused)
            unread = stage.broker.peers[conn].connection.unread_bytes
            assert unread > UNREAD_BYTES_MAX if is_paused else unread <= UNREAD_BYTES_MAX // 2
        answered += len(frames.of_kind(sent_to(conn, batch), Begin))
        if not batch.more:
            break
        batch = stage.broker.step([], stage.at)
    assert seen == [True, False]
    assert answered == 5000


def test_answers_to_who_stays_behind_do_not_pile_up() -> None:
    stage = Stage()
    conn = bare(stage)
    stage.talk(conn, AHEAD)
    piled = []
    batch = stage.broker.step([given.BytesReceived(conn, begun_and_ended(1000))], stage.at)
    while batch.more:
        piled.append(len(stage.broker.peers[conn].connection.out))
        batch = stage.broker.step([], stage.at)
    assert len(piled) > 50
    assert max(piled) < 100


@pytest.mark.slow
def test_who_is_not_let_in_so_far_is_not_read_beyond_a_bound_and_loses_nothing() -> None:
    stage = Stage()
    other = stage.connect("busy")
    busy = given.BytesReceived(other.conn, frames.flow(None, 0, echo=True))
    conns = range(77, 85)
    asking = frames.flow(None, 0, echo=True)
    said = {conn: frames.opened() + frames.begun() + asking * 6000 for conn in conns}
    for conn in conns:
        stage.sent[conn] = bytearray()
        stage.give(given.ConnectionAccepted(conn, "clients", "203.0.113.1:5", bytes(32), True))
    read = dict.fromkeys(conns, 0)
    piece_bytes = UNREAD_BYTES_MAX // 4
    for _ in range(4 * len(conns)):
        for conn in conns:
            piece = said[conn][read[conn] : read[conn] + piece_bytes]
            if not stage.paused.get(conn) and piece:
                stage.give(given.BytesReceived(conn, piece))
                read[conn] += len(piece)
        stage.give(busy)
        stage.turn()
        assert all(read[conn] <= UNREAD_BYTES_MAX + piece_bytes for conn in conns if conn not in stage.broker.peers)
    assert not any(conn not in stage.broker.peers for conn in conns)
    stage.now_ns += 100 * NS_PER_MS  # and then nobody is busy
    for conn in conns:
        stage.give(given.BytesReceived(conn, said[conn][read[conn] :]))
    stage.run()
    assert not any(stage.paused.get(conn) for conn in conns)
    assert {len(frames.of_kind(bytes(stage.sent[conn]), Flow)) for conn in conns} == {6000}


def test_who_is_lost_and_was_far_ahead_costs_little() -> None:
    stage = Stage()
    conn, other = bare(stage), bare(stage)
    stage.talk(conn, AHEAD)
    stage.talk(other, AHEAD)
    connection = stage.broker.peers[conn].connection
    gone = [given.BytesReceived(conn, begun_and_ended(50_000)), given.Closed(conn, "connection lost")]
    batches = steps(stage, *gone, given.BytesReceived(other, frames.begun(1)))
    taken_in = frames.of_kind(b"".join(map(bytes, connection.out)), Begin)
    assert 1 < len(taken_in) <= (LOST_WORK + TURN_WORK) // frame_costs.GENERAL[Begin] + 1
    assert conn not in stage.broker.peers
    assert any(frames.of_kind(sent_to(other, batch), Begin) for batch in batches)


@pytest.mark.slow
def test_who_reads_again_is_taken_in_again_and_has_the_whole_bound_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "UNHEARD_BYTES_MAX", 32 << 10)  # less to be said until it is reached
    stage = Stage()
    conn = bare(stage)
    stage.talk(conn, AHEAD)
    peer = stage.broker.peers[conn]
    asking = frames.flow(None, 0, echo=True)
    count = 2500

    def asks(number: int) -> int:
        """So many times, while nothing is read; how many of them were answered."""
        before = len(frames.of_kind(bytes(stage.sent[conn]), Flow))
        stage.now_ns += 1000 * NS_PER_MS
        steps_of(stage, given.WriteBlocked(conn, True), given.BytesReceived(conn, asking * number))
        return len(frames.of_kind(bytes(stage.sent[conn]), Flow)) - before

    for _ in range(2):
        answered = asks(count)
        assert 0 < answered < count
        assert peer.is_unhearing
        stage.give(given.BytesReceived(conn, EMPTY_FRAME))
        assert not stage.turn().more, "nobody has a turn who is not taken in"
        rest = len(frames.of_kind(bytes(stage.sent[conn]), Flow))
        steps_of(stage, given.WriteBlocked(conn, False))
        assert len(frames.of_kind(bytes(stage.sent[conn]), Flow)) - rest == count - answered
        assert asks(100) == 100
        assert not peer.is_unhearing
        steps_of(stage, given.WriteBlocked(conn, False))


def test_who_is_gone_is_worked_off_whatever_it_asks_and_gets_no_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "UNHEARD_BYTES_MAX", 32 << 10)
    stage = Stage()
    conn, other, sender = bare(stage), bare(stage), bare(stage)
    for each in (conn, other):
        stage.talk(each, AHEAD + frames.receiver("shared", credit=10))
    stage.talk(sender, frames.anonymous() + frames.opened() + frames.begun() + frames.sender("shared"))
    stage.now_ns += 1000 * NS_PER_MS
    for each in (conn, other, sender):
        stage.talk(each, EMPTY_FRAME)
    stage.give(given.BytesReceived(conn, frames.flow(None, 0, echo=True) * 2500 + frames.close()))
    stage.give(given.Closed(conn, "closed by the peer"))
    stage.give(given.BytesReceived(sender, b"".join(frames.transfer(2 * each) for each in range(2))))
    stage.turn()
    assert conn in stage.broker.peers, "not worked off so far"
    assert len(frames.of_kind(bytes(stage.sent[other]), tuple)) == 2
    stage.step()
    stage.run()
    assert set(stage.broker.peers) == {other, sender}


@pytest.mark.parametrize(
    ("bad", "answer"),
    [(frames.flow(777, 1), End), (frames.transfer(0, handle=1), Detach), (frames.begun(), Close)],
    ids=["session", "link", "connection"],
)
def test_a_fault_costs_as_what_it_is_answered_with(bad: bytes, answer: type) -> None:
    stage = Stage()
    conn = bare(stage)
    stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun() + frames.receiver())
    stage.now_ns += 1000 * NS_PER_MS
    stage.talk(conn, EMPTY_FRAME)
    connection = stage.broker.peers[conn].connection
    before = connection.allowance
    connection.receive(bad)
    assert len(frames.of_kind(b"".join(map(bytes, connection.out)), answer)) == 1
    named = (
        frame_costs.GENERAL[Begin] if answer is Close else frame_costs.FLOW if answer is End else frame_costs.TRANSFER
    )
    assert before - connection.allowance >= named + (0 if answer is Close else frame_costs.OTHER)


def test_who_is_lost_beside_others_that_wait_costs_less() -> None:
    stage = Stage()
    conn, other = bare(stage), bare(stage)
    stage.talk(conn, AHEAD)
    stage.talk(other, AHEAD + frames.receiver("orders", handle=1, credit=10))
    stage.broker.step([given.BytesReceived(conn, begun_and_ended(5000))], stage.at)
    stage.broker.step([given.BytesReceived(other, frames.transfer(1 << 16))], stage.at)
    connection = stage.broker.peers[conn].connection
    before = len(frames.of_kind(b"".join(map(bytes, connection.out)), Begin))
    stage.broker.step([given.Closed(conn, "connection lost")], stage.at)
    taken_in = len(frames.of_kind(b"".join(map(bytes, connection.out)), Begin)) - before
    assert 1 < taken_in <= (LOST_BESIDE_WORK + TURN_WORK) // frame_costs.GENERAL[Begin] + 1
    assert conn not in stage.broker.peers


def test_who_is_lost_later_has_a_bound_of_its_own() -> None:
    stage = Stage()
    first, second = bare(stage), bare(stage)
    for conn in (first, second):
        stage.talk(conn, AHEAD)
    steps(stage, given.BytesReceived(first, begun_and_ended(5000)), given.Closed(first, "connection lost"))
    assert list(stage.broker.peers) == [second]
    messages = b"".join(frames.transfer(2 * number, settled=True) for number in range(30))  # no two make a run
    steps(stage, given.BytesReceived(second, messages), given.Closed(second, "connection lost"))
    assert stage.broker.store.queues["orders"].message_count == 30
    assert not stage.broker.peers


FLOODS = {
    "flows that ask for an answer": frames.flow(None, 0, echo=True) * 4000,
    "links": (frames.sender("flooded", handle=7) + frames.detach(7)) * 1000,
    # No two of them make a run.
    "messages beyond the credit": b"".join(frames.transfer(2 * at, durable=True) for at in range(5000)),
    "outcomes of nothing": frames.disposition(0, 0, None) * 8000,
    "empty frames": EMPTY_FRAME * 20_000,
}


@pytest.mark.slow
@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_a_flood_of_one_connection_is_taken_in_by_turns(flood: bytes) -> None:
    stage = Stage()
    conn, other = bare(stage), bare(stage)
    stage.talk(conn, AHEAD)
    stage.talk(other, AHEAD)
    connection = stage.broker.peers[conn].connection
    batches = [
        stage.broker.step([given.BytesReceived(conn, flood), given.BytesReceived(other, frames.transfer(0))], stage.at)
    ]
    assert frames.of_kind(sent_to(other, batches[0]), Disposition)  # in the very step
    while batches[-1].more:
        before = connection.unread_bytes
        batches.append(stage.broker.step([], stage.at))
        assert connection.unread_bytes <= before
    assert connection.unread_bytes == 0
    assert len(batches) > 3


def test_those_that_are_behind_have_their_turns_one_after_the_other_within_the_work_of_a_step() -> None:
    stage = Stage()
    conns = [bare(stage) for _ in range(20)]
    for conn in conns:
        stage.talk(conn, AHEAD)
    flood = FLOODS["flows that ask for an answer"]
    stage.broker.step([given.BytesReceived(conn, flood) for conn in conns], stage.at)
    connections = [stage.broker.peers[conn].connection for conn in conns]
    turns = dict.fromkeys(conns, 0)
    for _ in range(100):
        before = [each.unread_bytes for each in connections]
        stage.broker.step([], stage.at)
        moved = [was - each.unread_bytes for was, each in zip(before, connections, strict=True)]
        flows = sum(moved) // len(frames.flow(None, 0, echo=True))
        assert 0 < flows * frame_costs.FLOW <= ALONE_WORK + TURN_WORK
        for conn, size in zip(conns, moved, strict=True):
            turns[conn] += size > 0
        assert max(turns.values()) - min(turns.values()) <= 1
    assert max(each.unread_bytes for each in connections) < len(flood)


def always_behind(stage: Stage, conn: int, duration_ms: int) -> list[int]:
    """The connection sends more than is taken in, for so long; the ms at which it is told something."""
    told = []
    for now_ms in range(duration_ms):
        waits = stage.broker.peers[conn].connection.unread_bytes
        if waits < UNREAD_BYTES_MAX // 2:
            stage.give(given.BytesReceived(conn, EMPTY_FRAME * 20_000))
        before = len(stage.sent[conn])
        assert stage.turn().more
        if len(stage.sent[conn]) > before:
            told.append(now_ms)
        stage.now_ns += NS_PER_MS
    return told


@pytest.mark.slow
def test_who_is_always_behind_hears_that_we_are_there() -> None:
    stage = Stage()
    conn = bare(stage)
    stage.talk(conn, frames.anonymous() + frames.opened(idle_time_out=1000) + frames.begun())
    told = always_behind(stage, conn, 4000)
    assert len(told) >= 4000 // 1000
    assert max(later - earlier for earlier, later in pairwise([0, *told])) < 1000


def test_who_is_always_behind_is_told_outcomes_meanwhile() -> None:
    stage = Stage()
    conn = bare(stage)
    stage.talk(conn, AHEAD)
    stage.give(given.BytesReceived(conn, EMPTY_FRAME * 20_000 + frames.transfer(0, durable=True)))
    always_behind(stage, conn, 100)
    stage.sync()
    said = bytes(stage.sent[conn])
    always_behind(stage, conn, 100)
    assert len(frames.of_kind(bytes(stage.sent[conn])[len(said) :], Disposition)) == 1
