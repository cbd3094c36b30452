"""A queue is deleted while senders are attached: what they send is in a queue again, or they are told; it is never
accepted and gone. The node where it was deleted may know the queue of another node to which nothing goes from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from mqbroker.amqp import events as told
from mqbroker.config.slices import DivertOptions
from mqbroker.core.address.address import ANYCAST, MULTICAST
from mqbroker.core.address.auto_delete import IDLE_MS_MIN
from mqbroker.core.address.routing_demands import (
    AMONG,
    ANY,
    COPIES,
    FOUND,
    QUEUE,
    REMOTE,
    ROUTINGS,
    STAY,
    TOPIC,
    UNRULED,
    WAYS,
)
from mqbroker.node.values import inputs as given
from mqbroker.wire.performatives import Accepted, Attach, Declared, Source, Target
from mqbroker.wire.sections import build_message
from mqbroker.wire.types import Symbol

from tests.support import transactions
from tests.support.cluster_stage import ClusterNode, ClusterStage, node_id_of, options_for
from tests.support.large_messages import Consumer, Producer
from tests.support.stage import Stage, options_with
from tests.unit.node.cluster.grouping.test_grouping import Site
from tests.unit.node.cluster.membership.test_forwards import pair, waiting

CAPABILITIES = (None, "queue", "topic")
ADDRESSES = {"kept": {"#": {"auto_delete_addresses": False}}, "forgotten": {}}
MODES = ("OFF", "OFF_WITH_REDISTRIBUTION", "ON_DEMAND", "STRICT")
NO_QUEUES = {"address_settings": {"#": {"auto_create_queues": False}}}
KEPT = {"address_settings": {"#": {"auto_create_queues": False, "auto_delete_addresses": False}}}


def sender_at_a(mode: str, **changes: Any) -> tuple[ClusterStage, ClusterNode, ClusterNode, Producer]:
    """Both nodes have the queue, and somebody sends at a."""
    cluster, a, b = pair(message_load_balancing=mode, **changes)
    for node in (a, b):
        node.admin("queue-create", name="orders")
    cluster.run()
    producer = Producer(a)
    producer.publish(b"before")
    cluster.run()
    return cluster, a, b, producer


def held(*nodes: ClusterNode) -> int:
    """Messages that are somewhere, also those on their way."""
    return sum(queue.message_count for node in nodes for queue in node.broker.store.queues.values())


def error_of(producer: Producer) -> str:
    """Why its link was ended."""
    (error,) = [event.error for event in producer.talker.events if isinstance(event, told.Detached)]
    assert error is not None
    return str(error.condition)


def sender_of(stage: Stage, capability: str | None, name: str, address: str = "orders") -> Producer:
    """Who says which routing it wants, or says nothing."""
    talker = stage.connect(name)
    assert talker.session is not None
    link = talker.session.attach_sender(
        Attach(name=name, handle=0, role=False, source=Source(), initial_delivery_count=0,
               target=Target(address=address, capabilities=(Symbol(capability),) if capability else None))
    )  # fmt: skip
    stage.run()
    producer = Producer.__new__(Producer)
    producer.stage, producer.talker, producer.link = stage, talker, link
    return producer


def commit(producer: Producer, body: bytes, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Send it as a transaction of its own; something happens before the commit."""
    stage, talker = producer.stage, producer.talker
    assert talker.session is not None
    control = talker.session.attach_sender(transactions.coordinator_attach(f"coordinator {body!r}"))
    stage.run()
    transactions.declare(control, "declare")
    stage.run()
    declared = talker.events[-1]
    assert isinstance(declared, told.Settled)
    assert isinstance(declared.outcome, Declared)
    txn_id = bytes(declared.outcome.txn_id)
    transactions.post(producer.link, build_message(body, durable=True), "post", txn_id)
    stage.run()
    meanwhile()
    transactions.discharge(control, txn_id, "discharge")
    stage.run()
    discharged = talker.events[-1]
    assert isinstance(discharged, told.Settled)
    assert discharged.outcome == Accepted()
    control.detach()
    stage.run()


