"""A host leaves its cluster under traffic, and mqctl is killed on the way, on real hosts. Needs root and the rack.

The tests are one story and run in their order.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster_load import CREDIT
from tests.support.rack_site import RACK, Rack, Site, site_on
from tests.support.rack_traffic import OPTIONS, Traffic, leaver_clients, traffic_of
from tests.system.mqctl.test_plain_playbooks import ANSIBLE

pytestmark = [pytest.mark.system, pytest.mark.timeout(1500)]


rack = Rack("scaledown")
BACKLOG = 20_000


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_on(rack, "3", folder=tmp_path_factory.mktemp("scaledown") / "site") as one:
        one.set_options(OPTIONS)
        one.run("rollout", "--yes")
        one.run("health", "--until-healthy", "--timeout", "120")
        yield one


@pytest.fixture(scope="module")
def traffic(site: Site) -> Iterator[Traffic]:
    with traffic_of(site, leaver_clients(site, BACKLOG)) as one:
        yield one


def killed_at(site: Site, line: str, *words: str, who: str = "mq3") -> str:
    """A scale-down that is killed with all its processes when it says this; what it had said."""
    with subprocess.Popen(
        site.command("scale-down", who, "--yes", *words), cwd=site.folder, env=site.environment,
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        said = []
        for one in process.stderr:
            said.append(one)
            if line in one:
                site.kill_everything()
                break
        else:
            pytest.fail("it ended before that: " + "".join(said))
        process.wait(60)
    return "".join(said)


def test_the_plan_says_what_moves_where_and_changes_nothing(site: Site, traffic: Traffic) -> None:
    said = site.run("scale-down", "mq3", "--to", "mq1", "--check").stderr
    assert any(line.split()[2:5] == ["old", "old", str(BACKLOG)] for line in said.splitlines()), said
    assert "move to mq1" in said
    assert [row["state"] for row in site.rows("scale-down", "mq3", "--show")] == ["none"]
    assert "is not a host of cluster" in site.run("scale-down", "mq9", code=2).stderr
    assert "mq3 does not drain" in site.run("scale-down", "mq3", "--resume", "--yes", code=1).stderr


def test_data_of_a_broker_that_runs_is_not_moved_aside(site: Site, traffic: Traffic) -> None:
    """As where somebody started it after its journal was looked into."""
    words = ["mqops.cluster.uninstall", "-i", "inventory.yml", "--limit", "mq3", "-e", "mq_uninstall_archive=aside"]
    command = [sys.executable, str(RACK), "enter", "--", str(ANSIBLE), *words]
    done = subprocess.run(
        command, cwd=site.folder, env=site.environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode != 0, done.stdout
    assert "mqbroker@default.service: runs, so nobody has looked into its journal" in done.stdout
    assert [row["state"] for row in site.rows("status")] == ["running"] * 3
    assert rack("exec", "mq3", "--", "ls", "/var/lib/mq").split() == ["default"]
    # Nothing ends it by itself.
    assert "operation 2 (an uninstallation, " in site.run("scale-down", "mq3", "--yes", code=1).stderr
    site.run("operation", "release", "--yes")


def test_it_is_killed_while_messages_move_and_the_brokers_go_on(site: Site, traffic: Traffic) -> None:
    killed_at(site, "mq3 -> mq1: mov", "--to", "mq1")
    (row,) = site.rows("scale-down", "mq3", "--show")
    assert row["state"] in ("moving", "moved")
    assert row["to"] == "mq1"
    refused = site.run("scale-down", "mq3", "--yes", code=1)
    assert "operation 4 (mqctl scale-down mq3, " in refused.stderr
    assert "mqctl scale-down mq3 --resume" in refused.stderr
    # Nobody changes the cluster while it drains, whoever has begun that.
    assert "operation 4 (mqctl scale-down mq3, " in site.run("rollout", "--yes", "--full", code=1).stderr
    assert {row["state"] for row in site.rows("operation", "show")} == {"held"}


def test_it_is_killed_while_the_broker_is_removed(site: Site, traffic: Traffic) -> None:
    said = killed_at(site, "mq3: changed: uninstall: ", "--resume")
    assert "wrote " in said
    site.was_killed = True


def test_it_goes_on_and_everything_is_accounted_for(site: Site, traffic: Traffic) -> None:
    done = site.run("scale-down", "mq3", "--yes", "--resume", "--write", "--json")
    document = json.loads(done.stdout)
    assert document["differences"] == []
    rows = {row["queue"]: row for row in document["rows"]}
    assert (rows["old"]["before"], rows["old"]["moved"], rows["old"]["left"]) == (BACKLOG, BACKLOG, 0)
    assert all(row["balances"] for row in rows.values())
    assert "nothing of mq3 is left at 2 other nodes" in done.stderr
    kept = sorted(site.folder.glob("receipts/*"))
    assert [path.suffix for path in kept] == [".json", ".txt"]
    assert "It balances." in kept[1].read_text()
    verdict = traffic.verdict()
    assert verdict["violations"] == []
    # What a consumer has taken and not yet said as its connection is closed or lost comes again, and is flagged.
    lost = sum(verdict["counts"]["lost_connections"].values())
    assert verdict["counts"]["redelivered"] <= CREDIT * max(1, lost)
    assert verdict["counts"]["accepted"]["mq3"] > 0


def test_nothing_of_it_is_left_and_its_data_is_kept(site: Site) -> None:
    inventory = (site.folder / "inventory.yml").read_text()
    assert "mq3" not in inventory
    assert {row["state"] for row in site.rows("operation", "show")} == {"free"}
    assert [row["state"] for row in site.rows("status")] == ["running"] * 2
    assert [(row["links_up"], row["messages"]) for row in site.rows("status")] == [("1/1", 0)] * 2
    archive = Path(rack("exec", "mq3", "--", "sh", "-c", "echo /var/lib/mq/.archive/*").strip())
    listed = rack("exec", "mq3", "--", "ls", str(archive), f"{archive}/default").split()
    assert {"receipt.json", "default", "journal", "identity.json"} <= set(listed)
    assert rack("exec", "mq3", "--", "ls", "/var/lib/mq").strip() == ""
