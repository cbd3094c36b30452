"""The power goes while messages go in and out: nothing acknowledged is lost, nothing comes twice unannounced."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

RACK = os.environ["RACK"]
HOST = "mq1"
QUEUE = "orders"
TASK = {"address": "192.0.2.11", "port": 5672, "user": "load", "password": "secret-of-the-load", "queue": QUEUE}
CUTS = 3
# Acknowledged between two cuts, so that each hits a broker at work.
ACCEPTED_BETWEEN = 2_000
WAIT_S = 60.0
MQBROKER = "/opt/mq/current/bin/mqbroker"


class Load:
    """The program that sends and receives, told what to do."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.buffer = b""
        with log.open("wb") as stream:
            self.process = subprocess.Popen(
                ["/usr/bin/python3", str(Path(__file__).parents[1] / "load.py")],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stream,
            )  # fmt: skip
        self.say(json.dumps(TASK))

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, request: str) -> dict[str, Any]:
        """A request and its answer."""
        self.say(request)
        assert self.process.stdout is not None
        descriptor, deadline_s = self.process.stdout.fileno(), time.monotonic() + WAIT_S
        while b"\n" not in self.buffer:
            ready, _, _ = select.select([descriptor], [], [], max(deadline_s - time.monotonic(), 0))
            data = os.read(descriptor, 1 << 16) if ready else b""
            assert data, f"no answer to {request!r}:\n{self.log.read_text()}"
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    made = Load(tmp_path / "load.log")
    yield made
    made.end()


def rack(*words: str) -> str:
    """A command of the rack, which must do what it says."""
    done = subprocess.run([RACK, *words], capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def wait(is_done: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not is_done():
        assert time.monotonic() < deadline_s, f"{what}: not within {WAIT_S} s"
        time.sleep(0.05)


def depth() -> int:
    """Messages in the queue, as the broker counts them."""
    queues = json.loads(rack("exec", HOST, "--", MQBROKER, "admin", "queues"))["queues"]
    return sum(int(one["message_count"]) for one in queues if one["name"] == QUEUE)


def journal_files() -> int:
    return len(rack("exec", HOST, "--", "ls", "/var/lib/mq/default/journal").split())


def reach(load: Load, count: str, goal: int) -> dict[str, int]:
    """All counts, when one of them has come that far."""
    wait(lambda: load.ask("progress")[count] >= goal, f"{goal} {count}")
    return load.ask("progress")


@pytest.mark.timeout(300)
def test_power_cuts_lose_nothing_that_was_acknowledged(load: Load) -> None:
    links = 2
    counts = reach(load, "links", links)
    for _ in range(CUTS):
        before = reach(load, "accepted", counts["accepted"] + ACCEPTED_BETWEEN)
        rack("kill", HOST)
        rack("boot", HOST)
        links += 2
        counts = reach(load, "links", links)
        # A cut that met nothing under way would show nothing.
        assert counts["in_doubt"] > before["in_doubt"], counts

    left = depth()
    assert left > 0, "the consumer kept up, so nothing but the last messages was at stake"
    wait(lambda: load.ask("drain") is not None and depth() == 0, "an empty queue")
    verdict = load.ask("verdict 0")
    print(json.dumps({**verdict, "backlog": left, "journal_files": journal_files()}))
    assert verdict["violations"] == []
    assert verdict["accepted"] >= CUTS * ACCEPTED_BETWEEN
    assert verdict["received"] >= verdict["accepted"]
