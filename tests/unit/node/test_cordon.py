"""A node is cordoned: clients go elsewhere, what it has stays, others avoid it, and a restart changes none of that."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.admin.health import of_node, readiness
from mqbroker.amqp.events import Dead
from mqbroker.amqp.redirect import RedirectPlace
from mqbroker.base.errors import StorageFault
from mqbroker.core.cluster.cordon import NAME, NUMBER

from tests.support.cluster_stage import ClusterNode, ClusterStage, node_id_of
from tests.support.large_messages import Producer
from tests.support.stage import Talker
from tests.unit.core.cluster.test_drains import LIMITS, bodies, count_at, drain, filled, pair, read_at
from tests.unit.node.amqp.peers.test_coordinator import Client
from tests.unit.node.test_moving_subscriptions import left_behind, published, three, waits
from tests.unit.node.test_scale_down import answered_before_it_is_sent_away, moved, sent_to, shown, that_say_where
from tests.unit.node.test_scale_down_at_stop import cluster_of, start, stop

THERE = RedirectPlace("b.example", 5672)


def why_not(at: ClusterNode, operation: str, **said: Any) -> str:
    """The reason of a refusal."""
    request = at.ask(operation, **said)
    at.cluster.run()
    error = at.replies[request].error
    assert error is not None, at.replies[request].result
    return f"{error['condition']}: {error['description']}"


def condition_of(talker: Talker) -> str:
    (dead,) = [event for event in talker.events if isinstance(event, Dead)]
    return str(dead.error.condition)


def test_clients_are_sent_to_another_node_and_what_is_here_stays() -> None:
    cluster, a, b = that_say_where()
    producer = filled(a, 10, cluster)
    said = a.admin("cordon")
    assert (said["state"], said["node"], said["left"], said["connections"]) == ("cordoned", None, 10, 1)
    assert sent_to(a.connect("late")) == THERE
    producer.publish(b"00010")
    cluster.run()
    assert len(producer.outcomes) == 11, "who is here may go on for a second"
    cluster.wait(1_500)
    assert sent_to(producer.talker) == THERE
    cluster.wait(20_000)
    assert (count_at(a), b.broker.store.queues.get("orders")) == (11, None)
    said = shown(a)
    assert (said["state"], said["left"], said["connections"], said["moved"]) == ("cordoned", 11, 0, 0)
    assert (a.admin("status")["state"], a.admin("health")["state"]) == ("cordoned", "cordoned")
    assert a.broker.store.remotes.connections, "links stand"


def test_a_crash_changes_nothing_and_uncordoned_it_serves_what_it_kept() -> None:
    cluster, a, b = that_say_where()
    filled(a, 10, cluster)
    since = a.admin("cordon")["since"]
    a.crash()
    a.start()
    cluster.wait(3_000)
    assert (shown(a)["state"], shown(a)["since"]) == ("cordoned", since)
    assert sent_to(a.connect("late")) == THERE
    assert {member.heir for member in b.broker.other_members()} == {node_id_of("a")}
    said = a.admin("uncordon")
    assert (said["state"], said["since"], said["left"]) == ("none", None, 0)
    cluster.run()
    assert {member.heir for member in b.broker.other_members()} == {""}
    assert read_at(a, cluster).bodies == bodies(10)
    a.crash()
    a.start()
    cluster.run()
    assert (shown(a)["state"], a.admin("status")["state"]) == ("none", "active")
    assert not a.connect("again").is_closed


def test_where_nobody_says_how_clients_reach_them_they_are_refused() -> None:
    cluster, a, _ = pair()
    here = a.connect("here")
    a.admin("cordon")
    assert condition_of(a.connect("late")) == "amqp:connection:forced"
    cluster.wait(1_500)
    assert condition_of(here) == "amqp:connection:forced"


def test_no_client_is_sent_to_a_node_that_takes_none_or_is_away() -> None:
    cluster, a, b = that_say_where()
    b.admin("cordon")
    a.admin("cordon")
    assert condition_of(a.connect("one")) == "amqp:connection:forced"
    b.admin("uncordon")
    cluster.run()
    assert sent_to(a.connect("two")) == THERE
    b.crash()
    cluster.wait(30_000)
    assert condition_of(a.connect("three")) == "amqp:connection:forced"


def test_others_tell_their_clients_of_no_node_that_is_cordoned() -> None:
    cluster, a, b = that_say_where()
    listener = next(each for each in b.broker.options.listeners if each.kind != "cluster")
    known = b.broker.failover_list.known
    assert known(listener) == (RedirectPlace("a.example", 5672),)
    a.admin("cordon")
    cluster.run()
    assert known(listener) == ()


def test_others_send_nothing_to_it_where_another_has_the_queue() -> None:
    cluster, a, b, c = three("STRICT")
    for node in (a, b, c):
        node.admin("queue-create", name="orders")
    cluster.run()
    a.admin("cordon")
    cluster.run()
    producer = Producer(c)
    for body in bodies(10):
        producer.publish(body)
        cluster.run()
    assert [waits(node, "orders") for node in (a, b, c)] == [0, 5, 5]
    a.admin("uncordon")
    cluster.run()
    for body in bodies(9):
        producer.publish(body)
        cluster.run()
    assert waits(a, "orders") == 3


def test_what_only_it_has_comes_to_it_all_the_same() -> None:
    cluster, a, _, c = three()
    left_behind(a)
    cluster.run()
    a.admin("cordon")
    cluster.run()
    published(c, 3)
    assert waits(a) == 3


def test_an_open_transaction_has_ten_seconds_and_is_rolled_back_then() -> None:
    cluster, a, _ = that_say_where()
    early, late = Client(a, "early"), Client(a, "late")
    ids = [(client, client.sender("orders"), client.declare()) for client in (early, late)]
    for client, link, txn_id in ids:
        client.post(link, txn_id)
    a.admin("cordon")
    cluster.wait(3_000)
    assert (early.talker.is_closed, late.talker.is_closed) == (False, False)
    early.discharge(ids[0][2])
    cluster.wait(1_000)
    assert (early.talker.is_closed, late.talker.is_closed) == (True, False)
    cluster.wait(8_000)
    assert late.talker.is_closed
    (told,) = a.events("transactions-rolled-back")
    assert (told["count"], told["why"]) == (1, "this node is cordoned")
    assert count_at(a) == 1


def test_what_was_taken_in_is_answered_before_its_client_is_sent_away() -> None:
    cluster, a, _ = that_say_where()
    producer = filled(a, 1, cluster)
    a.admin("cordon")
    cluster.wait(500)
    answered_before_it_is_sent_away(cluster, a, producer)


def test_whoever_was_held_back_is_read_again_when_it_is_uncordoned() -> None:
    cluster, a, _ = that_say_where()
    producer = filled(a, 1, cluster)
    a.admin("cordon")
    cluster.wait(500)
    a.is_disk_held = True
    producer.publish(b"late")
    cluster.wait(700)
    assert a.paused[producer.talker.conn]
    request = a.ask("uncordon")
    assert not a.paused[producer.talker.conn]
    a.is_disk_held = False
    cluster.wait(2_000)
    assert a.replies[request].result["state"] == "none"
    assert (len(producer.outcomes), producer.talker.is_closed) == (2, False)


def test_a_scale_down_takes_its_place_and_called_off_it_serves() -> None:
    cluster, a, b = that_say_where()
    filled(a, 10, cluster)
    a.admin("cordon")
    cluster.wait(2_000)
    assert a.admin("scale-down", node="b", dry_run=True)["state"] == "cordoned"
    a.ask("scale-down", node="b")
    said = moved(a, cluster)
    assert (said["moved"], said["receipt"]["balances"], count_at(b)) == (10, True, 10)
    a.crash()
    a.start()
    cluster.wait(3_000)
    assert shown(a)["state"] == "moved"
    a.admin("scale-down-cancel")
    cluster.wait(2_000)
    assert (shown(a)["state"], a.connect("again").is_closed) == ("none", False)


def test_it_is_refused_under_a_scale_down_and_said_twice_it_is_one() -> None:
    cluster, a, _ = pair()
    filled(a, 5, cluster)
    assert "not cordoned" in why_not(a, "uncordon")
    cluster.hold_up("a", "b")
    a.ask("scale-down", node="b")
    cluster.wait(2_000)
    for operation in ("cordon", "uncordon"):
        assert "amqp:precondition-failed" in why_not(a, operation)
        assert "scale-down-cancel" in why_not(a, operation)
    cluster.let_through("a", "b")
    a.admin("scale-down-cancel", force=True)
    cluster.wait(5_000)
    since = a.admin("cordon")["since"]
    cluster.wait(100)
    assert a.admin("cordon")["since"] == since
    assert a.admin("uncordon")["state"] == "none"


def test_no_queue_of_another_node_drains_to_it() -> None:
    cluster, a, b = pair()
    filled(a, 5, cluster)
    cluster.hold_up("a", "b")
    b.admin("cordon")
    drain(a, cluster)  # it has not heard of that
    cluster.let_through("a", "b")
    cluster.wait(2_000)
    (row,) = a.admin("drain-show")["drains"]
    assert (row["left"], "is cordoned" in row["why"]) == (5, True)
    b.admin("uncordon")
    cluster.wait(10_000)
    assert count_at(b) == 5
    assert f"queues of node {node_id_of('a')} drain to this one" in why_not(b, "cordon")


def test_who_is_known_to_be_cordoned_is_no_target_of_drains() -> None:
    cluster, a, b = pair()
    filled(a, 5, cluster)
    b.admin("cordon")
    cluster.run()
    assert f"node {node_id_of('b')} is cordoned" in why_not(a, "drain-queue", queue="orders", node="b")
    assert "is cordoned" in why_not(a, "scale-down", node="b")
    b.admin("uncordon")
    cluster.run()
    assert a.admin("scale-down", node="b", dry_run=True)["hindrances"] == []


def test_consumers_elsewhere_still_pull_what_it_kept() -> None:
    options = LIMITS | {"address_settings": {"#": {"redistribution_delay": 0}}}
    cluster, a, b = pair(options=options, message_load_balancing="ON_DEMAND")
    filled(a, 3, cluster)
    a.admin("cordon")
    cluster.wait(2_000)
    assert count_at(a) == 3
    assert read_at(b, cluster).bodies == bodies(3)
    assert (count_at(a), shown(a)["state"]) == (0, "cordoned")


def test_beside_a_scale_down_a_cordon_is_dropped_at_the_start() -> None:
    """As where a release that knows no cordon has begun it: called off later, the node serves."""
    cluster, a, _ = that_say_where()
    filled(a, 5, cluster)
    cluster.hold_up("a", "b")
    a.admin("scale-down", node="b")
    a.broker.store.remotes.cordon.begin()
    a.admin("queue-create", name="other")
    a.crash()
    cluster.let_through("a", "b")
    a.start()
    cluster.wait(3_000)
    a.admin("scale-down-cancel")
    cluster.wait(3_000)
    assert (shown(a)["state"], a.connect("client").is_closed) == ("none", False)
    a.crash()
    a.start()
    cluster.wait(1_000)
    assert (shown(a)["state"], a.connect("later").is_closed) == ("none", False)


def test_a_record_that_cannot_be_read_ends_the_start() -> None:
    cluster, a, _ = pair()
    a.broker.store.journal.duplicates.add(NAME, NUMBER, b"{}", NUMBER)
    a.admin("queue-create", name="other")
    cluster.run()
    a.crash()
    with pytest.raises(StorageFault, match="cordoned"):
        a.start()


def test_balancers_are_told_to_send_nobody_and_the_node_is_well() -> None:
    _, a, _ = pair()
    assert readiness(of_node(a.broker), is_disk_alive=True).is_good
    a.admin("cordon")
    verdict = readiness(of_node(a.broker), is_disk_alive=True)
    assert (verdict.is_good, verdict.why) == (False, "the broker is cordoned: it lets no client in")
    a.admin("uncordon")
    assert readiness(of_node(a.broker), is_disk_alive=True).why == "ready"


def test_one_that_hands_over_at_its_stop_keeps_what_it_has_while_it_is_cordoned() -> None:
    cluster, (a, b) = cluster_of()
    filled(a, 5, cluster)
    a.admin("cordon")
    cluster.wait(2_000)
    stop(a, cluster, 3_000)
    assert (a.halted, b.broker.store.queues.get("orders")) == (0, None)
    start(a, cluster)
    assert (shown(a)["state"], count_at(a)) == ("cordoned", 5)


def test_alone_a_node_refuses_whoever_comes() -> None:
    cluster = ClusterStage()
    a = cluster.node("a", [])
    cluster.run()
    a.admin("cordon")
    assert condition_of(a.connect("late")) == "amqp:connection:forced"
    a.admin("uncordon")
    assert not a.connect("again").is_closed
