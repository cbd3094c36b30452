"""Durable subscriptions and crashes: one is there from the moment in which its subscriber is told so, and gone from the
moment in which its end is answered.
"""

from __future__ import annotations

import pytest
from mqbroker.node.values import inputs as given
from mqbroker.wire.performatives import Attach, Detach, Flow, Source, Target
from mqbroker.wire.types import Symbol

from tests.support import frames
from tests.support.stage import Stage, options_with

SUBSCRIPTION = "app.news"


def subscribe() -> bytes:
    source = Source(address="topic", durable=2, expiry_policy=Symbol("never"), capabilities=(Symbol("topic"),))
    return frames.frame(Attach(name="news", handle=0, role=True, source=source, target=Target()))


def held_stage() -> tuple[Stage, int]:
    stage = Stage()
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun())
    stage.is_disk_held = True
    return stage, conn


def subscriptions(stage: Stage) -> list[str]:
    return [name for name in stage.broker.store.queues if name.endswith(".news")]


def test_the_subscriber_is_told_when_the_subscription_is_on_disk() -> None:
    stage, conn = held_stage()
    assert frames.heard(stage.talk(conn, subscribe() + frames.flow(0, 5))) == []
    before = len(stage.sent[conn])
    stage.is_disk_held = False
    stage.run()
    (said,) = frames.heard(bytes(stage.sent[conn][before:]))
    assert isinstance(said, Attach)
    assert said.source is not None
    stage.crash()
    stage.start()
    assert len(subscriptions(stage)) == 1


def test_who_is_told_nothing_may_find_nothing() -> None:
    stage, conn = held_stage()
    assert frames.heard(stage.talk(conn, subscribe())) == []
    stage.crash()
    stage.start()
    assert subscriptions(stage) == []


LEAVE = frames.frame(Detach(handle=0))


@pytest.mark.parametrize("reads", [(subscribe() + LEAVE,), (subscribe(), LEAVE)], ids=["in one read", "in two"])
def test_who_leaves_at_once_is_told_of_both_when_the_subscription_is_on_disk(reads: tuple[bytes, ...]) -> None:
    stage, conn = held_stage()
    before = len(stage.sent[conn])
    assert [frames.heard(stage.talk(conn, read)) for read in reads] == [[]] * len(reads)
    stage.is_disk_held = False
    stage.run()
    said = frames.heard(bytes(stage.sent[conn][before:]))
    assert [type(each) for each in said] == [Attach, Detach]
    assert (said[0].source is not None, said[1].error, bool(said[1].closed)) == (True, None, False)
    stage.crash()
    stage.start()
    assert len(subscriptions(stage)) == 1


def test_who_leaves_and_is_back_at_once_is_told_of_all_in_order() -> None:
    stage, conn = held_stage()
    before = len(stage.sent[conn])
    assert frames.heard(stage.talk(conn, subscribe() + LEAVE + subscribe() + LEAVE + subscribe())) == []
    stage.is_disk_held = False
    stage.run()
    said = frames.heard(bytes(stage.sent[conn][before:]))
    assert [type(each) for each in said] == [Attach, Detach, Attach, Detach, Attach]
    assert [each.handle for each in said] == [0, 0, 1, 1, 2]
    assert frames.errors(stage.talk(conn, frames.flow(0, 1) + frames.detach(0))) == []
    assert subscriptions(stage) == []


def test_one_of_its_name_that_is_refused_is_told_so_after_it() -> None:
    stage, conn = held_stage()
    refused = Attach(name="news", handle=0, role=True, source=Source(address="a::"), target=Target())
    said = frames.heard(stage.talk(conn, subscribe() + LEAVE + frames.frame(refused)))
    assert [type(each) for each in said] == [Attach, Detach, Attach, Detach]
    assert [each.handle for each in said] == [0, 0, 1, 1]
    stage.is_disk_held = False
    stage.run()
    assert len(frames.of_kind(bytes(stage.sent[conn]), Attach)) == 2, "each is said once"


def test_it_may_do_so_as_often_as_it_likes() -> None:
    """As many links as a session may have, and each ends before the next one of its name is refused or made."""
    stage, conn = held_stage()
    for _ in range(100):
        assert frames.heard(stage.talk(conn, (subscribe() + LEAVE) * 10)) == []
    refused = Attach(name="news", handle=0, role=True, source=Source(address="a::"), target=Target())
    said = frames.heard(stage.talk(conn, frames.frame(refused)))
    assert [type(each) for each in said] == [Attach, Detach] * 1001
    assert [each.handle for each in said[::2]] == [each.handle for each in said[1::2]] == list(range(1001))


