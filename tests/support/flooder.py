"""A process that floods a broker with legal frames: `python -m tests.support.flooder`; password in FLOODER_PASSWORD.

One line says `ready` once every connection has sent its first pieces; it goes on until its standard input ends. It runs
when nobody else wants to (SCHED_IDLE), because on a network a client brings a processor of its own.
"""

from __future__ import annotations

import argparse
import os
import select
import socket
import sys
from collections.abc import Sequence

from tests.support import frames
from tests.support.floods import FLOODS, Flood

HOST, SOURCE = "127.0.0.1", "127.0.0.2"
TIMEOUT_S = 60
PIECES_BYTES = 32 << 10
ATTACH = b"\x00\x53\x12"
BEGIN = b"\x00\x53\x11"


class Flooding:
    """One connection, open and with its links."""

    def __init__(self, port: int, login: bytes, flood: Flood, *, is_reading: bool) -> None:
        self.flood, self.is_reading = flood, is_reading
        self.sock = socket.create_connection((HOST, port), TIMEOUT_S, (SOURCE, 0))
        self.sock.sendall(login + frames.opened() + frames.begun() + flood.links)
        awaited, said = ATTACH if flood.links else BEGIN, b""
        while awaited not in said:
            more = self.sock.recv(65536)
            if not more:
                raise ConnectionError(f"closed: {said[-200:]!r}")
            said += more
        self.sock.setblocking(False)
        self._number = 0
        self._unsent = b""

    def push(self) -> None:
        """As much as goes."""
        if not self._unsent:
            count = max(PIECES_BYTES // len(self.flood.piece(0)), 1)
            self._unsent = self.flood.bytes_of(count, self._number)
            self._number += count
        try:
            self._unsent = self._unsent[self.sock.send(self._unsent) :]
        except BlockingIOError:
            return

    def drain(self) -> None:
        """Read what there is, and drop it."""
        try:
            while True:
                if not self.sock.recv(1 << 18):
                    raise ConnectionError("closed by the broker")
        except BlockingIOError:
            return


def flood_until_told(floodings: list[Flooding]) -> None:
    """All of them, until standard input ends."""
    by_fd = {each.sock.fileno(): each for each in floodings}
    poll = select.poll()
    poll.register(sys.stdin.fileno(), select.POLLIN | select.POLLHUP)
    for fd, each in by_fd.items():
        poll.register(fd, select.POLLOUT | (select.POLLIN if each.is_reading else 0))
        each.push()
    print("ready", flush=True)
    while True:
        for fd, event in poll.poll():
            if fd not in by_fd:
                return
            if event & select.POLLIN:
                by_fd[fd].drain()
            if event & select.POLLOUT:
                by_fd[fd].push()
            if event & (select.POLLHUP | select.POLLERR):
                raise ConnectionError("closed by the broker")


def main(arguments: Sequence[str] | None = None) -> int:
    """Flood until standard input ends; the exit code."""
    parser = argparse.ArgumentParser(prog="tests.support.flooder", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--user", required=True)
    parser.add_argument("--kind", required=True, choices=FLOODS)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--deaf", action="store_true", help="read nothing of what is answered")
    options = parser.parse_args(arguments)
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    login, flood = frames.plain(options.user, os.environ["FLOODER_PASSWORD"]), FLOODS[options.kind]
    flood_until_told(
        [Flooding(options.port, login, flood, is_reading=not options.deaf) for _ in range(options.connections)]
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