def count_at(stage: Stage, name: str) -> int:
    """Messages in a queue that may not be there."""
    queue = stage.broker.store.queues.get(name)
    return 0 if queue is None else queue.message_count


@pytest.mark.parametrize("mode", MODES)
def test_what_is_sent_after_a_deletion_is_in_a_queue(mode: str) -> None:
    cluster, a, b, producer = sender_at_a(mode)
    before = held(a, b) - a.broker.store.queues["orders"].message_count
    a.admin("queue-delete", name="orders", force=True)
    for number in range(6):
        producer.publish(b"%d" % number)
    cluster.run()
    assert producer.outcomes == [Accepted()] * 7
    assert held(a, b) - before == 6
    assert a.broker.store.unrouted_total == 0
    here = 6 if mode.startswith("OFF") else 0
    assert ("orders" in a.broker.store.queues, waiting(a, "b")) == (here > 0, 0)


def test_a_queue_that_nobody_used_for_a_while_ends_and_its_sender_makes_it_again() -> None:
    cluster, a, b = pair(message_load_balancing="OFF")
    producer = Producer(a)
    b.admin("queue-create", name="orders")
    Consumer(a).link.detach()
    cluster.run()
    cluster.wait(IDLE_MS_MIN + 1_000)
    assert "orders" not in a.broker.store.queues
    producer.publish(b"late")
    cluster.run()
    assert a.broker.store.queues["orders"].message_count == 1
    assert b.broker.store.queues["orders"].message_count == 0


@pytest.mark.parametrize("mode", MODES)
def test_who_may_make_no_queue_is_told_where_nothing_goes_elsewhere(mode: str) -> None:
    cluster, a, b, producer = sender_at_a(mode, options=NO_QUEUES)
    before = held(a, b) - a.broker.store.queues["orders"].message_count
    a.admin("queue-delete", name="orders", force=True)
    producer.publish(b"after")
    cluster.run()
    if mode.startswith("OFF"):
        assert error_of(producer) == "amqp:not-found"
        assert held(a, b) == before
        assert error_of(Producer(a, "later")) == "amqp:not-found"
        assert a.admin("send", address="orders", messages=[{"body": "x"}])["condition"] == "amqp:not-found"
    else:
        assert producer.outcomes == [Accepted()] * 2
        assert held(a, b) == before + 1


@pytest.mark.parametrize("mode", MODES)
def test_what_waits_for_a_queue_that_is_gone_is_no_way(mode: str) -> None:
    """A store-and-forward queue holds messages of the address, and nobody has a queue there any more."""
    cluster, a, b = pair(message_load_balancing=mode)
    b.admin("queue-create", name="kept", address="orders", routing_type="multicast")
    a.admin("queue-create", name="orders", address="orders")
    cluster.run()
    producer = Producer(a)
    cluster.hold_up("a", "b")
    producer.publish(b"before")
    a.broker.store.remotes.connection("cluster").remove(
        a.broker.store.remotes.by_name["kept" + node_id_of("b")].binding
    )
    assert waiting(a, "b") == 1
    a.admin("queue-delete", name="orders", force=True)
    producer.publish(b"after")
    assert a.broker.store.queues["orders"].message_count == 1
    assert producer.outcomes == [Accepted()] * 2
    cluster.let_through("a", "b")


def one_takes_two() -> tuple[ClusterStage, ClusterNode, ClusterNode]:
    """Nodes with the same queue, of which b, that has a consumer, takes two messages and no more."""
    full = {"options": {"address_settings": {"#": {"max_size_messages": 2, "address_full_policy": "BLOCK"}}}}
    cluster = ClusterStage()
    a, b = cluster.node("a", ["b"]), cluster.node("b", ["a"], **full)
    cluster.run()
    cluster.wait(600)
    for node in (a, b):
        node.admin("queue-create", name="orders")
    Consumer(b, credit=0)
    cluster.run()
    return cluster, a, b


