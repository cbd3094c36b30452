"""Addresses that are full: what senders are told, what is counted, and when there is room again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from mqbroker.core.address.permissions import BROKER
from mqbroker.wire.performatives import Declare, Discharge, Flow, TransactionalState, Transfer
from mqbroker.wire.sections import build_message

from tests.golden.conversation import Conversation, ScriptStage
from tests.support import frames, transactions
from tests.support.stage import Stage, options_with


def talk(*clients: str, credit: int = 4, **settings: Any) -> Conversation:
    """Clients of a node at which `orders` has these settings, and BLOCK where they say nothing else."""
    settings = {"address_full_policy": "BLOCK"} | settings
    script = Conversation()
    script.stage = ScriptStage(script, limits={"link_credit": credit}, address_settings={"orders": settings})
    for name in clients or ("p", "c"):
        script.run(f"connect {name}")
    return script


def meter(stage: Stage) -> Any:
    found = stage.broker.store.addresses["orders"].meter
    assert found is not None
    return found


@pytest.mark.option("address-settings.max-size-messages")
@pytest.mark.option("address-settings.address-full-policy")
def test_blocked_producers_have_no_credit_until_there_is_room() -> None:
    script = talk("p", "q", "c", max_size_messages=10)
    script.run("attach p to orders")
    for _ in range(5):
        script.run("publish p orders count=2 durable")
    assert script.run("attach q to orders") == ["q link orders stands"], "and has no credit"
    assert script.run("attach c from orders credit=1")[-1].startswith("c gets: m1")
    assert script.run("accept c m1") == [], "9 of 10 is no room yet"
    script.run("credit c orders 1")
    said = script.run("accept c m2")
    assert sorted(said) == ["p may send 2 to orders", "q may send 2 to orders"]
    assert script.stage.broker.store.meters.refused_total == 0


def test_a_producer_is_given_no_more_credit_than_there_is_room() -> None:
    script = talk(credit=100, max_size_messages=3)
    assert script.run("attach p to orders") == ["p link orders stands", "p may send 3 to orders"]


def granted(said: bytes) -> int:
    """The credit that a producer was told of last, 0: none."""
    told = [flow.link_credit for flow in frames.of_kind(said, Flow) if flow.handle == 0]
    return told[-1] if told else 0


PRODUCER = frames.anonymous() + frames.opened() + frames.begun() + frames.sender()


def limit(said: bytes) -> int:
    """Up to which message a producer may send, by what it was told last; 0: it was told nothing."""
    told = [flow.delivery_count + flow.link_credit for flow in frames.of_kind(said, Flow) if flow.handle == 0]
    return told[-1] if told else 0


@pytest.mark.parametrize(("producers", "most"), [(1, 9), (3, 19), (10, 54)])
def test_who_uses_all_credit_at_once_goes_over_the_bound_by_no_more(producers: int, most: int) -> None:
    """No two messages of a read have one shape, so credit is looked at between any two of them."""
    stage = Stage(options_with(address_settings={"#": {"max_size_messages": 5, "address_full_policy": "BLOCK"}}))
    conns = [stage.accept() for _ in range(producers)]
    credit = {conn: limit(stage.talk(conn, PRODUCER)) for conn in conns}
    assert set(credit.values()) == {5}
    sent = dict.fromkeys(conns, 0)
    for conn in conns * 3:
        numbers = range(sent[conn], sent[conn] + credit[conn])
        messages = b"".join(frames.transfer(each, b"x" * 7 * each, durable=bool(each % 2)) for each in numbers)
        sent[conn] += credit[conn]
        said = stage.talk(conn, messages) if messages else b""
        assert not frames.errors(said)
        credit[conn] = max(limit(said) - sent[conn], 0)
    assert sum(sent.values()) == stage.broker.store.queues["orders"].message_count
    assert sum(sent.values()) in (most - 1, most)  # where a read is taken in by turns, one fewer
    assert set(credit.values()) == {0}


def test_a_commit_is_taken_in_whole_where_producers_are_held_back() -> None:
    stage = Stage(options_with(address_settings={"#": {"max_size_messages": 5, "address_full_policy": "BLOCK"}}))
    conn = stage.accept()
    control = frames.frame(replace(transactions.coordinator_attach(), handle=9))
    assert granted(stage.talk(conn, PRODUCER + control)) == 5
    stage.talk(conn, transactions.request(0, Declare(), 9))
    state = TransactionalState(txn_id=(1).to_bytes(8, "big"))
    for number in range(1, 51):
        message = Transfer(handle=0, delivery_id=number, delivery_tag=b"t", settled=True, state=state)
        assert frames.errors(stage.talk(conn, frames.frame(message, build_message(b"m")))) == []
    stage.talk(conn, transactions.request(100, Discharge(txn_id=state.txn_id), 9))
    assert stage.broker.store.queues["orders"].message_count == 50


@pytest.mark.option("address-settings.max-size-bytes")
def test_bytes_bound_an_address_too() -> None:
    script = talk(max_size_bytes=1000)
    script.run("attach p to orders")
    said = script.run("publish p orders size=400") + script.run("publish p orders size=400")
    assert "p may send 4 to orders" in said
    assert 800 < meter(script.stage).size_bytes < 1000
    script.run("publish p orders size=400")
    assert "p may send 4 to orders" not in script.run("publish p orders")
    script.run("attach c from orders credit=4")
    script.run("accept c m1 m2 m3 m4")
    assert (meter(script.stage).size_bytes, meter(script.stage).count) == (0, 0)
    assert script.stage.broker.store.addresses["orders"].meter is not None


@pytest.mark.option("address-settings.address-full-policy")
def test_fail_rejects_what_is_too_much_and_goes_on_giving_credit() -> None:
    script = talk(max_size_messages=3, address_full_policy="FAIL")
    script.run("attach p to orders")
    said = script.run("publish p orders count=4 durable")
    assert "p learns accepted: m1 m2 m3" in said
    assert "p learns rejected (amqp:resource-limit-exceeded): m4" in said
    assert "p may send 4 to orders" in said
    assert "p learns rejected (amqp:resource-limit-exceeded): m5" in script.run("publish p orders")
    script.run("attach c from orders credit=1")
    script.run("accept c m1")
    assert script.run("publish p orders")[-1] == "p learns accepted: m6"
    assert script.stage.broker.store.meters.refused_total == 2


@pytest.mark.option("address-settings.address-full-policy")
def test_drop_accepts_and_drops_what_is_too_much() -> None:
    script = talk(max_size_messages=3, address_full_policy="DROP")
    script.run("attach p to orders")
    said = script.run("publish p orders count=4 durable") + script.run("publish p orders durable")
    assert max(line for line in said if "accepted" in line).endswith("m5")
    assert not any("rejected" in line for line in said)
    assert script.stage.broker.store.meters.dropped_total == 2
    assert script.stage.broker.store.queues["orders"].message_count == 3


@pytest.mark.parametrize(("policy", "is_gone"), [("FAIL", True), ("DROP", False), ("BLOCK", False)])
def test_who_sends_settled_messages_learns_by_the_end_of_the_link(policy: str, is_gone: bool) -> None:
    script = talk(max_size_messages=3, address_full_policy=policy)
    script.run("attach p to orders settled")
    said = [line for _ in range(4) for line in script.run("publish p orders")]
    assert any("is gone: amqp:resource-limit-exceeded" in line for line in said) == is_gone
    assert script.stage.broker.store.queues["orders"].message_count == 3


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ("FAIL", "p learns rejected (amqp:resource-limit-exceeded): m2"),
        ("BLOCK", "p learns rejected (amqp:resource-limit-exceeded): m2"),
        ("DROP", "p learns accepted: m2"),
    ],
)
def test_a_sender_without_an_address_is_told_for_each_message(policy: str, told: str) -> None:
    script = talk(credit=100, max_size_messages=1, address_full_policy=policy)
    script.run("attach p to nobody")
    assert script.run("publish p nobody to=orders") == ["p learns accepted: m1"]
    assert script.run("publish p nobody to=orders") == [told]
    assert script.run("publish p nobody to=prices")[-1].endswith("accepted: m3")
    assert script.stage.broker.store.queues["orders"].message_count == 1


def send(stage: Stage, count: int) -> Any:
    return stage.admin("send", address="orders", messages=[{"body": "x"}] * count)


@pytest.mark.parametrize(("policy", "left"), [("FAIL", 0), ("BLOCK", 0), ("DROP", 2)])
def test_administrators_meet_the_bound_too(policy: str, left: int) -> None:
    stage = Stage(options_with(address_settings={"#": {"max_size_messages": 2, "address_full_policy": policy}}))
    answer = send(stage, 3)
    assert answer == {"accepted": 3} if left else answer["condition"] == "amqp:resource-limit-exceeded"
    assert stage.broker.store.queues["orders"].message_count == left
    assert send(stage, 2 - left) == {"accepted": 2 - left}
    assert stage.broker.store.queues["orders"].message_count == 2


def test_what_is_counted_is_what_is_there_also_after_a_restart() -> None:
    stage = Stage(options_with(address_settings={"#": {"max_size_messages": 100}}))
    send(stage, 7)
    stage.admin("queue-create", name="copies", address="orders", routing_type="multicast")
    send(stage, 3)
    assert meter(stage).count == 7 + 2 * 3
    before = meter(stage).size_bytes
    stage.crash()
    stage.start()
    assert (meter(stage).count, meter(stage).size_bytes) == (13, before)
    answer = stage.admin("receive", address="orders", count_max=10, wait_ms=1)
    stage.admin("settle", tag=answer["tag"])
    assert meter(stage).count == 3
    stage.broker.store.purge(stage.broker.store.queues["copies"])
    assert (meter(stage).count, meter(stage).size_bytes) == (0, 0)
    send(stage, 4)
    store = stage.broker.store
    store.delete_queue(store.queues["copies"], BROKER)
    assert meter(stage).count == 4


def test_a_blocked_producer_that_leaves_is_forgotten() -> None:
    script = talk("p", "q", max_size_messages=1)
    script.run("attach p to orders")
    script.run("publish p orders")
    script.run("attach q to orders")
    assert len(meter(script.stage).waiting) == 2
    script.run("detach q orders")
    script.run("break p")
    assert len(meter(script.stage).waiting) == 0


def test_an_address_without_a_bound_has_no_meter_and_dead_letters_are_never_refused() -> None:
    settings = {"#": {"dead_letter_address": "dead"}, "dead": {"max_size_messages": 1, "address_full_policy": "DROP"}}
    stage = Stage(options_with(address_settings=settings))
    send(stage, 3)
    assert stage.broker.store.addresses["orders"].meter is None
    answer = stage.admin("receive", address="orders", count_max=3, wait_ms=1)
    stage.admin("settle", tag=answer["tag"], outcome="rejected")
    assert stage.broker.store.queues["dead"].message_count == 3


# -- transactions -----------------------------------------------------------------------------------------------------


def commit(script: Conversation, *commands: str) -> str:
    """What the client learns of a transaction in which it did this."""
    for command in ("declare p t1", *(f"{command} txn=t1" for command in commands)):
        script.run(command)
    return "\n".join(script.run("commit p t1"))


PAGED = {"max_size_messages": 3, "address_full_policy": "PAGE", "page_limit_messages": 2}


@pytest.mark.slow
@pytest.mark.option("address-settings.page-limit-messages", "address-settings.page-full-policy")
@pytest.mark.option("address-settings.address-full-policy")
@pytest.mark.parametrize(
    ("settings", "most"),
    [
        ({"max_size_messages": 5, "address_full_policy": "FAIL"}, 5),
        ({"max_size_messages": 5, "address_full_policy": "DROP"}, 5),
        (PAGED, 5),
        (PAGED | {"page_full_policy": "DROP"}, 5),
        ({"max_size_messages": 5, "address_full_policy": "BLOCK"}, 99),
        ({"max_size_messages": 5, "address_full_policy": "PAGE"}, 99),
    ],
)
@pytest.mark.parametrize("count", [4, 5, 6, 9])
@pytest.mark.parametrize("before", [0, 4])
def test_a_commit_asks_whether_there_is_room_for_all_of_it(
    settings: dict[str, Any], most: int, count: int, before: int
) -> None:
    script = talk(credit=100, **settings)
    script.run("attach p to orders")
    for _ in range(before):
        script.run("publish p orders durable")
    said = commit(script, *["publish p orders durable"] * count)
    orders = script.stage.broker.store.queues["orders"]
    fits = before + count <= most
    drops = "DROP" in settings.values()
    assert ("amqp:resource-limit-exceeded" in said) == (not fits and not drops)
    assert orders.message_count == (before + count if fits else most if drops else before)
    meters = script.stage.broker.store.meters
    assert (meters.dropped_total, meters.refused_total) == (
        (before + count - orders.message_count if drops else 0), (0 if fits or drops else count)
    )  # fmt: skip
    script.stage.crash()
    script.stage.start()
    assert script.stage.broker.store.queues["orders"].message_count == orders.message_count


@pytest.mark.option("address-settings.page-limit-bytes")
def test_a_commit_asks_for_bytes_too_and_for_all_queues_of_the_address() -> None:
    script = talk(credit=100, max_size_messages=2, address_full_policy="PAGE", page_limit_bytes=2000)
    for name in ("one", "two"):
        script.stage.admin("queue-create", name=name, address="orders", routing_type="multicast")
    script.run("attach p to orders")
    assert "rollback" not in commit(script, *["publish p orders size=300 durable"] * 3)
    assert "resource-limit-exceeded" in commit(script, *["publish p orders size=300 durable"] * 4)
    assert script.stage.broker.store.queues["one"].message_count == 3
    assert script.stage.broker.store.memory.held_bytes < 3_000


def test_what_a_transaction_takes_out_makes_room_for_what_it_brings() -> None:
    script = talk("p", credit=100, max_size_messages=2, address_full_policy="FAIL")
    script.stage.admin("queue-create", name="q", address="orders")
    script.run("attach p to orders")
    script.run("publish p orders count=2 durable")
    script.run("attach p from q credit=2")
    assert "resource-limit-exceeded" in commit(script, "publish p orders durable")
    assert "rollback" not in commit(script, "accept p m1", "publish p orders durable")
    assert script.stage.broker.store.queues["q"].message_count == 2


@pytest.mark.parametrize("way", ["publish p orders", "publish p nobody to=orders"])
def test_what_was_seen_needs_no_room(way: str) -> None:
    script = talk(credit=100, max_size_messages=2, address_full_policy="FAIL")
    script.run("attach p to orders")
    script.run("attach p to nobody")
    said = [script.run(f"{way} durable _AMQ_DUPL_ID={one}")[-1] for one in ("a", "b", "c", "a", "b")]
    assert said == [
        "p learns accepted: m1", "p learns accepted: m2", "p learns rejected (amqp:resource-limit-exceeded): m3",
        "p learns accepted: m4", "p learns accepted: m5",
    ]  # fmt: skip
    store = script.stage.broker.store
    assert (store.queues["orders"].message_count, store.duplicates.dropped_total) == (2, 2)
    assert store.meters.refused_total == 1


def test_what_was_seen_is_not_accepted_before_the_first_is_on_disk() -> None:
    script = talk(credit=100, max_size_messages=1, address_full_policy="FAIL")
    script.run("attach p to orders")
    script.run("hold disk")
    assert script.run("publish p orders durable _AMQ_DUPL_ID=a") == []
    assert script.run("publish p orders durable _AMQ_DUPL_ID=a") == []
    assert script.run("sync") == ["p learns accepted: m1 m2"]


def test_what_an_administrator_sends_again_needs_no_room() -> None:
    stage = Stage(options_with(address_settings={"#": {"max_size_messages": 2, "address_full_policy": "FAIL"}}))

    def send(*ids: str) -> Any:
        messages = [{"body": "x", "application_properties": {"_AMQ_DUPL_ID": one}} for one in ids]
        return stage.admin("send", address="orders", messages=messages)

    assert send("a") == {"accepted": 1}
    assert send("a", "b") == {"accepted": 2}
    assert send("b", "c")["condition"] == "amqp:resource-limit-exceeded"
    assert send("b", "a", "b") == {"accepted": 3}
    assert stage.admin("queues")["queues"][0]["message_count"] == 2


def test_what_a_transaction_sends_again_needs_no_room() -> None:
    script = talk(max_size_messages=2, address_full_policy="FAIL")
    script.run("attach p to orders")
    script.run("publish p orders durable _AMQ_DUPL_ID=one")
    script.run("publish p orders durable")
    for number in range(2):
        said = commit(script, "publish p orders durable _AMQ_DUPL_ID=one")
        assert "accepted: t1" in said, (number, said)
    assert "rejected (amqp:resource-limit-exceeded): t1" in commit(script, "publish p orders durable _AMQ_DUPL_ID=two")
    assert script.stage.broker.store.queues["orders"].message_count == 2
