"""The program that `mqctl health` sends to a host, against the checks of a broker there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.broker_process import BrokerProcess, free_port

PROGRAM = Path(__file__).resolve().parents[3] / "cli/src/mqctl/remote/health.py"


def asked(port: int, *names: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-", "127.0.0.1", str(port), *names]
    done = subprocess.run(command, input=PROGRAM.read_bytes(), capture_output=True, timeout=60, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_the_checks_of_a_broker(make_broker: Callable[..., BrokerProcess]) -> None:
    port = free_port()
    broker = make_broker(options={"metrics": {"port": port}, "journal": {"min-disk-free-bytes": 2**50}})
    broker.start()
    space, listeners, unknown = asked(port, "disk-space", "listeners", "nonsense")
    assert (space["check"], space["ok"], listeners["ok"], unknown["ok"]) == ("disk-space", False, True, False)
    assert "make room on the disk" in space["why"]
    broker.stop()
    (gone,) = asked(port, "journal")
    assert (gone["check"], gone["ok"]) == ("journal", False)
    assert "does not say" in gone["why"]
