"""A node that is asked to stop hands all that it has to another one first, or says why not, and stops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from mqbroker.amqp.redirect import RedirectPlace
from mqbroker.config.slices import ConnectorOptions
from mqbroker.node.cluster.departure.scale_down_at_stop import RESTARTS
from mqbroker.node.values import inputs as given
from mqbroker.node.values.node_states import NodeState

from tests.support.cluster_stage import ClusterNode, ClusterStage, node_id_of, options_for
from tests.support.large_messages import Consumer
from tests.unit.core.cluster.test_drains import LIMITS, bodies, count_at, filled, read_at
from tests.unit.node.test_moving_subscriptions import left_behind, published, waits
from tests.unit.node.test_scale_down import sent_to

COUNT = 300


def cluster_of(
    names: str = "ab",
    say_hosts: dict[str, str] | None = None,
    also: dict[str, Any] = LIMITS,
    **policies: dict[str, Any],
) -> tuple[ClusterStage, list[ClusterNode]]:
    """Nodes that know each other; `policies` are tables of scale-down, by node. `a` has one where nothing is said.
    `also`: options of theirs. `say_hosts`: where they say that they are, by node, if not where they are."""
    cluster, policies = ClusterStage(), {"a": {}, **policies}
    for name in names:
        said: dict[str, Any] = {
            "options": also, "message_load_balancing": "OFF", "confirmation_window_size": 2_000,
            "client_connector_ref": "clients",
        }  # fmt: skip
        base = options_for(name, [each for each in names if each != name], said)
        clients = ConnectorOptions("clients", f"{name}.example", 5672, False)
        own = replace(base.connectors[0], host=(say_hosts or {}).get(name, name))
        policy = replace(base.scale_down, enabled=name in policies, **policies.get(name, {}))
        options = replace(base, connectors=(own, *base.connectors[1:], clients), scale_down=policy)
        cluster.make(name, options, {})
    cluster.run()
    cluster.wait(600)
    return cluster, list(cluster.nodes.values())


def stop(node: ClusterNode, cluster: ClusterStage, for_ms: int = 0) -> None:
    node.give(given.Stop())
    cluster.wait(for_ms)


def start(node: ClusterNode, cluster: ClusterStage) -> None:
    node.start()
    cluster.wait(3_000)


def test_what_addresses_keep_for_later_queues_stays_with_the_node_that_serves_again() -> None:
    keeps = {**LIMITS, "address_settings": {"#": {
        "default_address_routing_type": "MULTICAST", "retroactive_message_count": 3}}}  # fmt: skip
    cluster, (a, b) = cluster_of(also=keeps)
    for text in ("1", "2", "3"):
        a.admin("send", address="news", messages=[{"body": text, "durable": True}])
    stop(a, cluster, 5_000)
    (said,) = a.events("scale-down-moved")
    assert (a.halted, said["left"], a.events("scale-down-unfinished")) == (0, 0, [])
    start(a, cluster)
    for node, kept in ((a, ["1", "2", "3"]), (b, [])):
        node.admin("queue-create", name="late", address="news", routing_type="multicast")
        assert [row["body"] for row in node.admin("browse", queue="late", limit=9)["messages"]] == kept


def why_of(node: ClusterNode, event: str) -> str:
    (said,) = node.events(event)
    return str(said["why"])


@pytest.mark.option("scale-down.enabled")
def test_all_goes_to_the_other_node_then_it_stops_and_the_next_start_serves_again() -> None:
    cluster, (a, b) = cluster_of()
    producer = filled(a, COUNT, cluster)
    stop(a, cluster)
    assert (a.broker.stopping.state, a.broker.is_running) == (NodeState.LEAVING, True)
    assert (a.admin("status")["state"], a.admin("health")["state"]) == ("stopping", "stopping")
    assert sent_to(a.connect("late")) == RedirectPlace("b.example", 5672)
    cluster.wait(5_000)
    assert (a.halted, count_at(b)) == (0, COUNT)
    assert sent_to(producer.talker) == RedirectPlace("b.example", 5672)
    (said,) = a.events("scale-down-moved")
    assert (said["moved"], said["left"], said["node_id"]) == (COUNT, 0, node_id_of("b"))
    assert [each.is_over for each in a.delays] == [False, True]
    assert a.events("scale-down-unfinished") == []
    start(a, cluster)
    assert a.admin("scale-down-show")["state"] == "none"
    filled(a, 5, cluster)
    assert (count_at(a), count_at(b)) == (5, COUNT)
    stop(a, cluster, 5_000)
    assert a.halted == 0
    assert read_at(b, cluster).bodies == [*bodies(COUNT), *bodies(5)]


@pytest.mark.parametrize("is_in_time", [True, False])
def test_a_restart_that_was_announced_moves_nothing(is_in_time: bool) -> None:
    cluster, (a, b) = cluster_of()
    filled(a, COUNT, cluster)
    assert a.admin("restart-begins", within_s=30) == {"within_s": 30}
    cluster.wait(29_000 if is_in_time else 31_000)
    assert a.admin("status")["state"] == "active", "nobody has stopped it yet"
    stop(a, cluster, 100 if is_in_time else 5_000)
    assert (a.halted, count_at(b)) == (0, 0 if is_in_time else COUNT)
    assert [str(said["why"]) for said in a.events("scale-down-passed-over")] == [RESTARTS] * is_in_time
    start(a, cluster)
    assert count_at(a) == (COUNT if is_in_time else 0)
    stop(a, cluster, 5_000)
    assert count_at(b) == COUNT, "the next stop is another one"


def test_without_the_option_it_stops_at_once_and_nothing_is_delayed() -> None:
    cluster, (_, b) = cluster_of()
    filled(b, COUNT, cluster)
    stop(b, cluster)
    assert (b.halted, b.delays) == (0, [])


def test_with_nobody_there_it_stops_at_once_and_says_so() -> None:
    cluster, (a, b) = cluster_of()
    filled(a, COUNT, cluster)
    b.crash()
    cluster.wait(600)
    stop(a, cluster)
    assert a.halted == 0
    (said,) = a.events("scale-down-passed-over")
    assert (said["why"], said["left"]) == ("no node of the cluster is linked", COUNT)
    assert [each.is_over for each in a.delays] == [True]
    start(a, cluster)
    assert count_at(a) == COUNT


def held_up(**policies: dict[str, Any]) -> tuple[ClusterStage, ClusterNode, ClusterNode]:
    """A node that leaves, and of which some messages have arrived, and others are on the way."""
    cluster, (a, b) = cluster_of(**policies)
    filled(a, COUNT, cluster)
    arrived = 0

    def look(_: int) -> None:
        nonlocal arrived
        arrived = count_at(b)
        if arrived > COUNT // 3:
            cluster.held_up.add(frozenset("ab"))

    cluster.on_sent = look
    stop(a, cluster, 1_500)
    assert 0 < count_at(b) < COUNT
    return cluster, a, b


def release(cluster: ClusterStage) -> None:
    cluster.on_sent = lambda _: None
    cluster.let_through("a", "b")


def all_are_there_once(cluster: ClusterStage, *nodes: ClusterNode) -> list[int]:
    """How many each has; clients get all of them, once."""
    found = [read_at(node, cluster).bodies for node in nodes]
    assert sorted(body for each in found for body in each) == bodies(COUNT)
    return [len(each) for each in found]


@pytest.mark.option("scale-down.timeout")
@pytest.mark.parametrize("answers", [True, False])
def test_when_its_time_is_over_it_stops_and_what_is_left_is_served_by_the_next_start(answers: bool) -> None:
    cluster, a, b = held_up(a={"timeout": 10_000})
    cluster.wait(8_000)
    assert (a.halted, a.broker.stopping.state) == (None, NodeState.LEAVING)
    cluster.wait(700)
    assert a.broker.stopping.state is NodeState.BREAKING_OFF
    assert why_of(a, "scale-down-unfinished") == "scale-down.timeout is over"
    if answers:
        release(cluster)
        cluster.wait(200)
        assert a.halted == 0, "it waits for nothing but the answers"
    cluster.wait(2_100)
    assert a.halted == 0
    release(cluster)
    start(a, cluster)
    assert a.admin("scale-down-show")["state"] == "none"
    here, _ = all_are_there_once(cluster, a, b)
    assert (here > 0) == answers, "where the answers did not come, nobody knows what it has"


def test_a_second_request_breaks_it_off_and_a_third_does_not_wait_for_answers() -> None:
    cluster, a, b = held_up()
    stop(a, cluster, 500)
    assert (a.halted, a.broker.stopping.state) == (None, NodeState.BREAKING_OFF)
    assert why_of(a, "scale-down-unfinished") == "it was asked to stop once more"
    a.is_disk_held = True
    a.ask("send", address="late", messages=[{"body": "x", "durable": True}])
    stop(a, cluster, 2_500)
    assert (a.halted, a.broker.stopping.state) == (None, NodeState.DRAINING), "it waits for its disk alone"
    a.is_disk_held = False
    cluster.wait(0)
    assert a.halted == 0
    release(cluster)
    start(a, cluster)
    all_are_there_once(cluster, a, b)


def test_an_administrator_calls_it_off_and_it_stops() -> None:
    cluster, a, b = held_up()
    a.admin("scale-down-cancel")
    release(cluster)
    cluster.wait(1_000)
    assert a.halted == 0
    assert why_of(a, "scale-down-unfinished") == "an administrator called it off"
    start(a, cluster)
    all_are_there_once(cluster, a, b)


@pytest.mark.parametrize("who", ["a", "b"])
def test_a_crash_in_the_middle_loses_and_doubles_nothing(who: str) -> None:
    cluster, a, b = held_up()
    node = cluster.nodes[who]
    node.crash()
    release(cluster)
    start(node, cluster)
    cluster.wait(5_000)
    if who == "a":
        assert a.admin("scale-down-show")["state"] == "none", "the process that was to end has ended"
        assert not a.connect("client").is_closed
    else:
        assert (a.halted, count_at(b)) == (0, COUNT), "it goes on"
        start(a, cluster)
    all_are_there_once(cluster, a, b)


def test_a_crash_before_anything_went_leaves_it_as_it_was() -> None:
    cluster, (a, b) = cluster_of()
    filled(a, COUNT, cluster)
    stop(a, cluster, 300)
    a.crash()
    start(a, cluster)
    assert (count_at(a), count_at(b)) == (COUNT, 0)


def test_nodes_that_stop_at_the_same_time_wait_for_nobody() -> None:
    cluster, nodes = cluster_of("ab", a={}, b={})
    for node in nodes:
        filled(node, COUNT, cluster)
    cluster.hold_up("a", "b")
    for node in nodes:
        stop(node, cluster)
        assert node.broker.stopping.state is NodeState.LEAVING, "it does not know of the other one"
    cluster.let_through("a", "b")
    cluster.wait(3_000)
    assert [node.halted for node in nodes] == [0, 0]
    assert any("leaves itself" in str(said["why"]) for node in nodes for said in node.events("scale-down-unfinished"))
    for node in nodes:
        node.start()
    cluster.wait(5_000)
    assert sorted(body for node in nodes for body in read_at(node, cluster).bodies) == sorted(bodies(COUNT) * 2)


def test_where_the_heir_stops_meanwhile_it_stops_too() -> None:
    cluster, a, b = held_up()
    release(cluster)
    stop(b, cluster)
    assert b.halted == 0
    cluster.wait(3_000)
    assert a.halted == 0
    assert why_of(a, "scale-down-unfinished") == "the node that takes them has stopped"
    start(b, cluster)
    start(a, cluster)
    all_are_there_once(cluster, a, b)


def test_a_receipt_that_does_not_balance_is_no_success_and_is_told() -> None:
    cluster, a, b = held_up(a={"timeout": 10_000})
    a.broker.store.remotes.scale_down.tallies["orders"].came += 1
    release(cluster)
    cluster.wait(11_000)
    assert (a.halted, count_at(b), a.events("scale-down-moved")) == (0, COUNT, [])
    (said,) = a.events("scale-down-unfinished")
    assert "should have 1 messages here, and has 0" in str(said["stays"])


@pytest.mark.parametrize("is_up", [True, False])
def test_what_waits_for_a_third_node_goes_there_where_it_is_linked_and_stays_where_it_is_not(is_up: bool) -> None:
    cluster, (a, _, c) = cluster_of("abc")
    left_behind(c)
    if is_up:
        cluster.hold_up("a", "c")
    else:
        c.crash()
        cluster.wait(600)
    published(a, COUNT)
    stop(a, cluster, 3_000)
    assert (a.halted is None) == is_up
    if is_up:
        cluster.let_through("a", "c")
        cluster.wait(1_000)
        assert (a.halted, waits(c)) == (0, COUNT)
    else:
        (said,) = a.events("scale-down-moved")
        assert said["left"] == COUNT
        assert f"for node {node_id_of('c')}" in str(said["stays"])


def test_one_to_which_others_drain_keeps_what_it_has() -> None:
    cluster, (a, b) = cluster_of()
    filled(b, COUNT, cluster)
    b.admin("scale-down", node="a")
    cluster.wait(3_000)
    stop(a, cluster)
    assert a.halted == 0
    assert why_of(a, "scale-down-passed-over") == "queues of other nodes drain to this one"


def test_one_that_an_administrator_has_leave_stops_as_ever() -> None:
    cluster, (a, _) = cluster_of()
    a.admin("scale-down", node="b")
    stop(a, cluster)
    assert (a.halted, [each.is_over for each in a.delays]) == (0, [True])
    start(a, cluster)
    assert a.admin("scale-down-show")["state"] == "moved"


def test_one_that_is_cordoned_keeps_what_it_has() -> None:
    cluster, (a, b) = cluster_of()
    filled(a, COUNT, cluster)
    a.admin("cordon")
    stop(a, cluster, 100)
    assert (a.halted, count_at(b)) == (0, 0)
    start(a, cluster)
    assert a.admin("scale-down-show")["state"] == "cordoned"


def test_none_that_is_cordoned_takes_them() -> None:
    cluster, (a, b, c) = cluster_of("abc")
    filled(a, COUNT, cluster)
    b.admin("cordon")
    cluster.run()
    stop(a, cluster, 5_000)
    assert (count_at(b), count_at(c)) == (0, COUNT)


@pytest.mark.option("scale-down.group-name")
@pytest.mark.parametrize(("group", "has_gone"), [("east", True), ("west", False)])
def test_only_a_member_of_its_group_takes_them(group: str, has_gone: bool) -> None:
    cluster, (a, _, c) = cluster_of("abc", a={"group_name": "east"})
    c.crash()
    c.options = replace(c.options, scale_down=replace(c.options.scale_down, group_name=group))
    start(c, cluster)
    filled(a, COUNT, cluster)
    stop(a, cluster, 5_000)
    assert (a.halted, count_at(c)) == (0, COUNT if has_gone else 0)


@pytest.mark.option("scale-down.connectors")
@pytest.mark.parametrize("order", ["bc", "cb"])
def test_the_first_connector_says_who(order: str) -> None:
    cluster, nodes = cluster_of("abc", a={"connectors": tuple(f"to-{each}" for each in order)})
    filled(nodes[0], COUNT, cluster)
    stop(nodes[0], cluster, 5_000)
    assert count_at(cluster.nodes[order[0]]) == COUNT


def test_a_connector_leads_to_who_answered_there_whatever_that_says_of_its_place() -> None:
    cluster, (a, b, c) = cluster_of("abc", {"c": "c.inside"}, a={"connectors": ("to-c",)})
    assert (a.bridge("c").connector.host, a.state("c")) == ("c.inside", "up")
    filled(a, COUNT, cluster)
    stop(a, cluster, 5_000)
    assert (count_at(b), count_at(c)) == (0, COUNT)


def test_a_durable_subscription_goes_along() -> None:
    cluster, (a, b) = cluster_of()
    left_behind(a)
    published(a, COUNT)
    stop(a, cluster, 5_000)
    assert (a.halted, waits(b)) == (0, COUNT)
    start(a, cluster)
    assert waits(a) in (-1, 0)


@pytest.mark.option("scale-down.discovery-group-ref")
def test_a_discovery_group_that_found_nobody_keeps_them_here() -> None:
    cluster, (a, b) = cluster_of(a={"discovery_group_ref": "lan"})
    filled(a, COUNT, cluster)
    stop(a, cluster)
    assert (a.halted, count_at(b)) == (0, 0)
    assert "discovery group lan" in why_of(a, "scale-down-passed-over")


def test_what_cannot_move_stays_and_is_told() -> None:
    cluster, (a, b) = cluster_of()
    filled(a, COUNT, cluster)
    a.admin("queue-create", name="latest", durable=False)
    a.admin("send", address="latest", messages=[{"body": "x", "durable": True}])
    stop(a, cluster, 5_000)
    assert (a.halted, count_at(b)) == (0, COUNT)
    (said,) = a.events("scale-down-moved")
    assert said["left"] == 1
    assert "latest" in str(said["stays"])


@pytest.mark.parametrize(("timeout_ms", "stays_ms"), [(5_000, 1_250), (20_000, 5_000), (300_000, 10_000)])
def test_who_has_not_settled_is_waited_for_during_a_part_of_the_time_alone(timeout_ms: int, stays_ms: int) -> None:
    cluster, (a, b) = cluster_of(a={"timeout": timeout_ms})
    filled(a, 3, cluster)
    consumer = Consumer(a, credit=1)
    stop(a, cluster, 1_000 + stays_ms - 300)
    assert not consumer.talker.is_closed
    cluster.wait(3_000)
    assert (consumer.talker.is_closed, a.halted, count_at(b)) == (True, 0, 3)
    assert a.events("scale-down-unfinished") == []
