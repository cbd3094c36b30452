"""A node that stops in order, in the middle of whatever it does: the next start knows that it was no crash."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.base.time import NS_PER_MS
from mqbroker.client.inputs import OpenSender
from mqbroker.client.options import SenderTerms
from mqbroker.node.values import inputs as given
from mqbroker.node.values.node_states import NodeState
from mqbroker.wire.performatives import (
    Accepted,
    Declare,
    Declared,
    Discharge,
    Disposition,
    Rejected,
    TransactionalState,
)
from mqbroker.wire.run import single
from mqbroker.wire.sections import Header, build_message

from tests.support import frames, transactions
from tests.support.client_stage import A, App, B
from tests.support.cluster_load import CLOSED_IN_ORDER, CONNECTED, LOST
from tests.support.large_messages import Consumer, Producer, content, is_clean, stage_of
from tests.support.stage import Stage, options_with
from tests.unit.node.amqp.peers.test_coordinator import Client
from tests.unit.node.test_bystander_work import GO

HOUR_MS = 3_600_000
COUNT = 1000
STEPS_MAX = 100
MANY_LINKS = 900  # to hand back what they had is more than a turn of one connection
RETRY_MS = 2_500  # after so long a client goes on elsewhere, whenever it was let in
EXPIRING = build_message(b"x", durable=True, header=Header(durable=True, ttl=HOUR_MS))


def busy(said: dict[str, Any]) -> Stage:
    """A node with much that has just expired, and with a message that a consumer has not had."""
    stage = Stage(options_with(address_settings=said))
    for name in ("orders", "expired", "kept"):
        stage.admin("queue-create", name=name)
    store = stage.broker.store
    conn = stage.accept()
    stage.talk(conn, GO + frames.receiver("kept"))
    stage.drop_bare(conn)
    for name, payload in [("kept", build_message(b"x", durable=True)), *[("orders", EXPIRING)] * COUNT]:
        store.publish(store.addresses[name], single(payload))
    stage.step()
    stage.run()
    stage.now_ns += HOUR_MS * NS_PER_MS
    return stage


def end(stage: Stage, *meanwhile: Any) -> None:
    """Until it has ended; the disk catches up behind each step."""
    stage.give(given.Stop())
    for _ in range(STEPS_MAX):
        stage.turn()
        if stage.halted is not None:
            return
        for each in meanwhile:
            stage.give(each)
        stage.sync()
    raise AssertionError("it does not end")


@pytest.mark.slow
@pytest.mark.parametrize("said", [{}, {"orders": {"expiry_address": "expired"}}])
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_nothing_comes_behind_the_end_of_the_journal(said: dict[str, Any], steps: int) -> None:
    stage = busy(said)
    for _ in range(steps):
        stage.turn()
        stage.sync()
    end(stage)
    left = stage.broker.store.queues["orders"].message_count
    assert 0 < left < COUNT
    stage.start()
    assert [each.deliveries for each in stage.broker.store.queues["kept"].segments()] == [0], "it was no crash"
    stage.wait(1)
    counts = {name: stage.broker.store.queues[name].message_count for name in ("orders", "expired")}
    assert counts == {"orders": 0, "expired": COUNT if said else 0}


def test_what_arrives_behind_the_end_of_the_journal_makes_none_of_it() -> None:
    stage = busy({})
    end(stage, given.AdminRequest(9999, 1, "status", {}), given.JournalSpace(True, 1), given.Closed(1, "reset"))
    assert [batch.append is None for batch in stage.batches][-2:] == [False, True]
    stage.start()
    assert [each.deliveries for each in stage.broker.store.queues["kept"].segments()] == [0]


def test_it_drains_until_all_is_answered_and_then_ends_in_one_step() -> None:
    stage = busy({})
    stopping = stage.broker.stopping
    assert (stopping.state, stage.broker.may_grant) == (NodeState.RUNNING, True)
    stage.is_disk_held = True
    stage.broker.store.publish(stage.broker.store.addresses["kept"], single(build_message(b"x", durable=True)))
    for _ in range(2):  # whoever asks twice changes nothing
        stage.give(given.Stop())
        stage.turn()
        assert (stopping.state, stage.broker.may_grant) == (NodeState.DRAINING, False)
    assert stage.halted is None
    stage.is_disk_held = False
    stage.sync()
    stage.turn()
    assert stopping.state is NodeState.STOPPED
    stage.give(given.Stop())
    stage.turn()
    stage.sync()
    stage.turn()
    assert (stopping.state, stage.halted) == (NodeState.STOPPED, 0)


# -- what comes while the last answers wait for the disk ---------------------------------------------------------------


def stopping(stage: Stage) -> Producer:
    """A node that was asked to stop while the disk is at work on a message, and whose message that is."""
    producer = Producer(stage)
    stage.is_disk_held = True
    producer.publish(b"before")
    stage.give(given.Stop())
    stage.run()
    assert (stage.broker.stopping.state, producer.outcomes) == (NodeState.DRAINING, [])
    return producer


def over(stage: Stage) -> None:
    """The disk has caught up, so it ends, and it is started again."""
    stage.is_disk_held = False
    stage.run()
    assert stage.halted == 0
    stage.start()


def count(stage: Stage, name: str = "orders") -> int:
    queue = stage.broker.store.queues.get(name)
    return 0 if queue is None else queue.message_count


def test_a_message_that_would_get_no_answer_is_not_taken_in() -> None:
    stage = Stage()
    producer = stopping(stage)
    producer.publish(b"behind")
    over(stage)
    assert producer.outcomes == [Accepted()]
    assert count(stage) == 1, "who sent the other one sends it again, perhaps to another node"


def test_a_large_message_that_would_get_no_answer_is_not_taken_in() -> None:
    stage = stage_of()
    producer = stopping(stage)
    producer.publish(content(1))
    over(stage)
    assert producer.outcomes == [Accepted()]
    assert count(stage) == 1
    assert is_clean(stage)


def test_a_commit_that_would_get_no_answer_is_none() -> None:
    """Else its client were in doubt, and the messages of the transaction there."""
    stage = Stage()
    conn = stage.accept()
    stage.talk(conn, GO + frames.frame(transactions.coordinator_attach()) + frames.sender(handle=1))
    said = stage.talk(conn, transactions.request(0, Declare()))
    (declared,) = [each.state for each in frames.of_kind(said, Disposition)]
    assert isinstance(declared, Declared)
    state = TransactionalState(txn_id=declared.txn_id)
    stage.talk(conn, frames.transfer(1, handle=1, durable=True, state=state))
    stopping(stage)
    said = stage.talk(conn, transactions.request(2, Discharge(txn_id=declared.txn_id)))
    over(stage)
    assert frames.of_kind(said, Disposition) == []
    assert count(stage) == 1


@pytest.mark.parametrize("posts", [2, 30])
def test_a_commit_is_answered_whether_it_has_its_turn_in_time_or_not(posts: int) -> None:
    """One of many parts has its turn in the next step, which is too late."""
    stage = Stage()
    client = Client(stage)
    links = [client.sender("orders"), client.sender("other")]
    txn_id = client.declare()
    for number in range(posts):
        client.post(links[number % 2], txn_id)
    stage.is_disk_held = True
    Producer(stage).publish(b"before")
    transactions.discharge(client.control, txn_id, "discharge")
    stage.give(given.BytesReceived(client.talker.conn, client.talker.take_out()))
    stage.give(given.Stop())
    stage.run()
    over(stage)
    (outcome,) = client.outcomes("discharge")
    assert isinstance(outcome, Accepted if posts == 2 else Rejected)
    assert (count(stage), count(stage, "other")) == ((2, 1) if posts == 2 else (1, 0))


def test_consumers_have_again_what_a_commit_that_is_too_late_was_to_take() -> None:
    stage = Stage()
    producer, client = Producer(stage), Client(stage)
    for number in range(40):
        producer.publish(b"%d" % number)
    client.receiver("orders", 40)
    txn_id = client.declare()
    for number in range(40):
        client.retire(number, number, txn_id, settled=True)
    stage.is_disk_held = True
    producer.publish(b"before")
    transactions.discharge(client.control, txn_id, "discharge")
    stage.give(given.BytesReceived(client.talker.conn, client.talker.take_out()))
    stage.give(given.Stop())
    stage.run()
    over(stage)
    assert isinstance(client.outcomes("discharge")[0], Rejected)
    assert count(stage) == 41


@pytest.mark.parametrize("size", [10, 40_000])
def test_nothing_comes_before_a_message_that_is_not_taken_in(size: int) -> None:
    """On its link what is sent settled behind it is not taken in either; on others it is."""
    stage = stage_of()
    mixed, other = Producer(stage, "mixed", settled=True), Producer(stage, "other", settled=True)
    stopping(stage)
    mixed.publish(b"first")
    mixed.link.send_settled = False
    mixed.publish(content(1, size))
    mixed.link.send_settled = True
    mixed.publish(b"third")
    other.publish(b"of another link")
    over(stage)
    assert Consumer(stage).bodies == [b"before", b"first", b"of another link"]
    assert (mixed.outcomes, len(stage.large_files.sizes)) == ([], 0)


def test_what_nobody_waits_for_counts_until_the_end() -> None:
    """Messages that are sent settled, and what consumers have settled: neither would be said again."""
    stage = Stage()
    unheard, consumer = Producer(stage, "unheard", settled=True), Consumer(stage, credit=1)
    unheard.publish(b"earlier")
    stopping(stage)
    unheard.publish(b"settled")
    consumer.settle(0)
    over(stage)
    assert consumer.bodies == [b"earlier"]
    assert count(stage) == 2, "but for the one that was consumed"


def test_a_client_that_goes_on_elsewhere_is_taken_from_once() -> None:
    """Each node knows the ids of duplicate detection that it has seen itself."""
    a, b = Stage(), Stage()
    app = App({A: a, B: b}, "amqp://a,b?reconnect-attempts=-1")
    app.connect()
    app.ask(OpenSender(1, SenderTerms("orders"), "opened"))
    a.is_disk_held = True
    ids = [{"_AMQ_DUPL_ID": body} for body in ("first", "second")]
    app.send(1, "first", durable=True, application_properties=ids[0])
    a.give(given.Stop())
    a.run()
    app.send(1, "second", durable=True, application_properties=ids[1])
    a.is_disk_held = False
    app.run()
    app.wait(RETRY_MS)
    assert app.dialled == [A, B]
    assert app.outcomes == {"first": None, "second": None}
    assert any(text.startswith(LOST) and CLOSED_IN_ORDER in text for text in app.told)
    assert app.told[-1].startswith(CONNECTED)
    a.start()
    assert (count(a), count(b)) == (1, 1)


@pytest.mark.slow
def test_what_very_many_links_had_is_back_when_it_ends() -> None:
    stage = Stage(options_with(limits={"links_per_session_max": 1000}))
    stage.admin("send", address="orders", messages=[{"body": "x"}] * MANY_LINKS)
    conn = stage.accept()
    stage.talk(conn, GO)
    for handle in range(1, MANY_LINKS + 1):
        stage.talk(conn, frames.receiver(handle=handle, credit=1))
    queue = stage.broker.store.queues["orders"]
    assert queue.delivering_count == MANY_LINKS
    end(stage)
    assert (queue.delivering_count, queue.ready_count) == (0, MANY_LINKS)