@pytest.mark.parametrize(
    ("credit", "fields"),
    [(3, {"echo": True}), (0, {"echo": True}), (0, {"drain": True}), (3, {"drain": True, "echo": True})],
    ids=str,
)
def test_a_flow_that_asks_for_an_answer_has_to_wait_for_the_disk_too(credit: int, fields: dict[str, bool]) -> None:
    stage, conn = held_stage()
    assert frames.heard(stage.talk(conn, subscribe() + frames.flow(0, credit, **fields))) == []
    before = len(stage.sent[conn])
    stage.is_disk_held = False
    stage.run()
    stood, flow = frames.heard(bytes(stage.sent[conn][before:]))
    assert isinstance(stood, Attach)
    assert isinstance(flow, Flow)
    used = credit if "drain" in fields else 0
    assert (flow.drain, flow.link_credit, flow.delivery_count) == ("drain" in fields, credit - used, used)
    assert frames.heard(stage.talk(conn, frames.flow(0, 1, delivery_count=used))) == [], "it was answered"


def test_who_ends_a_subscription_at_once_hears_of_both_when_both_are_on_disk() -> None:
    stage, conn = held_stage()
    before = len(stage.sent[conn])
    assert frames.heard(stage.talk(conn, subscribe() + frames.detach(0))) == []
    stage.is_disk_held = False
    stage.run()
    said = frames.heard(bytes(stage.sent[conn][before:]))
    assert [type(each) for each in said] == [Attach, Detach]
    assert subscriptions(stage) == []


def subscribed_stage() -> tuple[Stage, int]:
    """With a subscription, and a disk that is held from now on."""
    stage, conn = held_stage()
    stage.is_disk_held = False
    stage.talk(conn, subscribe() + frames.flow(0, 5))
    stage.is_disk_held = True
    assert len(subscriptions(stage)) == 1
    return stage, conn


def test_the_end_is_answered_when_it_is_on_disk() -> None:
    stage, conn = subscribed_stage()
    assert frames.heard(stage.talk(conn, frames.detach(0))) == []
    before = len(stage.sent[conn])
    stage.is_disk_held = False
    stage.run()
    (said,) = frames.heard(bytes(stage.sent[conn][before:]))
    assert isinstance(said, Detach)
    assert said.closed
    assert said.error is None
    stage.crash()
    stage.start()
    assert subscriptions(stage) == []


def test_whose_end_is_not_answered_may_find_it_again() -> None:
    stage, conn = subscribed_stage()
    assert frames.heard(stage.talk(conn, frames.detach(0))) == []
    stage.crash()
    stage.start()
    assert len(subscriptions(stage)) == 1


def test_who_leaves_for_a_while_is_answered_at_once() -> None:
    stage, conn = subscribed_stage()
    (said,) = frames.heard(stage.talk(conn, frames.frame(Detach(handle=0))))
    assert isinstance(said, Detach)
    assert not said.closed
    assert len(subscriptions(stage)) == 1


def test_the_end_by_a_link_that_only_asked_is_answered_when_it_is_on_disk() -> None:
    """As JMS clients unsubscribe: a link of that name without a source, which is then closed."""
    stage, conn = subscribed_stage()
    stage.talk(conn, frames.frame(Detach(handle=0)))
    (asked,) = frames.heard(stage.talk(conn, frames.frame(Attach(name="news", handle=0, role=True, target=Target()))))
    assert asked.source.address == "topic"
    assert frames.heard(stage.talk(conn, frames.detach(0))) == []
    stage.is_disk_held = False
    stage.run()
    assert len(frames.of_kind(bytes(stage.sent[conn]), Detach)) == 2
    assert subscriptions(stage) == []


def test_who_subscribes_again_before_the_answer_gets_it_first() -> None:
    stage, conn = subscribed_stage()
    before = len(stage.sent[conn])
    assert frames.heard(stage.talk(conn, frames.detach(0) + subscribe())) == []
    stage.is_disk_held = False
    stage.run()
    assert [type(each) for each in frames.heard(bytes(stage.sent[conn][before:]))] == [Detach, Attach]
    assert len(subscriptions(stage)) == 1
    assert frames.errors(stage.talk(conn, frames.detach(0))) == []
    assert subscriptions(stage) == []


def test_a_handle_is_free_while_the_answer_is_due() -> None:
    stage, conn = subscribed_stage()
    (attach, _) = frames.heard(stage.talk(conn, frames.detach(0) + frames.sender("orders", 0)))
    assert isinstance(attach, Attach)
    assert attach.handle != 0, "ours is not: the peer has not seen the end of the other link"
    before = len(stage.sent[conn])
    stage.is_disk_held = False
    stage.run()
    said = frames.of_kind(bytes(stage.sent[conn][before:]), Detach)
    assert [(each.handle, each.closed) for each in said] == [(0, True)]
    assert frames.errors(stage.talk(conn, frames.transfer(0))) == []


