"""Connectors and groups in broker.toml and in inventories: what is refused, and what is doubted."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.config.clustering import doubts
from mqbroker.config.compare import Verdict, changes, verdict
from mqbroker.config.inventory import check_inventory
from mqbroker.config.load import parse
from mqbroker.config.slices import BrokerOptions

CONNECTOR = '[[connectors]]\nname = "cluster"\nhost = "198.51.100.11"\nport = 5673\n'
BROADCAST = (
    '[[broadcast-groups]]\nname = "lan"\ngroup-address = "231.7.7.7"\ngroup-port = 9876\nconnector-ref = "cluster"\n'
)
DISCOVERY = '[[discovery-groups]]\nname = "lan"\ngroup-address = "231.7.7.7"\ngroup-port = 9876\n'
BASE = {"mq_cluster_name": "orders", "mq_cluster_secret": "0123456789abcdef"}


def good(text: str) -> BrokerOptions:
    options = parse(text)
    assert isinstance(options, BrokerOptions), [str(fault) for fault in options]
    return options


def faults(text: str) -> dict[str, str]:
    found = parse(text)
    assert isinstance(found, list), found
    return {fault.path: fault.why for fault in found}


def doubted(text: str) -> dict[str, str]:
    return {fault.path: fault.why for fault in doubts(good(text))}


def test_defaults_are_those_of_artemis() -> None:
    options = good(CONNECTOR + BROADCAST + DISCOVERY)
    broadcast, discovery = options.broadcast_groups[0], options.discovery_groups[0]
    assert (broadcast.broadcast_period, broadcast.local_bind_port, broadcast.local_bind_address) == (2000, -1, "")
    assert (discovery.refresh_timeout, discovery.initial_wait_timeout) == (10_000, 10_000)
    assert broadcast.time_to_live == 1
    assert doubted(CONNECTOR + BROADCAST + DISCOVERY) == {}


@pytest.mark.parametrize("address", ["224.0.0.1", "231.7.7.7", "239.255.255.255"])
def test_addresses_of_groups(address: str) -> None:
    assert good(DISCOVERY.replace("231.7.7.7", address)).discovery_groups[0].group_address == address


@pytest.mark.parametrize("address", ["224.0.0.0", "223.255.255.255", "240.0.0.0", "ff02::1", "lan", "", "231.7.7"])
def test_what_is_no_address_of_a_group(address: str) -> None:
    found = faults(DISCOVERY.replace("231.7.7.7", address))
    assert "must be an IPv4 multicast address from 224.0.0.1 to 239.255" in found["discovery-groups.0.group-address"]


@pytest.mark.parametrize("address", ["::1", "231.7.7.7", "0.0.0.0", "eth1"])
def test_what_is_no_address_of_a_card(address: str) -> None:
    found = faults(CONNECTOR + BROADCAST + f'local-bind-address = "{address}"\n')
    assert "must be an IPv4 address of this host" in found["broadcast-groups.0.local-bind-address"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "231.7.7.7"])
def test_what_nobody_could_connect_to(host: str) -> None:
    found = faults(CONNECTOR.replace("198.51.100.11", host))
    assert "must be one address of one host" in found["connectors.0.host"]


@pytest.mark.parametrize("host", ["mq1.example.org", "::1", "2001:db8::5", "192.0.2.1"])
def test_hosts_of_connectors(host: str) -> None:
    assert good(CONNECTOR.replace("198.51.100.11", host)).connectors[0].host == host


def test_a_connector_that_is_not_there_is_named() -> None:
    found = faults(BROADCAST)
    assert found == {
        "broadcast-groups.0.connector-ref": "there is no connector cluster; declare it as [[connectors]] (there are: "
        "none)"
    }


def test_names_and_places_are_there_once() -> None:
    found = faults(CONNECTOR * 2 + BROADCAST * 2 + DISCOVERY * 2)
    assert sorted(found) == [
        "broadcast-groups.1.group-address", "broadcast-groups.1.name", "connectors.1.name", "discovery-groups.1.name",
    ]  # fmt: skip
    assert "is declared twice, first as connectors.0" in found["connectors.1.name"]


def test_options_of_jgroups_say_what_to_do_instead() -> None:
    found = faults(CONNECTOR + BROADCAST + 'jgroups-file = "a.xml"\n' + DISCOVERY + 'jgroups-channel = "c"\n')
    assert sorted(found) == ["broadcast-groups.0.jgroups-file", "discovery-groups.0.jgroups-channel"]
    for why in found.values():
        assert "JGroups is not used here" in why
        assert "group-address" in why


def test_a_port_to_send_from_means_nothing_without_an_address() -> None:
    port = "local-bind-port = 9000\n"
    assert "means nothing without local-bind-address" in doubted(CONNECTOR + BROADCAST + port)[
        "broadcast-groups.0.local-bind-port"
    ]  # fmt: skip
    assert doubted(CONNECTOR + BROADCAST + port + 'local-bind-address = "198.51.100.11"\n') == {}


@pytest.mark.parametrize(("timeout_ms", "is_doubted"), [(3999, True), (4000, False)])
def test_a_timeout_below_two_periods_is_doubted(timeout_ms: int, is_doubted: bool) -> None:
    text = CONNECTOR + BROADCAST + DISCOVERY + f"refresh-timeout = {timeout_ms}\n"
    assert list(doubted(text)) == (["discovery-groups.0.refresh-timeout"] if is_doubted else [])
    elsewhere = text.replace("9876\nconnector", "9877\nconnector")
    assert doubted(elsewhere) == {}


def test_a_change_of_groups_needs_a_restart() -> None:
    old, new = good(CONNECTOR + BROADCAST), good(CONNECTOR + BROADCAST + "broadcast-period = 500\n" + DISCOVERY)
    found = changes(old, new)
    assert [change.path for change in found] == ["broadcast-groups.lan.broadcast-period", "discovery-groups.lan"]
    assert verdict(found) is Verdict.RESTART


# -- inventories -------------------------------------------------------------------------------------------------------

GROUP = {"name": "lan", "group_address": "231.7.7.7", "group_port": 9876}
GOOD: dict[str, Any] = {
    "mq_connectors": [{"name": "cluster", "port": 5673}],
    "mq_broadcast_groups": [{**GROUP, "connector_ref": "cluster"}],
    "mq_discovery_groups": [GROUP],
}


def inventory(**changes: Any) -> dict[str, str]:
    return {fault.path: fault.why for fault in check_inventory({"mq1": {**BASE, **GOOD, **changes}})}


def test_an_inventory_with_groups_is_good() -> None:
    assert inventory() == {}
    assert inventory(mq_cluster_interface="eth1", mq_allow_plaintext=True) == {}
    assert inventory(mq_connectors=[{"name": "{{ x }}", "port": 5673}]) == {}


@pytest.mark.parametrize(
    ("changes", "path", "why"),
    [
        ({"mq_connectors": []}, "mq_broadcast_groups.0.connector_ref", "there is no connector cluster"),
        ({"mq_connectors": [{"name": "cluster"}]}, "mq_connectors.0.port", "is required"),
        ({"mq_local_bind_address": "::1"}, "mq_discovery_groups.0.local_bind_address", "must be an IPv4 address"),
        ({"mq_discovery_groups": [GROUP, GROUP]}, "mq_discovery_groups.1.name", "is declared twice"),
        (
            {"mq_discovery_groups": [{**GROUP, "jgroups_file": "x"}]},
            "mq_discovery_groups.0.jgroups_file",
            "JGroups is not used here",
        ),
        (
            {"mq_instances": [{"name": "a", "port_offset": 60_000}]},
            "mq_connectors.0.port",
            "is above 65535 with the port_offset 60000",
        ),
        ({"mq_cluster_secret": "CHANGE ME!!"}, "mq_cluster_secret", "is a well-known default"),
    ],
)
def test_faults_of_an_inventory(changes: dict[str, Any], path: str, why: str) -> None:
    assert why in inventory(**changes)[path]
