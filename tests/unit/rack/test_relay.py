"""A delayed cable keeps order, waits long enough, and never holds more than its queue."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest
from mqrack import relay

Cable = tuple[socket.socket, relay.Direction, socket.socket]


@pytest.fixture
def cable() -> Iterator[Cable]:
    sender, source = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    target, receiver = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    for end in (source, target, receiver):
        end.setblocking(False)
    yield sender, relay.Direction(source, target, delay_s=5.0), receiver
    for end in (sender, source, target, receiver):
        end.close()


def test_frames_wait_for_the_delay_and_leave_in_order(cable: Cable) -> None:
    sender, way, receiver = cable
    for number in range(5):
        sender.send(bytes([number]))
    before_s = time.monotonic()
    way.take()
    due = way.due()
    assert due is not None
    assert before_s + 5.0 <= due <= time.monotonic() + 5.0
    way.give(due - 0.001)
    with pytest.raises(BlockingIOError):
        receiver.recv(10)
    way.give(due + 1)
    assert [receiver.recv(10) for _ in range(5)] == [bytes([number]) for number in range(5)]
    assert way.due() is None


def test_what_comes_when_the_queue_is_full_is_dropped(cable: Cable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "QUEUE_BYTES_MAX", 250)
    sender, way, receiver = cable
    for number in range(4):
        sender.send(bytes([number]) * 100)
    way.take()
    way.give(time.monotonic() + 10)
    assert [receiver.recv(200)[0] for _ in range(2)] == [0, 1]
    with pytest.raises(BlockingIOError):
        receiver.recv(200)
    # What left makes room again.
    sender.send(b"x" * 100)
    way.take()
    assert way.due() is not None


def test_a_cut_cable_loses_frames_and_nothing_else(cable: Cable) -> None:
    sender, way, receiver = cable
    sender.send(b"lost")
    way.take()
    receiver.close()
    way.give(time.monotonic() + 10)
    assert way.due() is None