def test_what_waits_for_a_node_that_stops_in_order_is_no_way() -> None:
    """Its shared queues are forgotten then, but not what it has not taken."""
    cluster, a, b = one_takes_two()
    producer = Producer(a)
    a.admin("queue-delete", name="orders", force=True)
    for number in range(10):
        producer.publish(b"%d" % number)
        cluster.run()
    assert 0 < waiting(a, "b") < 10
    b.give(given.Stop())
    cluster.run()
    assert not b.is_up
    assert waiting(a, "b")
    producer.publish(b"after")
    cluster.run()
    assert producer.outcomes == [Accepted()] * 11
    assert a.broker.store.queues["orders"].message_count == 1


def test_a_sender_of_a_topic_makes_no_queue_when_the_last_subscription_elsewhere_is_gone() -> None:
    cluster, a, b = pair()
    b.admin("queue-create", name="kept", address="news", routing_type="multicast")
    cluster.run()
    producer = sender_of(a, "topic", "p", "news")
    b.admin("queue-delete", name="kept", force=True)
    cluster.run()
    producer.publish(b"nobody is there")
    assert producer.outcomes == [Accepted()]
    assert not any(each.kind.address == "news" for each in a.broker.store.queues.values())


def test_a_reply_to_a_temporary_queue_of_another_node_is_refused_where_nothing_goes_there() -> None:
    cluster, a, b = pair(message_load_balancing="OFF")
    asking = Consumer(b, "asking", None, source={"dynamic": True})
    cluster.run()
    (attached,) = [event.attach for event in asking.talker.events if isinstance(event, told.Attached)]
    assert attached.source is not None
    answering = Producer(a, "answering", str(attached.source.address))
    assert error_of(answering) == "amqp:not-found"


def test_what_waits_for_wildcards_elsewhere_makes_no_message_unrouted() -> None:
    letters = {"send_to_dla_on_no_route": True, "dead_letter_address": "dead"}
    cluster, a, b = pair(options={"address_settings": {"#": letters}})
    b.admin("queue-create", name="kept", address="news.#", routing_type="multicast")
    a.admin("queue-create", name="news.a")
    cluster.run()
    producer = Producer(a, address="news.a")
    cluster.hold_up("a", "b")
    producer.publish(b"before")
    a.broker.store.remotes.connection("cluster").remove(
        a.broker.store.remotes.by_name["kept" + node_id_of("b")].binding
    )
    producer.publish(b"after")
    assert (waiting(a, "b"), a.broker.store.queues["news.a"].message_count) == (1, 2)
    assert (a.broker.store.unrouted_total, "dead" in a.broker.store.queues) == (0, False)
    cluster.let_through("a", "b")


def test_what_an_administrator_sends_waits_for_its_group_and_finds_the_queue_that_was_made_meanwhile() -> None:
    site = Site()
    a, b = site["a"], site["b"]
    b.admin("queue-create", name="orders")
    site.cluster.run()
    site.cluster.hold_up("a", "b")
    request = b.ask("send", address="orders", messages=[{"body": "m", "properties": {"group_id": "g"}}])
    assert request not in b.replies
    b.admin("queue-delete", name="orders", force=True)
    b.admin("queue-create", name="orders")
    site.cluster.let_through("a", "b")
    site.cluster.run()
    assert b.replies[request].result == {"accepted": 1}
    assert held(a, b) == 1


