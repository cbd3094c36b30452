"""Sockets that end leave nothing that only a full look of Python's collector would find, with TLS and without."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Any

import pytest
from mqbroker.node.values.batch import Batch
from mqbroker.node.values.effects import CloseConnection, Send
from mqbroker.node.values.inputs import BytesReceived, Closed, Input

from tests.support.certificates import Authority
from tests.support.cycles import leave_out_what_is_there, nothing_to_collect
from tests.support.patience import PATIENCE_S
from tests.unit.io.conftest import ScriptedCore, bench, until

only_of_here = pytest.fixture(scope="module", autouse=True)(leave_out_what_is_there)

BAD, BYE = b"bad", b"bye"


def answer(inputs: list[Input]) -> Batch:
    """Whoever says something bad is told so and closed."""
    said = [item for item in inputs if isinstance(item, BytesReceived)]
    ends = [CloseConnection(item.conn, 500) for item in said if item.data.startswith(BAD)]
    return Batch(effects=[*(Send(item.conn, [item.data]) for item in said), *ends])


def talk(port: int, context: ssl.SSLContext | None, said: bytes) -> None:
    """One client, which says something, reads what it is answered, and goes."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), PATIENCE_S) as plain:
        sock = plain if context is None else context.wrap_socket(plain, server_hostname="127.0.0.1")
        with sock:
            if said:
                sock.sendall(said)
                sock.recv(100)


@pytest.mark.slow
@pytest.mark.parametrize("is_tls", [False, True])
def test_connections_that_end_leave_nothing_to_look_for(
    run: Callable[[Any], Any], tmp_path_factory: pytest.TempPathFactory, is_tls: bool
) -> None:
    authority = Authority(tmp_path_factory.mktemp("ca"))
    listener = {name.replace("-", "_"): value for name, value in authority.listener("none").items()} if is_tls else {}
    context = authority.client() if is_tls else None

    async def scenario() -> None:
        core = ScriptedCore(answer)
        async with bench(core, **listener) as made:
            await asyncio.to_thread(talk, made.listener.port, context, BYE)
            await until(lambda: not len(made.connections))
            with nothing_to_collect(of="mqbroker"):
                for said in (b"", BYE, BAD):
                    for each in (context, None):  # who speaks no TLS fails its handshake
                        await asyncio.to_thread(talk, made.listener.port, each, said)
                await until(lambda: not len(made.connections))
                await asyncio.sleep(0.1)
            assert core.of(Closed)

    run(scenario())
