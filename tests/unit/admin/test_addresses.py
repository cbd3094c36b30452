"""Addresses of administrators: made, kept over restarts, paused, deleted, and what is told to whom."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.amqp import events as told
from mqbroker.node.values.node_states import NodeState
from mqbroker.wire.performatives import (
    Accepted,
    Attach,
    Declare,
    Disposition,
    Source,
    Target,
    TransactionalState,
)
from mqbroker.wire.run import single
from mqbroker.wire.sections import build_message
from mqbroker.wire.types import Symbol

from tests.support import frames
from tests.support.stage import Stage, Talker, options_with
from tests.support.transactions import coordinator_attach, request
from tests.unit.admin.site import Site

SMALL = {"journal_file_size_bytes": 8192, "journal_compact_min_files": 2, "journal_compact_percentage": 90}
TOPIC, QUEUE = (Symbol("topic"),), (Symbol("queue"),)


def shown(site: Site) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in site.do("addresses")["addresses"]}


def consumer(site: Site, address: str, capabilities: tuple[Symbol, ...] | None = None) -> Talker:
    talker = site.stage.connect(f"c-{address}")
    assert talker.session is not None
    source = Source(address=address, capabilities=capabilities)
    link = talker.session.attach_receiver(Attach(name="r", handle=0, role=True, source=source, target=Target()))
    site.stage.run()
    link.grant(10)
    site.stage.run()
    return talker


def producer(site: Site, address: str, capabilities: tuple[Symbol, ...] | None = None) -> tuple[Talker, Any]:
    talker = site.stage.connect(f"p-{address}")
    assert talker.session is not None
    target = Target(address=address, capabilities=capabilities)
    link = talker.session.attach_sender(
        Attach(name="s", handle=0, role=False, source=Source(), target=target, initial_delivery_count=0)
    )
    site.stage.run()
    return talker, link


def send(site: Site, link: Any, body: str) -> None:
    link.session.send_run(link, single(build_message(body, durable=True)), 0, 1, body)
    site.stage.run()


def received(talker: Talker) -> int:
    return sum(event.run.count for event in talker.events if isinstance(event, told.Incoming))


def detached(talker: Talker) -> list[str]:
    return [str(event.error.condition) for event in talker.events if isinstance(event, told.Detached) and event.error]


# -- create -----------------------------------------------------------------------------------------------------------


def test_an_address_without_queues_outlives_restarts_and_compaction() -> None:
    site = Site(journal=SMALL)
    made = site.do("address-create", name="news", routing_types=["multicast"])
    assert (made["routing_types"], made["queues"], made["auto_created"]) == (["multicast"], [], False)
    site.do("address-create", name="gone")
    site.do("address-delete", name="gone")
    for number in range(40):  # many files, of which the first ones go
        site.send("orders", "x" * 1500)
        site.do("queue-purge", name="orders")
        if number % 10 == 9:
            site.restart()
    assert site.stage.disk.load().segments[0].number > 1
    assert shown(site)["news"] == made
    assert "gone" not in shown(site)


def test_the_answer_waits_for_the_disk() -> None:
    site = Site()
    site.stage.is_disk_held = True
    request = site.stage.ask("address-create", name="news")
    assert request not in site.stage.replies
    site.restart()
    assert shown(site) == {}


@pytest.mark.parametrize(
    ("arguments", "condition", "why"),
    [
        ({"name": "orders"}, "amqp:precondition-failed", "'orders' exists"),
        ({"name": ""}, "amqp:invalid-field", "characters"),
        ({"name": "a::b"}, "amqp:invalid-field", "'a::b'"),
        ({}, "amqp:invalid-field", "'name' is missing"),
        ({"name": "a", "routing_types": []}, "amqp:invalid-field", "anycast, multicast, or both"),
        ({"name": "a", "routing_types": ["x"]}, "amqp:invalid-field", "['x']"),
        ({"name": "a", "routing_types": "anycast"}, "amqp:invalid-field", "must be list"),
        ({"name": "a", "routing": "anycast"}, "amqp:invalid-field", "unknown argument 'routing'"),
    ],
)
def test_what_cannot_be_made_is_refused(arguments: dict[str, Any], condition: str, why: str) -> None:
    site = Site()
    site.do("queue-create", name="orders")
    found = site.refused("address-create", **arguments)
    assert found[0] == condition
    assert why in found[1]
    assert set(shown(site)) == {"orders"}


def test_there_is_a_bound_on_addresses() -> None:
    site = Site(limits={"queues_max": 2})
    site.do("address-create", name="a")
    site.do("address-create", name="b")
    assert "queues-max" in site.refused("address-create", name="c")[1]


def test_auto_create_addresses_does_not_bind_administrators() -> None:
    site = Site({"#": {"auto_create_addresses": False}})
    assert site.stage.admin("send", address="orders", messages=[{"body": "x"}])["condition"] == "amqp:not-found"
    site.do("address-create", name="orders")
    site.send("orders", "x")
    assert site.counts() == {"orders": 1}


@pytest.mark.parametrize(("routing", "other"), [("anycast", "multicast"), ("multicast", "anycast")])
def test_only_queues_of_its_types_come_to_an_address(routing: str, other: str) -> None:
    site = Site()
    site.do("address-create", name="shop", routing_types=[routing])
    condition, why = site.refused("queue-create", name="q", address="shop", routing_type=other)
    assert condition == "amqp:not-allowed"
    assert f"for {routing} queues, not for {other} ones" in why
    wrong = TOPIC if routing == "anycast" else QUEUE
    assert detached(consumer(site, "shop", wrong)) == ["amqp:not-allowed"]
    assert detached(producer(site, "shop", wrong)[0]) == ["amqp:not-allowed"]
    site.do("queue-create", name="q", address="shop", routing_type=routing)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_an_address_for_copies_gives_copies_whatever_the_settings_say(is_restarted: bool) -> None:
    site = Site({"#": {"default_address_routing_type": "ANYCAST"}})
    site.do("address-create", name="news", routing_types=["multicast"])
    if is_restarted:
        site.restart()
    talkers = [consumer(site, "news")]
    _, link = producer(site, "news")
    send(site, link, "one")
    assert [received(talker) for talker in talkers] == [1]
    assert site.stage.broker.store.is_multicast("news")
    assert "news" not in site.counts()


def test_a_producer_of_a_topic_makes_no_queue_at_an_address_of_both_types() -> None:
    site = Site()
    site.do("address-create", name="shop", routing_types=["multicast", "anycast"])
    _, link = producer(site, "shop", TOPIC)
    send(site, link, "nobody hears it")
    assert site.counts() == {}
    assert shown(site)["shop"]["unrouted"] == 1


def test_what_an_administrator_made_is_not_deleted_by_itself() -> None:
    site = Site({"#": {"auto_delete_addresses": True, "auto_delete_addresses_skip_usage_check": True}})
    site.do("address-create", name="orders")
    site.do("queue-create", name="orders")
    site.do("queue-delete", name="orders")
    site.stage.wait(100_000)
    site.restart()
    site.stage.wait(100_000)
    assert set(shown(site)) == {"orders"}


# -- pause ------------------------------------------------------------------------------------------------------------


def test_a_paused_address_pauses_its_queues_and_those_that_come_later() -> None:
    site = Site()
    site.do("queue-create", name="a", address="shop", routing_type="multicast")
    first = consumer(site, "shop::a")
    assert site.do("address-pause", name="shop") == {"name": "shop", "paused": True, "changed": True}
    assert site.do("address-pause", name="shop")["changed"] is False
    site.do("queue-create", name="b", address="shop", routing_type="multicast")
    second = consumer(site, "shop::b")
    site.send("shop", "one")
    assert (received(first), received(second)) == (0, 0)
    assert site.do("queue-show", name="b")["paused"] is True
    assert site.do("address-resume", name="shop") == {"name": "shop", "paused": False, "changed": True}
    site.stage.run()
    assert (received(first), received(second)) == (1, 1)


@pytest.mark.parametrize(("persist", "is_paused"), [(True, True), (False, False)])
def test_a_pause_holds_over_a_restart_unless_told_otherwise(persist: bool, is_paused: bool) -> None:
    site = Site()
    site.do("queue-create", name="orders")
    site.do("address-pause", name="orders", persist=persist)
    site.send("orders", "one")
    site.restart()
    assert site.do("queue-show", name="orders")["paused"] is is_paused
    assert len(site.take("orders")) == (0 if is_paused else 1)
    site.do("address-resume", name="orders")
    site.restart()
    assert [message["body"] for message in site.take("orders")] == ["one"]


def test_the_pause_of_a_queue_and_that_of_its_address_are_two() -> None:
    site = Site()
    site.do("queue-create", name="orders")
    site.do("queue-pause", name="orders")
    site.do("address-pause", name="orders")
    site.do("address-resume", name="orders")
    assert site.do("queue-show", name="orders")["paused"] is True
    site.do("address-pause", name="orders")
    assert site.do("queue-resume", name="orders") == {"name": "orders", "paused": True, "changed": True}
    site.do("address-resume", name="orders")
    assert site.do("queue-show", name="orders")["paused"] is False


def test_a_paused_address_stays_without_its_queues_and_goes_when_it_is_resumed() -> None:
    site = Site()
    site.do("queue-create", name="orders")
    site.do("address-pause", name="orders")
    site.do("queue-delete", name="orders")
    site.restart()
    assert shown(site)["orders"]["paused"] is True
    site.send("orders", "one")
    assert site.take("orders") == []
    site.do("queue-delete", name="orders", force=True)
    site.do("address-resume", name="orders")
    assert shown(site) == {}
    site.restart()
    assert shown(site) == {}


# -- delete -----------------------------------------------------------------------------------------------------------


def test_an_address_in_use_is_deleted_by_force_alone() -> None:
    site = Site()
    site.do("address-create", name="shop", routing_types=["multicast"])
    site.do("queue-create", name="a", address="shop", routing_type="multicast")
    site.do("queue-create", name="b", address="shop", routing_type="multicast")
    reader, (writer, link) = consumer(site, "shop::a"), producer(site, "shop")
    other, _ = producer(site, "shop::b")
    send(site, link, "one")
    condition, why = site.refused("address-delete", name="shop")
    assert condition == "amqp:precondition-failed"
    assert "2 queues and 2 producers" in why
    assert site.do("address-delete", name="shop", force=True) == {"name": "shop", "queues": ["a", "b"], "messages": 2}
    assert [detached(each) for each in (reader, writer, other)] == [["amqp:resource-deleted"]] * 3
    site.restart()
    assert (shown(site), site.counts()) == ({}, {})


def test_deleting_an_address_that_was_made_by_itself() -> None:
    site = Site()
    site.send("orders", "one")
    assert site.do("address-delete", name="orders", force=True)["messages"] == 1
    assert site.refused("address-delete", name="orders")[0] == "amqp:not-found"
    site.restart()
    assert shown(site) == {}


def test_two_who_delete_by_force_at_once() -> None:
    site = Site()
    site.do("address-create", name="shop")
    site.stage.is_disk_held = True
    requests = [site.stage.ask("queue-create", name="q", address="shop")] + [
        site.stage.ask("address-delete", name="shop", force=True) for _ in range(2)
    ]
    site.stage.is_disk_held = False
    site.stage.run()
    _, first, second = (site.stage.replies[request] for request in requests)
    assert first.result == {"name": "shop", "queues": ["q"], "messages": 0}
    assert second.error is not None
    assert second.error["condition"] == "amqp:not-found"


def test_while_a_transaction_holds_messages_all_queues_stay() -> None:
    site = Site()
    site.do("queue-create", name="a", address="shop", routing_type="multicast")
    site.do("queue-create", name="b", address="shop", routing_type="multicast")
    site.send("shop", "one")
    conn = site.stage.accept()
    hello = frames.anonymous() + frames.opened() + frames.begun() + frames.frame(coordinator_attach())
    said = site.stage.talk(conn, hello + request(0, Declare()))
    (declared,) = frames.of_kind(said, Disposition)
    site.stage.talk(conn, frames.receiver("shop::b", 2, credit=1))
    state = TransactionalState(txn_id=declared.state.txn_id, outcome=Accepted())
    site.stage.talk(conn, frames.disposition(0, 0, state))
    condition, why = site.refused("address-delete", name="shop", force=True)
    assert condition == "amqp:precondition-failed"
    assert "queue 'b' is in use" in why
    assert site.counts() == {"a": 1, "b": 1}
    site.stage.talk(conn, frames.close())
    assert site.do("address-delete", name="shop", force=True)["messages"] == 2


def test_what_is_said_of_addresses_is_audited() -> None:
    site = Site()
    site.do("address-create", name="news")
    site.do("address-pause", name="news")
    site.do("address-resume", name="news")
    site.do("address-delete", name="news")
    notices = [notice.fields for notice in site.stage.notices if notice.event == "admin"]
    assert [(fields["operation"], fields["name"], fields["outcome"]) for fields in notices] == [
        (f"address-{what}", "news", "done") for what in ("create", "pause", "resume", "delete")
    ]


def test_nothing_is_said_while_the_node_stops() -> None:
    stage = Stage(options_with())
    stage.admin("address-create", name="news")
    stage.broker.stopping.state = NodeState.DRAINING
    assert stage.admin("address-pause", name="news")["condition"] == "amqp:connection:forced"
