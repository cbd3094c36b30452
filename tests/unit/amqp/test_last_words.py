"""An error is told in a frame that the peer takes, however small its frames are."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.wire.frames import frame_at
from mqbroker.wire.performatives import Attach, Close, Detach, End, Source, Target, decode_frame
from mqbroker.wire.types import Described, Symbol

from tests.support import frames
from tests.support.stage import Stage, options_with

LONG = "ä" * 600


def within(data: bytes, kind: type) -> int:
    """Bytes of the frame of that kind."""
    offset = 0
    while offset < len(data):
        frame = frame_at(data, offset, len(data), 1 << 31)
        assert frame is not None
        if isinstance(decode_frame(data, frame)[0], kind):
            return frame.end - offset
        offset = frame.end
    raise AssertionError(f"there is no {kind.__name__}")


@pytest.mark.parametrize(
    ("said", "kind", "condition"),
    [
        (frames.receiver(LONG, handle=0), Detach, "amqp:not-found"),
        (frames.sender(name=LONG[:220]) + frames.sender(handle=1, name=LONG[:220]), End, "amqp:session:errant-link"),
        (b"", Close, "amqp:connection:forced"),
    ],
    ids=["detach", "end", "close"],
)
def test_its_words_are_cut_and_its_condition_is_whole(said: bytes, kind: type, condition: str) -> None:
    stage = Stage(options_with(address_settings={LONG: {"auto_create_queues": False, "auto_create_addresses": False}}))
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened(512) + frames.begun())
    stage.sent[conn].clear()
    if kind is Close:
        stage.broker.peers[conn].close(condition, LONG)
    stage.talk(conn, said)
    answer = bytes(stage.sent[conn])
    error = frames.of_kind(answer, kind)[0].error
    assert str(error.condition) == condition
    assert len(error.description) > 100
    assert within(answer, kind) <= 512


def test_where_frames_are_larger_they_are_whole() -> None:
    stage = Stage(options_with(address_settings={LONG: {"auto_create_queues": False, "auto_create_addresses": False}}))
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened(65536) + frames.begun())
    answer = stage.talk(conn, frames.receiver(LONG, handle=0))
    assert LONG in frames.of_kind(answer, Detach)[0].error.description
    assert frames.of_kind(answer, Attach), "a refusal is an attach and a detach"


LONG_NAME, LONG_SELECTOR = "n" * 600, "a = '" + "x" * 400 + "'"
SELECTING = {Symbol("s"): Described(Symbol("apache.org:selector-filter:string"), LONG_SELECTOR)}


def asked(**source: Any) -> bytes:
    """A receiver for a topic."""
    terms = Source(address="news", capabilities=(Symbol("topic"),), **source)
    return frames.frame(Attach(name="news", handle=0, role=True, source=terms, target=Target()))


@pytest.mark.parametrize(
    ("said", "ends"),
    [
        (frames.sender("q" * 455), Detach),
        (asked(filter=SELECTING), Detach),
        (asked(filter=SELECTING, durable=2), Detach),
        (frames.sender(name=LONG_NAME), End),
        (frames.frame(Attach(name=LONG_NAME, handle=0, role=True, source=Source(address="orders"))), End),
    ],
    ids=["target", "filter", "durable", "name of a sender", "name of a receiver"],
)
def test_an_attach_whose_answer_does_not_fit_is_refused_in_frames_that_do(said: bytes, ends: type) -> None:
    stage = Stage()
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened(512) + frames.begun())
    answer = stage.talk(conn, said)
    assert frames.errors(answer) == [(ends.__name__, "amqp:frame-size-too-small")]
    assert max(len(frames.frame(each)) for each in frames.heard(answer)) <= 512
    assert conn not in stage.closed
    assert not [row for row in stage.admin("queues")["queues"] if not row["durable"]], "a queue without an end"
    assert (stage.admin("consumers")["consumers"], stage.admin("producers")["producers"]) == ([], [])
    if ends is Detach:
        assert frames.of_kind(stage.talk(conn, frames.detach() + frames.sender("orders", handle=1)), Attach)
