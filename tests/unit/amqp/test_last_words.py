"""An error is told in a frame that the peer takes, however small its frames are."""

from __future__ import annotations

import pytest
from mqbroker.wire.frames import frame_at
from mqbroker.wire.performatives import Attach, Close, Detach, End, decode_frame

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
        (frames.sender(name=LONG) + frames.sender(handle=1, name=LONG), End, "amqp:session:errant-link"),
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


@pytest.mark.parametrize("is_producer", [False, True], ids=["consumer", "producer"])
@pytest.mark.parametrize("size", [100, 300])
def test_a_link_whose_answer_does_not_fit_is_refused(size: int, is_producer: bool) -> None:
    """Its name fits, and with the address twice it does not; the connection must not end for it."""
    address = "ä" * size
    make = frames.sender if is_producer else frames.receiver
    stage = Stage()
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened(512) + frames.begun())
    answer = stage.talk(conn, make(address, handle=0))
    assert within(answer, Attach) <= 512
    (attach,) = frames.of_kind(answer, Attach)
    terminus = attach.target if is_producer else attach.source
    assert (terminus is None) == (size == 300)
    found = [str(detach.error.condition) for detach in frames.of_kind(answer, Detach)]
    assert found == ["amqp:frame-size-too-small"] * (size == 300)


def test_where_frames_are_larger_they_are_whole() -> None:
    stage = Stage(options_with(address_settings={LONG: {"auto_create_queues": False, "auto_create_addresses": False}}))
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened(65536) + frames.begun())
    answer = stage.talk(conn, frames.receiver(LONG, handle=0))
    assert LONG in frames.of_kind(answer, Detach)[0].error.description
    assert frames.of_kind(answer, Attach), "a refusal is an attach and a detach"
