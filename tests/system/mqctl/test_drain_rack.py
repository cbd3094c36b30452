"""A host is drained for maintenance and serves again, under traffic, on real hosts. Needs root and the rack.

The tests are one story and run in their order. All brokers have `[scale-down] enabled`: neither a drain, nor a restart
of who is drained, nor one by a rollout moves anything for that.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.patience import PATIENCE_S
from tests.support.rack_site import RACK, Rack, Site, site_on
from tests.support.rack_traffic import OPTIONS, Traffic, leaver_clients, traffic_of
from tests.system.mqctl.test_plain_playbooks import ANSIBLE

pytestmark = [pytest.mark.system, pytest.mark.timeout(1500)]

rack = Rack("drain")
BACKLOG = 5_000
POLICY = "mq_broker_options: {{scale_down: {{enabled: true, timeout: {timeout}}}}}\n"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_on(rack, "3", folder=tmp_path_factory.mktemp("drain") / "site") as one:
        one.set_options(OPTIONS + POLICY.format(timeout=60_000))
        one.run("rollout", "--yes")
        one.run("health", "--until-healthy", "--timeout", "120")
        yield one


@pytest.fixture(scope="module")
def traffic(site: Site) -> Iterator[Traffic]:
    with traffic_of(site, leaver_clients(site, BACKLOG)) as one:
        yield one


def held_at(site: Site, host: str) -> int:
    """Messages of the backlog at a host."""
    rows = site.rows("queue", "list", "--host", host)
    return sum(int(row["messages"]) for row in rows if row["queue"] == "old")


def state_of(site: Site) -> str:
    (row,) = site.rows("scale-down", "mq3", "--show")
    return str(row["state"])


def restarted(site: Site) -> None:
    """The broker of the drained host, by hand; nobody has announced that."""
    rack("exec", "mq3", "--", "systemctl", "restart", "mqbroker@default")
    deadline_s = time.monotonic() + PATIENCE_S
    while {row["host"]: row["state"] for row in site.rows("status")}["mq3"] != "running":
        assert time.monotonic() < deadline_s
        time.sleep(0.5)


def play(site: Site, *words: str) -> str:
    command = [sys.executable, str(RACK), "enter", "--", str(ANSIBLE), "mqops.cluster.drain", "-i", "inventory.yml"]
    done = subprocess.run(
        [*command, "-e", "mq_drain=mq3", *words], cwd=site.folder, env=site.environment, capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_its_clients_leave_and_its_messages_stay_also_over_a_restart(site: Site, traffic: Traffic) -> None:
    done = site.run("drain", "mq3", "--wait", "--yes", "--json")
    (row,) = json.loads(done.stdout)["rows"]
    assert (row["state"], row["to"], row["connections"]) == ("cordoned", None, 0)
    assert "mq3 lets no client in, and keeps its messages" in done.stderr
    assert held_at(site, "mq3") == BACKLOG
    restarted(site)
    assert (state_of(site), held_at(site, "mq3")) == ("cordoned", BACKLOG)
    assert {row["state"] for row in site.rows("operation", "show")} == {"free"}


def test_it_serves_again_what_it_has_kept(site: Site, traffic: Traffic) -> None:
    assert "mq3 serves again" in site.run("undrain", "mq3", "--wait", "--yes").stderr
    assert (state_of(site), held_at(site, "mq3")) == ("none", BACKLOG)


def test_a_restart_by_a_rollout_moves_nothing(site: Site, traffic: Traffic) -> None:
    site.set_options(OPTIONS + POLICY.format(timeout=90_000))
    site.run("rollout", "--yes", "--limit", "mq3")
    assert held_at(site, "mq3") == BACKLOG
    log = rack("exec", "mq3", "--", "journalctl", "--unit", "mqbroker@default", "--output", "cat")
    assert "it starts again at once" in log
    assert "scale-down-begun" not in log


def test_the_playbook_does_the_same_and_a_second_time_nothing(site: Site, traffic: Traffic) -> None:
    assert "changed=1" in recap(play(site), "mq3")
    assert (state_of(site), held_at(site, "mq3")) == ("cordoned", BACKLOG)
    assert "changed=0" in recap(play(site), "mq3")
    assert "changed=1" in recap(play(site, "-e", "mq_undrain=true"), "mq3")
    assert "changed=0" in recap(play(site, "-e", "mq_undrain=true"), "mq3")
    assert state_of(site) == "none"


def recap(said: str, host: str) -> str:
    return [line for line in said.splitlines() if line.startswith(host)][-1]


def test_with_move_all_of_it_goes_to_another_node_and_stays_there(site: Site, traffic: Traffic) -> None:
    done = site.run("drain", "mq3", "--move", "--to", "mq1", "--wait", "--yes", "--json")
    (row,) = json.loads(done.stdout)["rows"]
    assert (row["state"], row["to"], row["left"], row["connections"]) == ("moved", "mq1", 0, 0)
    restarted(site)
    site.run("drain", "mq3", "--move", "--wait", "--yes")
    assert (state_of(site), held_at(site, "mq3"), held_at(site, "mq1")) == ("moved", 0, BACKLOG)
    site.run("undrain", "mq3", "--wait", "--yes")
    assert state_of(site) == "none"


def test_all_that_was_acknowledged_is_read_once(traffic: Traffic) -> None:
    verdict: dict[str, Any] = traffic.verdict()
    assert verdict["violations"] == []
    assert verdict["counts"]["accepted"]["mq3"] > 0
