"""The admin protocol of a broker: JSON lines over any stream, requests in flight bounded by the caller.

    -> {"id": 1, "op": "status", "args": {}}
    <- {"id": 1, "result": {…}}  or  {"id": 1, "error": {"condition": …, "description": …}}

Answers are matched by id and may come in any order. A broken stream is one error that says what the other end said.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any, Final

from mqctl.errors import CommandError
from mqctl.ssh.shell import PipeStream

LINE_BYTES_MAX = 64 * 2**20
# What a broker takes in one line. Of a longer one it would say so, and end the session while the rest is written.
REQUEST_BYTES_MAX = 16 * 2**20
ANSWER_TIME_S = 30.0


# Beginning of the operation's name: the command that shows what it is about.
SHOWN_BY: Final = {
    "queue": "mqctl queue list", "message": "mqctl queue list", "browse": "mqctl queue list",
    "receive": "mqctl queue list", "dead": "mqctl queue list",
    "address": "mqctl address list", "connection": "mqctl connection list", "cluster": "mqctl topology",
}  # fmt: skip


class AdminError(CommandError):
    """The broker refused an operation."""

    def __init__(self, node: str, operation: str, error: Mapping[str, Any]) -> None:
        self.condition = str(error.get("condition", ""))
        self.description = str(error.get("description", ""))
        hint = SHOWN_BY.get(operation.partition("-")[0], "mqctl status")
        super().__init__(f"{node}: {operation} was refused: {self.description} ({self.condition})", hint)


class AdminLost(CommandError):
    """The stream ended or fell silent."""


class AdminClient:
    """One session. Closing it puts everything that was received and not settled back into its queue."""

    def __init__(self, node: str, stream: PipeStream, answer_time_s: float = ANSWER_TIME_S) -> None:
        self.node = node
        self._stream = stream
        self._answer_time_s = answer_time_s
        self._buffer = bytearray()
        self._next_id = 1
        self._operations: dict[int, str] = {}
        self._early: dict[int, dict[str, Any]] = {}

    def submit(self, operation: str, **arguments: Any) -> int:
        """Send a request; its id. Raises AdminError where it is longer than a broker takes, and AdminLost."""
        identity = self._next_id
        self._next_id += 1
        text = json.dumps({"id": identity, "op": operation, "args": arguments}, ensure_ascii=False)
        # What the command line has beyond UTF-8 gets as far as the broker, which says which argument it is.
        line = text.encode(errors="surrogatepass")
        if len(line) > REQUEST_BYTES_MAX:
            why = f"it takes {len(line)} bytes of JSON, and a broker reads {REQUEST_BYTES_MAX} of a request at most"
            raise AdminError(self.node, operation, {"condition": "amqp:resource-limit-exceeded", "description": why})
        try:
            self._stream.settimeout(self._answer_time_s)
            self._stream.sendall(line + b"\n")
        except TimeoutError:
            raise self._lost(f"it has not read a request to its end within {self._answer_time_s:g} s") from None
        except (OSError, EOFError):
            raise self._lost("the connection broke") from None
        self._operations[identity] = operation
        return identity

    def answer(self, identity: int, wait_s: float = 0.0) -> Any:
        """The result of a request; `wait_s` is what the operation itself may take on top."""
        while identity not in self._early:
            row = self._read_row(self._answer_time_s + wait_s)
            if row.get("id") is None:
                raise AdminError(self.node, "a request", row.get("error") or {})
            self._early[int(row["id"])] = row
        row = self._early.pop(identity)
        operation = self._operations.pop(identity, "?")
        if row.get("error"):
            raise AdminError(self.node, operation, row["error"])
        return row.get("result")

    def call(self, operation: str, wait_s: float = 0.0, **arguments: Any) -> Any:
        """Send a request and wait for its result."""
        return self.answer(self.submit(operation, **arguments), wait_s)

    def _read_row(self, timeout_s: float) -> dict[str, Any]:
        start = 0
        while (end := self._buffer.find(b"\n", start)) < 0:
            start = len(self._buffer)
            if start > LINE_BYTES_MAX:
                raise self._lost(f"an answer has more than {LINE_BYTES_MAX} bytes")
            self._buffer += self._receive(timeout_s)
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise self._lost("the answer is not JSON")
        return row

    def _receive(self, timeout_s: float) -> bytes:
        try:
            self._stream.settimeout(timeout_s)
            chunk = self._stream.recv(1 << 18)
        except TimeoutError:
            raise self._lost(f"no answer within {timeout_s:g} s") from None
        except (OSError, EOFError):
            raise self._lost("the connection broke") from None
        if not chunk:
            raise self._lost(self._stream.complaint())
        return chunk

    def _lost(self, why: str) -> AdminLost:
        # What the program at the other end says names itself already; the node is what it cannot know.
        return AdminLost(f"{self.node}: {why.removeprefix('mqbroker admin: ')}", "mqctl status")

    def close(self) -> None:
        """End the session; what was received and not acknowledged is put back."""
        self._stream.close()

    def __enter__(self) -> AdminClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SocketStream:
    """A broker of this machine, through its Unix socket."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(path)
        except OSError as fault:
            self._socket.close()
            raise CommandError(f"no broker answers at {path}: {fault.strerror}", "mqctl dev status") from None
        self.sendall = self._socket.sendall
        self.recv = self._socket.recv
        self.settimeout = self._socket.settimeout
        self.close = self._socket.close

    def complaint(self) -> str:
        """A socket has no second channel."""
        return "the broker closed the connection"
