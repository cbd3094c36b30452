"""The demo where no hosts can be booted: it holds, it says so when it does not, and it leaves nothing."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
NAME = f"t{os.getpid()}"
PLACE = ROOT / ".build" / "demo" / NAME
DEMO = [sys.executable, "-m", "demo"]
# Some ten times what it takes, because tests may share two cores with a lot of others.
TIME_S_MAX = 300

pytestmark = pytest.mark.timeout(2 * TIME_S_MAX)


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "RACK_NAME": NAME, "DEMO_FORCE_DEV": "1", "KEEP": "", **more}


def mqctl(*words: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "mqctl"), *words, "--directory", str(PLACE / "dev")]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def demo(**more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        DEMO, cwd=ROOT, env=environment(**more), capture_output=True, text=True, timeout=TIME_S_MAX, check=False
    )


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    yield
    if PLACE.exists():
        mqctl("dev", "down", "--discard")
        shutil.rmtree(PLACE)


@pytest.mark.one_day_in_three(0)
def test_the_whole_story_and_no_password_in_it() -> None:
    done = demo(KEEP="1")
    assert done.returncode == 0, done.stdout + done.stderr
    for sentence in (
        "The messages' part of the story is told on loopback.",
        "dev-2 says that 10,000 are in the queue.",
        "proton received 2,000: order 3001 … order 5000",
        "10,000 were accepted, 10,000 arrived, none was lost, none came twice.",
        "The same processes still run.",
        "demo: every step held",
        f".venv/bin/mqctl status --dev --directory .build/demo/{NAME}/dev",
    ):
        assert sentence in done.stdout
    assert (PLACE / "dev" / "password").read_text().strip() not in done.stdout + done.stderr
    assert mqctl("status", "--dev").returncode == 0, "what was kept can be reached"


def test_a_step_that_does_not_hold_ends_it_with_a_sentence() -> None:
    """Somebody else takes every first port that the demo would try."""
    taken = [socket.create_server(("127.0.0.1", port)) for port in range(15672, 25672, 1000)]
    try:
        done = demo()
    finally:
        for one in taken:
            one.close()
    assert done.returncode == 1
    assert "demo: step 1 does not hold: `mqctl dev up" in done.stderr
    assert "port 15672 for dev-1 is taken" in done.stdout
    assert "demo: failed" in done.stdout
    assert not PLACE.exists()


@pytest.mark.one_day_in_three(2)
def test_it_tidies_up_when_it_is_interrupted() -> None:
    with subprocess.Popen(DEMO, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        deadline_s = time.monotonic() + TIME_S_MAX
        for line in process.stdout:
            if "2. 10,000 durable messages" in line or time.monotonic() > deadline_s:
                break
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
        assert process.wait(TIME_S_MAX) == 130
    assert "Tear-down" in rest
    assert not PLACE.exists()
