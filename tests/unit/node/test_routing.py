"""Listeners with a router: connections that stay, are sent on, wait, or are refused."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest
from mqbroker.amqp import sasl
from mqbroker.amqp.events import Dead, Opened
from mqbroker.amqp.redirect import Place, redirect_of
from mqbroker.cluster.discovery.announcement import Announcement, Connector
from mqbroker.cluster.discovery.datagram import derive_key, seal
from mqbroker.config.options import BrokerFile, to_slices
from mqbroker.config.routing import ConnectionRouterTable, connection_router
from mqbroker.config.slices import ConnectorOptions
from mqbroker.config.users import make_verifier
from mqbroker.node import inputs as given
from mqbroker.wire.performatives import Attach, Begin, Close, Open

from tests.support import frames
from tests.support.cluster_stage import ClusterNode, ClusterStage, options_for
from tests.support.stage import Stage, options_with

CONNECTORS = [{"name": f"c{number}", "host": f"mq{number}", "port": 5672} for number in range(4)]
THERE = frozenset(f"mq{number}:5672" for number in range(4))
KEY = derive_key("a secret of the cluster")


def stage_with(
    listener: dict[str, Any] | None = None, users: Any = None, there: frozenset[str] = THERE, **router: Any
) -> Stage:
    """A node whose only listener has this router, names as in broker.toml."""
    row = {key.replace("_", "-"): value for key, value in router.items()}
    group = {"name": "lan", "group-address": "231.7.7.7", "group-port": 9876}
    file = {
        "connectors": CONNECTORS, "connection-routers": [{"name": "r", "check-period": 50, **row}],
        "discovery-groups": [group] if "discovery-group-ref" in row else [],
    }  # fmt: skip
    plain = options_with({"router": "r", **(listener or {})})
    options = replace(to_slices(BrokerFile.model_validate(file)), listeners=plain.listeners)
    stage = Stage(options, users, {"cluster_key": KEY, "node_id": NODES[0]})
    stage.places_there = set(there)
    stage.wait(100)
    return stage


NODES = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(4)]


def outcome(stage: Stage, name: str = "app", login: sasl.Client | None = None) -> str:
    """Where a client ends up: `here`, a host, or the condition of its close."""
    talker = stage.connect(name, login)
    dead = [event for event in talker.events if isinstance(event, Dead)]
    if not dead:
        return "here"
    (opened,) = [event for event in talker.events if isinstance(event, Opened)]
    assert opened.open.properties["amqp:connection-establishment-failed"] is True
    place = redirect_of(dead[0].error)
    return place.host if place is not None else str(dead[0].condition)


@pytest.mark.option("listeners.router", "connection-routers.name", "connection-routers.static-connectors")
def test_connections_are_sent_to_the_brokers_that_are_there() -> None:
    stage = stage_with(static_connectors=["c1", "c2"])
    assert [outcome(stage) for _ in range(3)] == ["mq1", "mq2", "mq1"]
    stage.places_there = {"mq2:5672"}
    stage.wait(100)
    assert [outcome(stage) for _ in range(2)] == ["mq2", "mq2"]
    assert stage.admin("status")["connections"] == 0
    told = [notice.event for notice in stage.notices if notice.event.startswith("router-")]
    assert told == ["router-target-lost", "router-target-lost", "router-target-found", "router-target-found",
                    "router-target-lost"]  # fmt: skip


@pytest.mark.option("connection-routers.policy", "connection-routers.modulo")
@pytest.mark.parametrize(
    ("policy", "count"),
    [("FIRST_ELEMENT", 1), ("ROUND_ROBIN", 3), ("LEAST_CONNECTIONS", 3), ("CONSISTENT_HASH", 3)],
)
def test_policies(policy: str, count: int) -> None:
    stage = stage_with(static_connectors=["c1", "c2", "c3"], policy=policy, key_type="CLIENT_ID")
    assert len({outcome(stage, f"app-{number}") for number in range(20)}) == count
    by_modulo = {"policy": "CONSISTENT_HASH_MODULO", "modulo": 1, "key_type": "CLIENT_ID"}
    one = stage_with(static_connectors=["c1", "c2", "c3"], **by_modulo)
    assert len({outcome(one, f"app-{number}") for number in range(20)}) == 1


@pytest.mark.option("connection-routers.local-target-enabled", "connection-routers.local-connector-ref")
def test_two_brokers_with_the_same_targets_agree_who_has_a_client() -> None:
    common = {"static_connectors": ["c0", "c1"], "policy": "CONSISTENT_HASH", "key_type": "CLIENT_ID"}
    first = stage_with(local_target_enabled=True, local_connector_ref="c0", **common)
    second = stage_with(local_target_enabled=True, local_connector_ref="c1", **common)
    seen = {(outcome(first, f"app-{number}"), outcome(second, f"app-{number}")) for number in range(40)}
    assert seen == {("here", "mq0"), ("mq1", "here")}


@pytest.mark.option(
    "connection-routers.key-type", "connection-routers.key-filter", "connection-routers.local-target-filter"
)
@pytest.mark.parametrize(
    ("key_type", "stays"),
    [
        ("CLIENT_ID", "shop"),
        ("SOURCE_IP", "192.0.2.9"),
        ("SNI_HOST", "mq.example"),
        ("USER_NAME", "ada"),
        ("ROLE_NAME", "probe"),
    ],
)
def test_keys_of_each_type(key_type: str, stays: str) -> None:
    users = {
        name: make_verifier("pw", b"s" * 16, ("client", role)) for name, role in (("ada", "probe"), ("bob", "other"))
    }  # fmt: skip
    stage = stage_with(
        {"sasl_mechanisms": ("PLAIN",)}, users, local_target_filter=stays.replace(".", "[.]"),
        key_type=key_type, key_filter="probe" if key_type == "ROLE_NAME" else "",  # `client` comes before it
    )  # fmt: skip

    def closed(user: str, container: str, peer: str, server_name: str) -> list[str]:
        conn = stage.accept(peer=peer)
        stage._inputs[-1] = replace(stage._inputs[-1], server_name=server_name, is_loopback=True)
        stage.talk(conn, frames.plain(user, "pw"))
        asked = stage.derives.pop()
        key = hashlib.pbkdf2_hmac(asked.hash_name, asked.password, asked.salt, asked.iterations)
        stage.give(given.Done(asked.id, key))
        stage.run()
        said = stage.talk(conn, frames.AMQP_HEADER + frames.frame(Open(container_id=container)))
        return [str(each.error.condition) for each in frames.of_kind(said, Close)]

    assert closed("ada", "shop", "192.0.2.9:4000", "mq.example") == []
    assert closed("bob", "other", "192.0.2.8:4000", "other.example") == ["amqp:connection:forced"]


@pytest.mark.option("connection-routers.discovery-group-ref")
def test_brokers_that_are_heard_are_targets() -> None:
    stage = stage_with(discovery_group_ref="lan", policy="FIRST_ELEMENT", quorum_timeout=0)
    assert outcome(stage) == "amqp:connection:forced"
    said = Announcement(NODES[1], "1" * 32, 1, "mq1", 2000, (Connector("clients", "amqp", "mq9", 5672),))
    stage.give(given.Datagram("lan", "198.51.100.12:4000", seal(said, KEY)))
    stage.run()
    assert outcome(stage) == "mq9"


@pytest.mark.option("connection-routers.quorum-size", "connection-routers.check-period")
def test_fewer_than_the_quorum_refuse_with_the_reason() -> None:
    stage = stage_with(static_connectors=["c1", "c2"], quorum_size=2, quorum_timeout=0, there=frozenset({"mq1:5672"}))
    assert outcome(stage) == "amqp:connection:forced"
    stage.places_there = set(THERE)
    stage.wait(49)
    stage.wait(51)
    assert outcome(stage) == "mq1"


@pytest.mark.option("connection-routers.quorum-timeout")
@pytest.mark.parametrize("comes", [True, False])
def test_a_connection_waits_for_the_quorum_and_what_it_sent_ahead_is_taken_then(comes: bool) -> None:
    stage = stage_with(static_connectors=["c1"], local_target_filter="x", quorum_timeout=1000, there=frozenset())
    conn = stage.accept()
    said = stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun())
    assert frames.of_kind(said, Open) == []
    assert stage.paused[conn]
    stage.wait(500)
    if comes:
        stage.places_there = set(THERE)
    stage.wait(499)
    whole = bytes(stage.sent[conn])
    assert bool(frames.of_kind(whole, Close)) is comes
    stage.wait(101)
    whole = bytes(stage.sent[conn])
    (close,) = frames.of_kind(whole, Close)
    assert (redirect_of(close.error) == Place("mq1", 5672)) is comes
    assert str(close.error.condition) == ("amqp:connection:redirect" if comes else "amqp:connection:forced")
    assert frames.of_kind(whole, Begin) == []


def test_who_may_stay_after_waiting_goes_on_as_if_nothing_had_been() -> None:
    stage = stage_with(
        static_connectors=["c1"], local_target_enabled=True, policy="FIRST_ELEMENT", local_connector_ref="c0",
        quorum_size=2, quorum_timeout=1000, there=frozenset(),
    )  # fmt: skip
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun() + frames.sender("orders"))
    stage.places_there = set(THERE)
    stage.wait(200)
    whole = bytes(stage.sent[conn])
    assert [len(frames.of_kind(whole, kind)) for kind in (Open, Begin, Attach, Close)] == [1, 1, 1, 0]
    assert not stage.paused[conn]


def test_a_connection_that_goes_while_it_waits_is_forgotten_and_a_stop_ends_those_that_wait() -> None:
    stage = stage_with(static_connectors=["c1"], quorum_timeout=60_000, there=frozenset())
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened())
    stage.drop_bare(conn)
    other = stage.accept()
    stage.talk(other, frames.anonymous() + frames.opened())
    stage.give(given.Stop())
    stage.run()
    assert other in stage.closed


@pytest.mark.option("connection-routers.cache-timeout")
@pytest.mark.parametrize(("timeout_ms", "places"), [(-1, ["mq1", "mq2"]), (0, ["mq1", "mq1"])])
def test_a_client_keeps_its_broker_where_it_is_cached(timeout_ms: int, places: list[str]) -> None:
    stage = stage_with(static_connectors=["c1", "c2"], key_type="CLIENT_ID", cache_timeout=timeout_ms)
    assert [outcome(stage), outcome(stage)] == places


# -- members of a cluster ----------------------------------------------------------------------------------------------


def member(
    cluster: ClusterStage, name: str, others: list[str], *, says_where: bool = True, **router: Any
) -> ClusterNode:
    """A node whose clients are routed among members, if there are options of a router, and are at `<name>.clients`."""
    base = options_for(name, others, {"client_connector_ref": "clients" if says_where else ""})
    row = {"name": "r", "cluster-connection": "cluster", "quorum-timeout": 0, "key-type": "CLIENT_ID", **router}
    table = connection_router(ConnectionRouterTable.model_validate(row))
    clients, *rest = base.listeners
    options = replace(
        base, connectors=(*base.connectors, ConnectorOptions("clients", f"{name}.clients", 5672, False)),
        connection_routers=(table,) if router else (),
        listeners=(replace(clients, router="r" if router else ""), *rest),
    )  # fmt: skip
    made = cluster.make(name, options, {})
    made.places_there = {f"{each}.clients:5672" for each in "abcd"}
    return made


def router_events(node: ClusterNode) -> list[tuple[str, str]]:
    """What was told of targets, without the reason."""
    told = [notice for notice in node.notices if notice.event.startswith("router-")]
    return [(notice.event, str(notice.fields.get("target") or notice.fields.get("node"))) for notice in told]


@pytest.mark.option("connection-routers.cluster-connection", "cluster-connections.client-connector-ref")
def test_members_of_a_cluster_are_targets_as_they_come_and_go() -> None:
    cluster = ClusterStage()
    a = member(cluster, "a", ["b"], policy="ROUND_ROBIN")
    cluster.run()
    assert outcome(a) == "amqp:connection:forced", "it is no target itself, and there is nobody else"
    member(cluster, "b", ["a"])
    cluster.wait(1000)
    assert [outcome(a) for _ in range(2)] == ["b.clients"] * 2
    c = member(cluster, "c", ["b"])  # a hears of it from b
    cluster.wait(1000)
    assert [outcome(a) for _ in range(3)] == ["c.clients", "b.clients", "c.clients"]
    c.stop()
    cluster.run()
    assert [outcome(a) for _ in range(2)] == ["b.clients"] * 2
    c.start()
    cluster.wait(3000)
    assert {outcome(a) for _ in range(2)} == {"b.clients", "c.clients"}
    assert router_events(a) == [
        ("router-target-found", "b.clients:5672"), ("router-target-found", "c.clients:5672"),
        ("router-target-lost", "c.clients:5672"), ("router-target-found", "c.clients:5672"),
    ]  # fmt: skip


def test_a_member_that_is_there_and_takes_no_clients_is_no_target_until_it_does() -> None:
    cluster = ClusterStage()
    a = member(cluster, "a", ["b"], **{"check-period": 100})
    member(cluster, "b", ["a"])
    a.places_there = set()
    cluster.wait(1000)
    assert outcome(a) == "amqp:connection:forced"
    a.places_there = {"b.clients:5672"}
    cluster.wait(100)
    assert outcome(a) == "b.clients"
    cluster.nodes["b"].crash()  # it stays a member: nobody said that it has left
    a.places_there = set()
    cluster.wait(100)
    assert outcome(a) == "amqp:connection:forced"


def test_a_member_that_is_forgotten_is_no_target_any_more_and_waits_count_members() -> None:
    cluster = ClusterStage()
    a = member(cluster, "a", ["b", "c"], **{"quorum-size": 2, "local-target-enabled": True, "policy": "FIRST_ELEMENT"})
    b = member(cluster, "b", ["a"])
    cluster.wait(1000)
    assert outcome(a) == "here"
    b.crash()
    cluster.run()
    assert outcome(a) == "here", "it is a member still, and was there at the last look"
    a.admin("cluster-forget", node_id=b.broker.node_id, action="reroute")
    assert outcome(a) == "amqp:connection:forced"


def test_members_with_one_view_agree_who_has_a_client() -> None:
    cluster = ClusterStage()
    common = {"policy": "CONSISTENT_HASH", "local-target-enabled": True}
    nodes = [member(cluster, name, [each for each in "abc" if each != name], **common) for name in "abc"]
    cluster.wait(2000)
    seen = [[outcome(node, f"app-{number}") for node in nodes] for number in range(30)]
    owners = {each.index("here") for each in seen}
    assert owners == {0, 1, 2}
    for each in seen:
        owner = "abc"[each.index("here")]
        assert sorted(each) == sorted(["here", f"{owner}.clients", f"{owner}.clients"])


def test_a_member_that_does_not_say_where_its_clients_are_is_passed_over_and_told_once() -> None:
    cluster = ClusterStage()
    a = member(cluster, "a", ["b"], policy="ROUND_ROBIN")
    b = member(cluster, "b", ["a"], says_where=False)
    cluster.wait(5000)
    assert outcome(a) == "amqp:connection:forced"
    assert router_events(a) == [("router-member-without-place", "b")]
    b.stop()
    cluster.run()
    b.options = replace(b.options, cluster_connections=(replace(b.options.cluster_connections[0],
                                                                client_connector_ref="clients"),))  # fmt: skip
    b.start()
    cluster.wait(2000)
    assert outcome(a) == "b.clients"


def test_a_member_that_is_reached_elsewhere_after_its_restart_is_looked_for_there() -> None:
    cluster = ClusterStage()
    a = member(cluster, "a", ["b"], **{"check-period": 3_600_000})
    b = member(cluster, "b", ["a"])
    cluster.wait(1000)
    assert outcome(a) == "b.clients"
    b.crash()
    moved = ConnectorOptions("clients", "d.clients", 5672, False)
    b.options = replace(b.options, connectors=(*b.options.connectors[:-1], moved))
    b.start()
    cluster.wait(2000)
    assert outcome(a) == "d.clients"


def test_connections_that_wait_go_on_when_a_member_comes() -> None:
    cluster = ClusterStage()
    a = member(cluster, "a", ["b"], **{"quorum-timeout": 60_000})
    conn = a.accept()
    a.talk(conn, frames.anonymous() + frames.opened())
    assert frames.of_kind(bytes(a.sent[conn]), Close) == []
    member(cluster, "b", ["a"])
    cluster.wait(2000)
    (close,) = frames.of_kind(bytes(a.sent[conn]), Close)
    assert redirect_of(close.error) == Place("b.clients", 5672)
