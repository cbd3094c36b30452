"""The admin socket from outside: one reply for each request, bounds, who is served."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from mqbroker.base.errors import ConfigFault
from mqbroker.io.requests import admin_socket
from mqbroker.io.requests.admin_socket import REQUESTS_MAX, AdminServer, open_socket
from mqbroker.node.values.batch import Batch
from mqbroker.node.values.effects import AdminReply, Halt
from mqbroker.node.values.inputs import AdminClosed, AdminRequest, Input

from tests.support.patience import PATIENCE_S
from tests.unit.io.conftest import Bench, ScriptedCore, bench, until

Runner = Callable[[Any], Any]


def answering(inputs: list[Input]) -> Batch:
    """Answers `echo` with its arguments and refuses everything else."""
    effects: list[Any] = []
    for item in inputs:
        if isinstance(item, AdminRequest) and item.operation == "echo":
            effects.append(AdminReply(item.id, item.arguments))
        elif isinstance(item, AdminRequest):
            error = {"condition": "amqp:not-implemented", "description": f"no operation {item.operation}"}
            effects.append(AdminReply(item.id, error=error))
    return Batch(effects=effects)


class Served:
    def __init__(self, made: Bench, server: AdminServer, path: Path) -> None:
        self.made = made
        self.server = server
        self.path = path

    async def session(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(str(self.path), limit=32 << 20)

    async def ask(self, *lines: bytes) -> list[dict[str, Any]]:
        reader, writer = await self.session()
        writer.writelines(line + b"\n" for line in lines)
        rows = [json.loads(await asyncio.wait_for(reader.readline(), PATIENCE_S)) for _ in lines]
        writer.close()
        return rows


@asynccontextmanager
async def served(core: ScriptedCore, path: Path) -> AsyncIterator[Served]:
    async with bench(core) as made:
        server = AdminServer(str(path), made.node, made.log)
        await server.start()
        made.node.start(core, made.disk, {AdminReply: server.reply})
        try:
            yield Served(made, server, path)
        finally:
            server.stop()


def test_each_request_has_its_reply(run: Runner, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served(ScriptedCore(answering), tmp_path / "a") as it:
            rows = await it.ask(
                b'{"id": 1, "op": "echo", "args": {"a": [1, "b", null]}}',
                b'{"id": "second", "op": "echo"}',
                b'{"op": "echo", "args": null}',
                b'{"id": 4, "op": "nothing"}',
            )
            assert rows == [
                {"id": 1, "result": {"a": [1, "b", None]}},
                {"id": "second", "result": {}},
                {"id": None, "result": {}},
                {"id": 4, "error": {"condition": "amqp:not-implemented", "description": "no operation nothing"}},
            ]

    run(scenario())


@pytest.mark.parametrize(
    ("line", "client_id", "condition", "words"),
    [
        (b"{", None, "amqp:decode-error", "not JSON"),
        (b"\xff\xfe", None, "amqp:decode-error", "not JSON"),
        (b"[" * 100_000, None, "amqp:decode-error", "not JSON"),
        (b'{"id": 1, "op": "echo", "args": ' + b"9" * 5000 + b"}", None, "amqp:decode-error", "not JSON"),
        (b"[1]", None, "amqp:invalid-field", "a request is an object"),
        (b'{"id": 7}', 7, "amqp:invalid-field", "op must be a string"),
        (b'{"id": 7, "op": "echo", "args": [1]}', 7, "amqp:invalid-field", "args must be an object"),
        (b'{"id": 7, "op": "echo", "arg": {}}', 7, "amqp:invalid-field", "unknown key 'arg'"),
    ],
)
def test_bad_lines_are_answered_and_the_session_goes_on(
    run: Runner, tmp_path: Path, line: bytes, client_id: Any, condition: str, words: str
) -> None:
    async def scenario() -> None:
        async with served(ScriptedCore(answering), tmp_path / "a") as it:
            bad, good = await it.ask(line, b'{"id": 8, "op": "echo"}')
            assert bad["id"] == client_id
            assert bad["error"]["condition"] == condition
            assert words in bad["error"]["description"]
            assert good == {"id": 8, "result": {}}

    run(scenario())


def test_lines_may_come_byte_by_byte_and_the_last_needs_no_line_feed(run: Runner, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served(ScriptedCore(answering), tmp_path / "a") as it:
            reader, writer = await it.session()
            for byte in b'{"id": 1, "op": "echo"}\n\n \n{"id": 2, "op": "echo"}':
                writer.write(bytes([byte]))
                await asyncio.sleep(0)
            writer.write_eof()
            rows = (await asyncio.wait_for(reader.read(), PATIENCE_S)).splitlines()
            assert [json.loads(row)["id"] for row in rows] == [1, 2]
            writer.close()

    run(scenario())


def test_a_big_line_within_the_bound_passes_and_an_endless_one_is_refused(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_socket, "LINE_BYTES_MAX", 1 << 20)

    async def scenario() -> None:
        async with served(ScriptedCore(answering), tmp_path / "a") as it:
            text = "x" * 900_000
            (row,) = await it.ask(json.dumps({"id": 1, "op": "echo", "args": {"t": text}}).encode())
            assert row["result"]["t"] == text
            reader, writer = await it.session()
            writer.write(b"y" * (2 << 20))
            row = json.loads(await asyncio.wait_for(reader.readline(), PATIENCE_S))
            assert row["error"]["condition"] == "amqp:resource-limit-exceeded"
            assert await asyncio.wait_for(_end_of(reader), PATIENCE_S) == b""
            writer.close()

    run(scenario())


def test_a_reply_that_comes_after_its_session_was_refused_is_dropped(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_socket, "LINE_BYTES_MAX", 1 << 16)

    async def scenario() -> None:
        core = ScriptedCore()
        async with served(core, tmp_path / "a") as it:
            reader, writer = await it.session()
            writer.write(b'{"id": 1, "op": "hold"}\n' + b"y" * (1 << 17))
            row = json.loads(await asyncio.wait_for(reader.readline(), PATIENCE_S))
            assert row["error"]["condition"] == "amqp:resource-limit-exceeded"
            (request,) = core.of(AdminRequest)
            it.server.reply(AdminReply(request.id, "late"))
            assert await asyncio.wait_for(_end_of(reader), PATIENCE_S) == b""
            writer.close()

    run(scenario())


def test_a_session_has_a_bounded_number_of_open_requests(run: Runner, tmp_path: Path) -> None:
    async def scenario() -> None:
        held: list[AdminRequest] = []
        is_open = False

        def react(inputs: list[Input]) -> Batch:
            held.extend(item for item in inputs if isinstance(item, AdminRequest))
            if not is_open:
                return Batch()
            now, held[:] = list(held), []
            return Batch(effects=[AdminReply(item.id, item.arguments["n"]) for item in now])

        core = ScriptedCore(react)
        async with served(core, tmp_path / "a") as it:
            reader, writer = await it.session()
            count = 5 * REQUESTS_MAX
            for number in range(count):
                writer.write(json.dumps({"id": number, "op": "hold", "args": {"n": number}}).encode() + b"\n")
            writer.write_eof()
            await until(lambda: len(held) == REQUESTS_MAX)
            await asyncio.sleep(0.05)
            assert len(held) == REQUESTS_MAX
            is_open = True
            it.made.node._schedule()
            rows = [json.loads(row) for row in (await asyncio.wait_for(reader.read(), PATIENCE_S)).splitlines()]
            assert rows == [{"id": number, "result": number} for number in range(count)]
            writer.close()

    run(scenario())


def test_a_session_that_goes_is_told_once_and_its_late_reply_is_dropped(run: Runner, tmp_path: Path) -> None:
    async def scenario() -> None:
        core = ScriptedCore()
        async with served(core, tmp_path / "a") as it:
            _, writer = await it.session()
            writer.write(b'{"id": 1, "op": "hold"}\n')
            await until(lambda: core.of(AdminRequest))
            writer.transport.abort()
            await until(lambda: core.of(AdminClosed))
            request = core.of(AdminRequest)[0]
            assert core.of(AdminClosed) == [AdminClosed(request.session)]
            assert request.uid == os.geteuid()
            it.server.reply(AdminReply(request.id, "late"))
            assert (await it.ask(b'{"id": 1, "op": 3}'))[0]["id"] == 1

    run(scenario())


@pytest.mark.slow
def test_answers_that_nobody_reads_stop_the_requests(run: Runner, tmp_path: Path) -> None:
    async def scenario() -> None:
        def react(inputs: list[Input]) -> Batch:
            return Batch(effects=[AdminReply(i.id, "x" * 100_000) for i in inputs if isinstance(i, AdminRequest)])

        core = ScriptedCore(react)
        async with served(core, tmp_path / "a") as it:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.connect(str(it.path))
            sock.sendall(b'{"id": 1, "op": "big"}\n' * 5000)
            await asyncio.sleep(0.3)
            assert 0 < len(core.of(AdminRequest)) < 3 * REQUESTS_MAX
            sock.close()
            await until(lambda: core.of(AdminClosed))

    run(scenario())


def test_a_long_answer_is_whole_for_who_asks_no_more_and_others_are_served_meanwhile(
    run: Runner, tmp_path: Path
) -> None:
    rows = [{"name": f"q{number}"} for number in range(100_000)]

    async def scenario() -> None:
        def react(inputs: list[Input]) -> Batch:
            wanted = [each for each in inputs if isinstance(each, AdminRequest)]
            return Batch(effects=[AdminReply(i.id, {"rows": rows if i.operation == "long" else []}) for i in wanted])

        async with served(ScriptedCore(react), tmp_path / "a") as it:
            reader, writer = await it.session()
            writer.write(b'{"id": 1, "op": "long"}\n')
            writer.write_eof()
            transport = cast(asyncio.Transport, writer.transport)
            transport.pause_reading()
            assert await it.ask(b'{"id": 2, "op": "short"}') == [{"id": 2, "result": {"rows": []}}]
            transport.resume_reading()
            assert json.loads(await asyncio.wait_for(reader.read(), PATIENCE_S)) == {"id": 1, "result": {"rows": rows}}

    run(scenario())


def test_sessions_are_bounded(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_socket, "SESSIONS_MAX", 3)

    async def scenario() -> None:
        async with served(ScriptedCore(answering), tmp_path / "a") as it:
            kept = [await it.session() for _ in range(3)]
            for _, writer in kept:
                writer.write(b'{"id": 1, "op": "echo"}\n')
            for reader, _ in kept:
                assert await asyncio.wait_for(reader.readline(), PATIENCE_S)
            reader, writer = await it.session()
            row = json.loads(await asyncio.wait_for(reader.readline(), PATIENCE_S))
            assert "3 admin sessions already" in row["error"]["description"]
            kept[0][1].close()
            writer.close()
            await asyncio.sleep(0.05)
            assert (await it.ask(b'{"id": 2, "op": "echo"}'))[0]["id"] == 2
            for _, writer in kept[1:]:
                writer.close()

    run(scenario())


def test_the_socket_is_for_user_and_group_and_gone_after_the_stop(run: Runner, tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "a"
        async with served(ScriptedCore(answering), path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o660
        assert not path.exists()

    run(scenario())


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    open_socket(str(path)).close()


def test_a_socket_in_use_is_left_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    first = open_socket(path)
    with pytest.raises(ConfigFault, match="another process listens"):
        open_socket(path)
    assert os.path.exists(path)
    first.close()


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("precious")
    with pytest.raises(ConfigFault, match="is not a socket"):
        open_socket(str(path))
    assert path.read_text() == "precious"


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigFault, match="check that the directory exists"):
        open_socket(str(tmp_path / "none" / "a"))


def test_an_operation_may_halt_the_node_and_is_still_answered(run: Runner, tmp_path: Path) -> None:
    async def scenario() -> None:
        def react(inputs: list[Input]) -> Batch:
            ids = [item.id for item in inputs if isinstance(item, AdminRequest)]
            return Batch(effects=[AdminReply(ids[0], "bye"), Halt()] if ids else [])

        async with served(ScriptedCore(react), tmp_path / "a") as it:
            assert await it.ask(b'{"id": 1, "op": "stop"}') == [{"id": 1, "result": "bye"}]
            assert await it.made.node.ended == 0

    run(scenario())


async def _end_of(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except (ConnectionResetError, BrokenPipeError):
        return b""
