"""Links that are over and not handed back so far: whoever asks who uses a queue finds it as if they were."""

from __future__ import annotations

import pytest
from mqbroker.node.values import inputs as given
from mqbroker.wire.frames import EMPTY_FRAME
from mqbroker.wire.performatives import (
    Accepted,
    Attach,
    Coordinator,
    Declare,
    Source,
    Target,
    TransactionalState,
    Transfer,
    encode,
)
from mqbroker.wire.types import Described, Symbol

from tests.support import frames
from tests.support.stage import Stage, options_with
from tests.unit.node.test_many_links_end import ENDS, begin_end, crowd

COUNT = 100  # links whose turn comes before that of the last one
LAST = COUNT
OTHERS = b"".join(frames.receiver(f"q{handle}", handle=handle) for handle in range(COUNT))
GO = frames.anonymous() + frames.opened(container_id="crowd") + frames.begun()
AT_ONCE = (True, False)  # whether who asks does so in the very step in which the links end


def subscriber(handle: int, name: str, *, durable: bool = False, selector: str = "", is_asking: bool = False) -> bytes:
    """A shared subscription of `news`, by the name of its link."""
    wanted = {Symbol("s"): Described(Symbol("apache.org:selector-filter:string"), selector)}
    source = Source(
        address="news", durable=2 if durable else 0, capabilities=(Symbol("topic"), Symbol("shared")),
        expiry_policy=Symbol("never") if durable else None, filter=wanted if selector else None,
    )  # fmt: skip
    attach = Attach(name=name, handle=handle, role=True, source=None if is_asking else source, target=Target())
    return frames.frame(attach) + (b"" if is_asking else frames.flow(handle, 10))


def bystander(stage: Stage) -> int:
    """A connection of the same container, with a session."""
    conn = stage.accept()
    stage.talk(conn, GO)
    return conn


def end(stage: Stage, conn: int, how: str, *, at_once: bool) -> None:
    """Its links are over; whatever is given next comes before their turn."""
    for each in list(stage.broker.peers):
        stage.talk(each, EMPTY_FRAME)  # all are calm, so what they say is taken in as it comes
    begin_end(stage, conn, how)
    if not at_once:
        stage.turn()
        assert stage.broker.turns.parting


def bodies(stage: Stage, conn: int) -> list[bytes]:
    """Ends of what was delivered."""
    said = frames.heard(bytes(stage.sent[conn]))
    return [each[1][-2:] for each in said if isinstance(each, tuple) and isinstance(each[0], Transfer)]


@pytest.mark.parametrize("at_once", AT_ONCE)
@pytest.mark.parametrize("how", ENDS)
def test_a_subscription_that_goes_with_them_is_made_anew_for_who_wants_it(how: str, at_once: bool) -> None:
    stage = Stage()
    conn = crowd(stage, OTHERS + subscriber(LAST, "sub|1"))
    sender = crowd(stage, frames.sender("news"), "sender")
    other = bystander(stage)
    end(stage, conn, how, at_once=at_once)
    stage.give(given.BytesReceived(other, subscriber(5, "sub|2")))
    stage.run()
    assert not frames.errors(bytes(stage.sent[other]))
    assert len(stage.broker.store.queues["crowd.sub:shared-volatile"].consumers) == 1
    stage.talk(sender, frames.transfer(1, b"m1"))
    assert bodies(stage, other) == [b"m1"]


@pytest.mark.parametrize("at_once", AT_ONCE)
@pytest.mark.parametrize("how", ENDS)
def test_a_subscription_may_have_other_terms_when_all_its_subscribers_are_going(how: str, at_once: bool) -> None:
    stage = Stage()
    conn = crowd(stage, OTHERS + subscriber(LAST, "sub|1", durable=True))
    other = bystander(stage)
    end(stage, conn, how, at_once=at_once)
    stage.give(given.BytesReceived(other, subscriber(5, "sub|2", durable=True, selector="a = 1")))
    stage.run()
    assert not frames.errors(bytes(stage.sent[other]))
    assert stage.broker.store.queues["crowd.sub"].kind.selector == "a = 1"


@pytest.mark.parametrize("how", ENDS)
def test_a_subscription_ends_when_all_its_subscribers_are_going(how: str) -> None:
    stage = Stage()
    conn = crowd(stage, OTHERS + subscriber(LAST, "sub|1", durable=True))
    other = bystander(stage)
    asking = subscriber(5, "sub", is_asking=True)
    end(stage, conn, how, at_once=False)
    stage.give(given.BytesReceived(other, asking + frames.detach(5)))
    stage.run()
    assert not frames.errors(bytes(stage.sent[other]))
    assert "crowd.sub" not in stage.broker.store.queues


@pytest.mark.parametrize("force", [True, False])
@pytest.mark.parametrize("at_once", AT_ONCE)
@pytest.mark.parametrize("how", ENDS)
def test_an_administrator_may_delete_what_they_used(how: str, at_once: bool, force: bool) -> None:
    stage = Stage()
    conn = crowd(stage, OTHERS + frames.receiver("orders", handle=LAST, credit=10))
    sender = crowd(stage, frames.sender("orders"), "sender")
    stage.talk(sender, frames.transfer(1, b"m1"))
    end(stage, conn, how, at_once=at_once)
    assert stage.admin("queue-delete", name="orders", force=force) == {"name": "orders", "messages": 1}


