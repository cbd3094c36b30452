"""A whole node drains to another one: clients are sent there, nothing is lost or comes twice, and a receipt says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from mqbroker.amqp.events import Dead
from mqbroker.amqp.redirect import RedirectPlace, redirect_of
from mqbroker.config.slices import ConnectorOptions
from mqbroker.core.cluster.duplicate_cargo import ADDRESS
from mqbroker.core.cluster.id_digest import IdDigest
from mqbroker.core.queue.backlog import Segment
from mqbroker.node.cluster.forwarding.forwarding_terms import MAKES_QUEUES
from mqbroker.node.cluster.membership import arrival_links
from mqbroker.wire.performatives import Accepted, Modified, Target
from mqbroker.wire.run import single
from mqbroker.wire.sections import Properties, build_message
from mqbroker.wire.values import Long

from tests.support.cluster_stage import ClusterNode, ClusterStage, node_id_of, options_for
from tests.support.large_messages import Consumer, Producer, content, header_of
from tests.support.stage import Talker
from tests.unit.core.cluster.test_drains import (
    LIMITS,
    bodies,
    count_at,
    drain,
    filled,
    pair,
    pair_of_which_b_takes_less,
    read_at,
)
from tests.unit.node.amqp.peers.test_coordinator import Client
from tests.unit.node.test_far_times import annotated


def answered_before_it_is_sent_away(cluster: ClusterStage, a: ClusterNode, producer: Producer) -> None:
    """Half a second after its node began to send clients away, with one message before."""
    a.is_disk_held = True
    producer.publish(b"late")
    cluster.wait(700)
    assert (len(producer.outcomes), producer.talker.is_closed) == (1, False)
    a.is_disk_held = False
    cluster.run()
    assert (len(producer.outcomes), producer.talker.is_closed) == (2, True)


def that_say_where(options: Any = LIMITS) -> tuple[ClusterStage, ClusterNode, ClusterNode]:
    """Two nodes that tell how clients reach them."""
    cluster = ClusterStage()
    said: dict[str, Any] = {"options": options, "message_load_balancing": "OFF", "client_connector_ref": "clients"}
    for name, other in (("a", "b"), ("b", "a")):
        base = options_for(name, [other], said)
        clients = ConnectorOptions("clients", f"{name}.example", 5672, False)
        cluster.make(name, replace(base, connectors=(*base.connectors, clients)), {})
    cluster.run()
    cluster.wait(600)
    return cluster, cluster.nodes["a"], cluster.nodes["b"]


def sent_to(talker: Talker) -> RedirectPlace | None:
    """Where a client was sent, whose connection is over."""
    (dead,) = [event for event in talker.events if isinstance(event, Dead)]
    return redirect_of(dead.error)


def begin(a: ClusterNode, cluster: ClusterStage, **said: Any) -> Any:
    request = a.ask("scale-down", node="b", **said)
    cluster.run()
    reply = a.replies[request]
    return reply.error if reply.error is not None else reply.result


def shown(a: ClusterNode) -> Any:
    return a.admin("scale-down-show")


def moved(a: ClusterNode, cluster: ClusterStage) -> Any:
    """What is shown when all has moved."""
    for _ in range(40):
        cluster.wait(500)
        if shown(a)["state"] == "moved":
            return shown(a)
    raise AssertionError(shown(a))


def test_all_goes_and_the_receipt_says_so() -> None:
    cluster, a, b = pair()
    filled(a, 300, cluster)
    assert shown(a)["state"] == "none"
    said = begin(a, cluster)
    assert (said["state"], said["node"], said["node_id"], said["left"]) == ("moving", "b", node_id_of("b"), 300)
    said = moved(a, cluster)
    assert (count_at(a), count_at(b)) == (0, 300)
    assert (said["left"], said["moved"], said["connections"], said["hindrances"]) == (0, 300, 0, [])
    receipt = said["receipt"]
    assert (receipt["balances"], receipt["difference"]) == (True, [])
    (row,) = receipt["queues"]
    assert (row["before"]["messages"], row["came"], row["consumed"], row["moved"], row["left"]) == (300, 0, 0, 300, 0)
    assert (row["arrived"], row["arrived_digest"]) == (300, row["moved_digest"])
    assert read_at(b, cluster).bodies == bodies(300)


@pytest.mark.parametrize("window_bytes", [1, 1_000, -1])
def test_as_many_go_as_there_were_however_little_may_be_unanswered(window_bytes: int) -> None:
    cluster, a, b = pair(confirmation_window_size=window_bytes)
    filled(a, 120, cluster)
    begin(a, cluster)
    said = moved(a, cluster)
    (row,) = said["receipt"]["queues"]
    assert (row["before"]["messages"], row["moved"], row["arrived"], row["left"]) == (120, 120, 120, 0)
    assert said["receipt"]["balances"]
    assert read_at(b, cluster).bodies == bodies(120)


def test_a_client_is_sent_to_the_heir_and_one_that_comes_too() -> None:
    cluster, a, _ = that_say_where()
    producer = filled(a, 10, cluster)
    begin(a, cluster)
    there = RedirectPlace("b.example", 5672)
    assert sent_to(a.connect("late")) == there
    producer.publish(b"00010")
    cluster.run()
    assert len(producer.outcomes) == 11, "who is here may go on for a while"
    cluster.wait(1_500)
    assert sent_to(producer.talker) == there
    said = moved(a, cluster)
    assert (said["connections"], said["moved"], said["receipt"]["balances"]) == (0, 11, True)


def test_called_off_it_serves_again_and_lets_clients_in() -> None:
    cluster, a, b = pair()
    filled(a, 300, cluster)
    cluster.hold_up("a", "b")
    begin(a, cluster)
    cluster.wait(2_000)
    assert (shown(a)["state"], shown(a)["left"]) == ("moving", 300)
    assert a.admin("scale-down-cancel")["state"] == "none", "nothing went out"
    cluster.let_through("a", "b")
    cluster.wait(5_000)
    assert shown(a)["state"] == "none"
    assert count_at(a) + count_at(b) == 300
    assert not a.broker.store.message_observers
    left = count_at(a)
    filled(a, 1, cluster)
    assert count_at(a) == left + 1


def test_what_cannot_move_is_named_and_stays_where_it_is_forced() -> None:
    cluster, a, b = pair()
    filled(a, 5, cluster)
    a.admin("queue-create", name="latest", durable=False)
    assert begin(a, cluster, dry_run=True)["hindrances"] == [], "what is empty hinders nothing"
    a.admin("send", address="latest", messages=[{"body": "x", "durable": True}])
    (row,) = begin(a, cluster, dry_run=True)["hindrances"]
    assert (row["kind"], row["name"]) == ("queue", "latest")
    assert shown(a)["state"] == "none"
    refused = begin(a, cluster)
    assert refused["condition"] == "amqp:precondition-failed"
    assert "latest" in refused["description"]
    begin(a, cluster, force=True)
    said = moved(a, cluster)
    assert [row["name"] for row in said["hindrances"]] == ["latest"]
    assert (said["left"], said["moved"], count_at(b)) == (1, 5, 5)


def test_it_goes_on_after_a_crash_of_either_node_and_still_balances() -> None:
    cluster, a, b = pair(confirmation_window_size=2_000)
    filled(a, 300, cluster)
    begin(a, cluster)
    for node in (a, b, a):
        cluster.wait(1_100)
        node.crash()
        node.start()
        cluster.run()
    said = moved(a, cluster)
    assert said["receipt"]["balances"], said["receipt"]
    assert said["receipt"]["queues"][0]["arrived"] == 300
    assert read_at(b, cluster).bodies == bodies(300)
    assert a.connect("late").is_closed


def test_queues_that_are_made_meanwhile_drain_too() -> None:
    cluster, a, b = pair()
    begin(a, cluster)
    cluster.wait(2_000)
    a.admin("send", address="new", messages=[{"body": "x", "durable": True}] * 3)
    moved(a, cluster)
    assert b.broker.store.queues["new"].message_count == 3


def with_id(said: str) -> dict[str, Any]:
    return {"application_properties": {"_AMQ_DUPL_ID": said}}


@pytest.mark.slow
def test_the_heir_knows_ids_of_duplicate_detection_before_a_client_could_repeat_them() -> None:
    cluster, a, b = that_say_where()
    producer = filled(a, 1, cluster)
    for number in range(2_500):
        producer.send(b"x", **with_id(f"early {number}"))
    cluster.run()
    begin(a, cluster)
    cluster.wait(500)
    producer.publish(b"late", **with_id("late"))
    cluster.hold_up("a", "b")
    cluster.wait(700)
    assert not producer.talker.is_closed, "the heir does not know of the last one"
    producer.publish(b"unread", **with_id("unread"))
    assert len(producer.outcomes) == 2_502
    cluster.let_through("a", "b")
    cluster.run()
    cluster.wait(600)
    assert sent_to(producer.talker) == RedirectPlace("b.example", 5672)
    there = Producer(b)
    for said in ("early 0", "early 2499", "late", "unread"):
        there.publish(b"again", **with_id(said))
    assert len(there.outcomes) == 4
    moved(a, cluster)
    assert count_at(b) == 2_503, "of the repeated ones only that came that nobody had taken"
    b.crash()
    b.start()
    cluster.wait(2_000)
    Producer(b).publish(b"again", **with_id("early 7"))
    assert count_at(b) == 2_503
    assert "$.duplicate-ids" not in {row["address"] for row in a.admin("queues")["queues"]}


def test_what_is_purged_by_turns_as_consumers_leave_is_in_no_receipt() -> None:
    cluster, a, _ = pair()
    a.admin("queue-create", name="orders", purge_on_no_consumers=True)
    Consumer(a, "holder", credit=0)
    cluster.run()
    producer = Producer(a)
    for number in range(3_000):
        producer.send(b"x", properties=Properties(group_id=f"g{number}"))  # so that each is a segment
    cluster.run()
    assert len(producer.outcomes) == 3_000
    begin(a, cluster)
    cluster.wait(4_000)
    said = shown(a)
    assert (said["left"], said["moved"], said["receipt"]["balances"]) == (0, 0, True), said["receipt"]["difference"]


def whose_last_id_does_not_get_there() -> tuple[ClusterStage, ClusterNode, Producer]:
    """A node that leaves, and a client whose connection is about to be closed; its heir hears nothing more."""
    cluster, a, _ = that_say_where()
    producer = filled(a, 1, cluster)
    begin(a, cluster)
    cluster.wait(500)
    producer.publish(b"late", **with_id("late"))
    cluster.hold_up("a", "b")
    return cluster, a, producer


def test_a_client_whose_ids_the_heir_cannot_learn_is_sent_there_after_a_while() -> None:
    cluster, a, producer = whose_last_id_does_not_get_there()
    cluster.wait(600)
    assert shown(a)["receipt"]["others"] == [], "what carries ids is no message that waits for a node"
    cluster.wait(6_400)
    assert producer.talker.is_closed


def test_called_off_before_clients_have_left_they_go_on() -> None:
    cluster, a, producer = whose_last_id_does_not_get_there()
    cluster.wait(700)
    producer.publish(b"unread")
    assert len(producer.outcomes) == 2
    a.admin("scale-down-cancel")
    cluster.run()
    assert len(producer.outcomes) == 3
    assert not producer.talker.is_closed


def test_a_second_drain_of_the_heir_doubles_nothing() -> None:
    cluster = ClusterStage()
    said: dict[str, Any] = {"options": LIMITS, "message_load_balancing": "OFF"}
    a, b, c = (cluster.node(name, [each for each in "abc" if each != name], **said) for name in "abc")
    cluster.run()
    cluster.wait(600)
    filled(a, 300, cluster)
    begin(a, cluster)
    cluster.wait(1_010)
    a.crash()  # the heir has them, and it is not on disk here that they have left
    a.start()
    cluster.run()
    refused = b.ask("scale-down", node="c")
    begun = b.ask("scale-down", node="c", force=True)
    cluster.run()
    assert node_id_of("a") in str(b.replies[refused].error), "it is the heir of one that has not left"
    assert b.replies[begun].error is None
    for node in (b, a, c):
        cluster.wait(1_100)
        node.crash()
        node.start()
    cluster.wait(5_000)
    assert (count_at(a), count_at(b), count_at(c)) == (0, 0, 300)
    assert moved(b, cluster)["receipt"]["balances"]
    assert moved(a, cluster)["receipt"]["balances"]
    assert read_at(c, cluster).bodies == bodies(300)


@pytest.mark.parametrize("body", [b"", b"\x00\x00\x00\x09short", "text"])
def test_ids_that_cannot_be_read_end_their_link_alone(body: bytes | str) -> None:
    cluster, a, b = pair()
    store = a.broker.store
    queue = store.remotes.internal_queue("cluster", node_id_of("b"), ADDRESS)
    run = single(build_message(body, durable=True))
    run.arrived_ms = store.at.wall_ms
    store.number(run)
    store.put(store.addresses[ADDRESS], Segment(run, 0, 1, 0), [queue])
    a.step()
    cluster.run()
    assert (b.is_up, a.state("b"), queue.message_count) == (True, "up", 1)
    assert [each["queue"] for each in a.events("forwarding-refused")] == [queue.kind.name]


def test_an_open_transaction_has_ten_seconds_and_is_rolled_back_then() -> None:
    cluster, a, b = that_say_where()
    early, late = Client(a, "early"), Client(a, "late")
    ids = [(client, client.sender("orders"), client.declare()) for client in (early, late)]
    for client, link, txn_id in ids:
        client.post(link, txn_id)
    begin(a, cluster)
    cluster.wait(3_000)
    assert (early.talker.is_closed, late.talker.is_closed) == (False, False)
    early.discharge(ids[0][2])
    cluster.wait(1_000)
    assert (early.talker.is_closed, late.talker.is_closed) == (True, False)
    cluster.wait(8_000)
    assert late.talker.is_closed
    assert [each["count"] for each in a.events("transactions-rolled-back")] == [1]
    assert moved(a, cluster)["moved"] == count_at(b) == 1


def test_after_a_crash_all_ids_are_told_again_and_change_nothing() -> None:
    cluster, a, b = that_say_where()
    producer = filled(a, 1, cluster)
    producer.publish(b"x", **with_id("one"))
    begin(a, cluster)
    cluster.wait(300)
    a.crash()
    a.start()
    cluster.wait(3_000)
    moved(a, cluster)
    assert list(b.broker.store.duplicates.newest().values()) == [1]
    Producer(b).publish(b"x", **with_id("one"))
    assert count_at(b) == 2


def test_what_was_called_off_does_not_go_on_after_a_crash() -> None:
    cluster, a, b = pair()
    filled(a, 5, cluster)
    cluster.hold_up("a", "b")
    begin(a, cluster)
    cluster.wait(2_000)
    a.crash()
    a.start()  # so what it has may be at the other node, as far as it knows
    cluster.run()
    assert a.admin("scale-down-cancel")["state"] == "ends"
    a.crash()
    a.start()
    cluster.run()
    assert shown(a)["state"] == "ends"
    assert not a.connect("client").is_closed
    cluster.let_through("a", "b")
    cluster.wait(5_000)
    assert (shown(a)["state"], count_at(a) + count_at(b)) == ("none", 5)


def test_messages_that_no_journal_has_move_too_and_are_counted_apart() -> None:
    cluster, a, b = pair()
    filled(a, 5, cluster)
    filled(a, 3, cluster, durable=False)
    begin(a, cluster)
    said = moved(a, cluster)
    assert (count_at(a), count_at(b)) == (0, 8)
    (row,) = said["receipt"]["queues"]
    assert (said["receipt"]["balances"], row["before"]["messages"], row["moved"], row["arrived"]) == (True, 5, 5, 5)
    assert row["not_durable"] == {"came": 3, "consumed": 0, "moved": 3, "left": 0}


def test_what_is_not_durable_is_counted_apart_and_a_crash_takes_it() -> None:
    cluster, a, b = pair()
    filled(a, 3, cluster)
    filled(a, 4, cluster, durable=False)
    cluster.hold_up("a", "b")
    begin(a, cluster)
    cluster.wait(2_000)
    a.admin("send", address="orders", messages=[{"body": "late", "durable": False}] * 2)
    a.admin("send", address="orders", messages=[{"body": "late", "durable": True}])
    (row,) = shown(a)["receipt"]["queues"]
    assert row["not_durable"] == {"came": 6, "consumed": 0, "moved": 0, "left": 6}
    a.admin("queue-purge", name="orders", store_and_forward=True)
    (row,) = shown(a)["receipt"]["queues"]
    assert (row["consumed"], row["not_durable"]) == (4, {"came": 6, "consumed": 6, "moved": 0, "left": 0})
    for is_durable in (False, True):
        a.admin("send", address="orders", messages=[{"body": "later", "durable": is_durable}])
    a.crash()
    a.start()
    cluster.let_through("a", "b")
    said = moved(a, cluster)
    (row,) = said["receipt"]["queues"]
    assert row["not_durable"] == {"came": 0, "consumed": 0, "moved": 0, "left": 0}
    assert (said["receipt"]["balances"], count_at(b)) == (True, 1)


def scheduled(producer: Producer, *delays_ms: int) -> None:
    for delay_ms in delays_ms:
        later = annotated("x-opt-delivery-delay", Long(delay_ms))
        assert producer.link.session.send_run(producer.link, single(later), 0, 1, "later") == 1


@pytest.mark.slow
def test_what_is_scheduled_goes_at_once_and_comes_due_there() -> None:
    cluster, a, b = pair()
    producer = filled(a, 5, cluster)
    scheduled(producer, 3_600_000, 30 * 86_400_000)
    cluster.run()
    assert begin(a, cluster, dry_run=True)["hindrances"] == []
    begin(a, cluster)
    said = moved(a, cluster)
    assert (said["left"], said["moved"], said["receipt"]["balances"]) == (0, 7, True)
    (row,) = said["receipt"]["queues"]
    assert (row["before"]["scheduled"], row["after"]) == (2, {"delivering": 0, "scheduled": 0, "paged": 0})
    assert b.broker.store.queues["orders"].scheduled_count == 2
    for node in (a, b):
        node.crash()
        node.start()
    cluster.wait(2_000)
    assert moved(a, cluster)["receipt"]["balances"]
    assert len(read_at(b, cluster).bodies) == 5
    cluster.wait(3_600_000)
    assert len(read_at(b, cluster).bodies) == 6
    assert b.broker.store.queues["orders"].scheduled_count == 1


@pytest.mark.slow
def test_what_was_delivered_in_vain_and_comes_again_later_is_named_and_goes_then_with_its_count() -> None:
    delays = {"address_settings": {"orders": {"redelivery_delay": 3_600_000}}}
    cluster, a, b = pair(options=LIMITS | delays)
    filled(a, 3, cluster)
    reader = read_at(a, cluster)
    reader.settle(1, Modified(delivery_failed=True))
    reader.settle(0)
    reader.settle(2)
    (row,) = begin(a, cluster, dry_run=True)["hindrances"]
    why = "1 messages of it were delivered in vain, and go when their time has come"
    assert row == {"kind": "queue", "name": "orders", "why": why, "messages": 1}
    assert "in vain" in begin(a, cluster)["description"]
    begin(a, cluster, force=True)
    said = moved(a, cluster)
    assert (said["left"], count_at(b), said["receipt"]["balances"]) == (1, 0, True)
    cluster.wait(3_600_000)
    assert (shown(a)["left"], count_at(b)) == (0, 1)
    (event,) = read_at(b, cluster).incoming
    assert header_of(event).delivery_count == 1


def test_what_is_scheduled_waits_here_again_when_it_was_called_off() -> None:
    cluster, a, b = pair()
    producer = filled(a, 1, cluster)
    scheduled(producer, 60_000)
    cluster.hold_up("a", "b")
    drain(a, cluster)
    scheduled(producer, 30_000)
    cluster.run()
    assert a.broker.store.queues["orders"].scheduled_count == 0
    a.admin("drain-cancel", queue="orders")
    cluster.let_through("a", "b")
    cluster.run()
    assert (a.broker.store.queues["orders"].scheduled_count, count_at(b)) == (2, 0)
    queue = a.broker.store.queues["orders"]
    for ready in (2, 3):
        cluster.wait(30_000)
        assert queue.ready_count == ready


def given_to(a: ClusterNode, name: str, count: int) -> None:
    assert a.admin("send", address=name, messages=[{"body": "x", "durable": True}] * count) == {"accepted": count}


def test_what_a_transaction_commits_while_its_queue_would_drain_was_consumed_here() -> None:
    """A transacted consumer has retired two (settled, as Qpid JMS does), and commits after queues began to drain."""
    cluster, a, b = that_say_where()
    filled(a, 5, cluster)
    client = Client(a, "c")
    client.receiver("orders", credit=2)
    txn_id = client.declare()
    client.retire(0, 1, txn_id, settled=True)
    begin(a, cluster)
    cluster.wait(3_000)
    assert isinstance(client.discharge(txn_id), Accepted)
    said = moved(a, cluster)
    (row,) = said["receipt"]["queues"]
    assert (count_at(b), row["moved"], row["arrived"]) == (3, 3, 3)
    assert said["receipt"]["balances"], said["receipt"]["difference"]


def test_more_queues_drain_than_a_session_of_clients_may_have_links() -> None:
    few: dict[str, Any] = {"limits": {"link_credit": 100_000, "links_per_session_max": 10}}
    cluster, a, b = pair(options=few)
    for number in range(30):
        given_to(a, f"q{number:02}", 1)
    begin(a, cluster)
    said = moved(a, cluster)
    assert (said["moved"], said["receipt"]["balances"]) == (30, True)
    assert sum(each.message_count for each in b.broker.store.queues.values()) == 30


def test_the_receipt_is_asked_for_where_the_last_message_leaves_another_way() -> None:
    cluster, a, b = pair_of_which_b_takes_less()
    filled(a, 5, cluster).publish(content(1))
    begin(a, cluster)
    cluster.wait(4_000)
    assert (shown(a)["state"], count_at(b)) == ("failed", 5)
    assert a.admin("queue-purge", name="orders", store_and_forward=True)["purged"] == 1
    said = moved(a, cluster)
    (row,) = said["receipt"]["queues"]
    assert (row["consumed"], row["moved"], row["arrived"], said["receipt"]["balances"]) == (1, 5, 5, True)


def test_called_off_after_a_restart_what_is_scheduled_and_may_be_there_goes_there() -> None:
    cluster, a, b = pair()
    scheduled(filled(a, 5, cluster), 30 * 86_400_000)
    cluster.run()
    cluster.hold_up("a", "b")
    begin(a, cluster)
    cluster.wait(2_000)
    a.crash()
    a.start()
    a.admin("scale-down-cancel")
    cluster.let_through("a", "b")
    cluster.wait(5_000)
    assert (shown(a)["state"], count_at(a), count_at(b)) == ("none", 0, 6)
    assert not Consumer(a, "late").talker.is_closed


def test_a_queue_that_is_deleted_and_made_again_while_its_node_leaves_is_in_the_receipt_twice() -> None:
    cluster, a, b = pair()
    given_to(a, "first", 3)
    given_to(a, "second", 3)
    begin(a, cluster)
    moved(a, cluster)
    assert a.admin("queue-delete", name="first", force=True)["messages"] == 0
    given_to(a, "first", 2)
    cluster.wait(2_000)
    said = moved(a, cluster)
    assert b.broker.store.queues["first"].message_count == 5
    assert said["receipt"]["balances"], said["receipt"]["difference"]


def test_no_other_queue_has_the_link_of_one_that_was_deleted_and_is_made_again() -> None:
    cluster, a, b = pair()
    given_to(a, "first", 3)
    begin(a, cluster)
    moved(a, cluster)
    a.admin("queue-delete", name="first", force=True)
    given_to(a, "second", 2)
    cluster.wait(2_000)
    a.crash()
    a.start()
    cluster.wait(2_000)
    given_to(a, "third", 1)
    given_to(a, "first", 2)
    cluster.wait(2_000)
    assert moved(a, cluster)["receipt"]["balances"]
    queues = a.broker.store.queues
    links = [queues[name].kind.drains_as.rpartition(".")[2] for name in ("first", "second", "third")]
    assert links == ["1", "2", "3"]
    assert [b.broker.store.queues[name].message_count for name in ("first", "second", "third")] == [5, 2, 1]


def test_a_durable_queue_named_as_temporary_ones_are_moves() -> None:
    cluster, a, b = pair()
    a.admin("queue-create", name="temporary.prices", last_value=True)
    given_to(a, "temporary.prices", 1)
    begin(a, cluster)
    assert moved(a, cluster)["receipt"]["balances"]
    assert b.broker.store.queues["temporary.prices"].message_count == 1


def test_a_heir_that_tells_nothing_of_what_arrived_is_asked_once() -> None:
    cluster, a, b = pair()
    filled(a, 5, cluster)

    def untold(answer: Target, _: IdDigest, **__: bool) -> Target:
        return replace(answer, capabilities=(*(answer.capabilities or ()), MAKES_QUEUES))

    with patch.object(arrival_links, "makes_queues", untold):
        begin(a, cluster)
        said = moved(a, cluster)
    assert (count_at(b), said["receipt"]["balances"]) == (5, False)
    assert "did not say" in said["receipt"]["difference"][0]


def test_what_went_out_and_was_purged_without_an_answer_leaves_nothing_to_wait_for() -> None:
    cluster, a, b = pair()
    filled(a, 0, cluster).publish(content(1))
    b.is_disk_held = True
    begin(a, cluster)
    cluster.wait(2_000)
    b.crash()
    b.is_disk_held = False
    b.options = replace(b.options, limits=replace(b.options.limits, max_message_size_bytes=20_000))
    b.start()
    cluster.wait(4_000)
    assert "at most 20000 bytes" in shown(a)["hindrances"][0]["why"]
    assert a.admin("queue-purge", name="orders", store_and_forward=True)["purged"] == 1
    said = moved(a, cluster)
    assert (said["moved"], said["receipt"]["queues"][0]["consumed"], count_at(b)) == (0, 1, 0)
