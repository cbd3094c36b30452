"""`mqctl dev` with real brokers: start, messages there and back, kill -9, stop, and nothing else touched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.ssh_server import free_port

from tests.support.forks import run_mqctl_on_bytes
from tests.support.patience import PATIENCE_S

MQCTL = [sys.executable, "-m", "mqctl.main"]


class Dev:
    """The command line, with everything below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()

    def run(self, *words: str, stdin: bytes = b"", code: int = 0) -> subprocess.CompletedProcess[bytes]:
        all_words = [*words, "--directory", str(self.folder)]
        done = run_mqctl_on_bytes(all_words, os.environ, Path.cwd(), stdin=stdin, timeout_s=PATIENCE_S)
        assert done.returncode == code, (done.stdout[-2000:], done.stderr[-2000:])
        return done

    def rows(self, *words: str, code: int = 0) -> list[dict[str, Any]]:
        document = json.loads(self.run(*words, "--json", code=code).stdout)
        rows: list[dict[str, Any]] = document["rows"]
        return rows

    def pid(self, node: str) -> int:
        return int(json.loads((self.folder / node / "process.json").read_text())["pid"])


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    one = Dev(tmp_path_factory.mktemp("dev") / "d")
    one.run("dev", "up", "-n", "2", "--port", str(one.port))
    yield one
    subprocess.run([*MQCTL, "dev", "down", "--discard", "--directory", str(one.folder)], check=True, timeout=60)
    assert not one.folder.exists()


def test_both_brokers_run_and_the_password_is_private(dev: Dev) -> None:
    rows = dev.rows("dev", "status")
    assert [(row["node"], row["state"]) for row in rows] == [("dev-1", "running"), ("dev-2", "running")]
    assert [row["url"] for row in rows] == [f"amqp://127.0.0.1:{dev.port + step}" for step in (0, 10)]
    assert (dev.folder / "password").stat().st_mode & 0o777 == 0o600
    assert dev.folder.stat().st_mode & 0o777 == 0o700
    secret = (dev.folder / "password").read_text().strip().encode()
    assert len(secret) >= 20
    again = dev.run("dev", "up", "-n", "2", "--port", str(dev.port), "-vvv")
    assert secret not in again.stdout + again.stderr


def test_messages_there_and_back(dev: Dev) -> None:
    sent = dev.rows("send", "there", "order {n}", "--count", "2345", "--dev", "--to", "dev-2")
    assert sent == [{"host": "dev-2", "instance": "default", "address": "there", "accepted": 2345}]
    queues = dev.rows("queue", "list", "--dev")
    assert [(row["host"], row["queue"], row["messages"]) for row in queues if row["queue"] == "there"] == [
        ("dev-2", "there", 2345)
    ]
    some = dev.run("receive", "there", "--count", "1000", "--dev", "--from", "dev-2").stdout
    rest = dev.run("receive", "there", "--timeout", "0.2", "--dev", "--from", "dev-2").stdout
    assert (some + rest).decode().splitlines() == [f"order {number}" for number in range(1, 2346)]


