"""Bridges between nodes: dialled, let in or not, lost, dialled again, and given up."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from mqbroker.cluster.discovery.announcement import Announcement, Connector
from mqbroker.cluster.discovery.datagram import seal
from mqbroker.node.values import inputs as given
from mqbroker.node.values.effects import Connect

from tests.support.cluster_stage import KEY, OTHER_KEY, PORT, ClusterStage, node_id_of


def pair(**changes: Any) -> tuple[ClusterStage, Any, Any]:
    """Two nodes that list each other, and are connected both ways."""
    cluster = ClusterStage()
    a, b = cluster.node("a", ["b"], **changes), cluster.node("b", ["a"], **changes)
    cluster.run()
    cluster.wait(600)
    assert (a.state("b"), b.state("a")) == ("up", "up")
    return cluster, a, b


@pytest.mark.option("cluster-connections.static-connectors")
def test_two_nodes_that_list_each_other_have_a_bridge_each_way() -> None:
    _, a, b = pair()
    assert [each["node_id"] for each in a.events("bridge-connected")] == [node_id_of("b")]
    assert [each["node_id"] for each in b.events("bridge-connected")] == [node_id_of("a")]
    assert len(a.pipes) == len(b.pipes) == 2


@pytest.mark.option("cluster-connections.connector-ref")
def test_a_node_that_is_dialled_dials_back() -> None:
    cluster = ClusterStage()
    b = cluster.node("b", ["nowhere"])
    a = cluster.node("a", ["b"])
    cluster.run()
    assert (a.state("b"), b.state("a")) == ("up", "up")


@pytest.mark.option("cluster-connections.allow-direct-connections-only")
def test_only_listed_nodes_are_dialled_where_that_is_wanted() -> None:
    cluster = ClusterStage()
    b = cluster.node("b", ["nowhere"], allow_direct_connections_only=True)
    a = cluster.node("a", ["b"])
    cluster.run()
    assert (a.state("b"), b.state("a")) == ("up", "")


def test_a_node_never_has_a_bridge_to_itself() -> None:
    cluster = ClusterStage()
    cluster.nodes["alias"] = a = cluster.node("a", ["a", "alias"])
    a.run()
    cluster.wait(5_000)
    connection = a.broker.cluster.connections["cluster"]
    assert [each.host for each in a.dials] == ["alias", "alias"]  # the first one came before it was there
    assert (connection.bridges, connection.probes, a.events("node-id-conflict")) == ({}, [], [])


def test_two_nodes_with_one_id_are_told_of() -> None:
    cluster = ClusterStage()
    a = cluster.node("a", ["b"])
    cluster.node("b", ["nowhere"], identity={"node_id": node_id_of("a")})
    cluster.run()
    cluster.wait(600)
    (conflict,) = a.events("node-id-conflict")[:1]
    assert conflict["source"] == f"amqp://b:{PORT}"
    assert "mqbroker identity new --even-if-original" in conflict["remedy"]
    assert a.broker.cluster.connections["cluster"].bridges == {}


@pytest.mark.slow
@pytest.mark.parametrize("dialler", ["copy", "original"])
def test_of_two_nodes_with_one_id_the_later_one_stops_its_links(dialler: str) -> None:
    cluster = ClusterStage()
    a = cluster.node("a", ["b"] if dialler == "copy" else ["b", "c"])
    b = cluster.node("b", ["a"])
    cluster.run()
    cluster.wait(5_000)
    c = cluster.node("c", ["b", "a"] if dialler == "copy" else ["b"], identity={"node_id": node_id_of("a")})
    cluster.run()
    cluster.wait(5_000)
    connection = c.broker.cluster.connections["cluster"]
    assert [each.admin("health")["has_yielded"] for each in (a, b, c)] == [False, False, True]
    assert len(c.events("cluster-links-stopped")) == 1
    assert (connection.bridges, connection.probes, connection.topology.others, c.pipes) == ({}, [], [], {})
    assert (a.state("b"), b.state("a")) == ("up", "up")
    assert [len(each.events("node-id-conflict")) for each in (a, b, c)] == [1, 0, 1]
    # Nobody is let in, and nobody is dialled, however long it takes.
    dials = len(c.dials)
    cluster.wait(60_000)
    assert (len(c.dials), c.pipes, a.state("b"), b.state("a")) == (dials, {}, "up", "up")
    assert [node["node_id"] for node in b.admin("topology")["members"]].count(node_id_of("a")) == 1
    # The earlier one is the later one after a restart, and still goes on: who has yielded does not come back.
    a.crash()
    a.start()
    cluster.run()
    cluster.wait(5_000)
    assert [each.admin("health")["has_yielded"] for each in (a, c)] == [False, True]
    assert (a.state("b"), b.state("a")) == ("up", "up")
    c.crash()
    c.identity["node_id"] = node_id_of("c")
    c.start()
    cluster.run()
    cluster.wait(5_000)
    assert (c.admin("health")["has_yielded"], c.state("b"), b.state("c")) == (False, "up", "up")


def discovering(name: str, listened: str = "231.7.7.7") -> dict[str, Any]:
    """Options of a node that announces itself to one group and listens to that or to another one."""
    place = {"name": "lan", "group-port": 9876}
    said = {**place, "group-address": "231.7.7.7", "connector-ref": "own", "broadcast-period": 1000}
    heard = {**place, "group-address": listened, "refresh-timeout": 5000}
    return {"discovery_group_ref": "lan", "groups": {"broadcast-groups": [said], "discovery-groups": [heard]}}


def test_a_process_with_our_id_that_does_not_hear_us_is_asked_and_yielded_to() -> None:
    cluster = ClusterStage()
    a = cluster.node("a", **discovering("a", listened="231.7.7.8"))
    cluster.wait(1_000)
    c = cluster.node("c", identity={"node_id": node_id_of("a")}, **discovering("c"))
    cluster.wait(2_000)
    assert (c.admin("health")["has_yielded"], c.dials) == (False, [])
    cluster.wait(2_000)
    assert [each.admin("health")["has_yielded"] for each in (a, c)] == [False, True]
    assert [each.host for each in c.dials] == ["a"]
    assert [each["source"] for each in a.events("node-id-conflict")] == ["c:40000"]
    cluster.wait(60_000)
    assert (len(c.dials), c.broker.cluster.connections["cluster"].probes, c.pipes) == (1, [], {})


@pytest.mark.parametrize("host", ["a", "nowhere", "b"])
def test_where_a_recording_leads_nobody_has_our_id(host: str) -> None:
    """To this node itself, to nothing, to another node that is not to be linked with."""
    cluster = ClusterStage()
    a = cluster.node("a", **discovering("a"), allow_direct_connections_only=True)
    b = cluster.node("b", ["nowhere"], allow_direct_connections_only=True)
    for seq in range(1, 31):
        said = Announcement(a.broker.node_id, "e" * 32, seq, "a", 1000, (Connector("own", "amqp", host, PORT),), 1)
        a.give(given.Datagram("lan", "198.51.100.66:4000", seal(said, KEY)))
        cluster.wait(1_000)
    # Each time that it has lasted for more than two periods.
    assert [each.host for each in a.dials] == [host] * 9
    assert (a.admin("health")["has_yielded"], a.admin("health")["has_rival"], a.state("b"), b.state("a")) == (
        False, False, "", "",
    )  # fmt: skip
    assert (a.broker.cluster.connections["cluster"].probes, a.pipes) == ([], {})
    assert (len(a.events("discovery-own-id-heard")), a.events("node-id-conflict"), a.events("node-lost")) == (1, [], [])


def test_who_does_not_know_the_secret_is_not_let_in_and_is_told_of_once() -> None:
    cluster = ClusterStage()
    a = cluster.node("a", ["b"], identity={"cluster_key": OTHER_KEY})
    b = cluster.node("b", ["nowhere"])
    cluster.run()
    cluster.wait(30_000)
    assert len(a.dials) > 3
    refused = [each["why"] for each in a.events("bridge-failed") if "login" in each["why"]]
    assert refused == ["amqp:unauthorized-access: the server refused the login (SASL code 1)"]
    assert {each["user"] for each in b.events("login-failed")} == {"mq-cluster"}
    assert b.state("a") == ""


@pytest.mark.option("cluster-connections.name")
def test_the_connection_must_have_one_name_on_all_nodes() -> None:
    cluster = ClusterStage()
    a = cluster.node("a", ["b"])
    cluster.node("b", ["nowhere"], name="another")
    cluster.run()
    cluster.wait(600)
    whys = {each["why"] for each in a.events("bridge-failed")}
    assert any("there is no cluster connection 'cluster' here" in why for why in whys)


@pytest.mark.slow
def test_who_dials_again_and_again_in_vain_is_told_of_once_in_a_while() -> None:
    """Its attempts would push all other events out of those that are kept."""
    cluster = ClusterStage()
    cluster.node("a", ["b"])
    b = cluster.node("b", ["nowhere"], name="another")
    cluster.run()
    for _ in range(5):
        cluster.wait(61_000)
    told = b.events("connection-failed")
    assert [(each["peer"], each["condition"]) for each in told] == [("a", "amqp:not-found")] * 6
    # The rest of the first minute, and then two in each second.
    assert [each["count"] for each in told] == [1, 119, 120, 120, 120, 120]


def test_a_broker_without_cluster_connections_is_no_node() -> None:
    cluster = ClusterStage()
    cluster.node("b", ["nowhere"])
    a = cluster.node("a", ["b"])
    b = cluster.nodes["b"]
    b.options = replace(b.options, cluster_connections=())
    b.crash()
    b.start()
    cluster.run()
    cluster.wait(1_000)
    (probe,) = a.broker.cluster.connections["cluster"].probes
    assert (a.state("b"), probe.state.value) == ("", "resting")
    assert "the server refused the login" in probe.why


@pytest.mark.option("cluster-connections.retry-interval")
def test_a_node_that_crashed_is_dialled_until_it_is_back() -> None:
    cluster, a, b = pair(retry_interval=700)
    b.crash()
    cluster.run()
    (lost,) = a.events("bridge-disconnected")
    assert (lost["node_id"], lost["why"], lost["retry_ms"]) == (node_id_of("b"), "reset", 700)
    before = len(a.dials)
    cluster.wait(2_800)
    assert len(a.dials) == before + 4
    b.start()
    cluster.run()
    cluster.wait(700)
    assert (a.state("b"), b.state("a")) == ("up", "up")
    assert a.bridge("b").boot_id == b.broker.boot_id


def test_an_attempt_that_the_process_before_left_unanswered_begins_anew() -> None:
    """A host that stands still takes connections, and forgets them when its power goes."""
    cluster, a, b = pair(call_timeout=30_000)
    cluster.mute.add("b")
    b.crash()
    cluster.run()
    cluster.wait(1_000)
    assert a.state("b") == "dialling"
    cluster.mute.clear()
    b.start()
    cluster.run()
    cluster.wait(500)
    assert (a.state("b"), b.state("a")) == ("up", "up")
    assert a.bridge("b").boot_id == b.broker.boot_id


@pytest.mark.option("cluster-connections.retry-interval-multiplier", "cluster-connections.max-retry-interval")
def test_delays_grow_up_to_their_bound() -> None:
    cluster, a, b = pair(retry_interval=100, retry_interval_multiplier=2.0, max_retry_interval=350)
    cluster.unreachable = {"b"}
    cluster.cut_all(b)
    cluster.run()
    times = []
    for _ in range(100):
        before = len(a.dials)
        cluster.wait(10)
        if len(a.dials) > before:
            times.append(cluster.now_ns // 1_000_000)
    steps = [later - earlier for earlier, later in pairwise(times)]
    assert steps[:3] == [100, 200, 350] or steps[:3] == [200, 350, 350]


@pytest.mark.option("cluster-connections.reconnect-attempts")
def test_attempts_may_be_bounded_and_begin_anew_when_the_node_is_told_of() -> None:
    cluster, a, b = pair(reconnect_attempts=3)
    cluster.unreachable = {"b"}
    cluster.cut_all(b)
    cluster.run()
    before = len(a.dials)
    cluster.wait(60_000)
    assert len(a.dials) == before + 3
    assert a.state("b") == "gone"
    (lost,) = a.events("node-lost")
    assert "Connection refused" in lost["why"]
    cluster.unreachable = set()
    cluster.cut_all(b)
    b.bridge("a").end("test")
    b.broker.cluster.connections["cluster"].learn(node_id_of("a"), "", a.bridge("b").of.own, 0)
    b.step()
    cluster.run()
    assert a.state("b") == "up"  # b has dialled a, and so a knows of b again


@pytest.mark.option("cluster-connections.initial-connect-attempts")
def test_first_attempts_may_be_bounded_too() -> None:
    cluster = ClusterStage()
    a = cluster.node("a", ["b"], initial_connect_attempts=2)
    cluster.run()
    cluster.wait(60_000)
    assert len(a.dials) == 2
    assert [each["connector"] for each in a.events("node-lost")] == [f"amqp://b:{PORT}"]


@pytest.mark.option("cluster-connections.topology-scanner-attempts")
def test_a_node_that_stops_cleanly_is_not_dialled_before_it_is_told_of_again() -> None:
    cluster, a, b = pair(topology_scanner_attempts=0)
    b.stop()
    cluster.run()
    assert [each["node_id"] for each in a.events("bridge-stopped")] == [node_id_of("b")]
    assert a.events("bridge-disconnected") == []
    before = len(a.dials)
    cluster.wait(60_000)
    assert (a.state("b"), len(a.dials)) == ("gone", before)
    b.start()
    cluster.run()
    assert (a.state("b"), b.state("a")) == ("up", "up")


@pytest.mark.option("cluster-connections.topology-scanner-attempts")
def test_a_listed_node_that_stopped_cleanly_is_looked_for_a_few_times_and_then_slowly() -> None:
    cluster, a, b = pair(topology_scanner_attempts=4, retry_interval=100)
    b.stop()
    cluster.run()
    before = len(a.dials)
    cluster.wait(29_000)
    assert (a.state("b"), len(a.dials)) == ("resting", before + 4)
    cluster.wait(10 * 30_000)
    assert (a.state("b"), len(a.dials)) == ("resting", before + 14)
    (told,) = a.events("topology-incomplete")
    assert told["retry_ms"] == 30_000
    assert a.events("node-lost") == []


def test_a_seed_that_lists_only_itself_is_found_again_however_long_it_was_stopped() -> None:
    cluster = ClusterStage()
    seed = cluster.node("seed", ["seed"])
    others = [cluster.node(name, ["seed"]) for name in "ab"]
    cluster.run()
    cluster.wait(2_000)
    assert [seed.state("a"), seed.state("b"), *(each.state("seed") for each in others)] == ["up"] * 4
    seed.stop()
    cluster.run()
    cluster.wait(25_000)
    seed.start()
    cluster.wait(31_000)
    assert [seed.state("a"), seed.state("b"), *(each.state("seed") for each in others)] == ["up"] * 4


def test_where_another_node_has_taken_a_listed_place_the_one_before_is_not_looked_for() -> None:
    cluster, a, b = pair(topology_scanner_attempts=2, retry_interval=100)
    b.stop()
    cluster.run()
    b.identity["node_id"] = node_id_of("c")
    b.start()
    cluster.wait(2_000)
    assert (a.state("b"), a.state("c")) == ("gone", "up")
    assert (a.bridge("b").is_missing, a.bridge("c").is_listed) == (False, True)


def test_a_node_that_stopped_cleanly_is_dialled_at_once_where_it_is_told_to_be_now() -> None:
    """Also where who tells does not know that it is another process: nobody waits for the next look."""
    cluster, a, b = pair(topology_scanner_attempts=4, retry_interval=30_000)
    b.stop()
    cluster.run()
    bridge, before = a.bridge("b"), len(a.dials)
    assert a.state("b") == "resting"
    moved = replace(bridge.connector, host="b2")
    a.broker.cluster.connections["cluster"].learn(node_id_of("b"), bridge.boot_id, moved, 0)
    a.step()
    cluster.run()
    assert [each.host for each in a.dials[before:]] == ["b2"]
    assert not bridge.is_scanning


def test_a_node_that_was_reached_otherwise_first_is_looked_for_too_where_it_is_listed() -> None:
    cluster = ClusterStage()
    cluster.unreachable = {"alias"}
    a = cluster.node("a", ["alias"], topology_scanner_attempts=4, retry_interval=100)
    b = cluster.node("b", ["a"])
    cluster.run()
    assert (a.state("b"), b.state("a")) == ("up", "up")  # b dialled, and a dialled back
    cluster.nodes["alias"] = b
    cluster.unreachable = set()
    cluster.wait(200)
    assert a.broker.cluster.connections["cluster"].probes == []
    b.stop()
    cluster.unreachable = {"alias", "b"}
    cluster.run()
    before = len(a.dials)
    cluster.wait(29_000)
    assert (len(a.dials), len(a.events("topology-incomplete"))) == (before + 4, 1)


def test_a_node_has_a_bounded_number_of_bridges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqbroker.node.cluster.membership.cluster_connection.BRIDGES_MAX", 2)
    cluster = ClusterStage()
    a = cluster.node("a", ["nowhere"])
    for name in "bcde":
        cluster.node(name, ["a"])
    cluster.run()
    cluster.wait(2_000)
    assert [a.state(name) for name in "bcde"] == ["up", "up", "", ""]
    assert [each["bridges"] for each in a.events("bridges-full")] == [2]


@pytest.mark.option("cluster-connections.check-period")
def test_a_node_that_falls_silent_is_given_up_after_the_check_period() -> None:
    cluster, a, b = pair(check_period=2_000, connection_ttl=9_000)
    cluster.silence(b)
    cluster.wait(1_400)
    assert a.state("b") == "up"
    cluster.mute = {"b"}
    cluster.wait(700)
    assert a.state("b") == "resting"
    (lost,) = a.events("bridge-disconnected")
    assert "nothing was heard for 2000 ms" in lost["why"]


@pytest.mark.option("cluster-connections.connection-ttl")
def test_the_accepting_side_reaps_a_silent_node_after_its_ttl() -> None:
    cluster, a, b = pair(check_period=500_000, connection_ttl=600_000)
    (peer,) = [each for each in b.broker.peers.values() if each.conn > 0]
    assert peer.patience.idle_ms == 600_000
    cluster.silence(a, is_deaf=False)
    cluster.wait(290_000)
    assert peer.conn in b.broker.peers
    cluster.wait(311_000)
    assert peer.conn not in b.broker.peers


def test_a_quiet_bridge_stays_up() -> None:
    cluster, a, b = pair(check_period=1_000, connection_ttl=2_000)
    cluster.wait(60_000)
    assert (a.state("b"), b.state("a")) == ("up", "up")
    assert a.events("bridge-disconnected") == b.events("bridge-disconnected") == []


@pytest.mark.option("cluster-connections.call-timeout")
def test_a_node_that_does_not_answer_is_given_up_in_time() -> None:
    cluster = ClusterStage()
    cluster.mute = {"b"}
    a = cluster.node("a", ["b"], call_timeout=1_234)
    cluster.run()
    (dial,) = a.dials
    assert dial == Connect(-1, "b", PORT, "127.0.0.1", timeout_ms=1_234, listener="cluster")


@pytest.mark.option("cluster-connections.call-timeout")
def test_a_node_that_takes_the_connection_and_says_nothing_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ClusterStage()
    b = cluster.node("b", ["nowhere"])
    monkeypatch.setattr(b, "give", lambda item: None)
    a = cluster.node("a", ["b"], call_timeout=1_500)
    cluster.run()
    (probe,) = a.broker.cluster.connections["cluster"].probes
    cluster.wait(1_400)
    assert (probe.state.value, len(a.dials)) == ("opening", 1)
    cluster.wait(200)
    assert (probe.state.value, len(a.dials)) == ("resting", 1)
    assert "not opened within 1500 ms" in probe.why
    cluster.wait(500)
    assert len(a.dials) == 2


def test_a_node_that_has_moved_is_looked_for_where_it_is_when_its_old_link_is_given_up() -> None:
    cluster, a, b = pair(check_period=2_000, connection_ttl=9_000, notification_attempts=0)
    cluster.silence(b)
    b.crash()
    del cluster.nodes["b"]
    moved = cluster.node("b2", ["a"], identity={"node_id": node_id_of("b")}, notification_attempts=0)
    cluster.run()
    assert (a.state("b"), moved.state("a")) == ("up", "up"), "a has not noticed that its link leads nowhere"
    cluster.wait(3_000)
    assert a.state("b") == "up"
    assert [each.host for each in a.dials[-1:]] == ["b2"]
    assert a.bridge("b").boot_id == moved.broker.boot_id


def test_another_node_at_a_known_place_gets_a_bridge_of_its_own() -> None:
    cluster, a, b = pair()
    b.crash()
    cluster.run()
    b.identity["node_id"] = node_id_of("c")
    b.start()
    cluster.run()
    cluster.wait(2_500)
    assert (a.state("b"), a.state("c")) == ("gone", "up")
    (lost,) = a.events("node-lost")
    assert lost["why"] == f"another node answers there: {node_id_of('c')}"


def test_a_node_that_stops_ends_its_bridges() -> None:
    cluster, a, _ = pair()
    a.stop()
    cluster.run()
    assert a.halted == 0
    assert a.broker.cluster.connections["cluster"].bridges == {}


def test_a_new_secret_is_used_from_the_next_login_on() -> None:
    cluster, a, b = pair()
    for node in (a, b):
        node.give(given.ClusterKeyChanged(OTHER_KEY))
    cluster.run()
    assert (a.state("b"), b.state("a")) == ("up", "up")
    cluster.cut_all(b)
    cluster.wait(600)
    assert (a.state("b"), b.state("a")) == ("up", "up")
    assert a.events("login-failed") == b.events("login-failed") == []
