"""Connectors and groups in broker.toml and in inventories: what is refused, and what is doubted."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.config.compare import OptionsVerdict, changes, verdict
from mqbroker.config.declarations.clustering import doubts
from mqbroker.config.file.load import parse
from mqbroker.config.inventory.inventory import check_inventory
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


@pytest.mark.parametrize("address", ["224.0.0.0", "223.255.255.255", "240.0.0.0", "ff02::1", "lan", "231.7.7"])
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
    assert verdict(found) is OptionsVerdict.RESTART


# -- kinds of discovery ------------------------------------------------------------------------------------------------

GOSSIP = 'discovery = "gossip"\nlocal-bind-address = "127.0.0.1"\nlocal-bind-port = 7000\npeers = ["mq2:7000"]\n'
PLACES = {
    "file": 'discovery = "file"\ndirectory = "/srv/mq"\n',
    "gossip": GOSSIP,
    "dns": 'discovery = "dns"\nnames = ["mq.example:5673", "_mq._tcp.example.org"]\ntls-enabled = true\n',
}


def kind_of(kind: str, more: str = "") -> str:
    """A file with a group of each sort where the kind has both."""
    listened = f'[[discovery-groups]]\nname = "lan"\n{PLACES[kind]}{more}'
    if kind == "dns":
        return listened
    return f'{CONNECTOR}{listened}[[broadcast-groups]]\nname = "lan"\nconnector-ref = "cluster"\n{PLACES[kind]}'


@pytest.mark.parametrize("kind", PLACES)
def test_each_kind_needs_its_own_options_and_none_of_udp(kind: str) -> None:
    options = good(kind_of(kind, "poll-period = 500\n"))
    (group,) = options.discovery_groups
    assert (group.discovery, group.poll_period, group.group_address) == (kind, 500, "")
    assert [each.discovery for each in options.broadcast_groups] == ([] if kind == "dns" else [kind])


@pytest.mark.parametrize(
    ("kind", "missing"),
    [("udp", ["group-address", "group-port"]), ("file", ["directory"]), ("dns", ["names"]),
     ("gossip", ["local-bind-address", "local-bind-port"])],
)  # fmt: skip
def test_what_a_kind_cannot_do_without(kind: str, missing: list[str]) -> None:
    found = faults(f'[[discovery-groups]]\nname = "lan"\ndiscovery = "{kind}"\n')
    why = f"is required with discovery = {kind} and missing"
    assert found == {f"discovery-groups.0.{name}": why for name in missing}


@pytest.mark.parametrize(
    ("kind", "more", "said"),
    [
        ("file", "group-port = 9876", "group-port goes with discovery = udp, and this group has discovery = file (with "
         "directory); a group has one kind"),
        ("gossip", 'directory = "/srv"', "directory goes with discovery = file, and this group has discovery = gossip"),
        ("dns", 'local-bind-address = "192.0.2.1"', "goes with discovery = udp or gossip, and this group has discovery "
         "= dns (with names, tls-enabled)"),
        ("dns", "refresh-timeout = 5000", "goes with discovery = udp, file or gossip"),
    ],
)  # fmt: skip
def test_options_of_two_kinds_are_a_fault_that_names_both(kind: str, more: str, said: str) -> None:
    found = faults(kind_of(kind, more + "\n"))
    assert list(found) == [f"discovery-groups.0.{more.partition(' ')[0]}"]
    assert said in found[f"discovery-groups.0.{more.partition(' ')[0]}"]


def test_an_option_of_another_kind_in_a_group_of_udp() -> None:
    found = faults(DISCOVERY + 'peers = ["mq2:7000"]\n')
    assert (
        "peers goes with discovery = gossip, and this group has discovery = udp (with group-address, group-port)"
        in (found["discovery-groups.0.peers"])
    )


def test_nobody_is_announced_by_dns() -> None:
    found = faults(CONNECTOR + '[[broadcast-groups]]\nname = "lan"\ndiscovery = "dns"\nconnector-ref = "cluster"\n')
    assert "must be one of 'udp', 'file' or 'gossip'" in found["broadcast-groups.0.discovery"]


@pytest.mark.parametrize("name", ["mq.example", "mq:0", "_mq._tcp", "_mq.example.org", "a b:5"])
def test_what_is_no_name_of_dns(name: str) -> None:
    found = faults(f'[[discovery-groups]]\nname = "lan"\ndiscovery = "dns"\nnames = ["{name}"]\n')
    assert "must be a name and its port" in found["discovery-groups.0.names.0"]


@pytest.mark.parametrize(("kind", "option"), [("file", "directory"), ("gossip", "local-bind-port")])
def test_one_place_has_one_group_of_each_sort(kind: str, option: str) -> None:
    again = f'[[discovery-groups]]\nname = "again"\n{PLACES[kind]}'
    found = faults(kind_of(kind) + again)
    assert list(found) == [f"discovery-groups.1.{option}"]
    assert "are those of discovery-groups.0" in found[f"discovery-groups.1.{option}"]


@pytest.mark.parametrize("kind", ["file", "gossip"])
def test_a_low_timeout_is_doubted_in_every_kind(kind: str) -> None:
    assert list(doubted(kind_of(kind, "refresh-timeout = 3999\n"))) == ["discovery-groups.0.refresh-timeout"]


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
    assert inventory(mq_discovery_groups=[{"name": "lan", "discovery": "file", "directory": "/srv/mq"}]) == {}
    assert inventory(mq_discovery_groups=[{"name": "lan", "discovery": "dns", "names": ["{{ x }}"]}]) == {}
    assert inventory(mq_discovery_groups=[{"name": "lan", "discovery": "gossip", "local_bind_port": 7000}]) == {}


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
        (
            {"mq_discovery_groups": [{**GROUP, "discovery": "file"}]},
            "mq_discovery_groups.0.group_address",
            "group-address goes with discovery = udp",
        ),
        (
            {
                "mq_discovery_groups": [{"name": "lan", "discovery": "gossip", "local_bind_port": 7000}],
                "mq_instances": [{"name": "a"}, {"name": "b"}],
            },
            "mq_instances.1.port_offset",
            "port 7000 of gossip of instance b is taken by gossip of instance a",
        ),
        ({"mq_cluster_secret": "CHANGE ME!!"}, "mq_cluster_secret", "is a well-known default"),
    ],
)
def test_faults_of_an_inventory(changes: dict[str, Any], path: str, why: str) -> None:
    assert why in inventory(**changes)[path]
