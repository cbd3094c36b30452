"""Floods of legal frames against a running broker, and what a bystander waits for: in the broker's own time.

A machine that others use makes anybody wait. What the broker does between a message and its acceptance is counted by
the nanoseconds that its loop's thread was on a processor, which are the same however long they took.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.support import frames
from tests.support.broker_process import BrokerProcess
from tests.support.floods import FLOODS, Flood
from tests.support.patience import PATIENCE_S
from tests.system.bad_input.peer import Bystander, Peer

MESSAGES = 40
ALONE_MESSAGES = 200
SLOWEST = 2  # of MESSAGES, which are not looked at: what Python does now and then takes a while
WAIT_SHARE_MAX = 2.0
SEND_BYTES = 32 << 10
ACCEPTED = bytes((0, 0x53, 0x15))  # a disposition


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all floods."""
    with BrokerProcess(tmp_path_factory.mktemp("floods"), {}, {"idle-timeout-ms": 600_000}) as made:
        yield made


@pytest.fixture(scope="module")
def bystander(broker: BrokerProcess) -> Iterator[Bystander]:
    with Bystander(broker) as made:
        yield made


class Flooder:
    """Sends pieces of a flood on some connections as fast as they go, in a thread of its own."""

    def __init__(self, broker: BrokerProcess, flood: Flood, count: int, *, is_reading: bool) -> None:
        self._flood, self._is_reading = flood, is_reading
        self._peers = [Peer(broker) for _ in range(count)]
        for peer in self._peers:
            peer.login()
            peer.send(frames.end() + frames.begun() + flood.links)
            peer.sock.settimeout(0)
        self._numbers = [0] * count
        self._unsent = [b""] * count
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()
        for peer in self._peers:
            peer.sock.close()

    def _run(self) -> None:
        while not self._is_over.is_set():
            went = sum(self._push(index) for index in range(len(self._peers)))
            if not went:
                self._is_over.wait(0.001)

    def _push(self, index: int) -> int:
        sock = self._peers[index].sock
        if not self._unsent[index]:
            count = max(SEND_BYTES // len(self._flood.piece(0)), 1)
            self._unsent[index] = self._flood.bytes_of(count, self._numbers[index])
            self._numbers[index] += count
        try:
            if self._is_reading:
                self._drain(sock)
            went = sock.send(self._unsent[index])
        except BlockingIOError:
            return 0
        except OSError:
            self._is_over.set()  # it was closed, which the test sees by the bytes that did not go
            return 0
        self._unsent[index] = self._unsent[index][went:]
        return went

    @staticmethod
    def _drain(sock: socket.socket) -> None:
        try:
            while sock.recv(1 << 18):
                pass
        except BlockingIOError:
            return

    @property
    def is_flooding(self) -> bool:
        """Whether it still goes on."""
        return not self._is_over.is_set()


def busy_ns(broker: BrokerProcess) -> int:
    """How long the broker's loop has been on a processor."""
    return int(Path(f"/proc/{broker.pid}/schedstat").read_text().split()[0])


def publish(bystander: Bystander) -> None:
    """One durable message, until it is accepted."""
    bystander.send(frames.transfer(bystander.count, b"x" * 10, durable=True))
    bystander.count += 1
    while True:
        size = int.from_bytes(receive(bystander.sock, 4), "big")
        if ACCEPTED in receive(bystander.sock, size - 4):
            return


def receive(sock: socket.socket, size: int) -> bytes:
    """So many bytes."""
    sock.settimeout(PATIENCE_S)
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        assert more, "closed"
        data += more
    return data


def waits_ms(broker: BrokerProcess, bystander: Bystander, count: int) -> list[float]:
    """What the broker did from each message of the bystander until it was accepted, the longest last."""
    waits = []
    for _ in range(count):
        before = busy_ns(broker)
        publish(bystander)
        waits.append((busy_ns(broker) - before) / 1e6)
    return sorted(waits)


@pytest.mark.parametrize(("count", "is_reading"), [(1, True), (50, False)])
def test_a_bystander_waits_at_most_twice_as_long_as_alone(
    broker: BrokerProcess, bystander: Bystander, count: int, is_reading: bool
) -> None:
    waits_ms(broker, bystander, 50)
    alone = waits_ms(broker, bystander, ALONE_MESSAGES)
    told = {}
    for name, flood in FLOODS.items():
        with Flooder(broker, flood, count, is_reading=is_reading) as flooder:
            waits_ms(broker, bystander, 5)
            waits = waits_ms(broker, bystander, MESSAGES)
            assert flooder.is_flooding, name
        told[name] = (waits[MESSAGES // 2], waits[-1 - SLOWEST], waits[-1])
    print("alone", alone[100], alone[-3], alone[-1])
    for name, values in told.items():
        print(name, [round(value, 2) for value in values])
    assert broker.admin("status")["state"] == "active"
