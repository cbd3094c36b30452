# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A node as systemd and the node itself see it: state of the unit, and the answer to the admin operation `status`."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from ansible_collections.mqops.cluster.plugins.module_utils import command

PROPERTIES = ("LoadState", "ActiveState", "SubState", "UnitFileState", "Result", "ExecMainStatus", "NRestarts",
              "NeedDaemonReload")  # fmt: skip
# States of a unit in which nothing comes any more.
ENDED = ("failed", "inactive")
ASK_EVERY_S = 0.25
JOURNAL_LINES = 3


def unit_name(instance: str) -> str:
    """The service of an instance."""
    return f"mqbroker@{instance}.service"


def unit_of(instance: str) -> dict[str, str]:
    """Properties of the unit; empty where there is no systemd."""
    done = _output(["systemctl", "show", unit_name(instance), "--property=" + ",".join(PROPERTIES)])
    return dict(line.split("=", 1) for line in done.splitlines() if "=" in line)


def last_words(instance: str) -> str:
    """The end of the log, for an error message."""
    own = f"_SYSTEMD_UNIT={unit_name(instance)}"  # What systemd says about the unit is left out.
    arguments = ["journalctl", own, "--lines", str(JOURNAL_LINES), "--output", "cat", "--no-pager", "--quiet"]
    return _output(arguments).strip()


def status(instance: str, executable: str = command.EXECUTABLE) -> dict[str, Any] | None:
    """What the node says of itself, None where it does not answer. Raises CommandFault where nothing is installed."""
    return ask(instance, "status", executable)


def ask(instance: str, operation: str, executable: str = command.EXECUTABLE, **arguments: Any) -> dict[str, Any] | None:
    """The result of an operation, None where the node does not answer or knows no such operation.

    Raises CommandFault where nothing is installed.
    """
    request = json.dumps({"id": 1, "op": operation, "args": arguments})
    answer = command.run(["admin", "--stdio", "--instance", instance], executable, text=request + "\n", time_s=15)
    line = answer.out.partition("\n")[0]
    if answer.code != command.DONE or not line:
        return None
    return command.Answer(answer.code, line, answer.complaint).json().get("result")


def wait(instance: str, wait_s: float, executable: str = command.EXECUTABLE) -> dict[str, Any] | None:
    """Ask until the node answers, or has failed, or the time is over. The last answer, None where there was none."""
    deadline_s = time.monotonic() + wait_s
    while True:
        found = status(instance, executable)
        is_late = time.monotonic() + ASK_EVERY_S > deadline_s
        if found is not None or is_late or unit_of(instance).get("ActiveState") in ENDED:
            return found
        time.sleep(ASK_EVERY_S)


def _output(arguments: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20, check=False, text=True
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