@pytest.mark.parametrize("in_transactions", [False, True])
@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("second", CAPABILITIES)
@pytest.mark.parametrize("first", CAPABILITIES)
def test_no_sender_takes_the_queue_from_another(
    first: str | None, second: str | None, address: str, in_transactions: bool
) -> None:
    stage = Stage(options_with(address_settings=ADDRESSES[address]))
    stage.admin("queue-create", name="orders")
    senders = [(each, sender_of(stage, each, f"{name}")) for name, each in enumerate((first, second))]
    store = stage.broker.store
    for _ in range(2):
        stage.admin("queue-delete", name="orders", force=True)
        assert ("orders" in store.addresses) == (address == "kept")
        for turn, which in enumerate((1, 0, 0, 1)):
            capability, producer = senders[which]
            was_there, before = "orders" in store.queues, count_at(stage, "orders")
            if in_transactions:
                commit(producer, b"%d" % turn)
            else:
                producer.publish(b"%d" % turn)
                assert producer.outcomes[-1] == Accepted()
            assert ("orders" in store.queues) == (was_there or capability != "topic")
            assert count_at(stage, "orders") == before + (was_there or capability != "topic")
        if "orders" not in store.queues:
            stage.admin("queue-create", name="orders")


@pytest.mark.parametrize("in_transactions", [False, True])
@pytest.mark.parametrize("capability", [None, "queue"])
def test_who_had_a_queue_has_one_where_another_made_a_topic_of_the_address(
    capability: str | None, in_transactions: bool
) -> None:
    stage = Stage(options_with(address_settings=ADDRESSES["kept"]))
    stage.admin("queue-create", name="orders")
    producer = sender_of(stage, capability, "producer")
    stage.admin("queue-delete", name="orders", force=True)
    sender_of(stage, "topic", "later")
    assert stage.broker.store.addresses["orders"].is_topic
    if in_transactions:
        commit(producer, b"m")
    else:
        producer.publish(b"m")
    assert count_at(stage, "orders") == 1


def test_the_transaction_of_a_topic_makes_no_topic_under_others() -> None:
    stage = Stage(options_with(address_settings=ADDRESSES["kept"]))
    stage.admin("queue-create", name="orders")
    producer, publisher = sender_of(stage, None, "producer"), sender_of(stage, "topic", "publisher")
    stage.admin("queue-delete", name="orders", force=True)
    commit(publisher, b"t")
    assert not stage.broker.store.addresses["orders"].is_topic
    producer.publish(b"m")
    assert count_at(stage, "orders") == 1


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("other", CAPABILITIES)
def test_the_transaction_of_a_topic_makes_no_queue(other: str | None, address: str) -> None:
    stage = Stage(options_with(address_settings=ADDRESSES[address]))
    stage.admin("queue-create", name="orders")
    publisher = sender_of(stage, "topic", "publisher")
    sender_of(stage, other, "other")
    stage.admin("queue-delete", name="orders", force=True)
    commit(publisher, b"t")
    assert "orders" not in stage.broker.store.queues
    stage.admin("queue-create", name="kept", address="orders", routing_type="multicast")
    commit(publisher, b"t")
    assert count_at(stage, "kept") == 1


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_what_was_posted_before_another_made_a_topic_of_the_address_is_in_a_queue(capability: str | None) -> None:
    stage = Stage(options_with(address_settings=ADDRESSES["kept"]))
    stage.admin("queue-create", name="orders")
    producer = sender_of(stage, capability, "producer")

    def meanwhile() -> None:
        stage.admin("queue-delete", name="orders", force=True)
        sender_of(stage, "topic", "later")

    commit(producer, b"m", meanwhile)
    assert count_at(stage, "orders") == (capability != "topic")


ASIDE = {"wildcard": "news.#", "divert": "archive"}


