"""Connections to other nodes with TLS, over real sockets and on both event loops: who proves what to whom."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from mqbroker.node.values.batch import Batch
from mqbroker.node.values.effects import CloseConnection, Connect, Send
from mqbroker.node.values.inputs import BytesReceived, Closed, Connected, Input

from tests.support.certificates import Authority
from tests.unit.io.conftest import ScriptedCore, bench, until

Runner = Callable[[Any], Any]
EARLY = "closed by us while connecting"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("other"))


def listener(authority: Authority) -> dict[str, Any]:
    """What a cluster listener has whose peers show certificates."""
    return {name.replace("-", "_"): value for name, value in authority.listener("required").items()}


def context_of(authority: Authority) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.certificate_file, authority.key_file)
    return context


async def far_end(authority: Authority, *, asks: bool = True) -> tuple[asyncio.Server, int]:
    """Echoes five bytes behind the common names that the peer shows."""
    context = context_of(authority)
    if asks:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.ca_file)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        shown = writer.get_extra_info("ssl_object").getpeercert() or {}
        writer.write(await reader.readexactly(5) + str(len(shown.get("subjectAltName", ()))).encode())
        await writer.drain()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    return server, server.sockets[0].getsockname()[1]


def dialling(*effects: Any) -> ScriptedCore:
    """Dials, greets whoever answers, and closes when the answer has come."""
    waiting = list(effects)

    def react(inputs: list[Input]) -> Batch:
        now, waiting[:] = list(waiting), []
        now += [Send(each.conn, [b"hello"]) for each in inputs if isinstance(each, Connected)]
        now += [CloseConnection(each.conn) for each in inputs if isinstance(each, BytesReceived)]
        return Batch(effects=now)

    return ScriptedCore(react)


def test_both_ends_show_certificates_of_their_listeners(run: Runner, authority: Authority) -> None:
    async def scenario() -> None:
        server, port = await far_end(authority)
        core = dialling(Connect(-1, "127.0.0.1", port, is_tls=True, listener="clients"))
        async with bench(core, **listener(authority)):
            await until(lambda: core.of(Closed))
            assert b"".join(each.data for each in core.of(BytesReceived)) == b"hello2"
            assert [each.why for each in core.of(Closed)] == ["closed by us"]
        server.close()

    run(scenario())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_who_is_signed_by_another_authority_is_not_spoken_to(
    run: Runner, authority: Authority, stranger: Authority, host: str
) -> None:
    async def scenario() -> None:
        server, port = await far_end(stranger, asks=False)
        core = dialling(Connect(-1, host, port, is_tls=True, listener="clients"))
        async with bench(core, **listener(authority)):
            await until(lambda: core.of(Closed))
            (closed,) = core.of(Closed)
            assert closed.why.startswith(f"{host} port {port}: TLS: the peer's certificate is not good: ")
            assert core.of(Connected) == []
        server.close()

    run(scenario())


def test_a_certificate_for_another_host_is_refused(run: Runner, authority: Authority) -> None:
    async def scenario() -> None:
        elsewhere = authority.ca.issue_cert("elsewhere.example")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        elsewhere.configure_cert(context)
        server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        core = dialling(Connect(-1, "127.0.0.1", port, is_tls=True, listener="clients"))
        async with bench(core, **listener(authority)):
            await until(lambda: core.of(Closed))
            (closed,) = core.of(Closed)
            assert "IP address mismatch" in closed.why
            assert core.of(Connected) == []
        server.close()

    run(scenario())


def test_files_that_cannot_be_read_are_named(run: Runner, authority: Authority) -> None:
    async def scenario() -> None:
        core = dialling()
        async with bench(core, **listener(authority)) as made:
            broken = replace(made.listener, tls_key_file="/nowhere/server.key")
            made.connectors.change((broken,))
            made.connectors.connect(Connect(-1, "127.0.0.1", 1, is_tls=True, listener="clients"))
            await until(lambda: core.of(Closed))
            (closed,) = core.of(Closed)
            assert closed.why.startswith("listeners.0.tls-key-file: /nowhere/server.key cannot be read")

    run(scenario())


@pytest.mark.parametrize("what", ["listener", "TLS"])
def test_what_waits_for_a_restart_is_shown_until_then(run: Runner, authority: Authority, what: str) -> None:
    async def scenario() -> None:
        server, port = await far_end(authority)
        core = dialling()
        async with bench(core, **listener(authority)) as made:
            bare = replace(made.listener, tls_certificate_file="", tls_key_file="", tls_client_ca_file="")
            made.connectors.change((bare,) if what == "TLS" else ())
            made.connectors.connect(Connect(-1, "127.0.0.1", port, is_tls=True, listener="clients"))
            await until(lambda: core.of(Closed))
            assert [each.why for each in core.of(Closed)] == ["closed by us"]
        server.close()

    run(scenario())


def test_a_peer_that_never_shakes_hands_is_given_up(run: Runner, authority: Authority) -> None:
    async def scenario() -> None:
        server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        core = dialling(Connect(-1, "127.0.0.1", port, is_tls=True, listener="clients", timeout_ms=200))
        async with bench(core, **listener(authority)) as made:
            await until(lambda: core.of(Closed))
            assert [each.why for each in core.of(Closed)] == [f"127.0.0.1 port {port}: no answer in 200 ms"]
            assert len(made.connections) == 0
        server.close()

    run(scenario())


@pytest.mark.slow
@pytest.mark.parametrize("end", ["close", "timeout", "halt"])
@pytest.mark.parametrize("is_tls", [False, True])
def test_an_attempt_may_be_given_up_at_any_turn_of_the_loop(
    run: Runner, authority: Authority, end: str, is_tls: bool
) -> None:
    """Also between the turn in which the socket connects and the one in which its transport stands."""

    async def scenario() -> None:
        context = context_of(authority) if is_tls else None
        server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        core = dialling()
        async with bench(core, **listener(authority)) as made:
            turns = range(40 if is_tls else 12)
            for turn in turns:
                conn = -1 - turn
                made.connectors.connect(Connect(conn, "127.0.0.1", port, is_tls=is_tls, listener="clients"))
                for _ in range(turn):
                    await asyncio.sleep(0)
                if end == "close":
                    made.connectors.close(CloseConnection(conn, 100))
                elif end == "halt":
                    made.connectors.abort_all()
                    made.connections.close_all(100)
                else:
                    made.connectors.give_up(conn, EARLY)
                    made.connections.close_all(100)
            await until(lambda: len(core.of(Closed)) >= len(turns))
            assert sorted(each.conn for each in core.of(Closed)) == sorted(-1 - turn for turn in turns)
            assert len(made.connections) == 0
            early = {each.conn for each in core.of(Closed) if each.why == EARLY}
            assert early
            assert not early & {each.conn for each in core.of(Connected)}
        server.close()

    run(scenario())
