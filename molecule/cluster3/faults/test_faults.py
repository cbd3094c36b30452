"""Faults while durable messages go from all nodes to two: nothing accepted is lost, nothing comes twice unannounced.

After each fault the cluster, and the one beside it, must be whole again within 30 s. Clients are on another card, so
what is done to the cluster's card keeps none of them from sending. The tests are one story and run in their order.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.support.cluster_faults import Scene
from tests.support.cluster_load import Load
from tests.support.nemesis import unleash
from tests.support.rack_cluster import RackBroker, RackCluster, RackHosts

# Silence after which the far end of a link knows that it is over: `connection_ttl` of the inventory.
TTL_S = 6.0
LINGER_S = 3.0
HOSTS = ("mq1", "mq2", "mq3")
CONSUMERS = ("mq2", "mq3")
APART = "table inet apart {{ chain in {{ type filter hook input priority 0; ip saddr {0} drop; }}; }}"


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    rack = RackHosts()
    lan = RackCluster([RackBroker(rack, name) for name in HOSTS])
    beside = RackCluster([RackBroker(rack, name, "beside") for name in HOSTS])
    uris = {name: f"amqp://load:secret-of-the-load@{lan[name].address('eth0')}:5672" for name in HOSTS}
    load = Load("orders", producers=uris, consumers={name: uris[name] for name in CONSUMERS})
    try:
        yield Scene(rack, [lan, beside], load)
    finally:
        load.end()


def test_power_cut_of_a_node_with_producer_and_consumer(scene: Scene) -> None:
    with scene.fault("power cut of mq2"):
        scene.rack("kill", "mq2")
        scene.loses_links("mq1", "mq3")
        scene.goes_on(["mq1", "mq3"], ["mq3"])
        scene.rack("boot", "mq2")
    assert scene.load.lost_connections["mq2"] >= 2


def test_card_of_a_node_cut(scene: Scene) -> None:
    before = scene.load.lost_connections.total()
    with scene.fault("eth1 of mq3 cut"):
        scene.rack("cut", "mq3", "eth1")
        scene.loses_links(*HOSTS)
        scene.goes_on(HOSTS, CONSUMERS)
        scene.rack("heal", "mq3", "eth1")
    assert scene.load.lost_connections.total() == before


def test_two_nodes_that_do_not_hear_each_other(scene: Scene) -> None:
    """The third one hears both."""
    with scene.fault("mq1 and mq3 apart"):
        scene.rack("exec", "mq1", "--", "nft", APART.format(scene.cluster["mq3"].address("eth1")))
        scene.loses_links("mq1", "mq3")
        scene.goes_on(HOSTS, CONSUMERS)
        scene.rack("exec", "mq1", "--", "nft", "delete table inet apart")


def test_loss_of_every_fifth_frame(scene: Scene) -> None:
    with scene.fault("20 % loss at mq1"):
        scene.rack("loss", "mq1", "eth1", "20")
        time.sleep(TTL_S)
        scene.goes_on(HOSTS, CONSUMERS)
        scene.rack("heal", "mq1", "eth1")


def test_delay_ends_no_link(scene: Scene) -> None:
    def begun_s() -> dict[str, float]:
        return {
            name: time.monotonic() - min(row["since_ms"] for row in broker.ask("topology")["links"]) / 1000
            for name, broker in scene.cluster.brokers.items()
        }

    with scene.fault("50 ms delay at mq2"):
        scene.rack("delay", "mq2", "eth1", "50")
        before = begun_s()
        time.sleep(LINGER_S)
        scene.goes_on(HOSTS, CONSUMERS)
        after = begun_s()
        scene.rack("heal", "mq2", "eth1")
    assert after == pytest.approx(before, abs=1.0)


def test_node_that_stands_still_longer_than_the_others_wait(scene: Scene) -> None:
    with scene.fault("mq3 paused"):
        scene.rack("pause", "mq3")
        time.sleep(TTL_S + 1)
        scene.loses_links("mq1", "mq2")
        scene.goes_on(["mq1", "mq2"], ["mq2"])
        scene.rack("resume", "mq3")


@pytest.mark.timeout(7200)
def test_faults_that_nobody_chose(scene: Scene) -> None:
    unleash(scene, 2)


def test_the_checker_finds_nothing(scene: Scene) -> None:
    assert scene.verdict() == []
    assert scene.load.counts["sent"] == scene.load.accepted.total()
