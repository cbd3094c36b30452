"""Answers of the admin socket: lines in their order, long ones in pieces, all of them whole."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mqbroker.io.requests.admin_lines import PIECE_ROWS, LineWriter, pieces_of

from tests.support.patience import PATIENCE_S

Runner = Callable[[Any], Any]
Ends = tuple[LineWriter, asyncio.StreamReader, asyncio.Transport, asyncio.Transport]

LONG = [{"name": f"q{number} \u20ac", "count": number} for number in range(200 * PIECE_ROWS)]


@pytest.mark.parametrize(
    ("row", "count"),
    [
        ({"id": 1, "result": {}}, 1),
        ({"id": 1, "result": None}, 1),
        ({"id": "a", "result": [1] * 2 * PIECE_ROWS}, 1),
        ({"id": None, "error": {"condition": "c", "description": "d"}}, 1),
        ({"id": 1, "result": {"rows": LONG[:PIECE_ROWS], "is_whole": True}}, 1),
        ({"id": 1, "result": {"rows": LONG[: PIECE_ROWS + 1]}}, 3),
        ({"id": "}}", "result": {"rows": LONG[: 2 * PIECE_ROWS], "is_whole": True, "few": [1]}}, 3),
        ({"id": 1, "result": {"a": LONG[: 2 * PIECE_ROWS], "b": LONG[: 3 * PIECE_ROWS], "c": {"d": [{}]}}}, 6),
    ],
)
def test_pieces_make_the_line(row: dict[str, Any], count: int) -> None:
    pieces = list(pieces_of(row))
    assert len(pieces) == count
    assert json.loads(b"".join(pieces)) == row
    assert [b"\n" in piece for piece in pieces] == [False] * (count - 1) + [True]


@asynccontextmanager
async def connected() -> AsyncIterator[Ends]:
    """A writer that heeds its transport, who reads at the other end, and both transports."""

    class Protocol(asyncio.Protocol):
        def pause_writing(self) -> None:
            writer.pause()

        def resume_writing(self) -> None:
            writer.resume()

    ours, theirs = socket.socketpair()
    transport, _ = await asyncio.get_running_loop().create_connection(Protocol, sock=ours)
    writer = LineWriter(transport)
    reader, other = await asyncio.open_connection(sock=theirs, limit=64 << 20)
    try:
        yield writer, reader, transport, other.transport
    finally:
        if not transport.is_closing():
            transport.abort()
        other.close()


def test_what_comes_after_a_long_line_waits_for_it(run: Runner) -> None:
    async def scenario() -> None:
        done: list[str] = []
        async with connected() as (writer, reader, _, _):
            writer.write({"id": 1, "result": {"rows": LONG}})
            writer.then(lambda: done.append("first"))
            writer.write({"id": 2, "result": "short"})
            writer.then(lambda: done.append("second"))
            assert done == []
            assert json.loads(await asyncio.wait_for(reader.readline(), 60)) == {
                "id": 1,
                "result": {"rows": LONG},
            }
            assert json.loads(await asyncio.wait_for(reader.readline(), PATIENCE_S)) == {"id": 2, "result": "short"}
            assert done == ["first", "second"]

    run(scenario())


def test_who_does_not_read_holds_back_the_rest_and_nobody_else(run: Runner) -> None:
    async def scenario() -> None:
        async with connected() as (writer, reader, transport, theirs):
            theirs.pause_reading()
            writer.write({"id": 1, "result": {"rows": LONG}})
            # More turns of the loop than there are pieces: all would be in memory, were they not held back.
            for _ in range(2 * len(LONG) // PIECE_ROWS):
                await asyncio.sleep(0)
            size_bytes = len(json.dumps(LONG))
            assert 0 < transport.get_write_buffer_size() < size_bytes // 4
            theirs.resume_reading()
            assert len(await asyncio.wait_for(reader.readline(), PATIENCE_S)) > size_bytes

    run(scenario())


def test_all_is_written_at_once_where_there_is_no_later(run: Runner) -> None:
    async def scenario() -> None:
        async with connected() as (writer, reader, transport, _):
            writer.write({"id": 1, "result": {"rows": LONG}})
            writer.write({"id": 2, "result": 0})
            writer.finish()
            transport.close()
            lines = (await asyncio.wait_for(reader.read(), PATIENCE_S)).splitlines()
            assert [json.loads(line)["id"] for line in lines] == [1, 2]

    run(scenario())
