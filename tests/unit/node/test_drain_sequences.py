"""What users of brokers have met while a node was taken away or its messages moved, one sequence of actions each."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from mqbroker.config.declarations.options import BrokerFile, to_slices
from mqbroker.node.values import inputs as given
from mqbroker.wire.sections import Header, build_message
from mqbroker.wire.types import Symbol

from tests.support import transactions
from tests.support.cluster_stage import ClusterNode, ClusterStage, node_id_of
from tests.support.large_messages import Consumer, Producer, content, is_clean
from tests.unit.core.cluster.test_drains import LIMITS, bodies, count_at, drain, filled, pair, read_at, row_of
from tests.unit.node.amqp.peers.test_coordinator import Client
from tests.unit.node.test_moving_subscriptions import published, subscribe, waits
from tests.unit.node.test_scale_down import begin, given_to, moved, shown, that_say_where, with_id

MOVES: dict[str, Any] = {"#": {"redistribution_delay": 0}}


def pair_that_redistributes() -> tuple[ClusterStage, ClusterNode, ClusterNode]:
    said = {"address_settings": MOVES, "limits": {"amqp_min_large_message_size_bytes": 2_000}}
    return pair(options=said, message_load_balancing="OFF_WITH_REDISTRIBUTION")


def taken(node: ClusterNode, cluster: ClusterStage, address: str, name: str = "reader") -> Consumer:
    consumer = Consumer(node, name, address, credit=5_000)
    cluster.run()
    return consumer


@pytest.mark.parametrize("policy", ["DROP", "FAIL", "BLOCK", "PAGE"])
def test_a_heir_that_is_full_loses_nothing_and_takes_the_rest_when_there_is_room(policy: str) -> None:
    cluster = ClusterStage()
    a = cluster.node("a", ["b"], options=LIMITS, message_load_balancing="OFF")
    full = {"orders": {"max_size_messages": 5, "address_full_policy": policy}}
    b = cluster.node("b", ["a"], options={**LIMITS, "address_settings": full}, message_load_balancing="OFF")
    cluster.run()
    cluster.wait(600)
    filled(a, 200, cluster)
    begin(a, cluster)
    cluster.wait(5_000)
    assert count_at(a) + count_at(b) == 200
    reader = read_at(b, cluster)
    for number in range(200):
        cluster.run()
        reader.settle(number)
    assert reader.bodies == bodies(200)
    assert moved(a, cluster)["receipt"]["balances"]


def test_messages_with_one_duplicate_id_that_were_all_accepted_all_move() -> None:
    few = {"orders": {"id_cache_size": 1}}
    cluster, a, b = pair(options={**LIMITS, "address_settings": few})
    producer = Producer(a)
    for number, said in enumerate(("x", "y", "x")):
        producer.publish(b"%05d" % number, **with_id(said))
    Producer(b).publish(b"there", **with_id("x"))
    assert (count_at(a), count_at(b)) == (3, 1)
    begin(a, cluster)
    said = moved(a, cluster)
    assert (said["moved"], said["receipt"]["balances"]) == (3, True)
    assert read_at(b, cluster).bodies == [b"there", *bodies(3)]


def test_the_heir_takes_what_was_rolled_back_here() -> None:
    """A duplicate id in a transaction that ends with its node is no id that was seen."""
    cluster, a, b = that_say_where()
    client = Client(a, "c")
    link, txn_id = client.sender("orders"), client.declare()
    payload = build_message(b"m", durable=True, **with_id("once"))
    transactions.post(link, payload, "post", txn_id)
    cluster.run()
    begin(a, cluster)
    cluster.wait(15_000)
    assert client.talker.is_closed
    moved(a, cluster)
    Producer(b).publish(b"again", **with_id("once"))
    assert count_at(b) == 1


def test_subscriptions_of_one_address_move_what_each_of_them_has() -> None:
    cluster, a, b = pair_that_redistributes()
    for node in (a, b):
        for name in ("s1", "s2"):
            node.admin("queue-create", name=name, address="prices", routing_type="multicast")
    cluster.run()
    producer = Producer(a, address="prices")
    for number in range(10):
        producer.publish(b"%05d" % number)
    cluster.run()
    readers = [taken(b, cluster, f"prices::{name}", name) for name in ("s1", "s2")]
    cluster.wait(2_000)
    assert [reader.bodies for reader in readers] == [bodies(10), bodies(10)]
    assert [a.broker.store.queues[name].message_count for name in ("s1", "s2")] == [0, 0]


def test_what_was_moved_to_another_queue_by_hand_goes_on_from_there() -> None:
    cluster, a, b = pair_that_redistributes()
    for node in (a, b):
        node.admin("queue-create", name="orders")
        node.admin("queue-create", name="late")
    filled(a, 5, cluster)
    assert a.admin("messages-move", queue="orders", address="late")["moved"] == 5
    cluster.run()
    late, orders = taken(b, cluster, "late", "late"), taken(b, cluster, "orders", "orders")
    cluster.wait(2_000)
    assert (late.bodies, orders.bodies) == (bodies(5), [])


def test_no_file_is_left_where_who_wanted_a_large_message_goes_before_it_comes() -> None:
    cluster, a, b = pair_that_redistributes()
    b.admin("queue-create", name="orders")
    producer = Producer(a)
    producer.publish(content(1))
    reader = taken(b, cluster, "orders")
    b.drop(reader.talker)
    cluster.wait(2_000)
    b.crash()
    b.start()
    cluster.wait(2_000)
    reader = taken(a, cluster, "orders", "a") if count_at(a) else taken(b, cluster, "orders", "b")
    cluster.wait(2_000)
    assert [len(each) for each in reader.bodies] == [40_000]
    reader.settle(0)
    cluster.wait(2_000)
    assert (is_clean(a), is_clean(b)) == (True, True)


def test_begun_called_off_and_begun_once_more_it_serves_in_between_and_balances() -> None:
    cluster, a, b = pair()
    filled(a, 5, cluster)
    begin(a, cluster)
    moved(a, cluster)
    a.admin("scale-down-cancel")
    cluster.wait(3_000)
    assert shown(a)["state"] == "none"
    filled(a, 3, cluster)
    reader = read_at(a, cluster)
    assert reader.bodies == bodies(3)
    reader.settle(0)
    begin(a, cluster)
    said = moved(a, cluster)
    assert said["receipt"]["balances"], said["receipt"]["difference"]
    assert (count_at(a), count_at(b)) == (0, 7)


def test_what_both_have_is_together_at_the_heir() -> None:
    cluster, a, b = pair()
    filled(a, 100, cluster)
    filled(b, 100, cluster)
    begin(a, cluster)
    moved(a, cluster)
    assert (count_at(a), count_at(b)) == (0, 200)
    assert Counter(read_at(b, cluster).bodies) == Counter(bodies(100) * 2)


def test_a_queue_that_is_paused_and_resumed_while_it_drains_is_neither_gone_nor_stuck() -> None:
    cluster, a, b = pair(confirmation_window_size=500)
    filled(a, 100, cluster)
    cluster.hold_up("a", "b")
    drain(a, cluster)
    a.admin("queue-pause", name="orders")
    cluster.let_through("a", "b")
    cluster.wait(2_000)
    a.admin("queue-resume", name="orders")
    cluster.wait(2_000)
    assert (count_at(a), count_at(b), row_of(a)["state"]) == (0, 100, "is drained")


def test_called_off_while_producers_go_on_each_message_is_at_one_node() -> None:
    cluster, a, b = pair(confirmation_window_size=500)
    producer = filled(a, 100, cluster)
    b.is_disk_held = True
    drain(a, cluster)
    for number in range(100, 120):
        producer.send(b"%05d" % number)
    cluster.run()
    a.ask("drain-cancel", queue="orders")
    for number in range(120, 140):
        producer.send(b"%05d" % number)
    cluster.run()
    b.is_disk_held = False
    cluster.wait(3_000)
    assert a.admin("drain-show")["drains"] == []
    here, there = read_at(a, cluster).bodies, read_at(b, cluster).bodies
    assert there + here == bodies(140)


def test_asked_for_twice_at_once_it_is_one() -> None:
    cluster, a, b = pair()
    filled(a, 50, cluster)
    first, second = a.ask("scale-down", 1, node="b"), a.ask("scale-down", 2, node="b")
    cluster.run()
    assert (a.replies[first].error, a.replies[second].error) == (None, None)
    said = moved(a, cluster)
    assert (said["moved"], count_at(b), said["receipt"]["balances"]) == (50, 50, True)


def test_ids_beyond_32_bits_balance_too() -> None:
    cluster, a, b = pair()
    a.broker.store.next_id = (1 << 32) - 20
    filled(a, 50, cluster)
    begin(a, cluster)
    cluster.wait(1_100)
    a.crash()
    a.start()
    cluster.run()
    said = moved(a, cluster)
    assert said["receipt"]["balances"], said["receipt"]["difference"]
    assert read_at(b, cluster).bodies == bodies(50)


def test_nothing_of_a_node_that_left_is_at_the_others_when_it_is_forgotten() -> None:
    cluster = ClusterStage()
    said: dict[str, Any] = {"options": LIMITS}
    a, b, c = (cluster.node(name, [each for each in "abc" if each != name], **said) for name in "abc")
    cluster.run()
    cluster.wait(600)
    reader = read_at(a, cluster, credit=2)
    Producer(c).publish(b"00000")
    filled(b, 10, cluster)
    cluster.wait(500)
    begin(a, cluster)
    cluster.wait(12_000)
    assert reader.talker.is_closed
    moved(a, cluster)
    a.stop()
    cluster.wait(2_000)
    for node in (b, c):
        node.admin("cluster-forget", node="a")
    cluster.wait(2_000)
    for node in (b, c):
        node.crash()
        node.start()
    cluster.wait(3_000)
    for node in (b, c):
        assert not [name for name in node.broker.store.queues if node_id_of("a") in name]
    assert sum(count_at(node) for node in (b, c)) == 11


def test_a_temporary_queue_hinders_nothing_and_goes_with_its_client() -> None:
    cluster, a, b = that_say_where()
    client = Consumer(a, "asker", address=None, credit=0, source={"dynamic": True})
    (name,) = [each for each in a.broker.store.queues if each.startswith("temporary.")]
    a.admin("send", address=name, messages=[{"body": "x"}] * 3)
    cluster.run()
    assert begin(a, cluster, dry_run=True)["hindrances"] == []
    begin(a, cluster)
    said = moved(a, cluster)
    assert client.talker.is_closed
    assert (said["left"], said["hindrances"]) == (0, [])
    assert name not in b.broker.store.queues


@pytest.mark.parametrize("credit", [0, 3])
@pytest.mark.parametrize("capabilities", [("topic",), ("topic", "shared")])
def test_a_subscription_that_ends_with_its_clients_hinders_nothing(credit: int, capabilities: tuple[str, ...]) -> None:
    """They subscribe at the other node, for what is published from then on."""
    cluster, a, b = that_say_where()
    source = {"durable": 0, "expiry_policy": None, "capabilities": tuple(map(Symbol, capabilities))}
    client = subscribe(a, "ticker", credit, source=source)
    published(a, 5)
    (name,) = a.broker.store.queues
    assert waits(a, name) == 5, "what it has and did not settle among them"
    assert begin(a, cluster, dry_run=True)["hindrances"] == []
    begin(a, cluster)
    said = moved(a, cluster)
    assert client.talker.is_closed
    assert (said["left"], said["hindrances"], said["receipt"]["balances"]) == (0, [], True)
    assert name not in b.broker.store.queues


def test_a_subscription_that_waits_for_its_client_for_a_time_hinders_until_that_is_over() -> None:
    """Who leaves the link may come back to it here: that is said before a client is sent away."""
    cluster, a, _ = that_say_where()
    source = {"durable": 0, "expiry_policy": Symbol("link-detach"), "timeout": 60}
    client = subscribe(a, "ticker", source=source)
    published(a, 5)
    (row,) = begin(a, cluster, dry_run=True)["hindrances"]
    assert row["messages"] == 5
    assert "is not durable" in row["why"]
    assert "is not durable" in begin(a, cluster)["description"]
    cluster.wait(15_000)
    assert not client.talker.is_closed
    a.give(given.Closed(client.talker.conn, "gone"))
    cluster.wait(15_000)
    assert begin(a, cluster, dry_run=True)["hindrances"] == [row]
    cluster.wait(60_000)
    assert begin(a, cluster, dry_run=True)["hindrances"] == []
    begin(a, cluster)
    assert (moved(a, cluster)["left"], shown(a)["hindrances"]) == (0, [])


def test_a_subscription_that_a_file_declares_does_not_end_with_its_clients() -> None:
    cluster, a, _ = that_say_where()
    queue = {"name": "ticker.ticker:shared-volatile", "durable": False}
    said = to_slices(BrokerFile.model_validate({"addresses": [{"name": "topic", "multicast": [queue]}]}))
    a.crash()
    a.options = replace(a.options, addresses=said.addresses)
    a.start()
    cluster.wait(1_000)
    source = {"durable": 0, "expiry_policy": None, "capabilities": (Symbol("topic"), Symbol("shared"))}
    subscribe(a, "ticker", source=source)
    published(a, 5)
    assert a.broker.store.queues[queue["name"]].consumers
    (row,) = begin(a, cluster, dry_run=True)["hindrances"]
    assert (row["name"], row["messages"]) == (queue["name"], 5)


def test_a_queue_that_is_not_durable_and_stays_without_its_reader_hinders_while_it_is_read() -> None:
    cluster, a, _ = that_say_where()
    a.admin("queue-create", name="latest", address="prices", routing_type="multicast", durable=False)
    a.admin("send", address="prices", messages=[{"body": "x"}])
    taken(a, cluster, "prices::latest")
    (row,) = begin(a, cluster, dry_run=True)["hindrances"]
    assert row["name"] == "latest"


def test_what_expires_here_when_its_heir_has_all_goes_there_as_well() -> None:
    """The queue for what expired is empty and has moved when a message expires that the heir cannot take."""
    expiring = {"orders": {"expiry_address": "expired"}, "expired": {"auto_create_queues": True}}
    cluster = ClusterStage()
    tables: dict[str, Any] = {**LIMITS, "address_settings": expiring}
    low: dict[str, Any] = {"limits": {"link_credit": 100, "max_message_size_bytes": 20_000}}
    a = cluster.node("a", ["b"], options=tables, message_load_balancing="OFF")
    b = cluster.node("b", ["a"], options=low, message_load_balancing="OFF")
    cluster.run()
    cluster.wait(600)
    given_to(a, "expired", 1)
    producer = filled(a, 2, cluster)
    producer.publish(content(1), header=Header(durable=True, ttl=8_000))
    begin(a, cluster)
    cluster.wait(5_000)
    assert shown(a)["state"] == "failed"
    cluster.wait(6_000)
    said = shown(a)
    rows = {row["queue"]: row for row in said["receipt"]["queues"]}
    assert said["receipt"]["balances"], said["receipt"]["difference"]
    assert (rows["orders"]["consumed"], rows["expired"]["came"]) == (1, 1)
    assert b.broker.store.queues["expired"].message_count == 1


def test_a_queue_that_made_itself_stays_at_its_heir_until_it_is_empty() -> None:
    cluster, a, b = pair()
    filled(a, 5, cluster)
    begin(a, cluster)
    moved(a, cluster)
    cluster.wait(60_000)
    for left in (4, 0):
        reader = read_at(b, cluster, credit=5 - left)
        for number in range(5 - left if left else 4):
            reader.settle(number)
        b.drop(reader.talker)
        cluster.wait(60_000)
        assert count_at(b) == left
    assert "orders" not in b.broker.store.queues


def test_its_address_is_not_deleted_with_what_the_other_node_has_to_get() -> None:
    cluster, a, b = pair()
    filled(a, 10, cluster)
    b.is_disk_held = True
    drain(a, cluster)
    refused = a.admin("address-delete", name="orders", force=True)
    assert refused["condition"] == "amqp:precondition-failed"
    assert "which would never get them" in refused["description"]
    b.is_disk_held = False
    cluster.wait(2_000)
    assert (count_at(a), count_at(b)) == (0, 10)
    assert a.admin("address-delete", name="orders", force=True)["queues"] == ["orders"], "it has nothing any more"
