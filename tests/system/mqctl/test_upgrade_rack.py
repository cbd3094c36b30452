"""A cluster goes from the last release to this one and back under traffic, on real hosts. Needs root and the rack.

mqctl is killed on the way in both directions, and goes on. The traffic is what the gate asks for before each of them.
The tests are one story and run in their order.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.last_release import bundle
from tests.support.rack_site import Rack, Site, site_on
from tests.support.rack_traffic import OPTIONS, Traffic, traffic_of, uris

pytestmark = [pytest.mark.system, pytest.mark.timeout(1500)]

rack = Rack("upgrade")
# Clients are not told of other nodes, so each consumer comes back to its own and the gate finds one everywhere.
OWN_NODES = OPTIONS.replace(" client_connector_ref: clients,", "")
HOSTS = ["mq1", "mq2", "mq3"]
BACKLOG = 5_000
OLD, NEW = "before", "after"


class TwoReleases(Site):
    """A site with the bundles of two releases, and what they are called on hosts."""

    def __init__(self, folder: Any, on: Rack) -> None:
        super().__init__(folder, on)
        (folder / OLD).symlink_to(bundle())
        self.take_bundle()
        (place,) = (folder / "dist").glob("bundle-*")
        (folder / NEW).symlink_to(place)
        self.releases = {
            name: json.loads((folder / name / "manifest.json").read_text())["release"] for name in (OLD, NEW)
        }
        assert self.releases[OLD] != self.releases[NEW]

    def running(self, code: int = 0) -> list[str]:
        """What each host runs, by our names."""
        names = {release: name for name, release in self.releases.items()} | {"": ""}
        return [names[row["running"]] for row in self.rows("upgrade", "status", code=code)]

    def current(self) -> list[str]:
        """What each host would run after a boot."""
        names = {release: name for name, release in self.releases.items()}
        return [names[row["release"]] for row in self.rows("upgrade", "status", code=3)]

    def until(self, line: str, then: Any, *words: str) -> str:
        """A command, and what is done when it says this; what it had said."""
        with subprocess.Popen(
            self.command(*words), cwd=self.folder, env=self.environment, stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL, text=True,
        ) as process:  # fmt: skip
            assert process.stderr is not None
            said, is_waiting = [], True
            for one in process.stderr:
                said.append(one)
                if is_waiting and line in one:
                    is_waiting = False
                    then()
            process.wait(300)
        assert not is_waiting, "".join(said)
        return "".join(said)

    def killed_at(self, line: str, *words: str) -> None:
        self.until(line, self.kill_everything, *words)
        self.was_killed = True


@contextmanager
def two_releases(folder: Path, options: str) -> Iterator[TwoReleases]:
    """Three hosts that are a cluster of the last release; the folder is made."""
    with site_on(rack, "3", folder=folder, has_bundle=False) as one:
        both = TwoReleases(one.folder, rack)
        both.set_options(options)
        both.run("rollout", "--yes", "--bundle", OLD)
        both.run("health", "--until-healthy", "--timeout", "120")
        yield both


def clients(site: Site) -> dict[str, Any]:
    """A producer and a consumer at each host, so that the gate finds somebody who consumes while one of them is away;
    and a backlog."""
    uri = uris(site)
    rings = [HOSTS[number:] + HOSTS[:number] for number in range(3)]
    return {
        "queue": "orders",
        "producers": {ring[0]: uri(*ring) for ring in rings},
        "consumers": {host: uri(host) for host in HOSTS},
        "backlog": {"queue": "old", "uri": uri("mq3"), "count": BACKLOG, "read_from": uri("mq1")},
        # 0.1.0 closes its connections with what it has just taken in, and a producer sends that again to another node.
        "answers_at_stop": False,
    }


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoReleases]:
    with two_releases(tmp_path_factory.mktemp("upgrade") / "site", OWN_NODES) as one:
        yield one


@pytest.fixture(scope="module")
def traffic(site: TwoReleases) -> Iterator[Traffic]:
    with traffic_of(site, clients(site)) as one:
        yield one


def test_an_upgrade_that_is_killed_at_its_first_host_says_where_it_is(site: TwoReleases, traffic: Traffic) -> None:
    assert site.running() == [OLD] * 3
    site.killed_at("mq1: changed: broker: Let systemd do it", "upgrade", "--yes", "--bundle", NEW)
    rows = site.rows("upgrade", "status", code=3)
    assert [row["operation"] for row in rows] == ["held (mqctl upgrade)"] * 3
    assert {row["goal"] for row in rows} == {site.releases[NEW]}
    assert [row["state"] for row in rows][1:] == ["to do"] * 2
    assert "mqctl upgrade --resume" in site.run("upgrade", "--yes", "--bundle", NEW, code=1).stderr
    assert "mqctl upgrade --resume" in site.run("rollback", "--yes", code=1).stderr
    refused = site.run("upgrade", "resume", "--yes", "--bundle", OLD, code=1).stderr
    assert f"mqctl upgrade was begun with release {site.releases[NEW]}" in refused


def test_it_goes_on_from_there(site: TwoReleases, traffic: Traffic) -> None:
    said = site.run("upgrade", "resume", "--yes", "--bundle", NEW, "--batch", "100%").stderr
    site.was_killed = False
    assert "3 nodes of cluster main up and distinct" in said
    assert site.running() == [NEW] * 3
    assert site.rows("plan", "--bundle", NEW) == []
    assert {row["operation"] for row in site.rows("upgrade", "status")} == {"free"}


def test_all_of_it_is_taken_back_also_by_a_rollback_that_was_killed(site: TwoReleases, traffic: Traffic) -> None:
    site.killed_at("mq1: changed: broker: Let systemd do it", "rollback", "--yes")
    assert "mqctl rollback --resume" in site.run("rollback", "--yes", code=1).stderr
    site.run("rollback", "--yes", "--resume")
    site.was_killed = False
    assert site.running() == [OLD] * 3
    assert [row["state"] for row in site.rows("status")] == ["running"] * 3


def test_nothing_was_lost_and_nothing_came_twice(site: TwoReleases, traffic: Traffic) -> None:
    """What had not yet been said as its broker stopped may come again, flagged as redelivered."""
    verdict = traffic.verdict()
    print(json.dumps(verdict["counts"]))
    assert verdict["violations"] == []
    assert min(verdict["counts"]["accepted"][host] for host in HOSTS) > 0
