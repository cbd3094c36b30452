"""A message that is larger than the memory that it may need, through a real broker that is killed in between."""

from __future__ import annotations

import hashlib
import random
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mqbroker.wire.frames import frame_at
from mqbroker.wire.performatives import Accepted, Begin, Disposition, Transfer, decode_frame

from tests.support import frames
from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.system

MIB = 1 << 20
PIECE = 60_000
HEAD = b"\x00\x53\x70\xc0\x02\x01\x41"  # durable
WAIT_S = PATIENCE_S


class Peer:
    """A raw connection with one session."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.sock = broker.connect()
        self.sock.settimeout(WAIT_S)
        self._buffer = b""
        self.say(frames.plain(broker.user, broker.password))
        self.say(frames.opened() + frames.begun(incoming_window=100_000))
        next(None for performative, _ in self.heard() if isinstance(performative, Begin))

    def say(self, data: bytes) -> None:
        self.sock.sendall(data)

    def heard(self) -> Iterator[tuple[Any, bytes]]:
        """Performatives and payloads of everything that comes."""
        while True:
            if self._buffer.startswith(b"AMQP") and len(self._buffer) >= 8:
                self._buffer = self._buffer[8:]
            frame = None if self._buffer.startswith(b"A") else frame_at(self._buffer, 0, len(self._buffer), MIB)
            if frame is None:
                data = self.sock.recv(MIB)
                assert data, "the broker closed"
                self._buffer += data
                continue
            buffer, self._buffer = self._buffer, self._buffer[frame.end :]
            if frame.body_offset < frame.end:
                performative, payload = decode_frame(buffer, frame)
                yield performative, buffer[payload : frame.end]

    def upload(self, size: int, stop_at: int | None = None) -> str:
        """Send a durable message of so many random bytes in one data section; its digest."""
        self.say(frames.sender())
        source, digest = random.Random(size), hashlib.sha256()
        first: dict[str, Any] = {"delivery_id": 0, "delivery_tag": b"t", "message_format": 0}
        payload = HEAD + b"\x00\x53\x75\xb0" + size.to_bytes(4, "big")
        self.say(frames.frame(Transfer(handle=0, more=True, **first), payload))
        for at in range(0, size if stop_at is None else stop_at, PIECE):
            data = source.randbytes(min(PIECE, size - at))
            digest.update(data)
            self.say(frames.frame(Transfer(handle=0, more=at + PIECE < size), data))
        return digest.hexdigest()

    def wait_until_accepted(self) -> None:
        for performative, _ in self.heard():
            if isinstance(performative, Disposition):
                assert isinstance(performative.state, Accepted)
                return

    def download(self) -> tuple[str, int]:
        """Receive one message: digest and size of what is in its data section."""
        self.say(frames.receiver("orders", 1) + frames.flow(1, 1, window=100_000))
        digest, size, skip = hashlib.sha256(), 0, -1
        for performative, payload in self.heard():
            if not isinstance(performative, Transfer):
                continue
            if skip < 0:
                skip = payload.index(b"\x00\x53\x75\xb0") + 8 if b"\x00\x53\x75\xb0" in payload else -1
                payload = payload[skip:] if skip >= 0 else b""
            digest.update(payload)
            size += len(payload)
            if not performative.more:
                return digest.hexdigest(), size
        raise AssertionError("unreachable")


def files(broker: BrokerProcess) -> list[Path]:
    directory = broker.data_directory / "large-messages"
    return sorted(directory.iterdir()) if directory.exists() else []


def peak_bytes(broker: BrokerProcess) -> int:
    """The most that the process ever held."""
    lines = Path(f"/proc/{broker.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def test_it_needs_little_memory_outlives_a_kill_and_leaves_nothing(make_broker: Callable[..., BrokerProcess]) -> None:
    size = 96 * MIB
    broker = make_broker()
    broker.start()
    before = peak_bytes(broker)
    producer = Peer(broker)
    digest = producer.upload(size)
    producer.wait_until_accepted()
    assert peak_bytes(broker) - before < size // 2
    assert [file.stat().st_size for file in files(broker)] == [size + 8]
    broker.kill()

    broker.start()
    before = peak_bytes(broker)
    consumer = Peer(broker)
    assert consumer.download() == (digest, size)
    assert peak_bytes(broker) - before < size // 2
    consumer.say(frames.disposition(0, 0, Accepted()) + frames.close())
    end_of(consumer.sock)
    assert broker.stop() == 0
    assert files(broker) == []


def end_of(sock: socket.socket) -> None:
    while sock.recv(65536):
        pass


def test_a_kill_in_the_middle_leaves_no_file(make_broker: Callable[..., BrokerProcess]) -> None:
    broker = make_broker()
    broker.start()
    producer = Peer(broker)
    producer.upload(20 * MIB, stop_at=10 * MIB)
    # An answer to an attach shows that what was sent before it was read.
    producer.say(frames.receiver("other", 5))
    next(None for performative, _ in producer.heard() if getattr(performative, "handle", None) == 1)
    assert len(files(broker)) == 1
    broker.kill()
    broker.start()
    broker.admin("queues")
    assert broker.stop() == 0
    assert files(broker) == []
