"""A cluster that grows, and rollouts in batches that fail, on real hosts. Needs root and the rack.

The tests are one story and run in their order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.rack_site import Rack, Site, site_on

pytestmark = [pytest.mark.system, pytest.mark.timeout(1500)]

rack = Rack("scale")
HOSTS = ["mq1", "mq2", "mq3"]
DROP_IN = "/etc/systemd/system/mqbroker@.service.d/refuse.conf"
GROUP = "{name: lan, group_address: 231.7.7.7, group_port: 9876"


def without(tree: Any, names: set[str]) -> Any:
    """An inventory less some hosts, wherever they stand."""
    if not isinstance(tree, dict):
        return tree
    return {key: without(value, names) for key, value in tree.items() if key not in names}


class GrowingSite(Site):
    """A site of a cluster that grows."""

    def __init__(self, folder: Path, rack: Rack) -> None:
        super().__init__(folder, rack)
        self.inventory: dict[str, Any] = yaml.safe_load((folder / "inventory.yml").read_text())

    def hosts(self, *names: str) -> None:
        """Only these are in the inventory."""
        chosen = without(self.inventory, set(HOSTS) - set(names))
        (self.folder / "inventory.yml").write_text(yaml.safe_dump(chosen))

    def credit(self, number: int, more: str = "") -> None:
        self.set_options(
            f"{more}"
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
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrowingSite]:
    with site_on(rack, "3", folder=tmp_path_factory.mktemp("scale") / "site") as one:
        growing = GrowingSite(one.folder, rack)
        growing.credit(100)
        yield growing


def test_a_cluster_begins_with_two_hosts(site: GrowingSite) -> None:
    site.hosts("mq1", "mq2")
    rows = site.rows("scale-up", "--yes")
    assert [(row["host"], row["state"]) for row in rows] == [("mq1", "ok"), ("mq2", "ok")]
    assert site.rows("plan") == []
    site.run("health", "--until-healthy", "--timeout", "120")
    assert "no host was added" in site.run("scale-up", "--yes").stderr


def test_an_added_host_does_not_touch_the_others(site: GrowingSite) -> None:
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


def test_the_first_batch_that_fails_ends_the_rollout(site: GrowingSite) -> None:
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


SHUT = (
    "nft add table inet shut && nft 'add chain inet shut in { type filter hook input priority 0; }' && "
    "nft 'add chain inet shut out { type filter hook output priority 0; }' && "
    "nft 'add rule inet shut in tcp dport 5673 tcp flags syn drop' && "
    "nft 'add rule inet shut out tcp dport 5673 tcp flags syn drop'"
)
NOTED = "test -e /var/lib/mq-operation-links.json && echo noted || echo nothing"


def test_a_canary_that_failed_is_not_forgotten_when_the_command_is_repeated(site: GrowingSite) -> None:
    """Links that stand go on, and no new one comes about: they are gone when the broker is restarted."""
    site.credit(103, "rollout_links_wait_s: 10\n")
    rack("exec", "mq1", "--", "sh", "-c", SHUT)
    before = invocations()
    first = site.run("rollout", "--yes", code=1)
    assert re.search("mq1: failed: .*there is no link to mq[23] |mq1: failed: .*link to mq[23] ", first.stderr)
    after = invocations()
    assert [after[host] == before[host] for host in HOSTS] == [False, True, True]
    again = site.run("rollout", "--yes", code=1)
    assert re.search("mq1: failed: Wait until they stand .* link to mq[23] ", again.stderr)
    assert "no other broker is restarted before these links stand" in again.stderr
    other = site.run("rollout", "--yes", "--limit", "mq2", code=1)
    assert re.search("mq2: failed: .* mq1: not whole after 10 s: .* link to mq[23] ", other.stderr)
    assert invocations() == after
    assert rack("exec", "mq1", "--", "sh", "-c", NOTED).strip() == "noted"
    rack("exec", "mq1", "--", "nft", "delete", "table", "inet", "shut")
    site.credit(103)  # all the time that there is
    site.run("rollout", "--yes")
    assert site.rows("plan") == []
    last = invocations()
    assert [last[host] == after[host] for host in HOSTS] == [True, False, False]
    for host in HOSTS:
        assert rack("exec", host, "--", "sh", "-c", NOTED).strip() == "nothing"
