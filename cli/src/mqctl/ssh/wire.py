"""What a connection sends its bytes on.

Invariant: a connection on which nothing could be sent for `limit_s` is closed. paramiko tries to send for as long as
TCP does, which is a quarter of an hour, and whatever else has to be sent waits for that: the next command, the end of
one, even closing it.
"""

from __future__ import annotations

import time
from typing import Any, Protocol


class SocketLike(Protocol):
    """A socket with a timeout, or a channel of another connection."""

    def send(self, data: bytes, /) -> int: ...
    def recv(self, size: int, /) -> bytes: ...
    def settimeout(self, seconds: float | None, /) -> None: ...
    def close(self) -> None: ...


class Wire:
    """A socket for paramiko, which sends from one thread at a time and takes a timeout as a reason to go on.

    `is_stuck`: it has given up, and whatever paramiko says of that is nothing that the other end has done.
    """

    def __init__(self, below: SocketLike, limit_s: float) -> None:
        self._below: Any = below
        self._limit_s = limit_s
        self._stuck_since_s: float | None = None
        self.is_stuck = False
        self.recv = below.recv
        self.settimeout = below.settimeout
        self.close = below.close

    def send(self, data: bytes) -> int:
        """How many bytes were taken. Raises TimeoutError where it was none, and BrokenPipeError for good."""
        try:
            sent = self._below.send(data)
        except TimeoutError:
            self._wait_on()
            raise
        self._stuck_since_s = None
        return int(sent)

    def _wait_on(self) -> None:
        now_s = time.monotonic()
        if self._stuck_since_s is None:
            self._stuck_since_s = now_s
        if now_s - self._stuck_since_s >= self._limit_s:
            self.is_stuck = True
            self.close()
            raise BrokenPipeError(f"nothing could be sent for {self._limit_s:g} s")

    @property
    def _closed(self) -> bool:
        # paramiko asks for it as for that of a socket.
        return bool(self._below._closed)
