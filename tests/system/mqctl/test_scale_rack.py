"""A cluster that grows, and rollouts in batches that fail, on real hosts. Needs root and the rack.

The tests are one story and run in their order.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.system, pytest.mark.timeout(1500)]

ROOT = Path(__file__).resolve().parents[3]
RACK = [sys.executable, str(ROOT / "molecule/rack/rack")]
MQCTL = [sys.executable, "-m", "mqctl.main"]
NAME = f"scale{os.getpid()}"
HOSTS = ["mq1", "mq2", "mq3"]
DROP_IN = "/etc/systemd/system/mqbroker@.service.d/refuse.conf"
GROUP = "{name: lan, group_address: 231.7.7.7, group_port: 9876"


def rack(*words: str) -> str:
    environ = {**os.environ, "RACK_NAME": NAME}
    done = subprocess.run([*RACK, *words], env=environ, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def without(tree: Any, names: set[str]) -> Any:
    """An inventory less some hosts, wherever they stand."""
    if not isinstance(tree, dict):
        return tree
    return {key: without(value, names) for key, value in tree.items() if key not in names}


class Site:
    """A folder with an inventory, and mqctl run where the hosts can be reached."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.inventory: dict[str, Any] = {}

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "RACK_NAME": NAME, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".dev")}

    def command(self, *words: str) -> list[str]:
        return [*RACK, "enter", "--", *MQCTL, *words]

    def run(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*words), cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=400,
            check=False,
        )  # fmt: skip
        assert done.returncode == code, (done.returncode, done.stdout[-3000:], done.stderr[-3000:])
        return done

    def rows(self, *words: str, code: int = 0) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(self.run(*words, "--json", code=code).stdout)["rows"]
        return rows

    def hosts(self, *names: str) -> None:
        """Only these are in the inventory."""
        chosen = without(self.inventory, set(HOSTS) - set(names))
        (self.folder / "inventory.yml").write_text(yaml.safe_dump(chosen))

    def credit(self, number: int) -> None:
        (self.folder / "group_vars/brokers/options.yml").write_text(
            f"mq_broker_options: {{limits: {{link_credit: {number}}}}}\n"
            "mq_connectors:\n  - {name: cluster, port: 5673}\n"
            f"mq_broadcast_groups:\n  - {GROUP}, connector_ref: cluster}}\n"
            f"mq_discovery_groups:\n  - {GROUP}}}\n"
            "mq_cluster_connections:\n  - {name: all, connector_ref: cluster, discovery_group_ref: lan}\n"
        )


def invocations() -> dict[str, str]:
    """Host -> what systemd calls this run of its broker: another after each restart."""
    show = ("systemctl", "show", "--value", "--property=InvocationID", "mqbroker@default.service")
    return {host: rack("exec", host, "--", *show).strip() for host in HOSTS}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    one = Site(tmp_path_factory.mktemp("scale"))
    try:
        rack("up", "3")
        text = rack("inventory", "--group", "brokers")
        one.inventory = yaml.safe_load(text)
        (one.folder / "inventory.yml").write_text(text)
        one.run("init", "--interface", "eth1", "--allow-plaintext")
        one.credit(100)
        subprocess.run([*MQCTL, "bundle", "build"], cwd=one.folder, check=True, capture_output=True, timeout=300)
        yield one
    finally:
        rack("destroy")


def test_a_cluster_begins_with_two_hosts(site: Site) -> None:
    site.hosts("mq1", "mq2")
    rows = site.rows("scale-up", "--yes")
    assert [(row["host"], row["state"]) for row in rows] == [("mq1", "ok"), ("mq2", "ok")]
    assert site.rows("plan") == []
    site.run("health", "--until-healthy", "--timeout", "120")
    assert "no host was added" in site.run("scale-up", "--yes").stderr


def test_an_added_host_does_not_touch_the_others(site: Site) -> None:
    before = invocations()
    site.hosts(*HOSTS)
    site.credit(101)
    rack("cut", "mq3", "eth1")
    refused = site.run("scale-up", "--yes", code=1)
    rack("heal", "mq3", "eth1")
    assert "the network card eth1 is down" in refused.stderr
    assert "nothing was changed" in refused.stderr
    done = site.run("scale-up", "--yes", "--json")
    assert [row["host"] for row in json.loads(done.stdout)["rows"]] == ["mq3"]
    assert "mq1, mq2 also differ from the inventory and stay as they are" in done.stderr
    after = invocations()
    assert [after[host] == before[host] for host in HOSTS] == [True, True, False]
    assert {row["host"] for row in site.rows("plan", code=3)} == {"mq1", "mq2"}
    assert [row["messages"] for row in site.rows("perf", "--host", "mq3", "--count", "50")] == [50, 50]


def test_the_first_batch_that_fails_ends_the_rollout(site: Site) -> None:
    site.credit(102)
    before = invocations()
    script = f"mkdir -p $(dirname {DROP_IN}) && printf '[Service]\\nExecStartPre=/bin/false\\n' > {DROP_IN}"
    rack("exec", "mq1", "--", "sh", "-c", script)
    failed = site.run("rollout", "--yes", "--batch", "1", code=1)
    assert "mq1: failed" in failed.stderr
    after = invocations()
    assert (after["mq2"], after["mq3"]) == (before["mq2"], before["mq3"])
    assert {row["health"] for row in site.rows("health", code=3)} == {"healthy", "degraded"}
    rack("exec", "mq1", "--", "rm", DROP_IN)
    rack("exec", "mq1", "--", "systemctl", "daemon-reload")
    done = site.run("rollout", "--yes", "--batch", "67%", "-v")
    assert "a canary has crossed each" in done.stdout + done.stderr
    assert site.rows("plan") == []
    rows = site.rows("cluster", "canary")
    assert [row["state"] for row in rows] == ["confirmed"] * 6
    assert {(row["host"], row["node"]) for row in rows} == set(permutations(HOSTS, 2))
    assert [(row["links_up"], row["forwarding"]) for row in site.rows("status")] == [("2/2", 0)] * 3
    last = invocations()
    assert all(last[host] != before[host] for host in HOSTS)
