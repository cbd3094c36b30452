"""TLS over real sockets, on both event loops: bytes, pressure, the ways to end, and handshakes that come to nothing."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mqbroker.io.sockets.connections import WRITE_HELD_BYTES
from mqbroker.io.sockets.tls_transport import TLS_HEADER
from mqbroker.node.values.batch import Batch
from mqbroker.node.values.effects import CloseConnection, Send
from mqbroker.node.values.inputs import BytesReceived, Closed, ConnectionAccepted, Input, WriteBlocked

from tests.support.certificates import Authority
from tests.support.patience import PATIENCE_S
from tests.unit.io.conftest import Bench, ScriptedCore, bench, until

Runner = Callable[[Any], Any]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


def tls(authority: Authority, client_auth: str = "none", **changes: Any) -> dict[str, Any]:
    return {name.replace("-", "_"): value for name, value in authority.listener(client_auth).items()} | changes


def echo(inputs: list[Input]) -> Batch:
    chunks: dict[int, list[bytes | bytearray | memoryview]] = {}
    for item in inputs:
        if isinstance(item, BytesReceived):
            chunks.setdefault(item.conn, []).append(item.data)
    return Batch(effects=[Send(conn, parts) for conn, parts in chunks.items()])


async def connect(
    made: Bench, context: ssl.SSLContext
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:  # fmt: skip
    return await asyncio.open_connection("127.0.0.1", made.listener.port, ssl=context)


def within(version: ssl.TLSVersion, authority: Authority) -> ssl.SSLContext:
    context = authority.client()
    context.minimum_version = context.maximum_version = version
    return context


@pytest.mark.option("listeners.tls-certificate-file", "listeners.tls-key-file")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_bytes_go_both_ways_in_order(run: Runner, authority: Authority, version: ssl.TLSVersion) -> None:
    async def scenario() -> None:
        core = ScriptedCore(echo)
        async with bench(core, **tls(authority)) as made:
            reader, writer = await connect(made, within(version, authority))
            await until(lambda: core.of(ConnectionAccepted))
            assert core.of(ConnectionAccepted)[0].is_tls
            sent = bytes(range(256)) * 8192
            writer.write(sent)
            assert await asyncio.wait_for(reader.readexactly(len(sent)), PATIENCE_S) == sent
            assert all(type(item.data) is bytes for item in core.of(BytesReceived))
            writer.close()
            await until(lambda: core.of(Closed))
            assert len(made.connections) == 0

    run(scenario())


def test_a_peer_that_floods_us_still_reads_the_error_before_the_end(run: Runner, authority: Authority) -> None:
    async def scenario() -> None:
        def react(inputs: list[Input]) -> Batch:
            bad = [item.conn for item in inputs if isinstance(item, BytesReceived)]
            return Batch(effects=[Send(bad[0], [b"the error"]), CloseConnection(bad[0], 3000)] if bad else [])

        core = ScriptedCore(react)
        async with bench(core, **tls(authority)) as made:
            reader, writer = await connect(made, authority.client())
            for _ in range(64):
                writer.write(bytes(65536))
            assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b"the error"
            writer.close()
            await until(lambda: core.of(Closed))
            assert core.of(Closed)[0].why == "closed by us"
            assert isinstance(core.inputs[-1], Closed)

    run(scenario())


def test_a_peer_that_does_not_read_is_told_and_held(run: Runner, authority: Authority) -> None:
    async def scenario() -> None:
        def react(inputs: list[Input]) -> Batch:
            asked = [item.conn for item in inputs if isinstance(item, BytesReceived)]
            return Batch(effects=[Send(asked[0], [bytes(2 * WRITE_HELD_BYTES)])] if asked else [])

        core = ScriptedCore(react)
        async with bench(core, **tls(authority)) as made:
            reader, writer = await connect(made, authority.client())
            writer.write(b"much, please")
            await until(lambda: WriteBlocked(1, True) in core.inputs)
            assert (
                len(await asyncio.wait_for(reader.readexactly(2 * WRITE_HELD_BYTES), PATIENCE_S))
                == 2 * WRITE_HELD_BYTES
            )
            await until(lambda: WriteBlocked(1, False) in core.inputs)
            writer.close()
            await until(lambda: core.of(Closed))

    run(scenario())


@pytest.mark.parametrize("end", ["close", "reset", "close without close_notify"])
def test_closed_comes_once_and_last(run: Runner, authority: Authority, end: str) -> None:
    async def scenario() -> None:
        core = ScriptedCore()
        async with bench(core, **tls(authority)) as made:
            _, writer = await connect(made, authority.client())
            writer.write(b"last words")
            await until(lambda: core.of(BytesReceived))
            if end == "close":
                writer.close()
            else:
                sock = writer.get_extra_info("socket")
                if end == "reset":
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            await until(lambda: core.of(Closed))
            await asyncio.sleep(0.05)
            assert len(core.of(Closed)) == 1
            assert isinstance(core.inputs[-1], Closed)
            assert len(made.connections) == 0
            assert made.log_text.getvalue() == ""

    run(scenario())


def test_a_record_that_was_changed_ends_the_connection(run: Runner, authority: Authority) -> None:
    async def scenario() -> None:
        core = ScriptedCore()
        async with bench(core, **tls(authority)) as made:
            reader, writer = await asyncio.open_connection("127.0.0.1", made.listener.port)
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            client = authority.client().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
            while not core.of(ConnectionAccepted):
                try:
                    client.do_handshake()
                except ssl.SSLWantReadError:
                    writer.write(outgoing.read())
                    incoming.write(await reader.read(65536))
                else:
                    writer.write(outgoing.read())
                    await until(lambda: core.of(ConnectionAccepted))
            client.write(b"a message")
            record = bytearray(outgoing.read())
            record[-1] ^= 1
            writer.write(bytes(record))
            await until(lambda: core.of(Closed))
            assert "TLS: " in core.of(Closed)[0].why
            assert not core.of(BytesReceived)
            (line,) = made.log_text.getvalue().splitlines()
            assert "tls-failed" in line
            assert f"peer=127.0.0.1:{writer.get_extra_info('sockname')[1]}" in line
            assert "bad record mac" in line
            writer.close()

    run(scenario())


# Handshakes that come to nothing.


async def failing(made: Bench, say: bytes) -> bytes:
    """What a peer that says this hears until the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", made.listener.port)
    writer.write(say)
    heard = await asyncio.wait_for(reader.read(), PATIENCE_S)
    writer.close()
    return heard