def _with_another_way(how: str, mode: str, capability: str | None, *, filtered: str = "") -> tuple[ClusterNode, str]:
    """A node that may make no queue, whose address only another node has, and what its sender is told when it sends."""
    cluster = ClusterStage()
    options = options_for("a", ["b"], {"options": NO_QUEUES, "message_load_balancing": mode})
    if how == "divert":
        divert = DivertOptions("d", "news.a", "archive", filtered, exclusive=True, routing_type="PASS")
        options = replace(options, diverts=(divert,))
    a, b = cluster.make("a", options, {}), cluster.node("b", ["a"], message_load_balancing=mode)
    cluster.run()
    cluster.wait(600)
    b.admin("queue-create", name="news.a")
    a.admin("queue-create", name="aside", address=ASIDE[how], routing_type="multicast")
    cluster.run()
    producer = sender_of(a, capability, "producer", "news.a")
    if producer.link.is_attached:
        for _ in range(2):
            producer.publish(b"m")
        cluster.run()
        assert producer.outcomes == [Accepted()] * 2
    return a, "" if producer.link.is_attached else error_of(producer)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", ASIDE)
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_who_may_make_no_queue_is_content_with_a_way_beside_it(how: str, mode: str, capability: str | None) -> None:
    a, why = _with_another_way(how, mode, capability)
    is_refused = mode.startswith("OFF") and (how, capability) == ("wildcard", "queue")
    assert (why, count_at(a, "aside")) == (("amqp:not-found", 0) if is_refused else ("", 2))


def test_a_divert_that_leaves_messages_is_no_way() -> None:
    a, why = _with_another_way("divert", "OFF", None, filtered="colour = 'red'")
    assert (why, count_at(a, "aside")) == ("amqp:not-found", 0)


def _whole(address: str, to: str, filtered: str = "", routing_type: str = "PASS") -> DivertOptions:
    return DivertOptions(f"{address} to {to}", address, to, filtered, exclusive=True, routing_type=routing_type)


RED = "colour = 'red'"
DIVERTS = {
    "to a queue": ([_whole("orders", "aside")], True),
    "over another": ([_whole("orders", "between"), _whole("between", "aside")], True),
    "one of two": ([_whole("orders", "gone"), _whole("orders", "aside")], True),
    "to nothing": ([_whole("orders", "gone")], False),
    "over another to nothing": ([_whole("orders", "aside"), _whole("aside", "gone")], False),
    "some to nothing": ([_whole("orders", "aside"), _whole("aside", "gone", RED)], False),
    "round": ([_whole("orders", "between"), _whole("between", "orders")], False),
    "to a filter": ([_whole("orders", "picky")], False),
    "to a topic of a queue": ([_whole("orders", "aside", "", "MULTICAST")], False),
}


@pytest.mark.parametrize("in_transactions", [False, True])
@pytest.mark.parametrize("name", DIVERTS)
def test_a_divert_is_a_way_only_where_a_queue_gets_what_it_takes(name: str, in_transactions: bool) -> None:
    diverts, leads_on = DIVERTS[name]
    stage = Stage(replace(options_with(**KEPT), diverts=tuple(diverts)))
    for queue in ("orders", "between", "aside", "gone"):
        stage.admin("queue-create", name=queue)
    stage.admin("queue-create", name="picky", selector=RED)
    producer, early = sender_of(stage, None, "producer"), sender_of(stage, None, "early")
    for queue in ("orders", "gone"):
        stage.admin("queue-delete", name=queue, force=True)
    if name != "round":
        assert (sender_of(stage, None, "later").link.is_attached) == leads_on
    if in_transactions and leads_on:
        commit(producer, b"m")
    else:
        for each in (producer, early):
            each.publish(b"m")
            assert each.outcomes == ([Accepted()] if leads_on else [])
            assert leads_on or error_of(each) == "amqp:not-found"
    assert (stage.broker.store.unrouted_total == 0) == (name != "one of two")
    assert count_at(stage, "aside") == (leads_on and (1 if in_transactions else 2))


def test_a_divert_to_what_may_be_made_is_a_way() -> None:
    rules = {"#": {"auto_create_queues": False, "auto_delete_addresses": False}, "made": {"auto_create_queues": True}}
    stage = Stage(replace(options_with(address_settings=rules), diverts=(_whole("orders", "made"),)))
    stage.admin("queue-create", name="orders")
    producer = sender_of(stage, "queue", "producer")
    stage.admin("queue-delete", name="orders", force=True)
    producer.publish(b"m")
    assert (producer.outcomes, count_at(stage, "made")) == ([Accepted()], 1)


