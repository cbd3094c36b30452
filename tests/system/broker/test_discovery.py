"""Brokers that discover each other by multicast, on hosts with two network cards."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker_process import BrokerFailed, BrokerProcess
from tests.support.cluster_processes import linked, provide
from tests.support.networks import NetworkHost, Networks
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.system

# Far above what it takes: nothing here may depend on how busy the machine is.
WAIT_S = PATIENCE_S
SECRET = "a secret of the cluster"
PERIOD_MS = 200
# A broker that stalls on a busy machine must not count as gone.
PATIENT_MS = 600_000
Start = Callable[..., BrokerProcess]


@pytest.fixture
def networks() -> Iterator[Networks]:
    with Networks() as made:
        yield made


@pytest.fixture
def start(make_broker: Callable[..., BrokerProcess]) -> Start:
    """Starts a broker on a host: its name, what differs in its groups, and further tables."""

    def started(host: NetworkHost, name: str = "", secret: str = SECRET, **changes: dict[str, Any]) -> BrokerProcess:
        broker: BrokerProcess = make_broker(options=options(host, name or host.name, **changes), network=host.network)
        broker.prepare()
        broker.command("secret", "set", "--stdin", "--config", str(broker.config_file), stdin=secret + "\n")
        broker.start()
        return broker

    return started


def options(host: NetworkHost, name: str, **changes: dict[str, Any]) -> dict[str, Any]:
    """`broadcast` and `discovery` change the groups, `more` adds a second discovery group, `node` changes [node]."""
    local = host.address("eth1")
    place = {"name": "lan", "local-bind-address": local, "group-address": "231.7.7.7", "group-port": 9876}
    broadcast = {**place, "broadcast-period": PERIOD_MS, "connector-ref": "cluster", **changes.get("broadcast", {})}
    discovery = {**place, "refresh-timeout": PATIENT_MS, **changes.get("discovery", {})}
    groups = [discovery, {**discovery, **changes["more"]}] if "more" in changes else [discovery]
    return {
        "node": {"name": name, **changes.get("node", {})},
        "connectors": [{"name": "cluster", "host": local, "port": 5673}],
        "broadcast-groups": [{key: value for key, value in broadcast.items() if value is not None}],
        "discovery-groups": [{key: value for key, value in group.items() if value is not None} for group in groups],
    }


def wait_for(broker: BrokerProcess, what: str, check: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """What the broker says of discovery, once `check` likes it."""
    deadline_s = time.monotonic() + WAIT_S
    while True:
        found: dict[str, Any] = broker.admin("discovery")
        if check(found):
            return found
        if time.monotonic() > deadline_s:
            raise BrokerFailed(f"not after {WAIT_S} s: {what}; {found}\n{broker.log}")
        time.sleep(0.05)


def names(found: dict[str, Any], group: str = "lan") -> list[str]:
    return sorted(row["node"] for row in found["nodes"] if row["group"] == group)


def group_of(found: dict[str, Any], kind: str, name: str = "lan") -> dict[str, Any]:
    rows: list[dict[str, Any]] = found["groups"]
    (row,) = [row for row in rows if (row["kind"], row["group"]) == (kind, name)]
    return row


def hears(broker: BrokerProcess, *wanted: str) -> dict[str, Any]:
    return wait_for(broker, f"it hears {wanted}", lambda found: names(found) == sorted(wanted))


def after_own(broker: BrokerProcess, more: int = 5) -> dict[str, Any]:
    """When the broker has heard itself some times more: whatever else was sent before has arrived by then."""

    def own(found: dict[str, Any]) -> int:
        count: int = group_of(found, "discovery")["dropped_by_reason"]["own"]
        return count

    wanted = own(broker.admin("discovery")) + more
    return wait_for(broker, f"it has heard itself {wanted} times", lambda found: own(found) >= wanted)


@pytest.mark.option("broadcast-groups.local-bind-address", "discovery-groups.local-bind-address")
def test_brokers_hear_each_other_over_the_pinned_card_and_over_no_other(networks: Networks, start: Start) -> None:
    first, second = networks.host("mq1"), networks.host("mq2")
    # The other card is listened on as well, which is what lets datagrams of one card in at the other by default.
    other = {"name": "management", "local-bind-address": second.address("eth0")}
    one, two = start(first), start(second, more=other)
    (row,) = hears(one, "mq2")["nodes"]
    assert row["connector"] == "amqp://198.51.100.12:5673"
    assert row["source"].startswith("198.51.100.12:")
    hears(two, "mq1")
    seen = after_own(two)
    assert group_of(seen, "discovery")["heard"] > 0
    silent = group_of(seen, "discovery", "management")
    assert (silent["state"], silent["heard"], sum(silent["dropped_by_reason"].values())) == ("listening", 0, 0)


@pytest.mark.option("node.cluster-secret-file")
def test_a_broker_of_another_cluster_is_counted_and_not_heard(networks: Networks, start: Start) -> None:
    one = start(networks.host("mq1"))
    two = start(networks.host("mq2"), secret="the secret of another cluster")
    for broker in (one, two):
        found = wait_for(
            broker, "it dropped some", lambda found: group_of(found, "discovery")["dropped_by_reason"]["mac"] >= 3
        )
        assert (names(found), group_of(found, "discovery")["heard"]) == ([], 0)
        assert "discovery-datagram-dropped group=lan" in broker.log
        assert SECRET not in broker.log


def test_a_new_secret_is_taken_on_reload(networks: Networks, start: Start) -> None:
    one = start(networks.host("mq1"))
    two = start(networks.host("mq2"), secret="the secret of another cluster")
    words = ("secret", "set", "--stdin", "--config", str(two.config_file))
    assert two.command(*words, stdin=SECRET) == "changed\n"
    two.signal(signal.SIGHUP)
    hears(one, "mq2")
    hears(two, "mq1")
    assert two.command(*words, stdin=SECRET) == "unchanged\n"


def test_who_is_killed_is_gone_after_the_timeout_and_who_comes_back_is_seen_at_once(
    networks: Networks, start: Start
) -> None:
    one = start(networks.host("mq1"), discovery={"refresh-timeout": 3000})
    two = start(networks.host("mq2"))
    hears(one, "mq2")
    two.kill()
    hears(one)
    assert "discovery-node-lost group=lan node=mq2" in one.log
    two.start()
    hears(one, "mq2")


def test_a_restart_within_the_timeout_is_seen(networks: Networks, start: Start) -> None:
    one, two = start(networks.host("mq1")), start(networks.host("mq2"))
    (before,) = hears(one, "mq2")["nodes"]
    two.kill()
    two.start()
    found = wait_for(one, "another boot id", lambda found: found["nodes"][0]["boot_id"] != before["boot_id"])
    assert found["nodes"][0]["node_id"] == before["node_id"]
    assert "discovery-node-restarted group=lan node=mq2" in one.log
    assert "discovery-node-lost" not in one.log


@pytest.mark.option("broadcast-groups.time-to-live")
def test_instances_of_one_host_hear_each_other_and_without_time_to_live_nobody_else(
    networks: Networks, start: Start
) -> None:
    host, other = networks.host("mq1"), networks.host("mq2")
    one = start(host, "first", broadcast={"time-to-live": 0})
    two = start(host, "second", broadcast={"time-to-live": 0})
    far = start(other)
    hears(one, "second", "mq2")
    hears(two, "first", "mq2")
    after_own(one)
    assert names(after_own(far)) == []


@pytest.mark.option(
    "broadcast-groups.group-address",
    "broadcast-groups.group-port",
    "discovery-groups.group-address",
    "discovery-groups.group-port",
)
def test_another_address_or_port_is_not_heard(networks: Networks, start: Start) -> None:
    host = networks.host("mq1")
    one = start(host, "one")
    address, port = {"group-address": "231.7.7.8"}, {"group-port": 9877}
    by_address = start(host, "by-address", broadcast=address, discovery=address)
    by_port = start(host, "by-port", broadcast=port, discovery=port)
    reverse = start(host, "reverse", broadcast=address)  # announces itself there and listens here
    hears(by_address, "reverse")
    hears(reverse, "one")
    for broker in (one, by_port):
        assert names(after_own(broker)) == []


@pytest.mark.option("broadcast-groups.local-bind-port")
def test_the_port_that_is_sent_from(networks: Networks, start: Start) -> None:
    one = start(networks.host("mq1"))
    start(networks.host("mq2"), broadcast={"local-bind-port": 9500})
    assert hears(one, "mq2")["nodes"][0]["source"] == "198.51.100.12:9500"


def test_without_an_address_and_without_a_route_the_log_says_what_to_do(networks: Networks, start: Start) -> None:
    host = networks.host("mq1")
    nowhere = {"local-bind-address": None}
    broker = start(host, broadcast=nowhere, discovery=nowhere)
    found = wait_for(broker, "it has tried", lambda found: group_of(found, "broadcast")["failed"] >= 3)
    for kind, event in (("broadcast", "broadcast-failed"), ("discovery", "discovery-join-failed")):
        assert "the host has no route for it; set local-bind-address" in group_of(found, kind)["trouble"]
        assert broker.log.count(event) == 1
    assert broker.admin("status")["state"] == "active"


def test_a_card_that_comes_later_or_again_is_used(networks: Networks, start: Start) -> None:
    one = start(networks.host("mq1"), discovery={"refresh-timeout": 5000})
    late = networks.host("mq2", "eth0")
    two = start(late, discovery={"refresh-timeout": 2000})
    found = wait_for(two, "it failed", lambda found: group_of(found, "discovery")["state"] == "failed")
    for kind in ("broadcast", "discovery"):
        why = "over 198.51.100.12: no network card of this host has this address; it is tried again"
        assert why in group_of(found, kind)["trouble"]
    late.add_card("eth1")
    hears(two, "mq1")
    hears(one, "mq2")
    assert "broadcast-works-again group=lan" in two.log
    late.remove_card("eth1")
    hears(one)
    hears(two)
    late.add_card("eth1")
    hears(two, "mq1")
    hears(one, "mq2")


def test_without_groups_a_broker_touches_no_network_but_its_listener(
    networks: Networks, make_broker: Callable[..., BrokerProcess]
) -> None:
    host = networks.host("mq1")
    broker = make_broker(network=host.network)
    broker.start()
    assert broker.admin("discovery") == {"groups": [], "nodes": [], "conflicts": []}
    assert len(host.read("/proc/net/udp").splitlines()) == 1, "the heading alone"
    assert not Path(broker.data_directory / "cluster-secret").exists()


def in_cluster(host: NetworkHost, name: str) -> dict[str, Any]:
    """As `options`, and with links to those who are heard."""
    place = {"port": 5673, "local-bind-address": host.address("eth1"), "allow-plaintext": True}
    listener = {"name": "cluster", "kind": "cluster", **place}
    connection = {"name": "all", "connector-ref": "cluster", "discovery-group-ref": "lan", "retry-interval": 200}
    found = options(host, name, discovery={"refresh-timeout": 10_000})
    return {**found, "listeners": [listener], "cluster-connections": [connection]}


def test_a_broker_on_a_copied_disk_leaves_the_cluster_and_the_original_stays(
    networks: Networks, make_broker: Callable[..., BrokerProcess]
) -> None:
    hosts = [networks.host(name) for name in ("mq1", "mq2", "mq3")]
    original, other, copy = (make_broker(options=in_cluster(host, host.name), network=host.network) for host in hosts)
    for broker in (original, other):
        provide(broker, SECRET)
        broker.start()
    original.stop()
    shutil.copytree(original.data_directory, copy.data_directory)
    original.start()
    linked(original, "mq2")
    linked(other, "mq1")
    # A cloned disk has the same path and the same machine id, so its identity says nothing against it.
    identity = copy.data_directory / "identity.json"
    identity.write_text(identity.read_text().replace(str(original.data_directory), str(copy.data_directory)))
    provide(copy, SECRET)
    copy.start()
    wait_for(copy, "it hears the other", lambda found: found["conflicts"] != [])
    copy.wait_for_log("cluster-links-stopped", WAIT_S)
    assert [row["state"] for row in copy.admin("topology")["links"]] == []
    for broker in (original, other):
        broker.wait_for_log("node-id-conflict", WAIT_S)
    health = {broker.options["node"]["name"]: broker.admin("health") for broker in (original, copy, other)}
    assert {name: (row["has_rival"], row["has_yielded"]) for name, row in health.items()} == {
        "mq1": (True, False), "mq2": (False, False), "mq3": (True, True),
    }  # fmt: skip
    linked(original, "mq2")
    linked(other, "mq1")
    copy.stop()
    copy.command("identity", "new", "--even-if-original", "--config", str(copy.config_file))
    copy.start()
    linked(copy, "mq1", "mq2")
    linked(other, "mq1", "mq3")


def test_noise_on_the_group_harms_nothing(networks: Networks, start: Start) -> None:
    host = networks.host("mq1")
    broker = start(host)
    # In small portions for as long as it takes: the kernel drops what the broker has not read in time.
    shout = (
        "import os, socket, time\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        f"s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton('{host.address('eth1')}'))\n"
        "while True:\n"
        "    for size in [0, 1, 7, 39, 1439, 1440, 60000]:\n"
        "        s.sendto(os.urandom(size), ('231.7.7.7', 9876))\n"
        "    time.sleep(0.01)\n"
    )
    with subprocess.Popen([*host.within, sys.executable, "-c", shout]) as noise:
        try:
            found = wait_for(broker, "it dropped some", lambda found: group_of(found, "discovery")["dropped"] >= 200)
            assert group_of(found, "discovery")["state"] == "listening"
            assert names(after_own(broker)) == []
        finally:
            noise.kill()