PLAIN: dict[str, tuple[bytes, str, bytes]] = {
    "AMQP": (b"AMQP\0\1\0\0" + bytes(500), "AMQP without TLS", TLS_HEADER),
    "SASL": (b"AMQP\3\1\0\0", "AMQP without TLS", TLS_HEADER),
    "HTTP": (b"GET / HTTP/1.1\r\n\r\n", "speaks HTTP", b""),
    "noise": (bytes(range(256)) * 40, "is no TLS", b""),
    "zeros": (bytes(5000), "is no TLS", b""),
}


@pytest.mark.parametrize("case", PLAIN)
def test_what_is_no_tls_gets_one_line_in_the_log(run: Runner, authority: Authority, case: str) -> None:
    async def scenario() -> None:
        say, why, answer = PLAIN[case]
        core = ScriptedCore()
        async with bench(core, **tls(authority)) as made:
            assert (await failing(made, say)).startswith(answer)
            await until(lambda: not len(made.connections))
            lines = made.log_text.getvalue().splitlines()
            assert len(lines) == 1
            assert "tls-handshake-failed" in lines[0]
            assert why in lines[0]
            assert not core.of(ConnectionAccepted)

    run(scenario())


def test_the_header_of_tls_is_answered_and_the_handshake_follows(run: Runner, authority: Authority) -> None:
    """§5.2: the other way to come to TLS."""

    async def scenario() -> None:
        core = ScriptedCore(echo)
        async with bench(core, **tls(authority)) as made:
            reader, writer = await asyncio.open_connection("127.0.0.1", made.listener.port)
            for byte in TLS_HEADER:
                writer.write(bytes([byte]))
                await asyncio.sleep(0.005)
            assert await reader.readexactly(8) == TLS_HEADER
            await writer.start_tls(authority.client(), server_hostname="127.0.0.1")
            writer.write(b"inside")
            assert await asyncio.wait_for(reader.readexactly(6), PATIENCE_S) == b"inside"
            writer.close()
            await until(lambda: core.of(Closed))

    run(scenario())


