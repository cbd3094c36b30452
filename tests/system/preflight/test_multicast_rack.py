"""`mqctl preflight --multicast` and the playbook on real hosts with systemd, sshd and two cards. Needs the rack.

mq3 is a host of the cluster `main` but where a test makes it one of `west`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.rack_site import RACK, Rack, Site, site_on

pytestmark = pytest.mark.system

HOSTS = ["mq1", "mq2", "mq3"]
MANY = 20
GROUP = "{name: lan, group_address: 231.7.7.7, group_port: 9876"
OPTIONS = (
    "mq_connectors:\n  - {name: cluster, port: 5673}\n"
    f"mq_broadcast_groups:\n  - {GROUP}, connector_ref: cluster%s}}\n"
    f"mq_discovery_groups:\n  - {GROUP}%s}}\n"
)


rack = Rack("matrix")


class ProbingSite(Site):
    """A site whose hosts are to hear each other."""

    def groups(self, more: str = "") -> None:
        """Declare the groups; `more` goes into each."""
        self.set_options(OPTIONS % (more, more))

    def preflight(self, *words: str, code: int = 0) -> dict[str, Any]:
        return self.document("preflight", "--multicast", *words, code=code)

    def playbook(self, code: int) -> str:
        program = Path(sys.executable).parent / "ansible-playbook"
        done = subprocess.run(
            [sys.executable, RACK, "enter", "--", program, "-i", "inventory.yml", "mqops.cluster.preflight"],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProbingSite]:
    with site_on(rack, "3", folder=tmp_path_factory.mktemp("rack") / "site", has_bundle=False) as one:
        yield ProbingSite(one.folder, rack)


def cells(found: dict[str, Any]) -> dict[str, str]:
    """Sender -> what its row says, one letter a receiver."""
    letters = {"ok": "+", "missed": "x", "itself": ".", "elsewhere": "!", "unknown": "?"}
    (group,) = found["multicast"]
    return {one: "".join(letters[row[other]] for other in HOSTS) for one, row in group["heard"].items()}


def test_without_groups_there_is_nothing_to_probe(site: ProbingSite) -> None:
    found = site.preflight()
    assert found["multicast"] == []
    assert [(row["host"], row["level"]) for row in found["rows"]] == [(host, "ok") for host in HOSTS]


def test_three_hosts_hear_each_other(site: ProbingSite) -> None:
    site.groups()
    found = site.preflight()
    assert cells(found) == {"mq1": ".++", "mq2": "+.+", "mq3": "++."}
    assert [(row["host"], row["level"]) for row in found["rows"]] == [(host, "ok") for host in HOSTS]


def test_a_card_that_is_cut_and_a_host_that_is_off(site: ProbingSite) -> None:
    site.groups()
    rack("cut", "mq3", "eth1")
    try:
        found = site.preflight(code=1)
    finally:
        rack("heal", "mq3", "eth1")
    assert cells(found) == {"mq1": ".+x", "mq2": "+.x", "mq3": "xx."}
    told = [(row["host"], row["message"]) for row in found["rows"] if row["level"] == "error"]
    assert [host for host, _ in told] == ["mq3"]
    assert "eth1 is down or has no carrier" in told[0][1]
    rack("kill", "mq3")
    try:
        found = site.preflight(code=3)
    finally:
        rack("boot", "mq3")
    assert cells(found) == {"mq1": ".+?", "mq2": "+.?", "mq3": "??."}
    assert [(row["host"], row["level"]) for row in found["rows"]] == [
        ("mq1", "ok"), ("mq2", "ok"), ("mq3", "unreachable"),
    ]  # fmt: skip


def test_a_group_that_is_not_pinned_leaves_by_the_default_route(site: ProbingSite) -> None:
    site.groups(', local_bind_address: ""')
    found = site.preflight()
    assert cells(found) == {"mq1": ".++", "mq2": "+.+", "mq3": "++."}
    assert {row["level"] for row in found["rows"]} == {"warning"}
    assert {row["host"] for row in found["rows"]} == set(HOSTS)
    assert all("by eth0 as the default route" in row["message"] or "listens on eth0" in row["message"]
               for row in found["rows"])  # fmt: skip


def test_the_playbook_compares_too_and_knows_a_foreign_cluster(site: ProbingSite) -> None:
    site.groups()
    own = site.folder / "host_vars/mq3.yml"
    own.parent.mkdir()
    own.write_text("mq_cluster_name: west\n")
    try:
        # There is no bundle, and that alone is an error.
        said = site.playbook(code=2)
    finally:
        own.unlink()
    assert "1  mq1  . +" in said
    assert "2  mq2  + ." in said
    assert "1  mq3  ." in said
    assert said.count("cluster west is on it as well (198.51.100.13)") == 2
    assert "cluster main is on it as well (198.51.100.11, 198.51.100.12)" in said
    assert "is not heard" not in said
    assert rack("exec", "mq1", "--", "sh", "-c", "grep -c mqops-multicast-probe /proc/net/unix; true").strip() == "0"


@pytest.fixture
def many(tmp_path: Path) -> Iterator[Site]:
    with site_on(Rack("many"), str(MANY), folder=tmp_path / "site", has_bundle=False) as one:
        one.set_options(OPTIONS % ("", ""))
        yield one


def test_who_hears_whom_of_twenty_hosts_is_drawn(many: Site) -> None:
    numbers = range(1, MANY + 1)
    start_s = time.monotonic()
    drawn = many.run("preflight", "--multicast").stdout.translate({ord("✓"): "+", ord("·"): "."})
    print(f"{MANY} hosts: who hears whom in {time.monotonic() - start_s:.1f} s")
    rows = [line.split() for line in drawn.splitlines() if re.match(" *[0-9]+  mq", line)]
    assert [row[1:] for row in rows] == [
        [f"mq{sender}", *("." if one == sender else "+" for one in numbers)] for sender in numbers
    ]