def test_bodies_from_arguments_files_and_lines(dev: Dev, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    dev.run("send", "forms", "one", "two words", "--file", str(tmp_path / "binary"), "--dev", "--host", "dev-1")
    dev.run("send", "forms", "-", "--dev", "--host", "dev-1", "--no-durable", stdin="drei\n\nfünf".encode())
    lines = dev.run("receive", "forms", "-o", "json", "--count", "6", "--dev", "--host", "dev-1").stdout.splitlines()
    messages = [json.loads(line) for line in lines]
    assert {one["schema"] for one in messages} == {"mqctl.message/1"}
    assert [one["body"] for one in messages if one["body_encoding"] == "text"] == [
        "one",
        "two words",
        "drei",
        "",
        "fünf",
    ]
    assert [one["header"]["durable"] for one in messages] == [True, True, True, False, False, False]
    dev.run("send", "forms", "--file", str(tmp_path / "binary"), "--dev", "--host", "dev-1")
    raw = dev.run("receive", "forms", "--count", "1", "--dev", "--host", "dev-1").stdout
    assert raw == bytes(range(256)) + b"\n"


def test_fewer_than_asked_for_is_exit_code_3(dev: Dev) -> None:
    dev.run("send", "few", "one", "--dev", "--host", "dev-1")
    done = dev.run("receive", "few", "--count", "2", "--timeout", "0.2", "--dev", "--host", "dev-1", code=3)
    assert done.stdout == b"one\n"
    assert b"1 received" in done.stderr


def test_what_nobody_read_goes_back(dev: Dev) -> None:
    """The reader of our output goes away in the middle: the messages that it did not take are still there."""
    body = "x" * 300_000
    lines = "".join(f"{body}\n" for _ in range(20)).encode()
    dev.run("send", "wide", "-", "--dev", "--host", "dev-1", stdin=lines)
    command = [*MQCTL, "receive", "wide", "--dev", "--host", "dev-1", "--directory", str(dev.folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(10) == b"x" * 10
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 1
    rest = dev.run("receive", "wide", "--count", "20", "--dev", "--host", "dev-1").stdout.decode().split()
    assert rest == [body] * 20


def test_ctrl_c_gives_messages_back(dev: Dev) -> None:
    dev.run("send", "held", "one", "--dev", "--host", "dev-1")
    command = [*MQCTL, "receive", "held", "--count", "5", "--timeout", "60", "--dev", "--host", "dev-1"]
    with subprocess.Popen(
        [*command, "--directory", str(dev.folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"one\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()


def test_power_cut_in_small(dev: Dev) -> None:
    """kill -9, start again: everything that was counted as sent is there, once."""
    dev.run("send", "durable", "{n}", "--count", "3000", "--dev", "--host", "dev-1")
    os.kill(dev.pid("dev-1"), signal.SIGKILL)
    rows = dev.rows("dev", "status", code=3)
    assert [row["state"] == "running" for row in rows] == [False, True]
    status = dev.rows("status", "--dev", code=3)
    assert [row["state"] for row in status] == ["stopped", "running"]
    dev.run("dev", "up", "-n", "2", "--port", str(dev.port))
    assert dev.run("receive", "durable", "--count", "3000", "--dev", "--host", "dev-1").stdout.decode().split() == [
        str(number) for number in range(1, 3001)
    ]
    assert dev.run("receive", "durable", "--timeout", "0.2", "--dev", "--host", "dev-1").stdout == b""


def test_queues_are_seen_and_steered(dev: Dev) -> None:
    """Made, filled, paused, killed, still paused; moved; looked at, checked and deleted. All on one of two brokers."""
    there = ("--dev", "--host", "dev-1")
    dev.run("queue", "create", "steered", "--max-consumers", "4", *there)
    dev.run("send", "steered", "{n}", "--count", "700", "-p", "colour=red", *there)
    dev.run("send", "steered", "last", *there)
    assert dev.rows("queue", "pause", "steered", *there)[0]["changed"] is True
    os.kill(dev.pid("dev-1"), signal.SIGKILL)
    assert dev.run("check", *there, code=2).stdout.startswith(b"MQ CRITICAL - ")
    dev.run("dev", "up", "-n", "2", "--port", str(dev.port))
    shown = {row["attribute"]: row["value"] for row in dev.rows("queue", "show", "steered", *there)}
    assert (shown["paused"], shown["max_consumers"], shown["message_count"]) == (True, 4, 701)
    assert dev.run("receive", "steered", "--timeout", "0.2", *there).stdout == b""
    red = ("--selector", "colour = 'red'")
    browsed = dev.run("message", "browse", "steered", "--count", "0", *red, *there).stdout.decode().split()
    assert browsed == [str(number) for number in range(1, 701)]
    moved = dev.rows("message", "move", "steered", "aside", "--yes", *red, *there)
    assert (moved[0]["moved"], moved[0]["left"]) == (700, 0)
    assert dev.run("receive", "aside", "--count", "700", *there).stdout.decode().split() == browsed
    assert dev.run("check", "--queue", "steered", "-c", "1", *there, code=2).stdout.count(b"\n") == 1
    assert dev.run("check", "--queue", "steered", "-c", "2", "-w", "1", *there, code=1).stdout
    assert dev.rows("queue", "purge", "steered", "--yes", *there)[0]["purged"] == 1
    audited = dev.rows("events", "--name", "admin", *there)
    operations = [row["fields"]["operation"] for row in audited]
    assert [each for each in operations if each != "settle"] == ["messages-move", "queue-purge"]
    assert {row["fields"]["uid"] for row in audited} == {os.getuid()}
    assert any("admin" in row["message"] for row in dev.rows("logs", *there))
    dev.run("queue", "delete", "steered", "--yes", *there)
    assert "steered" not in [row["queue"] for row in dev.rows("queue", "list", *there)]


def test_stop_keeps_messages_and_signals_no_stranger(dev: Dev, tmp_path: Path) -> None:
    dev.run("send", "kept", "one", "--dev", "--host", "dev-2")
    stranger = subprocess.Popen(["sleep", "60"])
    noted = dev.folder / "dev-1" / "process.json"
    real = noted.read_text()
    noted.write_text(json.dumps({"pid": stranger.pid, "start_ticks": 1}))
    assert b"stopped: dev-2" in dev.run("dev", "down").stderr
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()
    noted.write_text(real)
    assert b"stopped: dev-1" in dev.run("dev", "down").stderr
    assert b"nothing ran" in dev.run("dev", "down").stderr
    dev.run("dev", "up", "-n", "2", "--port", str(dev.port))
    assert dev.run("receive", "kept", "--count", "1", "--dev", "--host", "dev-2").stdout == b"one\n"


def test_a_port_that_is_taken(dev: Dev, tmp_path: Path) -> None:
    other = Dev(tmp_path / "other")
    done = subprocess.run(
        [*MQCTL, "dev", "up", "--port", str(dev.port), "--directory", str(other.folder)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"mqctl: port {dev.port} for dev-1 is taken", f"try: mqctl dev up --port {dev.port + 1000}",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["send", "a", "b", "--host", "dev-9"], "--host dev-9: there is no such node"),
        (["send", "a"], "there is nothing to send"),
        (["send", "a", "b", "c", "--count", "2"], "--count takes at most one body"),
        (["send", "a", "--file", "nowhere"], "--file nowhere: there is no such file"),
        (["queue", "list", "--columns", "x"], "--columns: there is no column x"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_names_what_to_try(dev: Dev, words: list[str], said: str) -> None:
    done = dev.run(*words, "--dev", code=2)
    assert said in done.stderr.decode()
    assert done.stdout == b""