@pytest.mark.slow
@pytest.mark.option("listeners.tls-handshake-timeout-ms")
@pytest.mark.parametrize("first", [b"", b"A", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"])
def test_a_peer_that_goes_silent_is_ended_after_its_time(run: Runner, authority: Authority, first: bytes) -> None:
    async def scenario() -> None:
        async with bench(ScriptedCore(), **tls(authority, tls_handshake_timeout_ms=200)) as made:
            started_s = asyncio.get_running_loop().time()
            assert await failing(made, first) == b""
            assert asyncio.get_running_loop().time() - started_s > 0.19
            assert "not done within 200 ms" in made.log_text.getvalue()
            await until(lambda: not len(made.connections))

    run(scenario())


def shake_hands(context: ssl.SSLContext, plain: socket.socket) -> None:
    """In a thread, and six bytes behind the handshake."""
    plain.settimeout(PATIENCE_S)
    with context.wrap_socket(plain, server_hostname="127.0.0.1") as secured:
        secured.sendall(b"inside")


@pytest.mark.slow
def test_a_peer_is_not_ended_for_the_time_that_we_stood_still(run: Runner, authority: Authority) -> None:
    async def scenario() -> None:
        core = ScriptedCore()
        async with bench(core, **tls(authority, tls_handshake_timeout_ms=2_000)) as made:
            with socket.create_connection(("127.0.0.1", made.listener.port)) as plain:
                await until(lambda: len(made.connections) == 1)
                shaken = asyncio.ensure_future(asyncio.to_thread(shake_hands, authority.client(), plain))
                await asyncio.sleep(0)
                time.sleep(4)  # whatever the peer has sent by now lies unread
                await asyncio.wait_for(shaken, PATIENCE_S)
            await until(lambda: core.of(BytesReceived))
            assert "tls-handshake-failed" not in made.log_text.getvalue()

    run(scenario())


@pytest.mark.slow
def test_handshakes_count_as_connections_until_they_fail(run: Runner, authority: Authority) -> None:
    async def scenario() -> None:
        core = ScriptedCore()
        listener = tls(authority, tls_handshake_timeout_ms=300, connections_max=2)
        async with bench(core, **listener) as made:
            silent = [await made.client() for _ in range(2)]
            await until(lambda: len(made.connections) == 2)
            with pytest.raises((OSError, ssl.SSLError)):
                await connect(made, authority.client())
            await until(lambda: not len(made.connections))
            _, writer = await connect(made, authority.client())
            for each in (writer, *(writer for _, writer in silent)):
                each.close()

    run(scenario())


def test_an_old_version_is_refused(run: Runner, authority: Authority) -> None:
    async def scenario() -> None:
        async with bench(ScriptedCore(), **tls(authority)) as made:
            old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            old.load_verify_locations(authority.ca_file)
            old.set_ciphers("ALL:@SECLEVEL=0")
            with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
                old.minimum_version = ssl.TLSVersion.TLSv1
                old.maximum_version = ssl.TLSVersion.TLSv1_1
            with pytest.raises(ssl.SSLError, match=r"(?i)protocol version"):
                await connect(made, old)
            await until(lambda: "no version of TLS from 1.2 on" in made.log_text.getvalue())

    run(scenario())


@pytest.mark.option("listeners.tls-client-auth", "listeners.tls-client-ca-file")
@pytest.mark.parametrize("client_auth", ["none", "optional", "required"])
@pytest.mark.parametrize("shown", ["nothing", "good", "of another authority"])
def test_certificates_of_clients(
    run: Runner, authority: Authority, tmp_path: Path, client_auth: str, shown: str
) -> None:
    async def scenario() -> None:
        signer = Authority(tmp_path / "other") if shown == "of another authority" else authority
        certificate = None if shown == "nothing" else signer.certificate(common_name="app")
        core = ScriptedCore(echo)
        async with bench(core, **tls(authority, client_auth)) as made:
            is_good = client_auth == "none" or shown == "good" or (client_auth, shown) == ("optional", "nothing")
            try:
                # The client's half of TLS 1.3 is done before the server has looked at its certificate.
                reader, writer = await connect(made, authority.client(certificate))
                writer.write(b"hello")
                heard = await asyncio.wait_for(reader.read(5), PATIENCE_S)
                writer.close()
            except (ssl.SSLError, ConnectionError):
                heard = b""
            assert (heard == b"hello") == is_good
            assert (len(core.of(ConnectionAccepted)) == 1) == is_good
            assert ("tls-handshake-failed" in made.log_text.getvalue()) == (not is_good)

    run(scenario())


def test_the_end_of_the_listener_is_the_end_of_handshakes(run: Runner, authority: Authority) -> None:
    async def scenario() -> None:
        async with bench(ScriptedCore(), **tls(authority)) as made:
            reader, writer = await made.client()
            await until(lambda: len(made.connections) == 1)
            made.acceptor.stop()
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
            await until(lambda: not len(made.connections))
            writer.close()

    run(scenario())
