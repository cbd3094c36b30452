"""A rollout that is killed in the middle, on real hosts, and run again. Needs root and the rack."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.system.mqctl.test_scale_rack import HOSTS, GrowingSite, site

pytestmark = [pytest.mark.system, pytest.mark.timeout(1500)]
__all__ = ["site"]


def processes_of(folder: Path) -> list[int]:
    """All that work in the folder of the site, or have it on their command line; this process is none of them."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_ours = (
                os.readlink(entry / "cwd") == str(folder) or str(folder).encode() in (entry / "cmdline").read_bytes()
            )
            if is_ours and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found


def kill_everything(folder: Path) -> None:
    """The command and all that it started; what is a zombie by then is gone as well."""
    deadline_s = time.monotonic() + 60
    while left := processes_of(folder):
        assert time.monotonic() < deadline_s, left
        for number in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        time.sleep(0.05)


def test_a_rollout_that_was_killed_converges_when_run_again(site: GrowingSite) -> None:
    with subprocess.Popen(
        site.command("rollout", "--yes", "--batch", "1"), cwd=site.folder, env=site.environment,
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        for line in process.stderr:
            if "mq1: changed: broker: Let systemd do it" in line:
                kill_everything(site.folder)
                break
        else:
            pytest.fail("it ended before a broker was started")
        assert process.wait(60) == -signal.SIGKILL
    site.run("rollout", "--yes")
    assert site.rows("plan") == []
    assert [(row["host"], row["state"]) for row in site.rows("status")] == [(host, "running") for host in HOSTS]
