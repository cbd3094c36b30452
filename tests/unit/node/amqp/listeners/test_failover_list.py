"""What clients are told of other members of the cluster when they connect: the list is never older than that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from mqbroker.config.slices import ConnectorOptions
from mqbroker.node.amqp.listeners.failover_list import ELSEWHERE_MAX
from mqbroker.wire.performatives import Open

from tests.support import frames
from tests.support.cluster_stage import ClusterNode, ClusterStage, options_for


def member(
    cluster: ClusterStage, name: str, others: list[str], *, has_tls: bool = False, **listener: Any
) -> ClusterNode:
    """A node whose clients are at `<name>.clients`."""
    base = options_for(name, others, {"client_connector_ref": "clients"})
    clients, *rest = base.listeners
    connectors = (*base.connectors, ConnectorOptions("clients", f"{name}.clients", 5672, has_tls))
    options = replace(base, connectors=connectors, listeners=(replace(clients, **listener), *rest))
    return cluster.make(name, options, {})


def told(node: ClusterNode) -> list[tuple[str, int, str]] | None:
    """Which brokers a client hears of when it opens."""
    said = node.talk(node.accept(), frames.anonymous() + frames.opened())
    (opened,) = frames.of_kind(said, Open)
    found = opened.properties.get("failover-server-list")
    return found and [(each["network-host"], each["port"], each["scheme"]) for each in found]


@pytest.mark.option("cluster-connections.client-connector-ref")
def test_clients_are_told_of_the_members_that_there_are_when_they_connect() -> None:
    cluster = ClusterStage()
    a = member(cluster, "a", ["b"])
    cluster.run()
    assert told(a) is None
    b = member(cluster, "b", ["a"])
    cluster.wait(1000)
    assert told(a) == [("b.clients", 5672, "amqp")]
    member(cluster, "c", ["b"])  # a hears of it from b
    cluster.wait(1000)
    assert sorted(told(a) or []) == [("b.clients", 5672, "amqp"), ("c.clients", 5672, "amqp")]
    b.stop()
    cluster.run()
    assert told(a) == [("c.clients", 5672, "amqp")]


def test_no_client_is_told_of_a_node_that_leaves_though_its_heir_is_gone() -> None:
    cluster = ClusterStage()
    a, b, c = (member(cluster, name, [each for each in "abc" if each != name]) for name in "abc")
    cluster.wait(1000)
    assert sorted(told(c) or []) == [("a.clients", 5672, "amqp"), ("b.clients", 5672, "amqp")]
    a.ask("scale-down", node="b")
    cluster.run()
    assert told(c) == [("b.clients", 5672, "amqp")]
    b.stop()
    cluster.run()
    assert told(c) is None
    a.ask("scale-down-cancel")
    cluster.run()
    assert told(c) == [("a.clients", 5672, "amqp")]


def test_each_client_hears_of_another_one_first() -> None:
    cluster = ClusterStage()
    a = member(cluster, "a", ["b", "c", "d"])
    for name in "bcd":
        member(cluster, name, ["a"])
    cluster.wait(2000)
    heads = [(told(a) or [])[0][0] for _ in range(6)]
    assert sorted(heads) == sorted(["b.clients", "c.clients", "d.clients"] * 2)


def test_what_the_listener_says_comes_before_what_the_cluster_does() -> None:
    cluster = ClusterStage()
    a = member(cluster, "a", ["b"], failover_server_list=("elsewhere:1",))
    member(cluster, "b", ["a"])
    cluster.wait(1000)
    assert told(a) == [("elsewhere", 1, "amqp")]


def test_clients_are_not_told_of_places_with_tls_where_they_have_none() -> None:
    cluster = ClusterStage()
    a = member(cluster, "a", ["b"])
    member(cluster, "b", ["a"], has_tls=True)
    cluster.wait(1000)
    assert a.state("b") == "up"
    assert told(a) is None
    with_tls = replace(a.options.listeners[0], tls_certificate_file="broker.pem")
    assert [each["scheme"] for each in a.broker.failover_list.servers(with_tls)] == ["amqps"]


@pytest.mark.slow
def test_so_many_are_told_and_no_more() -> None:
    cluster = ClusterStage()
    names = [f"n{number:02}" for number in range(ELSEWHERE_MAX + 2)]
    a = member(cluster, names[0], names[1:])
    for name in names[1:]:
        member(
            cluster,
            name,
            ["nowhere"],
        )
    cluster.wait(2000)
    assert len(told(a) or []) == ELSEWHERE_MAX
