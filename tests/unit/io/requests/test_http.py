"""The HTTP server on real sockets: bounds, slow clients, and that one client never disturbs another."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mqbroker.io.requests import http
from mqbroker.io.requests.http import HttpServer
from mqbroker.io.requests.http_head import Head, Response, refusal
from mqbroker.io.sockets.listeners import ListeningPlace, open_listener

from tests.support.broker_process import free_port
from tests.support.patience import PATIENCE_S
from tests.unit.io.conftest import until

Runner = Callable[[Any], Any]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
LARGE = bytes(range(256)) * 40_000  # far above what two socket buffers take


class Served:
    def __init__(self, port: int, server: HttpServer) -> None:
        self.port = port
        self.server = server

    async def client(self) -> Streams:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, data: bytes) -> bytes:
        """Everything that comes back until the server ends the connection."""
        reader, writer = await self.client()
        writer.write(data)
        try:
            return await asyncio.wait_for(reader.read(), PATIENCE_S)
        finally:
            writer.close()


@asynccontextmanager
async def served(connections_max: int = 10) -> AsyncIterator[Served]:
    async def answer(head: Head) -> Response:
        if head.path == "/large":
            return Response(200, LARGE, "application/octet-stream")
        if head.path == "/never":
            await asyncio.sleep(3600)
        return Response(200, head.path.encode())

    port = free_port()
    server = HttpServer(open_listener(ListeningPlace("metrics", "127.0.0.1", port, 100), "metrics"), connections_max)
    await server.start(answer)
    try:
        yield Served(port, server)
    finally:
        server.stop()
        await asyncio.sleep(0.02)


def request(path: str, *, method: str = "GET", close: bool = False) -> bytes:
    end = "Connection: close\r\n\r\n" if close else "\r\n"
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n{end}".encode()


async def response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
    length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
    return int(head.split()[1]), await asyncio.wait_for(reader.readexactly(length), PATIENCE_S)


def test_one_connection_serves_many_requests_in_order(run: Runner) -> None:
    async def scenario() -> None:
        async with served() as it:
            reader, writer = await it.client()
            writer.write(b"".join(request(f"/{number}") for number in range(50)))
            assert [await response(reader) for _ in range(50)] == [(200, f"/{n}".encode()) for n in range(50)]
            for byte in request("/slowly"):
                writer.write(bytes([byte]))
                await writer.drain()
            assert await response(reader) == (200, b"/slowly")
            writer.close()
            await until(lambda: not it.server._connections)

    run(scenario())


def test_head_has_the_length_and_no_body(run: Runner) -> None:
    async def scenario() -> None:
        async with served() as it:
            said = await it.ask(request("/large", method="HEAD", close=True))
            assert said.endswith(b"\r\n\r\n")
            assert f"Content-Length: {len(LARGE)}\r\n".encode() in said

    run(scenario())


@pytest.mark.parametrize(
    ("data", "status"),
    [(request("/", method="POST", close=True), b"405"), (b"garbage\r\n\r\n", b"400"), (b"x" * 1_000_000, b"431")],
)
def test_what_is_wrong_is_said_before_the_connection_ends(run: Runner, data: bytes, status: bytes) -> None:
    async def scenario() -> None:
        async with served() as it:
            said = await it.ask(data)
            assert said.split()[1] == status
            assert b"Connection: close\r\n" in said

    run(scenario())


def test_a_client_that_ends_its_side_gets_its_answer(run: Runner) -> None:
    async def scenario() -> None:
        async with served() as it:
            reader, writer = await it.client()
            writer.write(request("/large"))
            writer.write_eof()
            assert (await asyncio.wait_for(reader.read(), PATIENCE_S)).endswith(LARGE)
            writer.close()

    run(scenario())


@pytest.mark.slow
def test_a_head_that_does_not_come_ends_the_connection(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "HEAD_S_MAX", 0.1)

    async def scenario() -> None:
        async with served() as it:
            assert await it.ask(b"") == b""
            assert (await it.ask(b"GET / HT")).split()[1] == b"408"
            # Time counts from the last answer on.
            reader, writer = await it.client()
            for _ in range(4):
                writer.write(request("/x"))
                assert await response(reader) == (200, b"/x")
                await asyncio.sleep(0.05)
            assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
            writer.close()

    run(scenario())


@pytest.mark.slow
def test_a_slow_reader_holds_up_nobody_and_is_cut_off(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "ANSWER_S_MAX", 0.6)

    async def scenario() -> None:
        async with served() as it:
            slow = socket.create_connection(("127.0.0.1", it.port))
            slow.sendall(request("/large"))
            await until(lambda: it.server.unread_bytes)
            assert (await it.ask(request("/fast", close=True))).endswith(b"/fast")
            assert (await it.ask(request("/large", close=True))).endswith(LARGE)
            await until(lambda: not it.server._connections)
            assert it.server.unread_bytes == 0
            slow.close()

    run(scenario())


def test_what_slow_readers_leave_is_bounded(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "UNREAD_BYTES_MAX", 2 * len(LARGE))

    async def scenario() -> None:
        async with served() as it:
            slow = [socket.create_connection(("127.0.0.1", it.port)) for _ in range(2)]
            for each in slow:
                each.sendall(request("/large"))
            await until(lambda: it.server.unread_bytes > len(LARGE))
            assert (await it.ask(request("/large", close=True))).split()[1] == b"503"
            assert (await it.ask(request("/small", close=True))).endswith(b"/small")
            for each in slow:
                each.close()

    run(scenario())


def test_connections_over_the_bound_are_told_and_bounded_too(run: Runner) -> None:
    async def scenario() -> None:
        async with served(connections_max=2) as it:
            held = [await it.client() for _ in range(2)]
            await until(lambda: len(it.server._connections) == 2)
            refused = await it.ask(request("/x"))
            assert refused.split()[1] == b"503"
            assert b"metrics.connections-max" in refused
            it.server.change(20)
            assert (await it.ask(request("/x", close=True))).endswith(b"/x")
            for _, writer in held:
                writer.close()

    run(scenario())


def test_a_flood_of_connections_is_closed_without_a_word(run: Runner) -> None:
    async def scenario() -> None:
        async with served(connections_max=1) as it:
            flood = [socket.create_connection(("127.0.0.1", it.port)) for _ in range(http.REFUSED_MAX + 20)]
            await asyncio.sleep(0.2)
            assert len(it.server._connections) <= 1 + http.REFUSED_MAX
            for each in flood:
                each.close()
            await until(lambda: not it.server._connections)
            assert (await it.ask(request("/x", close=True))).endswith(b"/x")

    run(scenario())


def test_stop_ends_also_what_is_not_answered_yet(run: Runner) -> None:
    async def scenario() -> None:
        async with served() as it:
            reader, writer = await it.client()
            writer.write(request("/never"))
            await asyncio.sleep(0.05)
            it.server.stop()
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await asyncio.wait_for(reader.readexactly(1), PATIENCE_S)
            writer.close()

    run(scenario())


def test_before_the_start_nothing_is_promised(run: Runner) -> None:
    async def scenario() -> None:
        sock = open_listener(ListeningPlace("metrics", "127.0.0.1", free_port(), 1), "metrics")
        server = HttpServer(sock, 1)
        found = await server.answer(Head("GET", "/livez", False))
        assert found == refusal(503, "the broker starts")
        server.stop()

    run(scenario())
