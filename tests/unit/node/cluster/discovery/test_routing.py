"""Listeners with a router: connections that stay, are sent on, wait, or are refused."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import replace
from typing import Any

import pytest
from mqbroker.amqp import sasl
from mqbroker.amqp.events import Dead, Opened
from mqbroker.amqp.redirect import RedirectPlace, redirect_of
from mqbroker.cluster.discovery.announcement import Announcement, Connector
from mqbroker.cluster.discovery.datagram import derive_key, seal
from mqbroker.cluster.routing import router
from mqbroker.config.declarations.options import BrokerFile, to_slices
from mqbroker.config.declarations.routing import ConnectionRouterTable
from mqbroker.config.declarations.table_slices import slice_of
from mqbroker.config.slices import ConnectorOptions
from mqbroker.config.users import make_verifier
from mqbroker.core.address import routes
from mqbroker.core.store.journal_export import Importer, rows_of
from mqbroker.journal.plan import Journal
from mqbroker.journal.recovered import Recovered
from mqbroker.node.values import inputs as given
from mqbroker.wire.performatives import Attach, Begin, Close, Open

from tests.sim.disk import Faults, SimDisk
from tests.support import frames
from tests.support.cluster_stage import ClusterNode, ClusterStage, options_for
from tests.support.stage import Stage, options_with

CONNECTORS = [{"name": f"c{number}", "host": f"mq{number}", "port": 5672} for number in range(4)]
THERE = frozenset(f"mq{number}:5672" for number in range(4))
KEY = derive_key("a secret of the cluster")


def stage_with(
    listener: dict[str, Any] | None = None,
    users: Any = None,
    there: frozenset[str] = THERE,
    journal: dict[str, Any] | None = None,
    **router: Any,
) -> Stage:
    """A node whose only listener has this router, names as in broker.toml."""
    row = {key.replace("_", "-"): value for key, value in router.items()}
    group = {"name": "lan", "group-address": "231.7.7.7", "group-port": 9876}
    file = {
        "connectors": CONNECTORS, "connection-routers": [{"name": "r", "check-period": 50, **row}],
        "discovery-groups": [group] if "discovery-group-ref" in row else [],
    }  # fmt: skip
    plain = options_with({"router": "r", **(listener or {})})
    whole = to_slices(BrokerFile.model_validate(file))
    options = replace(whole, listeners=plain.listeners, journal=replace(whole.journal, **(journal or {})))
    stage = Stage(options, users, {"cluster_key": KEY, "node_id": NODES[0]})
    stage.places_there = set(there)
    stage.wait(100)
    return stage


NODES = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(4)]


def outcome(stage: Stage, name: str = "app", login: sasl.SaslClient | None = None) -> str:
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
    assert (redirect_of(close.error) == RedirectPlace("mq1", 5672)) is comes
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
    table = slice_of(ConnectionRouterTable.model_validate(row))
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


def test_a_member_that_is_cordoned_is_no_target_until_it_takes_clients_again() -> None:
    cluster = ClusterStage()
    a = member(cluster, "a", ["b", "c"], policy="ROUND_ROBIN")
    b, _ = member(cluster, "b", ["a"]), member(cluster, "c", ["a"])
    cluster.wait(1000)
    assert {outcome(a) for _ in range(2)} == {"b.clients", "c.clients"}
    b.admin("cordon")
    cluster.run()
    assert {outcome(a) for _ in range(2)} == {"c.clients"}
    b.admin("uncordon")
    cluster.wait(1000)
    assert {outcome(a) for _ in range(2)} == {"b.clients", "c.clients"}


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


def comes_back(node: ClusterNode, **changes: Any) -> None:
    """It starts again with other options, and the others hear of that."""
    node.options = replace(node.options, **changes)
    node.start()
    node.cluster.wait(2000)


def test_a_member_that_does_not_say_where_its_clients_are_is_passed_over_and_told_once() -> None:
    cluster = ClusterStage()
    a = member(cluster, "a", ["b"], policy="ROUND_ROBIN")
    b = member(cluster, "b", ["a"], says_where=False)
    cluster.wait(5000)
    assert outcome(a) == "amqp:connection:forced"
    assert router_events(a) == [("router-member-without-place", "b")]
    b.stop()
    cluster.run()
    comes_back(b, cluster_connections=(replace(b.options.cluster_connections[0], client_connector_ref="clients"),))
    assert outcome(a) == "b.clients"


def test_a_member_that_is_reached_elsewhere_after_its_restart_is_looked_for_there() -> None:
    cluster = ClusterStage()
    a = member(cluster, "a", ["b"], **{"check-period": 3_600_000})
    b = member(cluster, "b", ["a"])
    cluster.wait(1000)
    assert outcome(a) == "b.clients"
    b.crash()
    moved = ConnectorOptions("clients", "d.clients", 5672, False)
    comes_back(b, connectors=(*b.options.connectors[:-1], moved))
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
    assert redirect_of(close.error) == RedirectPlace("b.clients", 5672)


# -- a cache that is persisted -----------------------------------------------------------------------------------------


def keeping(timeout_ms: int = 0, **router: Any) -> Stage:
    """Two brokers; who comes for the first time is sent to the one whose turn it is."""
    said = {"static_connectors": ["c1", "c2"], "key_type": "CLIENT_ID", "cache_persisted": True, **router}
    return stage_with(cache_timeout=timeout_ms, **said)


def restart(stage: Stage, *, is_clean: bool, wall_ms: int = 100) -> None:
    """It is down for so long."""
    if is_clean:
        stage.stop()
    else:
        stage.crash()
    stage.now_ns += wall_ms * 1_000_000
    stage.start()
    stage.wait(0)


def kept_names(stage: Stage) -> list[str]:
    """What the journal holds of routes."""
    stage.sync()
    return sorted(name for name in stage.disk.load().duplicates if name.startswith(routes.PREFIX))


class NoBodies:
    """Of large messages, which are not there."""

    def write(self, file: int, offset: int, data: bytes) -> None:
        raise AssertionError("there is no large message")

    def finish(self, file: int) -> None:
        raise AssertionError("there is no large message")


@pytest.mark.option("connection-routers.cache-persisted")
@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("is_persisted", [True, False])
def test_a_client_keeps_its_broker_after_a_restart(is_clean: bool, is_persisted: bool) -> None:
    stage = keeping(cache_persisted=is_persisted)
    before = [outcome(stage, name) for name in "abcd"]
    assert before == ["mq1", "mq2", "mq1", "mq2"]
    for _ in range(2):
        restart(stage, is_clean=is_clean)
        assert ([outcome(stage, name) for name in "dcba"] == before[::-1]) is is_persisted
    assert len(kept_names(stage)) == 4 * is_persisted


def test_no_client_waits_for_the_disk_and_what_it_had_not_written_is_all_that_a_crash_takes() -> None:
    stage = keeping()
    assert outcome(stage, "a") == "mq1"
    stage.is_disk_held = True
    assert outcome(stage, "b") == "mq2"
    assert [append.sync for append in stage.pending] == [False]
    stage.crash()
    stage.is_disk_held = False
    stage.start()
    assert outcome(stage, "new") == "mq1"
    assert [outcome(stage, name) for name in "ab"] == ["mq1", "mq2"]


@pytest.mark.parametrize(
    ("timeout_ms", "down_ms", "is_kept"), [(5000, 3000, True), (5000, 5000, False), (0, 10**9, True)]
)
def test_time_goes_on_while_the_broker_is_down(timeout_ms: int, down_ms: int, is_kept: bool) -> None:
    stage = keeping(timeout_ms)
    assert [outcome(stage, name) for name in "ab"] == ["mq1", "mq2"]
    restart(stage, is_clean=True, wall_ms=down_ms)
    assert len(kept_names(stage)) == 2 * is_kept
    assert outcome(stage, "b") == ("mq2" if is_kept else "mq1")


def test_what_is_used_after_a_restart_has_the_whole_time_again_and_the_rest_what_remained() -> None:
    stage = keeping(5000)
    assert [outcome(stage, name) for name in "ab"] == ["mq1", "mq2"]
    restart(stage, is_clean=True, wall_ms=3000)
    assert outcome(stage, "b") == "mq2"
    stage.wait(2000)
    assert outcome(stage, "c") == "mq1"
    assert outcome(stage, "a") == "mq2", "its time is over, and it takes its turn anew"
    restart(stage, is_clean=False)
    assert [outcome(stage, name) for name in "abc"] == ["mq2", "mq2", "mq1"]


def test_of_too_many_those_that_were_used_last_are_kept_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = keeping(60_000)
    for name in "aba":
        outcome(stage, name)
        stage.wait(10)
    monkeypatch.setattr(router, "CACHED_MAX", 1)
    restart(stage, is_clean=True)
    assert kept_names(stage) == [routes.PREFIX + '["r","a"]']


def test_a_clock_that_was_set_back_gives_no_more_than_the_whole_time() -> None:
    stage = keeping(5000)
    stage.wait(50_000)
    assert [outcome(stage, name) for name in "ab"] == ["mq1", "mq2"]
    stage.stop()
    stage.now_ns -= 40_000_000_000
    stage.start()
    stage.wait(4999)
    assert [outcome(stage, name) for name in "b"] == ["mq2"]
    stage.wait(1)
    assert [outcome(stage, name) for name in "ca"] == ["mq1", "mq2"]


@pytest.mark.parametrize(
    "change", [{"name": "other"}, {"cache_persisted": False}, {"cache_persisted": False, "cache_timeout": -1}, None]
)
def test_what_no_router_wants_any_more_is_dropped_at_the_start(change: dict[str, Any] | None) -> None:
    stage = keeping()
    assert [outcome(stage, name) for name in "ab"] == ["mq1", "mq2"]
    assert len(kept_names(stage)) == 2
    stage.stop()
    (listener,), (router,) = stage.options.listeners, stage.options.connection_routers
    routers = () if change is None else (replace(router, **change),)
    listener = replace(listener, router=routers[0].name if routers else "")
    stage.options = replace(stage.options, listeners=(listener,), connection_routers=routers)
    stage.start()
    assert kept_names(stage) == []


def test_a_kept_broker_is_waited_for_where_others_are_found_before_it() -> None:
    stage = keeping(quorum_timeout=1000)
    assert [outcome(stage, name) for name in "ab"] == ["mq1", "mq2"]
    stage.places_there = {"mq1:5672"}
    restart(stage, is_clean=True)
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened(container_id="b"))
    assert outcome(stage, "new") == "mq1"
    assert frames.of_kind(bytes(stage.sent[conn]), Close) == []
    stage.places_there = set(THERE)
    stage.wait(100)
    (close,) = frames.of_kind(bytes(stage.sent[conn]), Close)
    assert redirect_of(close.error) == RedirectPlace("mq2", 5672)


def test_a_kept_broker_that_does_not_come_is_replaced_once_the_time_for_a_quorum_is_over() -> None:
    stage = keeping(quorum_timeout=1000)
    assert [outcome(stage, name) for name in "ab"] == ["mq1", "mq2"]
    stage.places_there = {"mq1:5672"}
    restart(stage, is_clean=True)
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened(container_id="b"))
    stage.wait(900)
    assert frames.of_kind(bytes(stage.sent[conn]), Close) == []
    stage.wait(200)
    (close,) = frames.of_kind(bytes(stage.sent[conn]), Close)
    assert redirect_of(close.error) == RedirectPlace("mq1", 5672)
    restart(stage, is_clean=True)
    assert outcome(stage, "b") == "mq1"


def test_routes_outlive_the_files_that_they_were_written_to() -> None:
    stage = keeping(journal={"journal_file_size_bytes": 8192, "journal_compact_min_files": 2})
    before = {name: outcome(stage, name) for name in "abcdef"}
    assert set(before.values()) == {"mq1", "mq2"}
    stage.sync()
    last = max(stage.disk.cached)
    for number in range(60):
        stage.admin("send", address="orders", messages=[{"body": f"{number}" * 1000, "durable": True}])
        stage.admin("queue-purge", name="orders")
    assert min(stage.disk.cached) > last, "the files of that time are gone"
    restart(stage, is_clean=False)
    assert {name: outcome(stage, name) for name in reversed("abcdef")} == before


def test_a_connection_that_opens_while_the_node_stops_writes_nothing_behind_the_end() -> None:
    stage = keeping()
    conn = stage.accept()
    stage.talk(conn, frames.anonymous())
    stage.is_disk_held = True
    stage.give(given.Stop())
    stage.run()
    stage.talk(conn, frames.opened(container_id="late"))
    stage.is_disk_held = False
    stage.run()
    assert stage.halted == 0
    assert stage.disk.load().was_clean


def test_routes_are_exported_and_come_back() -> None:
    stage = keeping(60_000)
    keys = ["a", 'b\ud7ff"', ""]
    assert [outcome(stage, name) for name in keys] == ["mq1", "mq2", "mq1"]
    stage.stop()
    rows = list(rows_of(stage.disk.load(), NODES[0]))
    assert [(row["router"], row["key"], row["target"]) for row in rows if row["type"] == "route"] == [
        ("r", "a", "mq1:5672"), ("r", 'b\ud7ff"', "mq2:5672"), ("r", "", "mq1:5672"),
    ]  # fmt: skip
    fresh = keeping(60_000)
    fresh.stop()
    faults = Faults(write_error=0.0, sync_error=0.0)
    size = fresh.options.journal.journal_file_size_bytes
    fresh.disk = SimDisk(random.Random(0), b"stage".ljust(16, b"\0"), size, faults)
    importer = Importer(Journal(fresh.options.journal, Recovered()), NoBodies())
    for append in [*(importer.take(json.loads(json.dumps(row))) for row in rows), importer.finish()]:
        if append is not None:
            fresh.disk.commit([append])
    assert list(rows_of(fresh.disk.load(), NODES[0]))[1:] == rows[1:]
    fresh.start()
    fresh.wait(0)
    assert [outcome(fresh, name) for name in reversed(keys)] == ["mq1", "mq2", "mq1"]
