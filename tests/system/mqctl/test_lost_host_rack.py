"""Hosts that fall out of a rollout, on real hosts: a full disk, and a cable that is pulled in the middle of a task.

The tests are one story and run in their order. Needs root and the rack.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.patience import PATIENCE_S
from tests.support.rack_site import Rack, Site, site_on

pytestmark = [pytest.mark.system, pytest.mark.timeout(1800)]

# ssh asks a silent host three times, a quarter of a minute apart, and Ansible tries once more. Who does not ask waits
# for the kernel, which takes a quarter of an hour for what was sent, or for good.
LOST_S_MAX = 900.0
rack = Rack("lost")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_on(rack, "2", folder=tmp_path_factory.mktemp("rack") / "site") as one:
        yield one


def rows_of(site: Site, *words: str, code: int) -> dict[str, dict[str, Any]]:
    """Host -> how a rollout ended there."""
    return {row["host"]: row for row in site.document("rollout", "--yes", *words, code=code)["rows"]}


def cut_at(site: Site, host: str, line: str) -> tuple[dict[str, dict[str, Any]], int, float]:
    """A rollout in which a cable is pulled when mqctl says this; rows, exit code, and seconds from then on."""
    command = site.command("rollout", "--yes", "--json")
    out = site.folder / "rollout.json"
    with out.open("w") as stdout, subprocess.Popen(
        command, cwd=site.folder, env=site.environment, stdout=stdout, stderr=subprocess.PIPE, text=True
    ) as process:  # fmt: skip
        assert process.stderr is not None
        said, cut_s = [], 0.0
        for one in process.stderr:
            said.append(one)
            if line in one and not cut_s:
                rack("cut", host, "eth0")
                cut_s = time.monotonic()
        code = process.wait(PATIENCE_S)
    took_s = time.monotonic() - cut_s
    rack("heal", host, "eth0")
    assert cut_s, "".join(said)
    return {row["host"]: row for row in json.loads(out.read_text())["rows"]}, code, took_s


def went_on(site: Site, host: str) -> None:
    """Nobody could give back the host that was lost, so it is held until somebody goes on in the place of that run."""
    refused = site.run("rollout", "--yes", code=1).stderr
    assert f"mqctl: {host}: operation " in refused
    assert "mqctl rollout --resume" in refused
    assert "nothing was changed on any host" in refused
    assert rows_of(site, "--resume", code=0)[host]["state"] == "ok"
    assert site.document("plan")["rows"] == []


def test_a_full_disk_is_refused_with_what_to_do_and_nothing_is_changed(site: Site) -> None:
    rack("exec", "mq2", "--", "sh", "-ec", "mkdir -p /opt/mq && mount -t tmpfs -o size=1m none /opt/mq")
    rows = rows_of(site, code=1)
    assert (rows["mq1"]["state"], rows["mq2"]["state"]) == ("stopped", "refused")
    assert "/opt/mq has 1 MiB free" in rows["mq2"]["note"]
    assert "make room or mount a larger disk there" in rows["mq2"]["note"]
    assert "nothing was changed on any host; put that right, or leave the host out with --limit" in rows["mq2"]["note"]
    assert rows["mq1"]["note"] == "nothing was changed on any host: mq2 refused"
    assert rack("exec", "mq1", "--", "sh", "-c", "ls -d /opt/mq /etc/mq 2>/dev/null; true").strip() == ""
    rack("exec", "mq2", "--", "umount", "/opt/mq")


def test_a_cable_that_is_pulled_while_hosts_are_prepared_holds_up_nobody(site: Site) -> None:
    """In the middle of a task that takes long and says nothing meanwhile."""
    rows, code, took_s = cut_at(site, "mq2", "mq2: changed: release: Copy the bundle")
    assert code == 3, rows
    assert rows["mq1"]["state"] == "ok"
    assert rows["mq2"]["state"] == "unreachable"
    assert rows["mq2"]["note"].startswith("lost at release: Install it from the bundle alone: ")
    assert took_s < LOST_S_MAX
    assert {row["host"]: row["state"] for row in site.document("status", code=3)["rows"]} == {
        "mq1": "running", "mq2": "absent",
    }  # fmt: skip
    went_on(site, "mq2")


def test_a_cable_that_is_pulled_while_brokers_are_restarted_ends_the_rollout(site: Site) -> None:
    site.set_options("mq_broker_options:\n  limits:\n    link_credit: 77\n")
    rows, code, took_s = cut_at(site, "mq1", "mq1: changed: broker: Write the unit and the options")
    assert code == 1, rows
    assert (rows["mq1"]["state"], rows["mq2"]["state"]) == ("unreachable", "stopped")
    assert rows["mq1"]["note"].startswith("lost at broker: ")
    assert rows["mq2"]["note"].startswith("mq1 fell out in a batch before this one, so the rollout ends here")
    assert took_s < LOST_S_MAX
    rest = {(row["host"], row["what"]) for row in site.document("plan", code=3)["rows"]}
    assert ("mq2", "option limits.link-credit") in rest
    went_on(site, "mq1")
