"""Subscriptions to addresses with wildcards: copies of what all addresses get that match, here and in the cluster."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from mqbroker.amqp import events as told
from mqbroker.amqp import frame_costs
from mqbroker.core.address import wildcards
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.queue.kinds import TEMPORARY_PREFIX
from mqbroker.node.amqp.listeners.revocations import revoke
from mqbroker.wire.performatives import Accepted, Attach, Target
from mqbroker.wire.types import Symbol

from tests.support import frames
from tests.support.bytecodes import Bytecodes
from tests.support.cluster_stage import ClusterStage
from tests.support.large_messages import Consumer, Producer
from tests.support.stage import Stage, options_with
from tests.unit.admin.site import Site
from tests.unit.core.address.test_permissions import ALL, BASE, grants, talk, why
from tests.unit.node.cluster.membership.test_forwards import pair

TOPIC = {"capabilities": (Symbol("topic"),)}
DURABLE = {**TOPIC, "durable": 2, "expiry_policy": Symbol("never")}
MULTICAST = {"#": {"default_address_routing_type": "MULTICAST"}}


def stage_of(**settings: Any) -> Stage:
    return Stage(options_with(address_settings={"#": {**MULTICAST["#"], **settings}}))


def publish(stage: Stage, *addresses: str, **said: Any) -> None:
    """A message to each, which says where it went."""
    for number, address in enumerate(addresses):
        Producer(stage, f"p-{number}-{address}", address).publish(address.encode(), **said)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("news.#", [b"news", b"news.uk", b"news.uk.london"]),
        ("news.*", [b"news.uk"]),
        ("*.uk.#", [b"news.uk", b"news.uk.london"]),
        ("#", [b"news", b"news.uk", b"news.uk.london", b"weather.fr"]),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("source", [{}, TOPIC, DURABLE])
def test_who_subscribes_to_a_pattern_gets_what_matches(
    pattern: str, expected: list[bytes], source: dict[str, Any], *, is_first: bool
) -> None:
    stage = stage_of()
    others = [b"news", b"news.uk", b"news.uk.london", b"weather.fr"]
    if not is_first:
        for address in others:
            Producer(stage, f"early {address!r}", address.decode())
    consumer = Consumer(stage, address=pattern, credit=100, source=source)
    publish(stage, *(each.decode() for each in others))
    assert consumer.bodies == expected


def test_each_of_several_subscriptions_gets_its_copy_and_the_address_its_own() -> None:
    stage = Stage()
    wide, narrow = Consumer(stage, "wide", "news.#", 100), Consumer(stage, "narrow", "news.*", 100)
    queue = Consumer(stage, "queue", "news.uk", 100, source={"capabilities": (Symbol("queue"),)})
    publish(stage, "news.uk", "news.uk")
    assert wide.bodies == narrow.bodies == queue.bodies == [b"news.uk", b"news.uk"]


def test_a_durable_subscription_keeps_what_came_over_a_crash() -> None:
    stage = stage_of()
    Consumer(stage, "c", "news.#", 0, source=DURABLE)
    publish(stage, "news.uk", "news.fr")
    stage.crash()
    stage.start()
    again = Consumer(stage, "c", "news.#", 100, source=DURABLE)
    assert again.bodies == [b"news.uk", b"news.fr"]
    publish(stage, "news.it")
    assert again.bodies[2:] == [b"news.it"]


def test_subscribers_that_share_share() -> None:
    stage = stage_of()
    shared = {"capabilities": (Symbol("topic"), Symbol("shared"), Symbol("global"))}
    one, two = (Consumer(stage, name, "news.#", 2, source=shared) for name in ("s", "s|2"))
    publish(stage, *["news.uk"] * 4)
    assert len(one.bodies) + len(two.bodies) == 4


def test_what_no_queue_took_but_a_pattern_did_is_not_astray() -> None:
    stage = stage_of(send_to_dla_on_no_route=True, dead_letter_address="DLQ", auto_create_dead_letter_resources=False)
    stage.admin("queue-create", name="DLQ")
    consumer = Consumer(stage, address="news.#", credit=100)
    publish(stage, "news.uk", "weather")
    assert consumer.bodies == [b"news.uk"]
    assert stage.broker.store.unrouted_total == 1
    assert stage.broker.store.queues["DLQ"].message_count == 1


def test_dead_letters_and_replies_are_not_for_those_who_subscribe_to_all() -> None:
    site = Site({"#": {"dead_letter_address": "DLQ", "auto_create_dead_letter_resources": False}})
    site.do("queue-create", name="DLQ")
    everything = Consumer(site.stage, address="#", credit=100)
    Producer(site.stage, "sends", "orders").publish(b"one")
    reply = Consumer(site.stage, "asks", None, 100, source={"dynamic": True})
    (address,) = [name for name in site.stage.broker.store.addresses if name.startswith(TEMPORARY_PREFIX)]
    Producer(site.stage, address=address).publish(b"reply")
    assert everything.bodies == [b"one"]
    site.kill("orders")
    assert site.counts()["DLQ"] == 1
    assert everything.bodies == [b"one"]
    assert reply.bodies == [b"reply"]


def test_nobody_sends_to_a_pattern() -> None:
    site = Site()
    consumer = Consumer(site.stage, address="news.#", credit=10)
    condition, why = site.refused("send", address="news.#", messages=[{"body": "x"}])
    assert (condition, "has wildcards" in why) == ("amqp:not-allowed", True)
    talker = site.stage.connect("sender")
    assert talker.session is not None
    talker.session.attach_sender(Attach(name="s", handle=0, role=False, target=Target(address="news.*")))
    site.stage.run()
    (event,) = [each for each in talker.events if isinstance(each, told.Detached)]
    assert event.error is not None
    assert event.error.condition == "amqp:not-allowed"
    assert consumer.bodies == []


def test_a_pattern_that_nobody_has_a_queue_at_costs_nothing() -> None:
    stage = stage_of()
    consumer = Consumer(stage, address="news.#", credit=10)
    Producer(stage, address="news.uk").publish(b"1")
    stage.drop(consumer.talker)
    Producer(stage, "later", "news.uk").publish(b"2")
    stage.wait(60_000)
    assert not any(address.wildcards for address in stage.broker.store.addresses.values())
    assert "news.#" not in stage.broker.store.addresses


def refusals(consumer: Consumer) -> list[str]:
    return [
        str(each.error.condition) for each in consumer.talker.events if isinstance(each, told.Detached) and each.error
    ]


def test_how_many_copies_a_message_makes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wildcards, "COPIES_MAX", 3)
    stage = stage_of()
    early = Producer(stage, "early", "news.uk")
    for pattern in ("news.#", "news.*", "*.uk"):
        assert refusals(Consumer(stage, f"c {pattern}", pattern)) == []
    for source in ({}, TOPIC, DURABLE, {"capabilities": (Symbol("queue"),)}):
        assert refusals(Consumer(stage, f"more {source}", "#", source=source)) == ["amqp:resource-limit-exceeded"]
    assert refusals(Consumer(stage, "beside", "weather.#")) == []
    assert refusals(Consumer(stage, "shares", "news.#")) == [], "it brings no copy more"
    early.publish(b"1")
    assert early.outcomes == [Accepted()]
    assert stage.broker.store.added_total == 4  # three patterns, one of which two subscribe to


def test_an_address_that_matches_more_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wildcards, "COPIES_MAX", 3)
    stage = stage_of()
    for number, pattern in enumerate(("a.#", "b.#", "*.x", "#.x", "a.*", "b.*.x")):
        assert refusals(Consumer(stage, f"c{number}", pattern)) == []
    for address, count in (("a.y", 2), ("b.y", 1), ("b.y.x", 3)):
        producer = Producer(stage, f"p {address}", address)
        producer.publish(b"1")
        assert producer.outcomes == [Accepted()]
        assert len(stage.broker.store.addresses[address].wildcards) == count
    late = stage.connect("late")
    assert late.session is not None
    late.session.attach_sender(Attach(name="s", handle=0, role=False, target=Target(address="a.x")))
    stage.run()
    assert [str(each.error.condition) for each in late.events if isinstance(each, told.Detached) and each.error] == [
        "amqp:resource-limit-exceeded"
    ]
    assert "a.x" not in stage.broker.store.addresses


@pytest.mark.slow
@pytest.mark.parametrize("is_reversed", [False, True])
def test_who_has_addresses_compared_takes_turns(*, is_reversed: bool) -> None:
    """Subscribers to patterns where many addresses are, and who makes addresses where many patterns are."""
    steps = []
    for count in (0, 2000):
        stage = stage_of()
        for number in range(count):
            # Of another branch of the tree nothing is compared.
            for branch in ("a", "b"):
                stage.broker.store.make_address(f"{branch}.#.{number}" if is_reversed else f"{branch}.{number}", BROKER)
        names = [f"a.{number}.x" if is_reversed else f"a.#.{number}.*" for number in range(8)]
        attach = frames.sender if is_reversed else frames.receiver
        conn = stage.accept()
        stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun())
        before = len(stage.batches)
        stage.talk(conn, b"".join(attach(name, handle=handle) for handle, name in enumerate(names)))
        steps.append(len(stage.batches) - before)
        if count:
            asked = 2 if is_reversed else 1  # whether it is one too many, where there are that many at all
            assert stage.broker.store.wildcards.work < (count + 200) * len(names) * frame_costs.COMPARED * asked
    assert steps[1] >= steps[0] + 5, steps


def test_patterns_are_not_compared_with_each_other() -> None:
    """The thousandth subscription of its kind costs what the tenth does, and whoever makes it is charged for that."""
    counts = []
    for count in (10, 1000):
        store = stage_of().broker.store
        for number in range(count):
            store.make_address(f"*.{number}.x", BROKER)
        counted = Bytecodes()
        counted.of(partial(store.make_address, "*.more.x", BROKER))
        counts.append(counted.count)
    assert counts[1] < counts[0] + 100, counts


def test_names_that_are_passed_over_are_charged_too() -> None:
    """Of addresses that begin otherwise nothing is compared, and there may be a hundred thousand of them."""
    store = stage_of().broker.store
    for number in range(1_000):
        store.make_address(f"b.{number}", BROKER)
    store.make_address("a.#", BROKER)
    assert store.wildcards.work >= (1_000 >> wildcards.PASSED_SHIFT) * frame_costs.COMPARED
    for number in range(1_000):
        store.make_address(f"c.{number}.*", BROKER)
    before = store.wildcards.work
    store.make_address("d.e", BROKER)
    assert store.wildcards.work - before >= (1_000 >> wildcards.PASSED_SHIFT) * frame_costs.COMPARED


def test_an_address_that_was_deleted_and_made_again_matches_again() -> None:
    stage = stage_of(auto_delete_addresses=False)
    store = stage.broker.store
    deleted = store.make_address("news.uk", BROKER)
    store.forget_address("news.uk")
    store.make_address("news.*", BROKER)
    assert deleted.wildcards == ()
    store.make_address("news.uk", BROKER)
    assert [each.name for each in store.addresses["news.uk"].wildcards] == ["news.*"]
    store.forget_address("news.*")
    assert store.addresses["news.uk"].wildcards == ()
    store.make_address("news.#", BROKER)
    assert [each.name for each in store.addresses["news.uk"].wildcards] == ["news.#"]


def test_who_sends_where_many_patterns_match_takes_turns() -> None:
    steps = []
    for count in (0, 100):
        stage = stage_of()
        for number in range(count):
            Consumer(stage, f"c{number}", f"news.#.{number}.#", 0)
        conn = stage.accept()
        address = ".".join(["news", *map(str, range(100))])
        stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun() + frames.sender(address))
        stage.talk(conn, frames.transfer(0, settled=True))
        before = len(stage.batches)
        # With flows between them they are no run.
        stage.talk(conn, b"".join(frames.transfer(n, settled=True) + frames.flow(None, 0) for n in range(1, 9)))
        steps.append(len(stage.batches) - before)
        assert stage.broker.store.added_total == count * 9
    assert steps[1] >= steps[0] + 5, steps


# -- permissions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "missing"),
    [
        ("news.#", "consume"), ("news.*", "consume"), ("news.secret.*", "consume"), ("*.secret", "consume"),
        ("#", "consume"), ("news.uk.#", ""), ("news.*.x", "consume"), ("weather.*", "consume"), ("*.uk", "consume"),
    ],
)  # fmt: skip
def test_who_subscribes_needs_the_permission_at_every_address_that_matches(pattern: str, missing: str) -> None:
    tables = {
        "news.#": grants(*ALL), "news.secret.#": grants(*ALL, to="admin"), "#": grants(*BASE, "send")
    }  # fmt: skip
    script = talk(tables)
    assert why(script.run(f"attach c from {pattern} topic")) == missing
    assert why(script.run(f"attach c from {pattern} queue as=q")) == missing


def test_a_pattern_that_no_table_covers_is_nobodys() -> None:
    script = talk({"news.uk": grants(*ALL), "news.fr.#": grants(*ALL), "news.*": grants(*BASE)})
    assert why(script.run("attach c from news.# topic")) == "consume"


def test_a_reload_that_takes_the_permission_at_one_of_them_ends_the_subscription() -> None:
    script = talk({"news.#": grants(*ALL)})
    assert why(script.run("attach c from news.# topic")) == ""
    tables = options_with(security_settings={"news.#": grants(*ALL), "news.secret": grants(*ALL, to="admin")})
    script.stage.broker.permissions.change(tables.security_settings)
    for _ in revoke(script.stage.broker):
        pass
    script.stage.run()
    assert not script.stage.broker.store.queues


# -- the cluster ------------------------------------------------------------------------------------------------------


def clustered() -> tuple[ClusterStage, Any, Any]:
    return pair(options={"address_settings": MULTICAST})


@pytest.mark.parametrize("source", [TOPIC, DURABLE])
def test_subscriptions_of_other_nodes_get_each_message_once(source: dict[str, Any]) -> None:
    cluster, a, b = clustered()
    here, there = (Consumer(node, name, "news.#", 100, source=source) for node, name in ((a, "sa"), (b, "sb")))
    plain = Consumer(b, "plain", "news.uk", 100, source=TOPIC)
    cluster.run()
    cluster.wait(50)
    for node in (a, b):
        publish(node, "news.uk", "news.fr")
        cluster.run()
    cluster.wait(50)
    assert sorted(here.bodies) == sorted(there.bodies) == [b"news.fr"] * 2 + [b"news.uk"] * 2
    assert plain.bodies == [b"news.uk"] * 2