@pytest.mark.parametrize("force", [True, False])
@pytest.mark.parametrize("how", ENDS)
def test_an_administrator_is_told_of_what_went_with_them(how: str, force: bool) -> None:
    stage = Stage()
    conn = crowd(stage, OTHERS + subscriber(LAST, "sub|1"))
    end(stage, conn, how, at_once=False)
    answer = stage.admin("queue-delete", name="crowd.sub:shared-volatile", force=force)
    assert answer["condition"] == "amqp:not-found"
    assert "crowd.sub:shared-volatile" not in stage.broker.store.queues


@pytest.mark.parametrize("at_once", AT_ONCE)
@pytest.mark.parametrize("how", ENDS)
def test_an_administrator_may_receive_in_their_place(how: str, at_once: bool) -> None:
    stage = Stage(options_with(address_settings={"#": {"default_max_consumers": 1}}))
    conn = crowd(stage, OTHERS + frames.receiver("orders", handle=LAST, credit=10))
    sender = crowd(stage, frames.sender("orders"), "sender")
    stage.talk(sender, frames.transfer(1, b"m1"))
    end(stage, conn, how, at_once=at_once)
    assert len(stage.admin("receive", address="orders", count_max=5, wait_ms=1)["messages"]) == 1


DEAD_LETTERS = {
    "max_delivery_attempts": 1, "dead_letter_address": "DLA", "auto_create_dead_letter_resources": True,
}  # fmt: skip


def test_what_they_make_when_somebody_wants_their_place_is_the_brokers_own() -> None:
    granted = {"DLA": {}, "#": {"consume": ("guest",), "create_durable_queue": ("guest",), "send": ("guest",),
                                "create_address": ("guest",)}}  # fmt: skip
    options = options_with({"anonymous_role": "guest"}, address_settings={"#": DEAD_LETTERS},
                           security_settings=granted)  # fmt: skip
    stage = Stage(options)
    conn = crowd(stage, OTHERS + frames.receiver("orders", handle=LAST, credit=10))
    sender = crowd(stage, frames.sender("orders"), "sender")
    stage.talk(sender, frames.transfer(1, b"m1"))
    other = bystander(stage)
    end(stage, conn, "lost", at_once=False)
    stage.give(given.BytesReceived(other, frames.receiver("orders", handle=5, credit=10)))
    stage.run()
    assert not frames.errors(bytes(stage.sent[other]))
    assert stage.broker.store.queues["DLQ.orders"].message_count == 1
    assert other not in stage.broker.store.quotas.connections


@pytest.mark.parametrize("is_closed_before", [True, False], ids=["link closed before", "link open"])
@pytest.mark.parametrize("how", ENDS)
def test_what_their_transactions_hold_comes_in_its_place(how: str, is_closed_before: bool) -> None:
    stage = Stage(options_with(address_settings={"#": {"default_max_consumers": 1}}))
    orders = frames.receiver("orders", handle=LAST, credit=10)
    asking = Attach(name="asking", handle=LAST + 1, role=False, source=Source(), target=Coordinator(),
                    initial_delivery_count=0)  # fmt: skip
    conn = crowd(stage, OTHERS + orders + frames.frame(asking))
    sender = crowd(stage, frames.sender("orders"), "sender")
    stage.talk(sender, b"".join(frames.transfer(each, b"m%d" % each) for each in range(10)))
    declare = Transfer(handle=LAST + 1, delivery_id=0, delivery_tag=b"a", message_format=0, settled=False)
    stage.talk(conn, frames.frame(declare, b"\x00\x53\x77" + encode(Declare())))
    retired = TransactionalState(txn_id=(1).to_bytes(8, "big"), outcome=Accepted())
    stage.talk(conn, frames.disposition(0, 2, retired) + frames.disposition(3, 4, retired, settled=False))
    if is_closed_before:
        stage.talk(conn, frames.detach(LAST))
    other = bystander(stage)
    end(stage, conn, how, at_once=False)
    stage.give(given.BytesReceived(other, frames.receiver("orders", handle=5, credit=100)))
    stage.run()
    assert bodies(stage, other) == [b"m%d" % each for each in range(10)]


FAULT = frames.flow(777, 1, channel=1)  # for no link: the end of the session


@pytest.mark.parametrize(
    ("how", "word"), [(frames.close(), "Close"), (frames.end(1), "End"), (FAULT, "End")], ids=["close", "end", "fault"]
)
def test_who_waits_for_room_gets_no_credit_on_links_that_are_over(how: bytes, word: str) -> None:
    stage = Stage(options_with(limits={"link_credit": 10}))
    conn = crowd(stage, OTHERS)
    stage.talk(conn, frames.begun(1) + b"".join(frames.sender(f"s{each}", each, 1) for each in range(COUNT)))
    stage.give(given.UnsyncedBytes(1 << 40))
    messages = [frames.transfer(8 * each + n, handle=each, channel=1) for each in range(COUNT) for n in range(8)]
    stage.talk(conn, b"".join(messages))
    assert len(stage.broker.starved) == COUNT
    stage.wait(1000)
    stage.talk(conn, EMPTY_FRAME)
    before = len(stage.sent[conn])
    stage.give(given.BytesReceived(conn, how))
    stage.turn()
    assert stage.broker.starved
    stage.give(given.UnsyncedBytes(0))
    stage.run()
    said = frames.heard(bytes(stage.sent[conn][before:]))
    assert [type(each).__name__ for each in said] == [word]
    assert not stage.broker.starved
