"""Probes between hosts with two network cards: what is heard, where, and what is said of what is not."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.multicast_probes import Probes
from tests.support.networks import NetworkHost, Networks, ip

pytestmark = pytest.mark.system

ETH1 = {"interface": "eth1"}
UNPINNED: dict[str, str] = {}
PATIENT_S = 60.0  # where everything is heard, nobody waits as long


@pytest.fixture
def networks() -> Iterator[Networks]:
    with Networks() as made:
        yield made


@pytest.fixture
def hosts(networks: Networks) -> list[NetworkHost]:
    return [networks.host(f"mq{number}") for number in (1, 2, 3)]


def default_route(host: NetworkHost) -> None:
    ip("-n", host.namespace, "route", "add", "default", "via", "192.0.2.1", "dev", "eth0", "onlink")


def filter_input(host: NetworkHost, rule: str) -> None:
    """A packet filter on a host."""
    text = f"table inet t {{ chain c {{ type filter hook input priority 0;\n{rule}\n}}\n}}\n"
    subprocess.run([*host.within, "nft", "-f", "-"], input=text, text=True, check=True, timeout=60)


def test_all_hear_each_other_on_the_card_that_is_pinned_and_on_no_other(hosts: list[NetworkHost]) -> None:
    with Probes(PATIENT_S) as probes:
        for host in hosts:
            probes.start(host, {"address": host.address("eth1")})
        group, findings = probes.judged()
        reports = probes.reports()
    names = [host.name for host in hosts]
    assert group.cells == {one: {other: "itself" if one == other else "ok" for other in names} for one in names}
    assert findings == []
    for name, report in reports.items():
        (place,) = report["places"]
        others = sorted(set(names) - {name})
        assert {host: list(cards) for host, cards in place["heard"].items()} == {key: ["eth1"] for key in others}
        assert sorted(place["echoed"]) == sorted(place["direct"]) == others


def test_a_card_that_is_cut_is_told_of_once(hosts: list[NetworkHost], networks: Networks) -> None:
    ip("-n", networks.switch, "link", "set", "mq3-eth1", "down")
    with Probes() as probes:
        for host in hosts:
            probes.start(host, ETH1)
        group, findings = probes.judged()
    assert group.cells["mq1"] == {"mq1": "itself", "mq2": "ok", "mq3": "missed"}
    assert group.cells["mq2"] == {"mq1": "ok", "mq2": "itself", "mq3": "missed"}
    assert group.cells["mq3"] == {"mq1": "missed", "mq2": "missed", "mq3": "itself"}
    assert [(one["host"], one["level"]) for one in findings] == [("mq3", "error")]
    assert "eth1 is down or has no carrier" in findings[0]["message"]


def test_what_is_not_pinned_leaves_by_the_default_route(hosts: list[NetworkHost]) -> None:
    for host in hosts:
        default_route(host)
    with Probes() as probes:
        probes.start(hosts[0], UNPINNED)
        for host in hosts[1:]:
            probes.start(host, ETH1)
        group, findings = probes.judged()
    assert group.cells["mq1"] == {"mq1": "itself", "mq2": "elsewhere", "mq3": "elsewhere"}
    assert group.cells["mq2"]["mq3"] == group.cells["mq3"]["mq2"] == "ok"
    said = [(one["host"], one["level"], one["message"]) for one in findings]
    warned = [text for host, level, text in said if (host, level) == ("mq1", "warning")]
    assert any("so it leaves by eth0 as the default route will have it" in text for text in warned)
    (mistaken,) = [text for host, level, text in said if (host, level) == ("mq2", "error")]
    assert "mq1 is heard on eth0 instead of eth1; mq1 is not pinned and leaves by eth0" in mistaken


def test_without_a_route_nothing_that_is_not_pinned_is_sent(hosts: list[NetworkHost]) -> None:
    with Probes() as probes:
        probes.start(hosts[0], UNPINNED)
        probes.start(hosts[1], {"interface": "eth7"})
        probes.start(hosts[2], {"address": "203.0.113.9"})
        _, findings = probes.judged()
    texts = {one["host"]: one["message"] for one in findings}
    assert "the host has no route for it" in texts["mq1"]
    assert "there is no network card eth7" in texts["mq2"]
    assert "has the address 203.0.113.9" in texts["mq3"]


def test_a_packet_filter_for_multicast_makes_one_host_deaf(hosts: list[NetworkHost]) -> None:
    filter_input(hosts[2], "ip daddr 231.7.7.7 drop")
    with Probes() as probes:
        for host in hosts:
            probes.start(host, ETH1)
        group, findings = probes.judged()
    assert [group.cells[one]["mq3"] for one in ("mq1", "mq2")] == ["missed", "missed"]
    assert [group.cells["mq3"][one] for one in ("mq1", "mq2")] == ["ok", "ok"]
    (finding,) = findings
    assert (finding["host"], finding["level"]) == ("mq3", "error")
    assert "this host hears nobody on eth1, and is heard by others; unicast passes" in finding["message"]


def test_one_way_between_two_hosts(hosts: list[NetworkHost]) -> None:
    filter_input(hosts[2], f"ip saddr {hosts[0].address('eth1')} drop")
    with Probes() as probes:
        for host in hosts:
            probes.start(host, ETH1)
        _, findings = probes.judged()
    (finding,) = findings
    assert (finding["host"], finding["level"]) == ("mq3", "error")
    assert (
        "mq1 is not heard on eth1 (one way only: mq1 does hear it); unicast does not pass either"
        in (finding["message"])
    )


def test_foreign_clusters_other_runs_and_forged_probes_do_not_count(hosts: list[NetworkHost]) -> None:
    others = [Probes(cluster="west"), Probes(run="run-2"), Probes(key="cd" * 32)]
    try:
        for one in others:
            one.start(hosts[2], ETH1)
        with Probes() as probes:
            for host in hosts[:2]:
                probes.start(host, ETH1)
            group, findings = probes.judged()
    finally:
        for one in others:
            one.close()
    assert group.cells == {"mq1": {"mq1": "itself", "mq2": "ok"}, "mq2": {"mq1": "ok", "mq2": "itself"}}
    texts = [one["message"] for one in findings if one["host"] == "mq1"]
    assert [one["level"] for one in findings] == ["warning"] * 6
    assert any("cluster west is on it as well (198.51.100.13)" in text for text in texts)
    assert any("another preflight of this cluster runs" in text for text in texts)
    assert any("not its key" in text for text in texts)


def discovery_of(broker: BrokerProcess) -> dict[str, Any]:
    (group,) = [row for row in broker.admin("discovery")["groups"] if row["kind"] == "discovery"]
    return group


def test_probes_do_not_disturb_brokers_that_run(hosts: list[NetworkHost], tmp_path: Path) -> None:
    local = hosts[0].address("eth1")
    place = {"name": "lan", "local-bind-address": local, "group-address": "231.7.7.7", "group-port": 9876}
    broker = BrokerProcess(
        tmp_path / "broker",
        options={
            "connectors": [{"name": "cluster", "host": local, "port": 5673}],
            "broadcast-groups": [{**place, "broadcast-period": 100, "connector-ref": "cluster"}],
            "discovery-groups": [place],
        },
        network=hosts[0].network,
    )
    try:
        broker.prepare()
        secret = ("secret", "set", "--stdin", "--config", str(broker.config_file))
        broker.command(*secret, stdin="a secret of the cluster\n")
        broker.start()
        with Probes(PATIENT_S) as probes:
            for host in hosts:
                probes.start(host, ETH1)
            group, findings = probes.judged()
            report = probes.reports()["mq2"]
        shown = discovery_of(broker)
        notices = [row for row in broker.admin("events")["events"] if row["event"] == "discovery-datagram-dropped"]
    finally:
        broker.close()
    assert {state for row in group.cells.values() for state in row.values()} == {"ok", "itself"}
    assert findings == []
    assert [one["source"] for one in report["places"][0]["announced"]] == [local]
    assert shown["dropped_by_reason"]["probe"] > 0
    assert shown["dropped"] == 0
    assert notices == []


def test_a_probe_ends_with_its_life(hosts: list[NetworkHost]) -> None:
    probes = Probes(life_s=0.5)
    probes.start(hosts[0], ETH1)
    deadline_s = time.monotonic() + 60
    (process,) = probes._processes.values()
    while process.poll() is None:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    probes.close()
