"""A rollout that is killed in the middle, on real hosts, and run again. Needs root and the rack."""

from __future__ import annotations

import signal
import subprocess

import pytest

from tests.system.mqctl.test_scale_rack import HOSTS, GrowingSite, site

pytestmark = [pytest.mark.system, pytest.mark.timeout(1500)]
__all__ = ["site"]


def test_a_rollout_that_was_killed_converges_when_run_again(site: GrowingSite) -> None:
    with subprocess.Popen(
        site.command("rollout", "--yes", "--batch", "1"), cwd=site.folder, env=site.environment,
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        for line in process.stderr:
            if "mq1: changed: broker: Let systemd do it" in line:
                site.kill_everything()
                break
        else:
            pytest.fail("it ended before a broker was started")
        assert process.wait(60) == -signal.SIGKILL
    site.was_killed = True
    assert "mqctl rollout --resume" in site.run("rollout", "--yes", code=1).stderr
    site.run("rollout", "--yes", "--resume")
    site.was_killed = False
    assert site.rows("plan") == []
    assert [(row["host"], row["state"]) for row in site.rows("status")] == [(host, "running") for host in HOSTS]
