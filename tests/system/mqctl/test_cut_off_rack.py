"""A rollout that is cut off while it takes its hosts, and two of them at once, on real hosts. Needs root and the rack.

Nothing is lost by it, and whoever goes on is held up by nobody. The tests are one story and run in their order.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

from plugins.module_utils import operation
from tests.support.rack_site import ELSEWHERE, Rack, Site, interrupt, site_on

pytestmark = [pytest.mark.system, pytest.mark.timeout(1800)]

rack = Rack("cut")
HOSTS = ["mq1", "mq2"]
GROUP = "{name: lan, group_address: 231.7.7.7, group_port: 9876"
OPTIONS = (
    "mq_connectors:\n  - {name: cluster, port: 5673}\n"
    f"mq_broadcast_groups:\n  - {GROUP}, connector_ref: cluster}}\n"
    f"mq_discovery_groups:\n  - {GROUP}}}\n"
    "mq_cluster_connections:\n  - {name: all, connector_ref: cluster, discovery_group_ref: lan}\n"
    "mq_firewall_confirm_s: 20\n"
    "mq_broker_options: {limits: {link_credit: %d}}\n"
    "mq_firewall: %s\n"
)
COUNT = 30
# Settings of a user with which hosts would not wait for each other.
FREE = "[defaults]\nstrategy = free\nany_errors_fatal = true\nforks = 1\n"


class ChangingSite(Site):
    """A site of which each rollout has something to do."""

    credit = 100
    has_rules = False

    def change(self) -> None:
        """Other options, which need restarts, and packet filters where there were none, or none where there were."""
        self.credit += 1
        self.has_rules = not self.has_rules
        self.set_options(OPTIONS % (self.credit, str(self.has_rules).lower()))

    def whole(self) -> None:
        """Nothing is left to do, nobody holds a host, and the brokers are linked and have what they had."""
        assert self.rows("plan") == []
        assert not any(noted(host) for host in HOSTS)
        rows = self.rows("cluster", "canary")
        assert {(row["host"], row["node"]): row["state"] for row in rows} == dict.fromkeys(
            permutations(HOSTS, 2), "confirmed"
        )
        depths = {(row["host"], row["queue"]): row["messages"] for row in self.rows("queue", "list")}
        assert [depths[host, f"of.{host}"] for host in HOSTS] == [COUNT] * len(HOSTS)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChangingSite]:
    with site_on(rack, "2", folder=tmp_path_factory.mktemp("rack") / "site") as one:
        found = ChangingSite(one.folder, rack)
        found.change()
        found.run("rollout", "--yes")
        for host in HOSTS:
            (sent,) = found.rows("send", f"of.{host}", "kept {n}", "--count", str(COUNT), "--to", host)
            assert sent["accepted"] == COUNT
        yield found


def noted(host: str) -> str:
    """Who holds the host."""
    text = rack("exec", host, "--", "sh", "-c", f"cat {operation.PLACE} 2>/dev/null; true").strip()
    note = json.loads(text) if text else {"is_held": False}
    return str(note["user"]) if note["is_held"] else ""


def test_ctrl_c_at_the_first_step_gives_the_hosts_back(site: ChangingSite) -> None:
    """A task may be under way that nobody can stop, so that is waited for."""
    site.change()
    rows, said = site.rollout_until("Take the host for this operation]", interrupt, 130, "-v")
    done = [host for host, row in rows.items() if row["state"] == "ok"]
    assert f"interrupted: {len(done)} of 2 hosts done; mqctl rollout again goes on" in said
    busy = [host for host in HOSTS if f"{host}: a task is still under way there, so it stays held" in said]
    assert [host for host in HOSTS if noted(host)] == busy
    site.run("rollout", "--yes", *(["--resume"] if busy else []), inside=ELSEWHERE)
    site.whole()


def test_two_at_once_from_two_folders_do_not_mix(site: ChangingSite, tmp_path: Path) -> None:
    """Each has the settings of a user with which hosts would not wait for each other, and wants something else."""
    site.change()
    shutil.copytree(site.folder, tmp_path / "site", symlinks=True)
    other = ChangingSite(tmp_path / "site", rack)
    other.credit, other.has_rules = site.credit, site.has_rules
    other.change()
    for one in (site, other):
        (one.folder / "ansible.cfg").write_text(FREE)
    processes = [
        subprocess.Popen(
            one.command("rollout", "--yes", "--json"), cwd=one.folder, env=one.environment, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )
        for one in (site, other)
    ]  # fmt: skip
    said = [one.communicate(timeout=900) for one in processes]
    codes = [one.returncode for one in processes]
    (site.folder / "ansible.cfg").unlink()
    assert sorted(codes) in ([0, 1], [1, 1]), said
    for code, (out, err) in zip(codes, said, strict=True):
        rows = [row for row in json.loads(out)["rows"] if row["host"] in HOSTS] if out else []
        if code:
            assert rows == []
            assert "nothing was changed on any host" in err, err
        else:
            assert {row["state"] for row in rows} == {"ok"}, rows
    assert not any(noted(host) for host in HOSTS)
    if 0 in codes:
        first = (site, other)[codes.index(0)]
        first.whole()
    site.run("rollout", "--yes")
    site.whole()
