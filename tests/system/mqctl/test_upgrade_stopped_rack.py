"""Upgrades that do not come to their end, under traffic, on real hosts. Needs root and the rack.

A canary does not start, an upgrade is paused and taken back from its middle, one is stopped, and two ways back are
refused. The tests are one story and run in their order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.rack_traffic import Traffic, traffic_of
from tests.system.mqctl.test_upgrade_rack import HOSTS, NEW, OLD, OWN_NODES, TwoReleases, clients, rack, two_releases

pytestmark = [pytest.mark.system, pytest.mark.timeout(1500)]

# A start deletes what options of then do not declare.
FORCED = OWN_NODES.replace(
    'match: "#", redistribution_delay: 0', 'match: "#", redistribution_delay: 0, config_delete_addresses: FORCE'
)
DECLARED = "mq_addresses: [{name: later, anycast: [{name: later}]}]\n"
STARTS_NOT = "ExecStartPre=/bin/sh -c '! readlink /opt/mq/current | grep -q {release}'"
GO = "/run/broker-may-start"
WAITS = f"ExecStartPre=/bin/sh -c 'until test -e {GO}; do sleep 0.2; done'\\nTimeoutStartSec=infinity"
DROP_IN = "/etc/systemd/system/mqbroker@.service.d/begins.conf"
LATER = "/var/lib/mq/default/journal/journal-9999999999.mqj"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoReleases]:
    with two_releases(tmp_path_factory.mktemp("upgrade") / "site", FORCED) as one:
        yield one


@pytest.fixture(scope="module")
def traffic(site: TwoReleases) -> Iterator[Traffic]:
    with traffic_of(site, clients(site)) as one:
        yield one


def drop_in(line: str) -> None:
    """How brokers of mq1 begin from now on."""
    script = 'mkdir -p "$(dirname "$0")" && printf "%b\\n" "[Service]" "$1" > "$0" && systemctl daemon-reload'
    rack("exec", "mq1", "--", "sh", "-c", script, DROP_IN, line)


def test_a_canary_that_does_not_start_leaves_the_others_and_goes_back(site: TwoReleases, traffic: Traffic) -> None:
    """It is the release that does not start there, and nothing that was on the host before."""
    drop_in(STARTS_NOT.format(release=site.releases[NEW]))
    failed = site.run("upgrade", "--yes", "--bundle", NEW, "--batch", "100%", code=1)
    assert "mq1: failed" in failed.stderr
    assert site.current() == [NEW, OLD, OLD]
    assert site.running(code=3)[1:] == [OLD, OLD]
    site.run("rollback", "--yes")
    drop_in("")
    assert site.running() == [OLD] * 3


def test_a_paused_upgrade_holds_the_hosts_and_is_taken_back_from_its_middle(
    site: TwoReleases, traffic: Traffic
) -> None:
    def pause() -> None:
        """While the canary waits for its broker, however long this takes."""
        site.was_killed = True  # the folder of the other run is there
        site.run("upgrade", "pause", code=3)
        rack("exec", "mq1", "--", "touch", GO)

    drop_in(WAITS)
    said = site.until("mq1: changed: release: Link the current release", pause, "upgrade", "--yes", "--bundle", NEW)
    site.was_killed = False
    drop_in("")
    assert "paused; mqctl upgrade --resume goes on" in said
    assert [row["operation"] for row in site.rows("upgrade", "status", code=3)] == ["paused (mqctl upgrade)"] * 3
    assert site.running(code=3) == [NEW, OLD, OLD]
    assert "is paused" in site.run("rollout", "--yes", "--bundle", NEW, code=1).stderr
    site.run("rollback", "--yes")
    assert site.running() == [OLD] * 3


def test_a_stopped_upgrade_leaves_two_releases_that_work_together(site: TwoReleases, traffic: Traffic) -> None:
    site.killed_at("mq2: changed: broker: Let systemd do it", "upgrade", "--yes", "--bundle", NEW)
    said = site.run("upgrade", "stop", "--yes", code=3).stderr
    assert "two releases work together" in said
    assert {row["operation"] for row in site.rows("upgrade", "status", code=3)} == {"free"}
    assert site.current()[::2] == [NEW, OLD]
    assert [row["state"] for row in site.rows("cluster", "canary")] == ["confirmed"] * 6
    assert "no upgrade holds a host" in site.run("upgrade", "pause", code=1).stderr


def test_what_a_later_release_has_written_or_would_delete_is_no_way_back(site: TwoReleases, traffic: Traffic) -> None:
    site.set_options(FORCED + DECLARED)
    site.run("upgrade", "--yes", "--bundle", NEW)
    site.was_killed = False
    rack("exec", "mq2", "--", "sh", "-c", f"printf 'MQOPSJNL\\000\\002' > {LATER}")
    refused = site.run("rollback", "--yes", code=1).stderr
    rack("exec", "mq2", "--", "rm", LATER)
    assert "reads journals of format 1, and that of default has files of format 2" in refused
    assert "would delete with all messages: default: address later" in site.run("rollback", "--yes", code=1).stderr
    assert site.running() == [NEW] * 3
    assert {row["operation"] for row in site.rows("upgrade", "status")} == {"free"}


def test_nothing_was_lost_and_nothing_came_twice(site: TwoReleases, traffic: Traffic) -> None:
    verdict = traffic.verdict()
    print(json.dumps(verdict["counts"]))
    assert verdict["violations"] == [], verdict
    assert min(verdict["counts"]["accepted"][host] for host in HOSTS) > 0
