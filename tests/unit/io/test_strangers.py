"""Who reaches a port without being anybody: a bug that shows there ends that connection alone; to reset ends none."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from mqbroker.config.declarations.options import defaults
from mqbroker.io.discovery import gossip
from mqbroker.io.discovery.gossip import GossipPlace
from mqbroker.io.requests import http
from mqbroker.node.values.effects import JoinGroup
from mqbroker.node.values.inputs import Done, Slipped

from tests.support.broker_process import free_port
from tests.support.patience import PATIENCE_S
from tests.unit.io.conftest import ScriptedCore, until
from tests.unit.io.test_server import running
from tests.unit.node.cluster.discovery.test_discovery import options as discovering

Runner = Callable[[Any], Any]
RESETS = 40
LINGER_NOT = struct.pack("ii", 1, 0)


def gossiping(port: int) -> Any:
    return discovering(
        discovery_groups=[{"name": "lan", "discovery": "gossip", "peers": ["127.0.0.1:1"],
                           "local-bind-address": "127.0.0.1", "local-bind-port": port}],
        broadcast_groups=[],
    ).discovery_groups[0]  # fmt: skip


def reset_at_once(port: int) -> None:
    """Connected and gone before anybody has looked."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)


def test_who_resets_at_once_ends_nothing_at_a_place_of_gossip(run: Runner) -> None:
    async def scenario() -> None:
        port, trouble = free_port(), list[Any]()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: trouble.append(context))
        place = GossipPlace(gossiping(port))
        await place.listen()
        for number in range(RESETS):
            reset_at_once(port)
            if number % 5 == 0:
                await asyncio.sleep(0.01)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"MQDR\x01\0\0")
        assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b"MQDR\x01\0\0", "others are answered"
        writer.close()
        assert trouble == []
        place.close()

    run(scenario())


@pytest.mark.parametrize("where", ["monitoring", "gossip"])
def test_a_bug_ends_that_connection_alone_and_is_told(where: str, run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        port = free_port()
        tables: dict[str, Any] = {"discovery_groups": (gossiping(port),)}
        if where == "monitoring":
            tables = {"metrics": replace(defaults().metrics, port=port, local_bind_address="127.0.0.1")}
        core = ScriptedCore()
        monkeypatch.setattr(*((gossip, "count_of") if where == "gossip" else (http, "take_head")), broken)
        async with running(core, tables) as (it, task):
            await until(lambda: "READY=1" in it.told.drain())
            if where == "gossip":
                it.server._discovery.join(JoinGroup(1, "lan"))
                await until(lambda: bool(core.of(Done)))
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            with suppress(ConnectionResetError):
                assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
            writer.close()
            await until(lambda: bool(core.of(Slipped)))
            (slipped,) = core.of(Slipped)
            assert (slipped.what, slipped.error) == (where, "KeyError")
            assert slipped.source.startswith("127.0.0.1:")
            assert slipped.place.startswith("io/discovery/gossip.py:" if where == "gossip" else "io/requests/http.py:")
            assert not task.done()
            assert "stranger" not in it.log

    run(scenario())


def broken(said: bytes) -> None:
    if said:
        raise KeyError("what a stranger sent")
