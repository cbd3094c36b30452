"""A process that floods a broker: `python -m tests.support.flooder --port …`, its password in MQLOAD_PASSWORD.

Each line of its standard input names a flood (tests/support/floods.py), which it keeps up until the next line: on one
connection and on many, reading what it is answered and not, in turn; or, where the line begins with one of SHAPES, in
that way alone. At an empty line it uses a processor and says nothing, as what floods take of the machine is none of
the broker's doing. Once it is under way it answers with a line of JSON, which also says what it sent of the flood
before. It runs when nobody else wants to (SCHED_IDLE), as on a network whoever floods brings a processor of its own;
`--eager`: as anybody else, so that there is a flood also where the machine has much to do.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import os
import selectors
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tests.support import frames
from tests.support.floods import CONNECTIONS, FLOODS

HOST = "127.0.0.1"
ANSWER_S_MAX = 120.0
TURN_S, NO_END_S = 0.25, 1e6  # of each shape, where there are several, and of one
CHUNK_BYTES = 128 << 10
PIECES_MAX = 2_000
READ_SIZE = 1 << 18
BEGUN, ATTACHED = b"\0\x53\x11", b"\0\x53\x12"


@dataclass(frozen=True, slots=True)
class Shape:
    """On how many connections, and whether they read what they are answered."""

    count: int
    is_reading: bool


SHAPES = {f"{count}-{'reading' if is_reading else 'deaf'}": Shape(count, is_reading)
          for count in (1, 50) for is_reading in (True, False)}  # fmt: skip


class Line:
    """One connection. What it floods with is said from its beginning, again and again; or once, where it `ends`."""

    def __init__(self, place: tuple[str, int], said: tuple[bytes, bytes], *, ends: bool) -> None:
        hello, flood = said
        self.sock = socket.create_connection(place, ANSWER_S_MAX)
        self.ends = ends
        self._flood = memoryview(flood)
        self._at = 0
        if hello:
            self.sock.sendall(hello)
            self._wait_for(ATTACHED if ATTACHED in hello else BEGUN)
        self.sock.setblocking(False)

    def _wait_for(self, awaited: bytes) -> None:
        said = b""
        while awaited not in said:
            data = self.sock.recv(READ_SIZE)
            if not data:
                raise ConnectionError(f"closed before the flood: {said[-200:]!r}")
            said += data

    def send(self) -> int:
        """As much as is taken now; bytes."""
        try:
            went = self.sock.send(self._flood[self._at :])
        except OSError:
            return 0
        self._at += went
        if self._at == len(self._flood) and not self.ends:
            self._at = 0
        return went

    @property
    def is_said(self) -> bool:
        """Whether nothing is left to be said."""
        return self._at == len(self._flood)

    def is_closed(self) -> bool:
        """Read what it was answered; whether that was the end."""
        try:
            return not self.sock.recv(READ_SIZE)
        except BlockingIOError:
            return False
        except OSError:
            return True


class Flooder:
    """Goes through its shapes again and again, until there is another line to read."""

    def __init__(self, port: int, login: bytes) -> None:
        self._place = (HOST, port)
        self._login = login
        self._names = itertools.count()
        self._selector = selectors.DefaultSelector()
        self._selector.register(sys.stdin, selectors.EVENT_READ)
        self._sent_bytes = self._lost = 0

    def run(self) -> None:
        """Line by line, to the end of standard input."""
        for line in iter(sys.stdin.readline, ""):
            self._flood(line.strip())

    def _flood(self, line: str) -> None:
        shape, _, name = line.partition(" ")
        shapes = [SHAPES[shape]] if shape in SHAPES else list(SHAPES.values())
        name = name if shape in SHAPES else line
        if not name:
            self._ready()
            while not self._is_told():
                sum(range(20_000))
            return
        is_told = False
        for number, each in enumerate(itertools.cycle(shapes)):
            with self._lines(name, each):
                if not number:
                    self._ready()
                is_told = self._keep_up(name, each, TURN_S if len(shapes) > 1 else NO_END_S)
            if is_told:
                return

    def _ready(self) -> None:
        print(json.dumps({"ready": True, "sent_bytes": self._sent_bytes, "lost": self._lost}), flush=True)
        self._sent_bytes = self._lost = 0

    def _is_told(self) -> bool:
        return any(key.data is None for key, _ in self._selector.select(0))

    @contextlib.contextmanager
    def _lines(self, name: str, shape: Shape) -> Iterator[None]:
        try:
            for _ in range(shape.count):
                self._begin(name, shape)
            yield
        finally:
            for key in list(self._selector.get_map().values()):
                if key.data is not None:
                    self._end(key.data)

    def _begin(self, name: str, shape: Shape) -> None:
        login = self._login + frames.opened(container_id=f"flood-{next(self._names)}")
        if name in CONNECTIONS:
            said = b"", login + frames.close()
        else:
            said = login + frames.begun() + FLOODS[name].links, chunk(name)
        line = Line(self._place, said, ends=name in CONNECTIONS)
        reading = selectors.EVENT_READ if shape.is_reading else 0
        self._selector.register(line.sock, selectors.EVENT_WRITE | reading, line)

    def _end(self, line: Line) -> None:
        self._selector.unregister(line.sock)
        line.sock.close()

    def _keep_up(self, name: str, shape: Shape, turn_s: float) -> bool:
        """For a turn; whether there is another line to read."""
        until_s = time.monotonic() + turn_s
        while (left_s := until_s - time.monotonic()) > 0:
            for key, events in self._selector.select(left_s):
                line = key.data
                if line is None:
                    return True
                self._sent_bytes += line.send() if events & selectors.EVENT_WRITE else 0
                is_over = bool(events & selectors.EVENT_READ) and line.is_closed()
                if line.ends and line.is_said and (is_over or not shape.is_reading):
                    self._end(line)
                    self._begin(name, shape)
                elif is_over:
                    self._lost += 1
                    self._end(line)
                elif line.ends and line.is_said:
                    self._selector.modify(line.sock, selectors.EVENT_READ, line)
        return False


@functools.cache
def chunk(name: str) -> bytes:
    """Whole pieces of a flood, enough of them for a while."""
    made: list[bytes] = []
    size = 0
    while size < CHUNK_BYTES and len(made) < PIECES_MAX:
        made.append(FLOODS[name].piece(len(made)))
        size += len(made[-1])
    return b"".join(made)


def main() -> int:
    """Flood until standard input ends; the exit code."""
    parser = argparse.ArgumentParser(prog="flooder", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--user", required=True)
    parser.add_argument("--eager", action="store_true", help="run as others do, and not only when nobody else wants to")
    options = parser.parse_args()
    if not options.eager:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    login = frames.plain(options.user, os.environ["MQLOAD_PASSWORD"])
    Flooder(options.port, login).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
