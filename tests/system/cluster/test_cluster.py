"""Brokers as processes that make a cluster: links come up, messages reach consumers elsewhere, and nothing is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.broker_process import BrokerProcess, free_port
from tests.support.certificates import Authority
from tests.support.cluster_processes import (
    SECRET,
    WAIT_S,
    Make,
    Nodes,
    bodies,
    connection,
    knows,
    linked,
    provide,
    wait_for,
)
from tests.support.networks import Networks

pytestmark = pytest.mark.system


def publish(broker: BrokerProcess, *texts: str, address: str = "orders") -> None:
    broker.admin("send", address=address, messages=[{"body": text, "durable": True} for text in texts])


def test_three_nodes_with_static_connectors_are_linked_with_each_other(make_broker: Make) -> None:
    one, two, three = Nodes(make_broker, 3).start()
    linked(one, "mq1", "mq2")
    linked(two, "mq0", "mq2")
    found = linked(three, "mq0", "mq1")
    assert sorted(row["node"] for row in found["members"]) == ["mq0", "mq1", "mq2"]
    assert [row["node"] for row in found["members"] if row["is_self"]] == ["mq2"]
    assert SECRET not in one.log + two.log + three.log


def test_messages_reach_the_node_that_has_the_queue(make_broker: Make) -> None:
    one, two = Nodes(make_broker, 2).start()
    linked(one, "mq1")
    linked(two, "mq0")
    two.admin("queue-create", name="news-of-two", address="news", routing_type="multicast")
    knows(one, 1, 0)
    publish(one, "first", "second", address="news")
    assert bodies(two, 2, "news-of-two") == ["first", "second"]
    wait_for(one, "nothing waits", lambda found: [row["depth"] for row in found["links"]] == [0])


def test_a_node_that_is_killed_comes_back_and_gets_what_waited(make_broker: Make) -> None:
    one, two = Nodes(make_broker, 2).start()
    linked(one, "mq1")
    linked(two, "mq0")
    two.admin("queue-create", name="news-of-two", address="news", routing_type="multicast")
    knows(one, 1, 0)
    two.kill()
    wait_for(one, "the link is lost", lambda found: found["links"][0]["state"] != "up")
    publish(one, *map(str, range(50)), address="news")
    found = wait_for(one, "they wait", lambda found: found["links"][0]["depth"] == 50)
    assert found["links"][0]["why"]
    two.start()
    linked(one, "mq1")
    linked(two, "mq0")
    assert bodies(two, 50, "news-of-two") == list(map(str, range(50)))


def test_a_node_that_stops_cleanly_is_no_member_until_it_is_back(make_broker: Make) -> None:
    one, two = Nodes(make_broker, 2).start()
    linked(one, "mq1")
    linked(two, "mq0")
    assert two.stop() == 0
    wait_for(one, "it is alone", lambda found: [row["node"] for row in found["members"]] == ["mq0"])
    assert "bridge-stopped" in one.log
    assert "bridge-disconnected" not in one.log
    two.start()
    linked(one, "mq1")
    linked(two, "mq0")


def test_subscriptions_get_everything_that_is_sent_while_one_node_after_the_other_restarts(make_broker: Make) -> None:
    """As a rollout does it: a node stops in order, and the next one does when all links stand again."""
    nodes = Nodes(make_broker, 3).start()
    names = ["mq0", "mq1", "mq2"]
    for broker, name in zip(nodes, names, strict=True):
        broker.admin("queue-create", name=f"news-of-{name}", address="news", routing_type="multicast")
    sent: list[str] = []

    def send(phase: str, brokers: list[BrokerProcess]) -> None:
        for number, broker in enumerate(brokers):
            texts = [f"{phase}-{number}-{count}" for count in range(5)]
            publish(broker, *texts, address="news")
            sent.extend(texts)

    def are_whole() -> None:
        for broker, name in zip(nodes, names, strict=True):
            linked(broker, *(each for each in names if each != name))
            knows(broker, 2, 0)

    are_whole()
    send("before", nodes)
    for name, broker in zip(names, nodes, strict=True):
        assert broker.stop() == 0
        others = [each for each in nodes if each is not broker]
        for each in others:
            wait_for(each, f"{name} has left", lambda found: len(found["members"]) == 2)
        send(f"while {name} is away", others)
        broker.start()
        are_whole()
        send(f"{name} is back", nodes)
    for broker, name in zip(nodes, names, strict=True):
        assert sorted(bodies(broker, len(sent), f"news-of-{name}")) == sorted(sent)


def test_links_may_be_encrypted_with_certificates_on_both_sides(make_broker: Make, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    one, two = Nodes(make_broker, 2, **authority.listener("required")).start()
    found = linked(one, "mq1")
    linked(two, "mq0")
    assert found["links"][0]["connector"].startswith("amqps://127.0.0.1:")


def test_a_node_of_another_cluster_is_not_let_in(make_broker: Make) -> None:
    one, two = Nodes(make_broker, 2, secrets=(SECRET, "the secret of another cluster")).start()
    for broker in (one, two):
        broker.wait_for_log("bridge-failed", WAIT_S)
        broker.wait_for_log("login-failed", WAIT_S)
        states = [row["state"] for row in broker.admin("topology")["links"]]
        assert "up" not in states


@pytest.mark.option("node.cluster-secret-file")
def test_cluster_connections_need_the_secret(make_broker: Make) -> None:
    port = free_port()
    broker = make_broker(options={
        "listeners": [{"name": "cluster", "kind": "cluster", "port": port}],
        "connectors": [{"name": "own", "host": "127.0.0.1", "port": port}],
        "cluster-connections": [connection("own", **{"static-connectors": ["own"]})],
    })  # fmt: skip
    broker.launch()
    assert broker.wait() == 1
    assert "node.cluster-secret-file" in broker.log
    assert "mqbroker secret set --stdin" in broker.log


@pytest.mark.option("cluster-connections.discovery-group-ref")
def test_nodes_find_each_other_by_multicast(make_broker: Make) -> None:
    with Networks() as networks:
        hosts = [networks.host("mq1"), networks.host("mq2")]
        brokers = []
        for host in hosts:
            local = host.address("eth1")
            place = {"name": "lan", "local-bind-address": local, "group-address": "231.7.7.7", "group-port": 9876}
            broker = make_broker(network=host.network, options={
                "node": {"name": host.name},
                "listeners": [{"name": "cluster", "kind": "cluster", "port": 5673, "local-bind-address": local,
                               "allow-plaintext": True}],
                "connectors": [{"name": "own", "host": local, "port": 5673}],
                "broadcast-groups": [{**place, "broadcast-period": 200, "connector-ref": "own"}],
                "discovery-groups": [{**place, "refresh-timeout": 600_000}],
                "cluster-connections": [connection("own", **{"discovery-group-ref": "lan"})],
            })  # fmt: skip
            provide(broker)
            broker.start()
            brokers.append(broker)
        found = linked(brokers[0], "mq2")
        linked(brokers[1], "mq1")
        assert found["links"][0]["connector"] == f"amqp://{hosts[1].address('eth1')}:5673"
        # The connection comes from the card that the cluster listener is bound to.
        assert f"peer={hosts[0].address('eth1')}:" not in brokers[0].log
        rows = brokers[1].admin("connections")["connections"]
        accepted = [row["peer"] for row in rows if row["listener"] == "cluster"]
        assert [peer.partition(":")[0] for peer in accepted] == [hosts[0].address("eth1")]


class Named(Nodes):
    """Nodes that find each other by names, which lead to all of them."""

    def options(self, number: int) -> dict[str, Any]:
        names = {"name": "names", "discovery": "dns", "names": [f"127.0.0.1:{port}" for port in self.ports]}
        found = super().options(number)
        own = found["connectors"][number : number + 1]
        return found | {"connectors": own, "discovery-groups": [names | {"poll-period": 200}]}

    def connections(self, number: int) -> list[dict[str, Any]]:
        return [connection(f"mq{number}", **{"discovery-group-ref": "names"})]


def test_nodes_find_each_other_by_names(make_broker: Make) -> None:
    one, two, three = Named(make_broker, 3).start()
    linked(one, "mq1", "mq2")
    linked(two, "mq0", "mq2")
    linked(three, "mq0", "mq1")
    two.stop()
    wait_for(one, "mq1 is gone", lambda found: "mq1" not in [row["node"] for row in found["members"]])
    two.start()
    linked(one, "mq1", "mq2")
    linked(three, "mq0", "mq1")
