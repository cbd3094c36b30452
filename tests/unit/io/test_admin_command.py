"""`mqbroker admin` as a process, against an admin socket that answers."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mqbroker.node.values.inputs import AdminRequest

from tests.support.patience import PATIENCE_S
from tests.unit.io.conftest import ScriptedCore, until
from tests.unit.io.requests.test_admin_socket import answering, served

pytestmark = pytest.mark.slow  # each test starts programs

Runner = Callable[[Any], Any]


@pytest.fixture
def run() -> Iterator[Runner]:
    """One kind of loop is enough here: the process is what is tested."""
    with asyncio.Runner() as runner:
        yield runner.run


COMMAND = (sys.executable, "-m", "mqbroker.app.main", "admin")


async def command(*arguments: str, stdin: bytes = b"") -> tuple[int | None, bytes, str]:
    process = await asyncio.create_subprocess_exec(
        *COMMAND, *arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(stdin), PATIENCE_S)
    return process.returncode, out, err.decode()


def test_one_request_prints_its_result(run: Runner, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served(ScriptedCore(answering), tmp_path / "a") as it:
            code, out, err = await command(
                "--socket", str(it.path), "echo", "n=1", "name=orders", 'list=["a"]', "t=a=b"
            )
            assert (code, err) == (0, "")
            assert json.loads(out) == {"n": 1, "name": "orders", "list": ["a"], "t": "a=b"}

    run(scenario())


def test_a_refused_request_says_why_and_exits_with_1(run: Runner, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served(ScriptedCore(answering), tmp_path / "a") as it:
            code, out, err = await command("--socket", str(it.path), "fly")
            assert (code, out) == (1, b"")
            assert err == "mqbroker admin: fly: no operation fly (amqp:not-implemented)\n"

    run(scenario())


def test_stdio_carries_lines_both_ways_and_ends_with_its_input(run: Runner, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served(ScriptedCore(answering), tmp_path / "a") as it:
            lines = b"".join(b'{"id": %d, "op": "echo", "args": {"n": %d}}\n' % (n, n) for n in range(500))
            code, out, err = await command("--stdio", "--socket", str(it.path), stdin=lines)
            assert (code, err) == (0, "")
            assert [json.loads(row) for row in out.splitlines()] == [{"id": n, "result": {"n": n}} for n in range(500)]

    run(scenario())


def test_stdio_carries_big_lines(run: Runner, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served(ScriptedCore(answering), tmp_path / "a") as it:
            row = {"id": 1, "op": "echo", "args": {"body": "x" * (5 << 20)}}
            code, out, err = await command("--stdio", "--socket", str(it.path), stdin=json.dumps(row).encode() + b"\n")
            assert (code, err) == (0, "")
            assert json.loads(out) == {"id": 1, "result": row["args"]}

    run(scenario())


def test_stdio_says_when_the_broker_goes_away(run: Runner, tmp_path: Path) -> None:
    async def scenario() -> None:
        core = ScriptedCore()
        async with served(core, tmp_path / "a") as it:
            process = await asyncio.create_subprocess_exec(
                *COMMAND,
                "--stdio",
                "--socket",
                str(it.path),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            assert process.stdin is not None
            process.stdin.write(b'{"id": 1, "op": "wait"}\n')
            await until(lambda: core.of(AdminRequest), PATIENCE_S)
            it.server.stop()
            _, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
            assert (process.returncode, err) == (1, b"mqbroker admin: the broker closed the connection\n")

    run(scenario())


def test_no_broker_names_the_socket_and_the_next_command(run: Runner, tmp_path: Path) -> None:
    async def scenario() -> None:
        path = str(tmp_path / "none")
        for arguments in (("status",), ("--stdio",)):
            code, out, err = await command("--socket", path, *arguments)
            assert (code, out) == (1, b"")
            assert err == (
                f"mqbroker admin: no broker answers at {path}: the broker is not running; "
                "see `systemctl status mqbroker@default`\n"
            )
        code, _, err = await command("--instance", "no-such-instance", "status")
        assert code == 1
        assert "/run/mq/no-such-instance/admin.sock" in err
        assert "systemctl status mqbroker@no-such-instance" in err

    run(scenario())


def test_wrong_usage_exits_with_2(run: Runner, tmp_path: Path) -> None:
    async def scenario() -> None:
        for arguments in ((), ("--stdio", "status"), ("status", "novalue"), ("status", "=1")):
            code, out, err = await command(*arguments)
            assert (code, out) == (2, b"")
            assert err.startswith("mqbroker admin: ")

    run(scenario())
