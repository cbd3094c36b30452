"""Cluster connections in broker.toml and in inventories: what is refused, what is doubted, what old names mean."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.config.compare import OptionsVerdict, changes, verdict
from mqbroker.config.declarations.cluster_connections import address_items, overlap
from mqbroker.config.declarations.clustering import doubts
from mqbroker.config.file.load import parse
from mqbroker.config.inventory.inventory import check_inventory
from mqbroker.config.slices import BrokerOptions, ClusterConnectionOptions

LISTENER = '[[listeners]]\nname = "cluster"\nkind = "cluster"\nport = 5673\n'
CONNECTOR = '[[connectors]]\nname = "own"\nhost = "198.51.100.11"\nport = 5673\n'
OTHER = '[[connectors]]\nname = "mq2"\nhost = "198.51.100.12"\nport = 5673\n'
DISCOVERY = '[[discovery-groups]]\nname = "lan"\ngroup-address = "231.7.7.7"\ngroup-port = 9876\n'
AROUND = LISTENER + CONNECTOR + OTHER + DISCOVERY
PATH = "cluster-connections.0"


def connection(*lines: str, name: str = "all", first: str = 'discovery-group-ref = "lan"') -> str:
    return "\n".join(["[[cluster-connections]]", f'name = "{name}"', 'connector-ref = "own"', first, *lines, ""])


def good(text: str) -> BrokerOptions:
    options = parse(text)
    assert isinstance(options, BrokerOptions), [str(fault) for fault in options]
    return options


def only(text: str) -> ClusterConnectionOptions:
    (found,) = good(text).cluster_connections
    return found


def faults(text: str) -> dict[str, str]:
    found = parse(text)
    assert isinstance(found, list), found
    return {fault.path: fault.why for fault in found}


def doubted(text: str) -> dict[str, str]:
    return {fault.path: fault.why for fault in doubts(good(text))}


def test_defaults_are_those_of_artemis() -> None:
    one = only(AROUND + connection())
    assert (one.address, one.max_hops, one.message_load_balancing) == ("", 1, "ON_DEMAND")
    assert (one.check_period, one.connection_ttl, one.call_timeout) == (30_000, 60_000, 30_000)
    assert (one.retry_interval, one.retry_interval_multiplier, one.max_retry_interval) == (500, 1.0, 2_000)
    assert (one.initial_connect_attempts, one.reconnect_attempts, one.topology_scanner_attempts) == (-1, -1, 30)
    assert (one.use_duplicate_detection, one.confirmation_window_size) == (True, 1_048_576)
    assert (one.notification_interval, one.notification_attempts) == (1_000, 2)
    assert (one.allow_direct_connections_only, one.static_connectors, one.on_node_lost) == (False, (), "hold")
    assert doubted(AROUND + connection()) == {}


def test_first_nodes_come_from_one_place() -> None:
    assert only(AROUND + connection(first='static-connectors = ["mq2"]')).static_connectors == ("mq2",)
    both = faults(AROUND + connection('static-connectors = ["mq2"]'))
    neither = faults(AROUND + connection(first="static-connectors = []"))
    assert both == {f"{PATH}.discovery-group-ref": "is set beside static-connectors; keep one of them"}
    assert list(neither) == [f"{PATH}.discovery-group-ref"]
    assert "is missing, and so are static-connectors" in neither[f"{PATH}.discovery-group-ref"]


@pytest.mark.parametrize(
    ("text", "path", "why"),
    [
        (LISTENER + DISCOVERY + connection(), "connector-ref", "there is no connector own"),
        (LISTENER + CONNECTOR + connection(), "discovery-group-ref", "there is no discovery group lan"),
        (AROUND + connection('client-connector-ref = "x"'), "client-connector-ref", "there is no connector x"),
        (AROUND + connection(first='static-connectors = ["mq3"]'), "static-connectors", "there is no connector mq3"),
        (AROUND + connection("check-period = 60000"), "connection-ttl", "must be above check-period, which is 60000"),
        (AROUND + connection("connection-ttl = 30000"), "connection-ttl", "must be above check-period"),
        (AROUND + connection("max-hops = -1"), "max-hops", "must be at least 0"),
        (AROUND + connection('message-load-balancing = "SOME"'), "message-load-balancing", "ON_DEMAND"),
        (AROUND + connection('on-node-lost = "forget"'), "on-node-lost", "reroute"),
        (AROUND + connection("allow-direct-connections-only = true"), "allow-direct-connections-only", "are none"),
        (
            AROUND + connection('message-load-balancing = "OFF"', "forward-when-no-consumers = true"),
            "forward-when-no-consumers",
            "is the old name of message-load-balancing, which is set too",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(text: str, path: str, why: str) -> None:
    found = faults(text)
    assert list(found) == [f"{PATH}.{path}"]
    assert why in found[f"{PATH}.{path}"]


def test_a_period_just_below_is_good() -> None:
    assert only(AROUND + connection("check-period = 59999")).check_period == 59_999
    assert list(faults(AROUND + connection('check-period = "x"'))) == [f"{PATH}.check-period"]


def test_names_are_there_once() -> None:
    assert faults(AROUND + connection() * 2) == {
        "cluster-connections.1.name": "all is declared twice, first as cluster-connections.0; rename one of them"
    }


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("min-large-message-size = 102400", "limits.amqp-min-large-message-size-bytes"),
        ("producer-window-size = 1048576", "confirmation-window-size"),
        ("call-failover-timeout = -1", "retry-interval"),
        ('client-id = "x"', "ids of their nodes"),
    ],
)
def test_what_means_nothing_on_amqp_links_is_refused_with_the_reason(line: str, why: str) -> None:
    found = faults(AROUND + connection(line))
    path = f"{PATH}.{line.partition(' ')[0]}"
    assert list(found) == [path]
    assert why in found[path]
    assert found[path].endswith("remove it")


@pytest.mark.option("cluster-connections.forward-when-no-consumers")
@pytest.mark.parametrize(("old", "new"), [("true", "STRICT"), ("false", "ON_DEMAND")])
def test_the_old_name_of_load_balancing_is_taken_and_told(old: str, new: str) -> None:
    text = AROUND + connection(f"forward-when-no-consumers = {old}")
    assert only(text).message_load_balancing == new
    assert doubted(text) == {
        f"{PATH}.forward-when-no-consumers": f"is an old name; write message-load-balancing = '{new}' instead"
    }


@pytest.mark.parametrize("address", ["orders.#", "a,!orders.*"])
def test_wildcards_in_an_address_are_doubted(address: str) -> None:
    found = doubted(AROUND + connection(f'address = "{address}"'))
    assert "stand for themselves here" in found[f"{PATH}.address"]


def test_a_bound_below_the_interval_is_doubted() -> None:
    text = AROUND + connection("retry-interval = 3000")
    assert "is 2000 ms, below retry-interval" in doubted(text)[f"{PATH}.max-retry-interval"]


@pytest.mark.parametrize(
    ("listener", "why"),
    [
        ("", "no listener of kind cluster"),
        (LISTENER.replace('"cluster"\np', '"client"\np'), "a listener for clients, where no node may log in"),
    ],
)
def test_what_other_nodes_cannot_reach_is_doubted(listener: str, why: str) -> None:
    text = listener + CONNECTOR + DISCOVERY + connection()
    assert why in doubted(text)[f"{PATH}.connector-ref"]


@pytest.mark.parametrize(("port", "is_doubted"), [(5673, True), (5672, False), (5670, False)])
def test_a_listener_for_nodes_is_no_place_for_clients(port: int, is_doubted: bool) -> None:
    clients = f'[[connectors]]\nname = "clients"\nhost = "198.51.100.11"\nport = {port}\n'
    found = doubted(AROUND + clients + connection('client-connector-ref = "clients"'))
    assert ("where no client may log in" in found.get(f"{PATH}.client-connector-ref", "")) is is_doubted


def test_dead_letters_that_would_be_gone_are_doubted() -> None:
    text = AROUND + connection('on-node-lost = "dead-letter"')
    assert "it would be gone" in doubted(text)[f"{PATH}.on-node-lost"]
    assert doubted(text + '[[address-settings]]\nmatch = "#"\ndead-letter-address = "DLQ"\n') == {}
    assert doubted(AROUND + connection('on-node-lost = "reroute"')) == {}


def test_connections_for_the_same_addresses_are_doubted() -> None:
    first, second = connection('address = "orders"'), connection('address = "orders.eu"', name="eu")
    found = doubted(AROUND + first + second)
    assert list(found) == ["cluster-connections.1.address"]
    assert "overlaps with that of all" in found["cluster-connections.1.address"]
    assert doubted(AROUND + first + second.replace("orders.eu", "sales")) == {}


@pytest.mark.parametrize(
    ("address", "items"),
    [
        ("", ((), ())),
        (" , ,", ((), ())),
        ("a", (("a",), ())),
        (" a , b.c ,!d, ! e,!", (("a", "b.c"), ("d", "e"))),
        ("!a", ((), ("a",))),
        ("a#,*", (("a#", "*"), ())),
    ],
)
def test_items_of_an_address(address: str, items: object) -> None:
    assert address_items(address) == items


@pytest.mark.parametrize(
    ("one", "other", "is_so"),
    [
        ("", "", True),
        ("", "a", True),
        ("a", "ab", True),
        ("a", "b", False),
        ("a,!ab", "ab", False),
        ("a,!ab", "a", True),
        ("a,!abc", "ab", True),
        ("!a", "ab", False),
        ("!a", "!b", True),
        ("x,ab", "y,a", True),
    ],
)
def test_overlaps(one: str, other: str, is_so: bool) -> None:
    assert overlap(one, other) is is_so
    assert overlap(other, one) is is_so


# With a letter that no item has, each item has names of its own.
NAMES = ["".join(letters) for letters in product("abc", repeat=3)]
ITEM = st.builds(str.__add__, st.sampled_from(["", "!"]), st.text("ab", max_size=2))
ITEMS = st.lists(ITEM, max_size=3).map(",".join)


def matched(address: str) -> set[str]:
    included, excluded = address_items(address)
    return {name for name in NAMES if name.startswith(included or ("",)) and not name.startswith(excluded)}


@given(ITEMS, ITEMS)
def test_overlaps_are_names_that_both_match(one: str, other: str) -> None:
    assert overlap(one, other) is bool(matched(one) & matched(other))


def test_a_change_needs_a_restart() -> None:
    found = changes(good(AROUND + connection()), good(AROUND + connection("max-hops = 2")))
    assert [change.path for change in found] == ["cluster-connections.all.max-hops"]
    assert verdict(found) is OptionsVerdict.RESTART


# -- inventories -------------------------------------------------------------------------------------------------------

INVENTORY: dict[str, Any] = {
    "mq_cluster_name": "orders",
    "mq_cluster_secret": "0123456789abcdef",
    "mq_connectors": [{"name": "own", "port": 5673}],
    "mq_discovery_groups": [{"name": "lan", "group_address": "231.7.7.7", "group_port": 9876}],
}
ROW: dict[str, Any] = {"name": "all", "connector_ref": "own", "discovery_group_ref": "lan"}


def inventory(**row: Any) -> dict[str, str]:
    hosts = {"mq1": {**INVENTORY, "mq_cluster_connections": [{**ROW, **row}]}}
    return {fault.path: fault.why for fault in check_inventory(hosts)}


def test_an_inventory_with_a_connection_is_good() -> None:
    assert inventory() == {}
    assert inventory(connector_ref="{{ x }}", check_period="{{ y }}", discovery_group_ref="{{ z }}") == {}


@pytest.mark.parametrize(
    ("row", "option", "why"),
    [
        ({"connector_ref": "other"}, "connector_ref", "there is no connector other"),
        ({"discovery_group_ref": ""}, "discovery_group_ref", "is missing"),
        ({"min_large_message_size": 5}, "min_large_message_size", "cross AMQP links in frames"),
        ({"max_hop": 5}, "max_hop", "did you mean max_hops"),
    ],
)
def test_faults_of_an_inventory(row: dict[str, Any], option: str, why: str) -> None:
    assert why in inventory(**row)[f"mq_cluster_connections.0.{option}"]


@pytest.mark.parametrize(("listed", "is_doubted"), [
    (["own"], True), (["own", "alias"], True), (["own", "mq2"], False), (["mq2"], False),
])  # fmt: skip
def test_a_list_that_names_the_node_alone_is_doubted(listed: list[str], is_doubted: bool) -> None:
    alias = CONNECTOR.replace('"own"', '"alias"')
    found = doubted(AROUND + alias + connection(first=f"static-connectors = {listed}".replace("'", '"')))
    assert (f"{PATH}.static-connectors" in found) is is_doubted
    assert all("names this node alone" in why for why in found.values())
