"""Peers that are many, silent, or talk nonsense: the broker lives on, others are not disturbed, the log stays clean."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE_S
from tests.support.processor import undelayed

Make = Callable[..., BrokerProcess]

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"


def end_of(sock: socket.socket) -> bytes:
    """Everything that the broker says until it closes. Fails when it does not close."""
    sock.settimeout(PATIENCE_S)
    parts = []
    try:
        while data := sock.recv(65536):
            parts.append(data)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def sent_until_cut_off(sock: socket.socket, bytes_max: int) -> int:
    """How much the broker takes of an endless stream of zeros."""
    count = 0
    try:
        while count < bytes_max:
            count += sock.send(bytes(65536))
    except (ConnectionResetError, BrokenPipeError):
        pass
    return count


BAD_STARTS = {
    "http": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "amqp 0-9-1": b"AMQP\x00\x00\x09\x01",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    "zeros": bytes(4096),
    "header, then noise": SASL_HEADER + b"\xff" * 4096,
    "frame size 0xFFFFFFFF": SASL_HEADER + b"\xff\xff\xff\xff\x02\x01\x00\x00",
    "frame size 0": SASL_HEADER + b"\x00\x00\x00\x00\x02\x01\x00\x00",
    "frame size 7": SASL_HEADER + b"\x00\x00\x00\x07\x02\x01\x00\x00",
    "doff 1": SASL_HEADER + b"\x00\x00\x00\x08\x01\x01\x00\x00",
    "doff past the end": SASL_HEADER + b"\x00\x00\x00\x08\x09\x01\x00\x00",
    "AMQP frame during SASL": SASL_HEADER + b"\x00\x00\x00\x08\x02\x00\x00\x00",
    "open without login": AMQP_HEADER + b"\x00\x00\x00\x08\x02\x00\x00\x00",
    "array of 2^32-1 nothings": SASL_HEADER
    + b"\x00\x00\x00\x1a\x02\x01\x00\x00\x00\x53\x41\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40"
    + bytes(5),
}


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all nonsense: what one peer did must not show to the next."""
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.mark.parametrize("start", BAD_STARTS.values(), ids=BAD_STARTS.keys())
def test_nonsense_is_closed_within_a_second(shared_broker: BrokerProcess, start: bytes) -> None:
    broker = shared_broker
    with broker.connect() as bystander, broker.connect() as sock:
        bystander.sendall(SASL_HEADER)
        sock.sendall(start)
        with undelayed(broker.pid) as seconds:
            end_of(sock)
            assert seconds() < 1
        # The bystander is in the middle of its login and still there.
        bystander.settimeout(PATIENCE_S)
        assert bystander.recv(8) == SASL_HEADER
    assert broker.admin("status")["state"] == "active"
    assert "Traceback" not in broker.log
    assert "ERROR" not in broker.log


def test_a_flood_before_login_is_cut_off(broker: BrokerProcess) -> None:
    before = broker.rss_bytes()
    with broker.connect() as sock:
        sock.settimeout(PATIENCE_S)
        assert sent_until_cut_off(sock, 256 << 20) < 64 << 20
    assert broker.rss_bytes() - before < 32 << 20
    broker.wait_for_connections(0)


@pytest.mark.option("listeners.login-timeout-ms")
def test_a_silent_connection_is_closed_after_the_login_timeout(make_broker: Make) -> None:
    broker = make_broker(listener={"login-timeout-ms": 300})
    broker.start()
    with broker.connect() as sock:
        started_s = time.monotonic()
        with undelayed(broker.pid) as seconds:
            end_of(sock)
            assert time.monotonic() - started_s > 0.25
            assert seconds() < 1


@pytest.mark.option("listeners.connections-max")
def test_connections_over_the_bound_are_closed_at_once(make_broker: Make) -> None:
    broker = make_broker(listener={"connections-max": 2})
    broker.start()
    with broker.connect() as first, broker.connect() as second, broker.connect() as third:
        assert end_of(third) == b""
        for sock in (first, second):
            sock.sendall(SASL_HEADER)
            sock.settimeout(PATIENCE_S)
            assert sock.recv(8) == SASL_HEADER
    broker.wait_for_log("connections-full")


def test_nonsense_on_the_admin_socket_is_answered(broker: BrokerProcess) -> None:
    assert broker.admin_row({"id": 1, "op": "no-such-thing"})["error"]["condition"] == "amqp:not-found"
    assert broker.admin_row({"id": 2})["error"]["condition"] == "amqp:invalid-field"
    assert broker.admin_row({"op": "send", "args": {"address": 5}})["error"]["condition"] == "amqp:invalid-field"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(broker.admin_socket))
        sock.sendall(os.urandom(100_000).replace(b"\n", b"") + b"\n")
        sock.settimeout(PATIENCE_S)
        assert b"amqp:decode-error" in sock.recv(65536)
    assert "Traceback" not in broker.log
