"""Requests that are too long, and brokers that do not read: each by name, before anybody waits for an answer."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from mqbroker.io.requests import admin_socket
from mqctl.admin import REQUEST_BYTES_MAX, AdminClient, AdminError, AdminLost, SocketStream
from mqctl.brokers.messages import REQUESTS_IN_FLIGHT, chunked
from mqctl.commands.messages.send import RequestWindow

from tests.support.patience import PATIENCE_S


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
    """Requests are in flight together: a smaller one may fit where one before it did not any more."""
    with client_of(listener) as client:
        broker, _ = listener.accept()
        with broker:
            window = RequestWindow(client, "orders", lambda _: None)
            answers = [{"id": number, "result": {"accepted": 1}} for number in range(1, count + 1)]
            answers[1] = refusal_of(2, "send 2 at once")
            broker.sendall(b"".join(json.dumps(each).encode() + b"\n" for each in answers))
            one = [{"body": "a"}]
            with pytest.raises(AdminError, match="send 2 at once"):
                window.send_all([one, 3 * one, *[one] * (count - 2)])
            assert (window.accepted, window.unknown) == (min(count - 1, REQUESTS_IN_FLIGHT), 0)


@pytest.mark.parametrize("why", ["it does not fit", "send 1 at once", "send 0 at once"])
def test_nothing_is_sent_behind_a_first_request_that_is_refused(listener: socket.socket, why: str) -> None:
    """A smaller one may fit, and would be a tail without its head."""
    with client_of(listener) as client:
        broker, _ = listener.accept()
        with broker:
            window = RequestWindow(client, "orders", lambda _: None)
            broker.sendall(json.dumps(refusal_of(1, why)).encode() + b"\n")
            with pytest.raises(AdminError, match=why):
                window.send_all([[{"body": "a"}]] * 3)
            assert (window.accepted, window.unknown) == (0, 0)
            client.close()
            assert [json.loads(line)["id"] for line in broker.makefile("rb")] == [1]


@pytest.mark.parametrize(
    ("at_once", "taken"),
    [
        ([487], [487, 13, 487, 13, 200]),
        ([1], [1] * 1200),
        ([1000, 100], [500, *[100] * 7]),  # a subscription comes while two are in flight
        ([1000, 100, 50], [500, 100, *[50] * 12]),
    ],
)
def test_an_address_that_takes_fewer_messages_at_once_gets_all_of_them_in_order(
    listener: socket.socket, at_once: list[int], taken: list[int]
) -> None:
    """Diverts and subscriptions make many copies of each, and the broker names how many it takes."""
    bodies = [str(number).encode() for number in range(1200)]
    with client_of(listener) as client, ThreadPoolExecutor(1) as pool:
        broker, _ = listener.accept()
        played = pool.submit(take, broker, at_once)
        window = RequestWindow(client, "orders", lambda _: None)
        try:
            window.send_all(chunked(bodies, durable=True))
        finally:
            client.close()
        requests = played.result(PATIENCE_S)
    assert (window.accepted, window.unknown) == (len(bodies), 0)
    assert [body.encode() for request in requests for body in request] == bodies
    assert [len(request) for request in requests] == taken


def take(broker: socket.socket, at_once: list[int]) -> list[list[str]]:
    """Bodies of the requests that are accepted: each has its own bound of `at_once`, further ones the last."""
    requests: list[list[str]] = []
    with broker:
        for line in broker.makefile("rb"):
            asked = json.loads(line)
            bodies = [one["body"] for one in asked["args"]["messages"]]
            most = at_once[min(len(requests), len(at_once) - 1)]
            if len(bodies) > most:
                answer = refusal_of(asked["id"], f"each message costs 300 copies: send {most} at once")
            else:
                answer = {"id": asked["id"], "result": {"accepted": len(bodies)}}
                requests.append(bodies)
            broker.sendall(json.dumps(answer).encode() + b"\n")
    return requests


def refusal_of(request: int, why: str) -> dict[str, Any]:
    return {"id": request, "error": {"condition": "amqp:resource-limit-exceeded", "description": why}}


def test_a_broker_that_does_not_read_is_told_from_one_that_is_gone(listener: socket.socket) -> None:
    with (
        client_of(listener, 0.1) as client,
        pytest.raises(AdminLost, match=r"not read a request to its end within 0\.1"),
    ):
        client.submit("send", messages=["a" * (REQUEST_BYTES_MAX // 2)])
