"""Requests that are too long, and brokers that do not read: each by name, before anybody waits for an answer."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from mqbroker.io.requests import admin_socket
from mqctl.admin import REQUEST_BYTES_MAX, AdminClient, AdminError, AdminLost, SocketStream
from mqctl.brokers.messages import REQUESTS_IN_FLIGHT
from mqctl.commands.messages.send import RequestWindow


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "a"))
        listener.listen()
        yield listener


def client_of(listener: socket.socket, answer_time_s: float = 30.0) -> AdminClient:
    stream = SocketStream(listener.getsockname())
    return AdminClient("mq1", stream, answer_time_s)  # type: ignore[arg-type]


def test_the_bound_is_that_of_the_broker() -> None:
    assert REQUEST_BYTES_MAX == admin_socket.LINE_BYTES_MAX


def test_what_was_sent_before_a_request_that_is_too_long_is_counted(listener: socket.socket) -> None:
    """Escaped bytes are six each, so a file of 3 MiB may be too long."""
    with client_of(listener) as client:
        broker, _ = listener.accept()
        with broker:
            window = RequestWindow(client, "orders", lambda _: None)
            broker.sendall(json.dumps({"id": 1, "result": {"accepted": 1}}).encode() + b"\n")
            long = "\0" * (REQUEST_BYTES_MAX // 5)
            with pytest.raises(AdminError, match=f"mq1: send was refused.* a broker reads {REQUEST_BYTES_MAX} of"):
                window.send_all([[{"body": "a"}], [{"body": long}]])
            assert (window.accepted, window.unknown) == (1, 0)


@pytest.mark.parametrize("count", [3, 9])
def test_what_is_accepted_behind_a_request_that_is_refused_is_counted(listener: socket.socket, count: int) -> None:
    """Requests are in flight together: a smaller one may fit where one before it did not."""
    with client_of(listener) as client:
        broker, _ = listener.accept()
        with broker:
            window = RequestWindow(client, "orders", lambda _: None)
            refused = {"id": 1, "error": {"condition": "amqp:resource-limit-exceeded", "description": "send 2 at once"}}
            others = [{"id": number, "result": {"accepted": 1}} for number in range(2, count + 1)]
            broker.sendall(b"".join(json.dumps(each).encode() + b"\n" for each in [refused, *others]))
            with pytest.raises(AdminError, match="send 2 at once"):
                window.send_all([[{"body": "a"}]] * count)
            assert (window.accepted, window.unknown) == (min(count, REQUESTS_IN_FLIGHT) - 1, 0)


def test_a_broker_that_does_not_read_is_told_from_one_that_is_gone(listener: socket.socket) -> None:
    with (
        client_of(listener, 0.1) as client,
        pytest.raises(AdminLost, match=r"not read a request to its end within 0\.1"),
    ):
        client.submit("send", messages=["a" * (REQUEST_BYTES_MAX // 2)])
