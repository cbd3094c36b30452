"""Queues that are named with their address: who makes them, and as what."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.address.settings import MoveTarget, queue_of_origin
from mqbroker.wire.performatives import Attach, Source, Target
from mqbroker.wire.types import Symbol

from tests.support import frames
from tests.support.bytecodes import Bytecodes
from tests.support.stage import Stage, options_with
from tests.unit.admin.site import Site
from tests.unit.core.cluster.test_cluster_bindings import know

GO = frames.anonymous() + frames.opened() + frames.begun()
NAME = "sales::invoices"


def attach(is_receiver: bool, capabilities: tuple[Symbol, ...], address: str = NAME) -> bytes:
    source = Source(address=address, capabilities=capabilities) if is_receiver else Source()
    target = Target() if is_receiver else Target(address=address, capabilities=capabilities)
    count = None if is_receiver else 0
    return frames.frame(
        Attach(name="x", handle=0, role=is_receiver, source=source, target=target, initial_delivery_count=count)
    )


@pytest.mark.parametrize("is_receiver", [True, False], ids=["receiver", "sender"])
@pytest.mark.parametrize(
    ("settings", "wanted", "routing"),
    [
        ({}, (), "anycast"),
        ({"default_address_routing_type": "MULTICAST"}, (), "multicast"),
        ({}, (Symbol("topic"),), "multicast"),
        ({"default_address_routing_type": "MULTICAST"}, (Symbol("queue"),), "anycast"),
    ],
)
def test_who_comes_first_makes_it(
    is_receiver: bool, settings: dict[str, str], wanted: tuple[Symbol, ...], routing: str
) -> None:
    stage = Stage(options_with(address_settings={"#": settings}))
    assert frames.errors(stage.talk(stage.accept(), GO + attach(is_receiver, wanted))) == []
    (row,) = stage.admin("queues")["queues"]
    assert (row["name"], row["address"], row["routing_type"], row["durable"]) == ("invoices", "sales", routing, True)


@pytest.mark.parametrize("is_receiver", [True, False], ids=["receiver", "sender"])
def test_nobody_makes_it_where_queues_are_made_by_administrators(is_receiver: bool) -> None:
    stage = Stage(options_with(address_settings={"#": {"auto_create_queues": False}}))
    said = stage.talk(stage.accept(), GO + attach(is_receiver, ()))
    assert frames.errors(said) == [("Detach", "amqp:not-found")]
    stage.admin("queue-create", name="invoices", address="sales")
    assert frames.errors(stage.talk(stage.accept(), GO + attach(is_receiver, ()))) == []


def test_what_is_sent_to_it_reaches_it_alone() -> None:
    stage = Stage()
    assert stage.admin("send", address="sales", messages=[{"body": "x"}]) == {"accepted": 1}
    conn = stage.accept()
    stage.talk(conn, GO + attach(is_receiver=False, capabilities=()) + frames.transfer(0))
    counts = {row["name"]: row["message_count"] for row in stage.admin("queues")["queues"]}
    assert counts == {"sales": 1, "invoices": 1}


TOPIC, QUEUE = (Symbol("topic"),), (Symbol("queue"),)


@pytest.mark.option("address-settings.auto-create-addresses")
@pytest.mark.parametrize("is_receiver", [True, False], ids=["receiver", "sender"])
@pytest.mark.parametrize("address", [NAME, "sales"])
@pytest.mark.parametrize("wanted", [TOPIC, QUEUE], ids=["topic", "queue"])
def test_addresses_may_be_for_administrators_to_make(
    is_receiver: bool, address: str, wanted: tuple[Symbol, ...]
) -> None:
    stage = Stage(options_with(address_settings={"#": {"auto_create_addresses": False}}))
    said = stage.talk(stage.accept(), GO + attach(is_receiver, wanted, address))
    assert frames.errors(said) == [("Detach", "amqp:not-found")]
    stage.admin("queue-create", name="other", address="sales")
    assert frames.errors(stage.talk(stage.accept(), GO + attach(is_receiver, wanted, address))) == []


@pytest.mark.parametrize("is_receiver", [True, False], ids=["receiver", "sender"])
def test_topics_need_no_queue_to_be_made(is_receiver: bool) -> None:
    stage = Stage(options_with(address_settings={"#": {"auto_create_queues": False}}))
    assert frames.errors(stage.talk(stage.accept(), GO + attach(is_receiver, TOPIC, "sales"))) == []
    assert [row["name"] for row in stage.admin("addresses")["addresses"]] == ["sales"]


@pytest.mark.parametrize("wanted", ["temporary-topic", "temporary-queue"])
def test_temporary_ones_are_made_all_the_same(wanted: str) -> None:
    stage = Stage(options_with(address_settings={"#": {"auto_create_addresses": False, "auto_create_queues": False}}))
    source = Source(dynamic=True, capabilities=(Symbol(wanted),))
    asked = frames.frame(Attach(name="x", handle=0, role=True, source=source, target=Target()))
    assert frames.errors(stage.talk(stage.accept(), GO + asked)) == []


def test_an_address_is_consumed_from_by_its_name_also_where_its_queue_has_another() -> None:
    stage = Stage()
    stage.admin("queue-create", name="copies", address="sales", routing_type="multicast")
    stage.admin("queue-create", name="invoices", address="sales")
    stage.admin("send", address="sales", messages=[{"body": "x"}])
    conn = stage.accept()
    said = stage.talk(conn, GO + attach(True, (), "sales") + frames.flow(0, 10))
    assert sum(isinstance(each, tuple) for each in frames.heard(said)) == 1
    found = {row["name"]: row["delivering_count"] for row in stage.admin("queues")["queues"]}
    assert found == {"copies": 0, "invoices": 1}
    # A queue of the address's own name comes first.
    stage.admin("queue-create", name="sales")
    stage.admin("send", address="sales", messages=[{"body": "x"}] * 2)
    stage.talk(stage.accept(), GO + attach(True, (), "sales") + frames.flow(0, 10))
    assert {row["name"]: row["delivering_count"] for row in stage.admin("queues")["queues"]}["sales"] == 1


def test_an_administrator_sends_to_one_queue_alone_too() -> None:
    site = Site()
    for name in ("a", "b"):
        site.do("queue-create", name=name, address="news", routing_type="multicast")
    site.send("news::a", "one")
    assert site.counts() == {"a": 1, "b": 0}
    for wrong in ("news::", "::a", "other::a"):
        assert site.refused("send", address=wrong, messages=[{"body": "x"}])[0].startswith("amqp:")
    assert site.counts() == {"a": 1, "b": 0}


OWN = {"dead_letter_address": "dead", "auto_create_dead_letter_resources": True}


def dead_letter(stage: Stage, address: str) -> None:
    """A message of this address becomes one."""
    assert stage.admin("send", address=address, messages=[{"body": address}]) == {"accepted": 1}
    answer = stage.admin("receive", address=address, count_max=1, wait_ms=1)
    assert stage.admin("settle", tag=answer["tag"], outcome="rejected") == {}


@pytest.mark.parametrize("wanted", [(), (Symbol("queue"),), (Symbol("topic"),)], ids=str)
@pytest.mark.parametrize("is_receiver", [True, False], ids=["receiver", "sender"])
def test_a_queue_for_the_dead_letters_of_one_address_is_that_whoever_makes_it(
    is_receiver: bool, wanted: tuple[Symbol, ...]
) -> None:
    """It may have been deleted by itself since it was made for one."""
    stage = Stage(options_with(address_settings={"#": OWN}))
    assert frames.errors(stage.talk(stage.accept(), GO + attach(is_receiver, wanted, "dead::DLQ.orders"))) == []
    queue = stage.broker.store.queues["DLQ.orders"]
    assert (queue.kind.routing, queue.kind.moved_from, queue.kind.auto_created) == ("multicast", "orders", True)
    for address in ("orders", "invoices"):
        dead_letter(stage, address)
    assert {name: each.message_count for name, each in stage.broker.store.queues.items()} == {
        "orders": 0,
        "invoices": 0,
        "DLQ.orders": 1,
        "DLQ.invoices": 1,
    }


@pytest.mark.parametrize(
    ("others", "routing", "origin"),
    [
        (["orders", "orders"], "multicast", "orders"),
        (["orders", "invoices"], "anycast", ""),
        (["orders", ""], "anycast", ""),  # one is for all; or its node is of a release that does not say
        ([], "anycast", ""),
    ],
)
def test_a_queue_is_for_what_is_moved_from_one_address_where_all_others_of_its_name_are(
    others: list[str], routing: str, origin: str
) -> None:
    """Other nodes have other settings."""
    stage = Stage()
    for number, each in enumerate(others):
        know(stage.broker.store, number, "own", address="dead", routing="multicast", moved_from=each)
        know(stage.broker.store, number, "other", address="dead", routing="multicast", moved_from="z")
    assert frames.errors(stage.talk(stage.accept(), GO + attach(True, (Symbol("queue"),), "dead::own"))) == []
    kind = stage.broker.store.queues["own"].kind
    assert (kind.routing, kind.moved_from, kind.auto_created) == (routing, origin, True)


def test_a_queue_that_an_administrator_makes_is_what_he_says() -> None:
    stage = Stage(options_with(address_settings={"#": OWN}))
    stage.admin("queue-create", name="DLQ.orders", address="dead")
    kind = stage.broker.store.queues["DLQ.orders"].kind
    assert (kind.routing, kind.moved_from) == ("anycast", "")


PLACES = ("nowhere", "here", "elsewhere")
MOVED = MoveTarget("dead", "DLQ.orders")


def stage_with(place: str, **rules: Any) -> Stage:
    """Where queues for the dead letters of one address are at another one, if there are any."""
    stage = Stage(options_with(address_settings={"#": rules}))
    if place == "here":
        stage.broker.store.create_queue(queue_of_origin(MOVED, "orders"), BROKER)
    elif place == "elsewhere":
        know(stage.broker.store, 2, MOVED.queue, address="dead", routing="multicast", moved_from="orders")
    return stage


def others(stage: Stage) -> dict[str, int]:
    """What is in all queues but those."""
    queues = stage.broker.store.queues.items()
    return {name: each.message_count for name, each in queues if not each.kind.moved_from}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("rules", "wanted", "errors", "made"),
    [
        ({}, (), [], {"dead": 1}),
        ({}, (Symbol("queue"),), [], {"dead": 1}),
        ({}, (Symbol("topic"),), [], {}),
        ({"default_address_routing_type": "MULTICAST"}, (), [], {}),
        ({"auto_create_queues": False}, (), [("Detach", "amqp:not-found")], {}),
    ],
)
def test_a_queue_for_what_is_moved_is_none_for_who_sends(
    place: str, rules: dict[str, Any], wanted: tuple[Symbol, ...], errors: list[tuple[str, str]], made: dict[str, int]
) -> None:
    """And none is made for him that would get a copy of each dead letter, unless he asks for one."""
    stage = stage_with(place, **rules)
    if place != "nowhere" and not rules and not wanted:
        errors, made = [("Detach", "amqp:not-found")], {}
    conn = stage.accept()
    assert frames.errors(stage.talk(conn, GO + attach(False, wanted, "dead"))) == errors
    if not errors:
        assert frames.errors(stage.talk(conn, frames.transfer(0))) == []
    assert others(stage) == made


@pytest.mark.parametrize("place", PLACES)
def test_dead_letters_make_no_queue_where_there_is_one_for_them_alone(place: str) -> None:
    """It was made while the settings said so, or at a node where they do."""
    stage = stage_with(place, dead_letter_address="dead")
    store = stage.broker.store
    dead_letter(stage, "orders")
    if place == "nowhere":
        assert others(stage) == {"orders": 0, "dead": 1}
        return
    (its_own,) = [store.queues["DLQ.orders"]] if place == "here" else store.remotes.queues.values()
    assert (its_own.message_count, "dead" in store.queues) == (1, False)
    dead_letter(stage, "invoices")
    assert (its_own.message_count, "dead" in store.queues) == (1, False)
    assert store.queues["invoices"].message_count == 1, "it stays, and tries again"


@pytest.mark.parametrize("place", PLACES[1:])
def test_who_reads_where_queues_are_for_what_is_moved_gets_copies_of_it(place: str) -> None:
    stage = stage_with(place, dead_letter_address="dead")
    assert frames.errors(stage.talk(stage.accept(), GO + attach(True, (), "dead"))) == []
    assert "dead" not in stage.broker.store.queues
    dead_letter(stage, "orders")
    assert [count for name, count in others(stage).items() if name.startswith("raw.x")] == [1]


@pytest.mark.parametrize("place", PLACES)
def test_who_names_a_queue_for_what_is_moved_sends_to_it(place: str) -> None:
    """It is the one queue that he means, whatever it takes of what comes to its address."""
    stage = stage_with(place, **OWN)
    conn = stage.accept()
    assert frames.errors(stage.talk(conn, GO + attach(False, (), "dead::DLQ.orders") + frames.transfer(0))) == []
    assert stage.admin("send", address="dead::DLQ.orders", messages=[{"body": "x"}]) == {"accepted": 1}
    queue = stage.broker.store.queues["DLQ.orders"]
    assert (queue.kind.moved_from, queue.message_count, others(stage)) == ("orders", 2, {})
    stage.admin("send", address="source", messages=[{"body": "x"}])
    assert stage.admin("messages-move", queue="source", address="dead::DLQ.orders") == {"moved": 1, "left": 0}
    dead_letter(stage, "invoices")
    assert queue.message_count == 3


def test_dead_letters_of_dead_letters_are_retried_to_their_queue() -> None:
    site = Site({"#": OWN, "dead": {"dead_letter_address": "grave"}})
    site.send("orders", "one")
    site.kill("orders")
    site.kill("DLQ.orders")
    assert site.counts() == {"orders": 0, "DLQ.orders": 0, "DLQ.dead": 1}
    assert site.do("dead-letters-retry", queue="DLQ.dead") == {"retried": 1, "left": 0}
    assert site.counts() == {"orders": 0, "DLQ.orders": 1, "DLQ.dead": 0}
    assert site.do("dead-letters-retry", queue="DLQ.orders") == {"retried": 0, "left": 1}
    assert site.do("messages-move", queue="DLQ.orders", address="orders") == {"moved": 1, "left": 0}
    assert site.counts() == {"orders": 1, "DLQ.orders": 0, "DLQ.dead": 0}


@pytest.mark.parametrize("place", PLACES[1:])
def test_a_sender_to_a_topic_makes_none_where_queues_are_for_what_is_moved(place: str) -> None:
    """It would stay one as long as these queues, and who sends there next be told that somebody has it."""
    stage = stage_with(place)
    conn = stage.accept()
    assert frames.errors(stage.talk(conn, GO + attach(False, TOPIC, "dead") + frames.transfer(0))) == []
    stage.drop_bare(conn)
    assert not stage.broker.store.addresses["dead"].is_topic
    assert frames.errors(stage.talk(stage.accept(), GO + attach(False, (), "dead"))) == [("Detach", "amqp:not-found")]
    assert others(stage) == {}


def test_who_has_a_queue_alone_is_known_without_asking_each() -> None:
    """Each dead letter asks."""
    stage = stage_with("nowhere")
    for number in range(300):
        stage.broker.store.create_queue(queue_of_origin(MoveTarget("dead", f"q{number}"), f"of-{number}"), BROKER)
    address, steps = stage.broker.store.addresses["dead"], Bytecodes()
    assert not steps.of(lambda: address.keeps_apart("nobody"))
    assert steps.of(lambda: address.keeps_apart("of-299"))
    assert steps.count < 100
    stage.admin("queue-delete", name="q299")
    assert not address.keeps_apart("of-299")
