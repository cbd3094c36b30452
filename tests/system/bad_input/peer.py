"""A peer on a real socket that says what it likes and reads what comes."""

from __future__ import annotations

import contextlib
import time
from types import TracebackType
from typing import Any, Self

from mqbroker.wire.frames import frame_at
from mqbroker.wire.performatives import Begin, Disposition, Flow, SaslOutcome, decode_frame

from tests.support import frames
from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE_S
from tests.support.processor import undelayed

CLOSE_S_MAX = 1.0
BUSY_S = 5.0


class Peer:
    """A connection; `said` is everything that the broker said."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.sock = broker.connect()
        self.said = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.sock.close()

    def send(self, data: bytes) -> None:
        """Everything, as far as the broker still takes it."""
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            self.sock.sendall(data)

    def heard(self) -> list[Any]:
        """Whole frames so far."""
        at, data = 0, bytes(self.said)
        found: list[Any] = []
        while at < len(data):
            if data.startswith(b"AMQP", at):
                found.append(data[at : at + 8])
                at += 8
                continue
            frame = frame_at(data, at, len(data), 1 << 31)
            if frame is None:
                break
            found.append(decode_frame(data, frame)[0])
            at = frame.end
        return found

    def wait_for(self, kind: type, count: int = 1, timeout_s: float = PATIENCE_S) -> list[Any]:
        """The first performatives of a kind."""
        deadline_s = time.monotonic() + timeout_s
        while len(found := [each for each in self.heard() if isinstance(each, kind)]) < count:
            self.sock.settimeout(max(deadline_s - time.monotonic(), 0.001))
            data = self.sock.recv(65536)
            assert data, f"closed before {kind.__name__}: {self.heard()}"
            self.said += data
        return found

    def wait_for_end(self, timeout_s: float = PATIENCE_S) -> float:
        """Read until the broker closes; how many seconds that took, less those without a processor."""
        deadline_s = time.monotonic() + timeout_s
        with undelayed(self.broker.pid) as seconds:
            with contextlib.suppress(ConnectionResetError):
                while True:
                    self.sock.settimeout(max(deadline_s - time.monotonic(), 0.001))
                    data = self.sock.recv(65536)
                    if not data:
                        break
                    self.said += data
            return seconds()

    def login(self) -> None:
        """Log in, open, begin, attach a sender with handle 0 and name s0."""
        self.send(frames.plain(self.broker.user, self.broker.password))
        (outcome,) = self.wait_for(SaslOutcome)
        assert outcome.code == 0
        self.send(frames.opened() + frames.begun() + frames.sender("bad-input"))
        self.wait_for(Begin)
        self.wait_for(Flow)


class Bystander(Peer):
    """A peer that does everything right while others do not."""

    def __init__(self, broker: BrokerProcess, *, durable: bool = True) -> None:
        super().__init__(broker)
        self.login()
        self.count = 0
        self._is_durable = durable

    def timed_work(self) -> float:
        """Publish one message; seconds until it is accepted, less those without a processor."""
        with undelayed(self.broker.pid) as seconds:
            self.work()
            return seconds()

    def work(self, timeout_s: float = PATIENCE_S) -> None:
        """Publish one message, which is accepted."""
        self.send(frames.transfer(self.count, b"x" * 10, durable=self._is_durable))
        self.count += 1
        while True:
            accepted = [each for each in self.heard() if isinstance(each, Disposition)]
            if sum((each.last or each.first) - each.first + 1 for each in accepted) >= self.count:
                return
            self.wait_for(Disposition, len(accepted) + 1, timeout_s)
