"""The test's end of foreign clients: processes that do what they are asked, one JSON line each way.

client.connect("c", broker)
client.sender("c", "out", "orders")
client.send("out", ids=["a", "b"])
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE_S

PYTHON = "/usr/bin/python3"
FOLDER = Path(__file__).parent
ANSWER_S = 2 * PATIENCE_S  # more than a client waits itself


class ClientProcess:
    """One process. A request that the client could not do fails the test with its reason."""

    def __init__(self, command: list[str], log_file: Path) -> None:
        self.log_file = log_file
        self._buffer = b""
        with log_file.open("wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        self.begin(do, **arguments)
        return self.finish()

    def begin(self, do: str, **arguments: Any) -> None:
        """Make a request whose answer `finish` gives: for tests in which two clients work at once."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        self.process.stdin.flush()

    def refusal(self, do: str, **arguments: Any) -> str:
        """Make a request that must fail; why it did."""
        self.begin(do, **arguments)
        answer = json.loads(self._line())
        assert "failed_request" in answer, f"it was done: {answer}"
        return str(answer["failed_request"])

    def finish(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._line())
        assert "failed_request" not in answer, answer["failed_request"]
        return answer

    def _line(self) -> bytes:
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        deadline_s = time.monotonic() + ANSWER_S
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([descriptor], [], [], max(deadline_s - time.monotonic(), 0))
            assert ready, f"no answer of the client after {ANSWER_S} s:\n{self.log_file.read_text()}"
            data = os.read(descriptor, 1 << 20)
            assert data, f"the client ended:\n{self.log_file.read_text()}"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def connect(self, name: str, broker: BrokerProcess, **arguments: Any) -> dict[str, Any]:
        """Connect as the broker's user unless `user` says otherwise."""
        login = {"port": broker.port, "user": broker.user, "password": broker.password}
        return self.ask("connect", name=name, **{**login, **arguments})

    def stop(self) -> None:
        """SIGSTOP: it stays connected and says nothing any more."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """The connection breaks without a word of AMQP."""
        self.process.kill()
        self.close()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


class ProtonClient(ClientProcess):
    """Debian's Proton: `proton_client.py`."""

    def __init__(self, log_file: Path) -> None:
        super().__init__([PYTHON, str(FOLDER / "proton_client.py")], log_file)

    def sender(self, connection: str, name: str, address: str | None, **arguments: Any) -> dict[str, Any]:
        return self.ask("sender", connection=connection, name=name, address=address, **arguments)

    def receiver(self, connection: str, name: str, address: str | None, **arguments: Any) -> dict[str, Any]:
        return self.ask("receiver", connection=connection, name=name, address=address, **arguments)

    def send(self, link: str, ids: list[str], **arguments: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("send", link=link, ids=ids, **arguments)["outcomes"]
        return found

    def receive(self, link: str, count: int = 1, **arguments: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("receive", link=link, count=count, **arguments)["messages"]
        return found
