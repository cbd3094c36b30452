"""Login deadline, idle timeouts of both directions, pauses."""

from __future__ import annotations

import pytest
from mqbroker.amqp.sasl import SaslClient
from mqbroker.base.time import NS_PER_MS
from mqbroker.node.values import inputs as given
from mqbroker.wire.frames import EMPTY_FRAME
from mqbroker.wire.performatives import Close, Open

from tests.support import frames
from tests.support.stage import Stage, options_with

GO = frames.anonymous() + frames.opened() + frames.begun()


@pytest.mark.parametrize("progress", [b"", frames.SASL_HEADER, frames.anonymous(),
                                      frames.anonymous() + frames.AMQP_HEADER])  # fmt: skip
def test_a_login_has_its_time_and_no_more(progress: bytes) -> None:
    stage = Stage(options_with({"login_timeout_ms": 1000}))
    conn = stage.accept()
    stage.talk(conn, progress)
    stage.wait(999)
    assert conn not in stage.closed
    stage.wait(2)
    assert conn in stage.closed
    assert stage.broker.peers == {}


def test_bytes_do_not_prolong_a_login() -> None:
    stage = Stage(options_with({"login_timeout_ms": 1000}))
    conn = stage.accept()
    for byte in GO[:10]:
        stage.talk(conn, bytes([byte]))
        stage.wait(150)
    assert conn in stage.closed


@pytest.mark.option("listeners.idle-timeout-ms")
@pytest.mark.parametrize("timeout_ms", [200, 5000])
def test_a_silent_peer_is_closed_and_told(timeout_ms: int) -> None:
    stage = Stage(options_with({"idle_timeout_ms": timeout_ms}))
    conn = stage.accept()
    said = stage.talk(conn, GO)
    assert [each.idle_time_out for each in frames.of_kind(said, Open)] == [timeout_ms // 2]
    stage.wait(timeout_ms - 1)
    stage.talk(conn, EMPTY_FRAME)
    stage.wait(timeout_ms - 1)
    assert conn not in stage.closed
    stage.wait(2)
    assert conn in stage.closed
    assert frames.errors(bytes(stage.sent[conn])) == [("Close", "amqp:resource-limit-exceeded")]


def test_a_peer_that_asks_for_it_hears_from_us() -> None:
    stage = Stage(options_with({"idle_timeout_ms": 60_000}))
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened(idle_time_out=1000) + frames.begun())
    before = len(stage.sent[conn])
    stage.wait(10_000)
    beats = bytes(stage.sent[conn][before:])
    assert beats == EMPTY_FRAME * (len(beats) // 8)
    assert 10 <= len(beats) // 8 <= 25, "at least once in its time, not much more than twice"


def test_who_is_answered_in_time_gets_no_empty_frames() -> None:
    stage = Stage(options_with({"idle_timeout_ms": 60_000}))
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened(idle_time_out=1000) + frames.begun())
    for _ in range(10):
        before = len(stage.sent[conn])
        stage.wait(300)
        assert bytes(stage.sent[conn][before:]) == b""
        assert stage.talk(conn, frames.flow(None, 0, echo=True))


@pytest.mark.parametrize(("idle_time_out", "may_stay"), [(1, False), (49, False), (50, True), (0, True)])
def test_who_wants_to_hear_from_us_all_the_time_is_refused(idle_time_out: int, may_stay: bool) -> None:
    stage = Stage()
    conn = stage.accept()
    said = stage.talk(conn, frames.anonymous() + frames.opened(idle_time_out=idle_time_out) + frames.begun())
    (opened,) = frames.of_kind(said, Open)
    assert frames.errors(said) == ([] if may_stay else [("Close", "amqp:not-allowed")])
    assert ("amqp:connection-establishment-failed" in opened.properties) is not may_stay
    assert (conn in stage.closed) is not may_stay
    if not may_stay:
        (notice,) = [each for each in stage.notices if each.event == "connection-failed"]
        assert f"idle-time-out {idle_time_out} ms is below 50 ms" in str(notice.fields["why"])


def test_a_peer_that_does_not_ask_hears_nothing() -> None:
    stage = Stage()
    conn = stage.accept()
    stage.talk(conn, GO)
    before = len(stage.sent[conn])
    stage.wait(29_000)
    assert len(stage.sent[conn]) == before


def test_a_peer_that_we_do_not_read_is_not_called_silent() -> None:
    stage = Stage(options_with({"idle_timeout_ms": 1000}))
    conn = stage.accept()
    stage.talk(conn, GO + frames.sender())
    limit = stage.options.journal.disk_pending_bytes_max
    stage.give(given.UnsyncedBytes(limit + 1))
    stage.run()
    assert stage.paused == {conn: True}
    stage.wait(5000)
    assert conn not in stage.closed
    stage.give(given.UnsyncedBytes(0))
    stage.run()
    assert stage.paused == {conn: False}
    stage.wait(900)
    assert conn not in stage.closed, "its time starts again when we listen again"
    stage.wait(200)
    assert conn in stage.closed


def test_publishers_that_arrive_while_the_disk_is_behind_wait_for_credit() -> None:
    stage = Stage()
    stage.give(given.UnsyncedBytes(stage.options.journal.disk_pending_bytes_max + 1))
    stage.run()
    conn = stage.accept()
    said = stage.talk(conn, GO + frames.sender())
    assert frames.heard(said)[-1].__class__.__name__ == "Attach"
    before = len(stage.sent[conn])
    stage.give(given.UnsyncedBytes(0))
    stage.run()
    assert [each.link_credit for each in frames.heard(bytes(stage.sent[conn][before:]))] == [2000]


def test_nothing_is_left_of_a_connection_that_is_gone() -> None:
    stage = Stage()
    for _ in range(50):
        talker = stage.connect("c", SaslClient(None, "", b"n" * 32))
        stage.drop(talker)
    stage.wait(200_000)
    assert stage.broker.timers.wake_at_ns is None
    assert stage.broker.peers == {}
    assert (stage.broker.touched, stage.broker.starved, stage.broker.draining, stage.broker.closing) == ({}, {}, {}, {})


def test_stop_closes_those_who_have_not_opened_too() -> None:
    stage = Stage()
    early, late = stage.accept(), stage.accept()
    stage.talk(late, GO)
    stage.stop()
    assert {early, late} <= set(stage.closed)
    assert isinstance(frames.heard(bytes(stage.sent[late]))[-1], Close)
    assert stage.halted == 0


def stood_still(stage: Stage, duration_ms: int) -> None:
    """No step is made for a while, and the first one comes before anything is read."""
    stage.now_ns += duration_ms * NS_PER_MS
    stage.step()


def test_who_spoke_while_we_stood_still_is_read_before_it_counts_as_silent() -> None:
    stage = Stage(options_with({"idle_timeout_ms": 2000}))
    conns = speaking, silent = stage.accept(), stage.accept()
    for conn in conns:
        stage.talk(conn, GO)
    stood_still(stage, 10_000)
    assert not stage.closed
    stage.talk(speaking, EMPTY_FRAME)
    stage.wait(1_999)
    assert set(stage.closed) == {silent}
    stage.wait(2_000)
    assert set(stage.closed) == set(conns)


def test_who_logs_in_while_we_stand_still_has_done_so_in_time() -> None:
    stage = Stage(options_with({"login_timeout_ms": 1000}))
    speaking, silent = stage.accept(), stage.accept()
    stage.run()
    stood_still(stage, 5_000)
    assert not stage.closed
    stage.talk(speaking, GO)
    stage.wait(100)
    assert set(stage.closed) == {silent}
