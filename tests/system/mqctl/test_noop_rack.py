"""What a rollout with nothing to do costs on twenty real hosts, beside a ping of Ansible. Needs root and the rack."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.support.rack_site import RACK, Rack, Site, site_on

pytestmark = [pytest.mark.system, pytest.mark.timeout(3000)]

HOSTS = 20
TIMES_MAX = 3.0
ROUNDS = 3


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_on(Rack("noop"), str(HOSTS), folder=tmp_path_factory.mktemp("noop") / "site") as one:
        one.run("rollout", "--yes", timeout_s=2400)
        yield one


def ping(site: Site) -> None:
    command = [sys.executable, str(RACK), "enter", "--", "ansible", "-i", "inventory.yml", "all", "-m", "ping"]
    done = subprocess.run(
        command, cwd=site.folder, env=site.environment, capture_output=True, text=True, timeout=600, check=True
    )
    assert done.stdout.count("pong") == HOSTS


def test_a_rollout_with_nothing_to_do_takes_at_most_three_times_a_ping(site: Site) -> None:
    pings, rollouts = [], []
    for _ in range(ROUNDS):
        start_s = time.monotonic()
        ping(site)
        pings.append(time.monotonic() - start_s)
        start_s = time.monotonic()
        rows = site.document("rollout", "--yes")["rows"]
        rollouts.append(time.monotonic() - start_s)
        assert [(row["changed"], row["note"]) for row in rows] == [(0, "as the last rollout left it")] * HOSTS
    times = min(rollouts) / min(pings)
    print(
        f"{HOSTS} hosts: ping {min(pings):.1f} s, rollout with nothing to do {min(rollouts):.1f} s, {times:.2f} times"
    )
    assert times <= TIMES_MAX, (pings, rollouts)


def test_a_mode_that_somebody_changed_is_mended(site: Site) -> None:
    site.rack("exec", "mq2", "--", "chmod", "0666", "/etc/mq/default/broker.toml")
    rows = site.document("rollout", "--yes", "--limit", "mq1,mq2")["rows"]
    assert {row["host"]: row["changed"] > 0 for row in rows if row["host"] != "localhost"} == {
        "mq1": False,
        "mq2": True,
    }
    assert site.rack("exec", "mq2", "--", "stat", "-c", "%a", "/etc/mq/default/broker.toml").strip() == "640"
    rows = site.document("rollout", "--yes", "--limit", "mq1,mq2")["rows"]
    assert {row["note"] for row in rows} == {"as the last rollout left it"}
