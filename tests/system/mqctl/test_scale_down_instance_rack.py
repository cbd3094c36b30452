"""One of two instances of a host leaves under traffic, and mqctl is killed on the way, on real hosts.

Needs root and the rack. The tests are one story and run in their order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster_load import CREDIT
from tests.support.rack_site import Rack, Site, site_on
from tests.support.rack_traffic import OPTIONS, Traffic, leaver_clients, traffic_of
from tests.system.mqctl.test_scale_down_rack import killed_at

pytestmark = [pytest.mark.system, pytest.mark.timeout(1500)]

rack = Rack("instance")
BACKLOG = 20_000
BLUE = "mq3/blue"
KEPT = 300
# Clients reach blue where they reach other hosts, and green at ports of its own.
LISTED = r"""\g<0>\1  mq_instances:
\1    - name: blue   # the first
\1    - name: green
\1      port_offset: 100
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_on(rack, "3", folder=tmp_path_factory.mktemp("instance") / "site") as one:
        inventory = one.folder / "inventory.yml"
        text, count = re.subn(r"(?m)^( *)mq3:\n", LISTED, inventory.read_text())
        assert count == 1, text
        inventory.write_text(text)
        one.set_options(OPTIONS)
        one.run("rollout", "--yes")
        one.run("health", "--until-healthy", "--timeout", "120")
        one.run("send", "of.green", "kept {n}", "--count", str(KEPT), "--to", "mq3/green")
        yield one


@pytest.fixture(scope="module")
def traffic(site: Site) -> Iterator[Traffic]:
    with traffic_of(site, leaver_clients(site, BACKLOG)) as one:
        yield one


def test_the_plan_says_what_moves_where_and_changes_nothing(site: Site, traffic: Traffic) -> None:
    said = site.run("scale-down", BLUE, "--to", "mq1", "--check").stderr
    assert any(line.split()[1:5] == ["blue", "old", "old", str(BACKLOG)] for line in said.splitlines()), said
    assert "of.green" not in said
    rows = site.rows("scale-down", BLUE, "--show")
    assert [(row["host"], row["instance"], row["state"]) for row in rows] == [("mq3", "blue", "none")]
    assert "mq3 has no instance red" in site.run("scale-down", "mq3/red", code=2).stderr
    assert "is named twice" in site.run("scale-down", "mq3", BLUE, code=2).stderr


def test_it_is_killed_while_messages_move_and_the_broker_goes_on(site: Site, traffic: Traffic) -> None:
    killed_at(site, f"{BLUE} -> mq1: mov", "--to", "mq1", who=BLUE)
    refused = site.run("scale-down", "mq3", "--yes", code=1)
    assert f"(mqctl scale-down {BLUE}, " in refused.stderr
    assert f"mqctl scale-down {BLUE} --resume" in refused.stderr
    (row,) = site.rows("scale-down", "mq3/green", "--show")
    assert row["state"] == "none"


def test_it_is_killed_while_the_broker_is_removed(site: Site, traffic: Traffic) -> None:
    said = killed_at(site, "mq3: changed: uninstall: ", "--resume", who=BLUE)
    assert "-mq3-blue.json" in said
    site.was_killed = True


def test_it_goes_on_and_everything_is_accounted_for(site: Site, traffic: Traffic) -> None:
    done = site.run("scale-down", BLUE, "--yes", "--resume", "--write", "--json")
    document = json.loads(done.stdout)
    assert (document["host"], document["instances"], document["differences"]) == ("mq3", ["blue"], [])
    rows = {row["queue"]: row for row in document["rows"]}
    assert {row["instance"] for row in rows.values()} == {"blue"}
    assert (rows["old"]["before"], rows["old"]["moved"], rows["old"]["left"]) == (BACKLOG, BACKLOG, 0)
    assert f"nothing of {BLUE} is left at 3 other nodes" in done.stderr
    verdict = traffic.verdict()
    assert verdict["violations"] == []
    lost = sum(verdict["counts"]["lost_connections"].values())
    assert verdict["counts"]["redelivered"] <= CREDIT * max(1, lost)
    assert verdict["counts"]["accepted"]["mq3"] > 0


def test_nothing_of_it_is_left_and_the_other_one_has_noticed_nothing(site: Site) -> None:
    inventory = (site.folder / "inventory.yml").read_text()
    assert ("blue" in inventory, "- name: green\n" in inventory) == (False, True)
    assert {row["state"] for row in site.rows("operation", "show")} == {"free"}
    rows = {(row["host"], row["instance"]): row for row in site.rows("status")}
    assert {place: row["state"] for place, row in rows.items()} == dict.fromkeys(
        [("mq1", "default"), ("mq2", "default"), ("mq3", "green")], "running"
    )
    assert rows["mq3", "green"]["messages"] == KEPT
    assert {row["links_up"] for row in rows.values()} == {"2/2"}
    archive = Path(rack("exec", "mq3", "--", "sh", "-c", "dirname /var/lib/mq/.archive/*/blue").strip())
    assert {"receipt.json", "blue"} == set(rack("exec", "mq3", "--", "ls", str(archive)).split())
    assert rack("exec", "mq3", "--", "ls", "/var/lib/mq").split() == ["green"]
    assert rack("exec", "mq3", "--", "ls", "/etc/mq").split() == ["green"]
    plan = site.document("plan")
    assert (plan["rows"], plan["left_over"]) == ([], [])


def test_the_one_that_is_left_leaves_as_the_host(site: Site) -> None:
    done = site.run("scale-down", "mq3/green", "--to", "mq1", "--yes", "--write", "--json")
    document = json.loads(done.stdout)
    assert ("instances" in document, document["differences"]) == (False, [])
    assert "mq3 has left cluster" in done.stderr
    assert "mq3" not in (site.folder / "inventory.yml").read_text()
    assert rack("exec", "mq3", "--", "ls", "/var/lib/mq").strip() == ""
    assert [row["state"] for row in site.rows("status")] == ["running"] * 2
    held = {(row["host"], row["queue"]): row["messages"] for row in site.rows("queue", "list")}
    assert held["mq1", "of.green"] == KEPT
