"""Speaks with the service manager: ready, status, stopping, watchdog, more time to start and to stop.

Owns the datagrams to `NOTIFY_SOCKET`. Invariant: without that variable every call does nothing, and a manager that
does not listen never disturbs the broker. Source: sd_notify(3), sd_watchdog_enabled(3).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping

EXTEND_US = 60_000_000
EXTEND_EVERY_S = 15.0
US_PER_MS = 1_000


class Notifier:
    """One per process. Reads the manager's variables out of `environment` and takes nothing out of it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) if self._address else None
        if self._socket is not None:
            # A full queue of the manager must not hold up the loop: the next message says the same again.
            self._socket.setblocking(False)
        self.watchdog_s = _watchdog_of(environment)

    def send(self, *lines: str) -> None:
        if self._socket is None:
            return
        # A leading @ stands for the abstract name space (sd_notify(3)).
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with contextlib.suppress(OSError):
            self._socket.sendto("\n".join(lines).encode(), address)

    def ready(self, status: str) -> None:
        self.send("READY=1", f"STATUS={status}")

    def status(self, text: str) -> None:
        self.send(f"STATUS={text}")

    def stopping(self, status: str) -> None:
        self.send("STOPPING=1", f"STATUS={status}")

    def reloading(self, at_ns: int) -> None:
        """`at_ns` is monotonic; READY follows when the reload is done (Type=notify-reload)."""
        self.send("RELOADING=1", f"MONOTONIC_USEC={at_ns // 1000}")

    @contextlib.contextmanager
    def more_time(self, status: str) -> Iterator[None]:
        """Ask for more time to start again and again while the body runs: a long journal is no hang."""
        self.status(status)
        if self._socket is None:
            yield
            return
        done = threading.Event()
        thread = threading.Thread(target=self._ask_for_time, args=(done,), name="notify", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def extend(self, extend_us: int = EXTEND_US) -> None:
        """What is under way, a start or a stop, goes on for a while."""
        self.send(f"EXTEND_TIMEOUT_USEC={extend_us}")

    def _ask_for_time(self, done: threading.Event) -> None:
        while True:
            self.extend()
            if done.wait(EXTEND_EVERY_S):
                return

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


class StopDelay:
    """Asks for more time to stop again and again, from `start` to `stop`: messages go to another node first."""

    def __init__(self, loop: asyncio.AbstractEventLoop, notifier: Notifier) -> None:
        self._loop = loop
        self._notifier = notifier
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._timer is None:
            self._notifier.stopping("stopping: messages go to another node")
            self._go_on()

    def _go_on(self) -> None:
        self._notifier.extend()
        self._timer = self._loop.call_later(EXTEND_EVERY_S, self._go_on)

    def stop(self, rest_ms: int = 0) -> None:
        """`rest_ms`: what comes behind it may take so long, and is asked for once more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            if rest_ms:
                self._notifier.extend(rest_ms * US_PER_MS + EXTEND_US)


class Watchdog:
    """Tells the manager that the loop turns *and* `is_healthy`: silence from either makes it restart the node."""

    def __init__(self, loop: asyncio.AbstractEventLoop, notifier: Notifier, is_healthy: Callable[[], bool]) -> None:
        self._loop = loop
        self._notifier = notifier
        self._is_healthy = is_healthy
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._notifier.watchdog_s is None:
            return
        if self._is_healthy():
            self._notifier.send("WATCHDOG=1")
        # sd_watchdog_enabled(3) recommends half of the time; a third survives one late turn.
        self._timer = self._loop.call_later(self._notifier.watchdog_s / 3, self.start)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _watchdog_of(environment: Mapping[str, str]) -> float | None:
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    text = environment.get("WATCHDOG_USEC", "")
    return int(text) / 1e6 if text.isdecimal() and int(text) > 0 else None