@pytest.mark.parametrize("mode", MODES)
def test_a_divert_to_what_another_node_alone_has_is_no_way(mode: str) -> None:
    cluster = ClusterStage()
    options = options_for("a", ["b"], {"options": KEPT, "message_load_balancing": mode})
    a = cluster.make("a", replace(options, diverts=(_whole("orders", "archive"),)), {})
    b = cluster.node("b", ["a"], message_load_balancing=mode)
    cluster.run()
    cluster.wait(600)
    b.admin("queue-create", name="archive")
    a.admin("address-create", name="orders", routing_types=["anycast"])
    cluster.run()
    assert error_of(sender_of(a, None, "producer")) == "amqp:not-found"


@pytest.mark.parametrize("in_transactions", [False, True])
@pytest.mark.parametrize("selector", ["", RED])
def test_who_had_a_queue_is_told_where_only_an_address_with_wildcards_is_left(
    selector: str, in_transactions: bool
) -> None:
    stage = Stage(options_with(**KEPT))
    stage.admin("queue-create", name="orders")
    stage.admin("queue-create", name="tap", address="#", routing_type="multicast", selector=selector)
    producer = sender_of(stage, None, "producer")

    def delete() -> None:
        stage.admin("queue-delete", name="orders", force=True)

    if in_transactions:
        with pytest.raises(AssertionError):
            commit(producer, b"m", delete)
    else:
        delete()
        producer.publish(b"m")
        assert (producer.outcomes, error_of(producer)) == ([], "amqp:not-found")
    assert (count_at(stage, "tap"), stage.broker.store.unrouted_total) == (0, 0)
    assert sender_of(stage, None, "later").link.is_attached == (not selector)


def test_an_address_with_wildcards_is_no_way_for_who_has_no_permission_to_make_a_queue() -> None:
    rules = {"#": {"send": ["people"]}}
    stage = Stage(options_with(listener={"anonymous_role": "people"}, security_settings=rules))
    stage.admin("address-create", name="orders", routing_types=["anycast"])
    stage.admin("queue-create", name="tap", address="#", routing_type="multicast")
    assert error_of(sender_of(stage, None, "producer")) == "amqp:unauthorized-access"


def test_an_address_with_wildcards_is_no_way_where_there_are_too_many_queues() -> None:
    stage = Stage(options_with(limits={"queues_max": 2}))
    stage.admin("address-create", name="orders", routing_types=["anycast"])
    for name in ("other", "tap"):
        stage.admin("queue-create", name=name, address="#", routing_type="multicast")
    assert error_of(sender_of(stage, None, "producer")) == "amqp:resource-limit-exceeded"


def _come_beside_a_subscription(how: str) -> tuple[Stage, Producer]:
    """A sender that says nothing came where a subscription was; what it sent was in a queue since, which is gone."""
    stage = Stage(options_with(address_settings=ADDRESSES["kept"]))
    stage.admin("queue-create", name="kept", address="orders", routing_type="multicast")
    producer = sender_of(stage, None, "producer")
    if how == "made by it":
        stage.admin("queue-delete", name="kept", force=True)
    else:
        stage.admin("queue-create", name="orders")
    if how == "found by a transaction":
        commit(producer, b"before")
    else:
        producer.publish(b"before")
    for name in ("kept", "orders"):
        if name in stage.broker.store.queues:
            stage.admin("queue-delete", name=name, force=True)
    sender_of(stage, "topic", "later")
    assert stage.broker.store.addresses["orders"].is_topic
    return stage, producer


@pytest.mark.parametrize("in_transactions", [False, True])
@pytest.mark.parametrize("how", ["made by it", "found by it", "found by a transaction"])
def test_who_had_a_queue_since_it_came_has_one_where_another_made_a_topic_of_the_address(
    how: str, in_transactions: bool
) -> None:
    stage, producer = _come_beside_a_subscription(how)
    if in_transactions:
        commit(producer, b"m")
    else:
        producer.publish(b"m")
    assert (count_at(stage, "orders"), stage.broker.store.unrouted_total) == (1, 0)


