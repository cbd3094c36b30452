"""Answers as lines of JSON, those with thousands of rows in pieces: all at once, everybody else would wait for them.

Owns the order of what one client is sent: a line begins when the one before it is written, and a client that does not
read holds back the rest of a long one.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

PIECE_ROWS = 500


class LineWriter:
    """Writes lines of JSON to one transport, no faster than the client reads."""

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport
        self._waiting: deque[Iterator[bytes] | Callable[[], object]] = deque()
        self.is_blocked = False  # the client does not read
        self._is_due = False  # more is written in the next turn of the loop

    def write(self, row: dict[str, Any]) -> None:
        """Write a row as a line of JSON."""
        self._add(pieces_of(row))

    def then(self, act: Callable[[], object]) -> None:
        """Do this when all lines are written."""
        self._add(act)

    def pause(self) -> None:
        """The client does not read."""
        self.is_blocked = True

    def resume(self) -> None:
        """The transport takes bytes again: what waits is written."""
        self.is_blocked = False
        self._go_on()

    def finish(self) -> None:
        """Write everything that waits at once, whether the client reads or not."""
        while self._waiting:
            self._advance()

    def drop(self) -> None:
        """Nobody is there any more."""
        self._waiting.clear()

    def _add(self, each: Iterator[bytes] | Callable[[], object]) -> None:
        self._waiting.append(each)
        if len(self._waiting) == 1:
            self._go_on()

    def _go_on(self) -> None:
        while self._waiting and not self._is_due:
            if self._advance():
                continue
            if not self.is_blocked:
                self._is_due = True
                asyncio.get_running_loop().call_soon(self._turn)
            return

    def _turn(self) -> None:
        self._is_due = False
        if not self.is_blocked:
            self._go_on()

    def _advance(self) -> bool:
        """Write a piece of what is first, or do it; whether that is finished now."""
        first = self._waiting[0]
        if callable(first):
            self._waiting.popleft()
            first()
            return True
        piece = next(first)
        self._transport.write(piece)
        if not piece.endswith(b"\n"):
            return False
        self._waiting.popleft()
        return True


def pieces_of(row: dict[str, Any]) -> Iterator[bytes]:
    """The line, of which the last piece alone ends in a line feed."""
    result = row.get("result")
    fields = result if isinstance(result, dict) else {}
    lists = {name: value for name, value in fields.items() if isinstance(value, list) and len(value) > PIECE_ROWS}
    if not lists:
        yield json.dumps(row).encode() + b"\n"
        return
    others = {name: value for name, value in fields.items() if name not in lists}
    text = json.dumps(row | {"result": others})[: -len("}}")]
    for number, (name, rows) in enumerate(lists.items()):
        text += f"{', ' if others or number else ''}{json.dumps(name)}: ["
        for start in range(0, len(rows), PIECE_ROWS):
            text += (", " if start else "") + json.dumps(rows[start : start + PIECE_ROWS])[1:-1]
            yield text.encode()
            text = ""
        text = "]"
    yield (text + "}}\n").encode()