@pytest.mark.parametrize("ends", [frames.end(), frames.close(), None])
def test_an_answer_that_nobody_waits_for_is_not_given(ends: bytes | None) -> None:
    stage, conn = subscribed_stage()
    stage.talk(conn, frames.detach(0))
    before = len(stage.sent[conn])
    if ends is None:
        stage.drop_bare(conn)
    else:
        stage.talk(conn, ends)
    stage.is_disk_held = False
    stage.run()
    assert frames.of_kind(bytes(stage.sent[conn][before:]), Detach) == []
    assert subscriptions(stage) == []


def test_a_consumer_that_left_before_the_disk_knew_it_counts_no_more() -> None:
    stage = Stage(options_with(limits={"consumers_per_queue_max": 1}))
    stage.admin("queue-create", name="orders")
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun())
    stage.is_disk_held = True
    stage.talk(conn, frames.receiver("orders", 0) + frames.detach(0))
    said = frames.of_kind(stage.talk(conn, frames.receiver("orders", 1)), Attach)
    assert [each.source is not None for each in said] == [True]
    stage.is_disk_held = False
    stage.run()
    assert stage.admin("queue-show", name="orders")["consumer_count"] == 1


CYCLE = [subscribe(), frames.detach(0)]


@pytest.mark.parametrize("synced", [0, 1, 2])
@pytest.mark.parametrize("asked", range(1, 2 * len(CYCLE) + 1))
def test_a_crash_leaves_what_was_told_last_or_what_was_asked_since(asked: int, synced: int) -> None:
    """At every point of two lives of a subscription, with none, one or two of the appends that wait on disk."""
    stage, conn = held_stage()
    told_at_start = len(stage.sent[conn])
    states = [False]  # of the subscription, after each request
    for number in range(asked):
        if number < asked - 1:
            stage.is_disk_held = False
        stage.talk(conn, CYCLE[number % 2])
        stage.is_disk_held = True
        states.append(not states[-1])
    for append in [stage.pending.pop(0) for _ in range(min(synced, len(stage.pending)))]:
        stage.give(given.Synced(stage.disk.commit([append])))
    stage.run()
    answers = len(frames.of_kind(bytes(stage.sent[conn][told_at_start:]), Attach | Detach))
    assert answers in (asked - 1, asked)
    stage.crash()
    stage.start()
    assert bool(subscriptions(stage)) in states[answers:]


def test_a_subscription_that_takes_no_consumer_leaves_no_queue() -> None:
    stage = Stage(options_with(address_settings={"topic": {"default_max_consumers": 0}}))
    conn = stage.accept()
    source = Source(address="topic", capabilities=(Symbol("topic"),))
    attach = frames.frame(Attach(name="news", handle=0, role=True, source=source, target=Target()))
    said = stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun() + attach)
    assert frames.errors(said) == [("Detach", "amqp:resource-limit-exceeded")]
    assert stage.admin("queues")["queues"] == []


def test_who_ends_a_subscription_that_another_one_uses_is_told_that_it_stays() -> None:
    """JMS clients end theirs by a link without a source, which they close."""
    stage = Stage()
    used, other = (stage.accept() for _ in range(2))
    go = frames.anonymous() + frames.opened(container_id="app") + frames.begun()
    stage.talk(used, go + subscribe())
    asking = frames.frame(Attach(name="news", handle=0, role=True, source=None, target=Target()))
    assert frames.errors(stage.talk(other, go + asking)) == []
    assert frames.errors(stage.talk(other, frames.detach())) == [("Detach", "amqp:resource-locked")]
    assert subscriptions(stage) == [SUBSCRIPTION]
    stage.talk(used, frames.frame(Detach(handle=0)))
    assert frames.errors(stage.talk(other, asking + frames.detach())) == []
    assert subscriptions(stage) == []


def test_who_may_not_end_a_subscription_is_told_that_it_stays() -> None:
    may = ("consume", "create_address", "create_durable_queue")
    security = {"#": {each: ["shop"] for each in may}}
    stage = Stage(options_with({"anonymous_role": "shop"}, security_settings=security))
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened(container_id="app") + frames.begun() + subscribe())
    assert frames.errors(stage.talk(conn, frames.detach())) == [("Detach", "amqp:unauthorized-access")]
    assert subscriptions(stage) == [SUBSCRIPTION]