@pytest.mark.parametrize("wanted", WAYS)
def test_the_short_way_says_what_the_table_says(wanted: str) -> None:
    row = WAYS[wanted]
    assert list(row) == list(WAYS[ANY])
    assert row[QUEUE] == STAY
    assert [row[each] == STAY for each in (REMOTE, COPIES)] == [True, wanted != ANYCAST]
    assert (row[TOPIC] == row[UNRULED]) == (wanted != FOUND)  # so nobody else asks who made it
    among, alone = (WAYS[each].items() for each in (AMONG, MULTICAST))
    assert [each for each, step in among if step == STAY] == [each for each, step in alone if step == STAY]
    assert set(WAYS[wanted].values()) <= {STAY, *ROUTINGS}


@pytest.mark.parametrize("in_transactions", [False, True])
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_a_subscription_is_no_queue_for_who_asked_for_one(capability: str | None, in_transactions: bool) -> None:
    stage = Stage(options_with())
    stage.admin("queue-create", name="orders")
    producer = sender_of(stage, capability, "producer")
    stage.admin("queue-create", name="kept", address="orders", routing_type="multicast")
    stage.admin("queue-delete", name="orders", force=True)
    if in_transactions:
        commit(producer, b"m")
    else:
        producer.publish(b"m")
    assert (count_at(stage, "kept"), count_at(stage, "orders")) == (1, int(capability == "queue"))


def test_who_asked_for_a_queue_and_may_make_none_is_told_where_only_a_subscription_is_left() -> None:
    stage = Stage(options_with(**NO_QUEUES))
    stage.admin("queue-create", name="orders")
    stage.admin("queue-create", name="kept", address="orders", routing_type="multicast")
    producer = sender_of(stage, "queue", "producer")
    stage.admin("queue-delete", name="orders", force=True)
    producer.publish(b"m")
    assert (producer.outcomes, error_of(producer), count_at(stage, "kept")) == ([], "amqp:not-found", 0)


def test_who_says_nothing_has_a_topic_where_the_settings_make_one() -> None:
    stage = Stage(options_with(address_settings={"#": {"default_address_routing_type": "MULTICAST"}}))
    stage.admin("queue-create", name="orders")
    producer = sender_of(stage, None, "producer")
    stage.admin("queue-delete", name="orders", force=True)
    for _ in range(2):
        producer.publish(b"m")
    assert (producer.outcomes, "orders" in stage.broker.store.queues) == ([Accepted()] * 2, False)


@pytest.mark.parametrize("capability", [None, "queue"])
def test_a_topic_elsewhere_is_no_excuse_while_messages_wait_for_a_node_that_stopped(capability: str | None) -> None:
    cluster, a, b = one_takes_two()
    producer = sender_of(a, capability, "producer")
    a.admin("queue-delete", name="orders", force=True)
    for number in range(10):
        producer.publish(b"%d" % number)
        cluster.run()
    b.give(given.Stop())
    cluster.run()
    assert waiting(a, "b")
    sender_of(a, "topic", "publisher")
    producer.publish(b"after")
    cluster.run()
    assert producer.outcomes == [Accepted()] * 11
    assert count_at(a, "orders") == 1


def test_a_move_goes_to_an_address_of_which_another_node_alone_has_a_queue() -> None:
    cluster, a, b = pair(message_load_balancing="STRICT", options=NO_QUEUES)
    b.admin("queue-create", name="orders")
    a.admin("queue-create", name="source")
    cluster.run()
    assert a.admin("send", address="source", messages=[{"body": "x"}, {"body": "y"}]) == {"accepted": 2}
    assert a.admin("messages-move", queue="source", address="orders") == {"moved": 2, "left": 0}
    cluster.run()
    assert "orders" not in a.broker.store.queues
    assert b.broker.store.queues["orders"].message_count == 2
