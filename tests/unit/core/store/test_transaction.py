"""Transactions over a real store: every pair of the table, what is held, and that a commit is one append."""

from __future__ import annotations

import pytest
from mqbroker.base.errors import Bug, Refused
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.queue.queue import Queue, Segment
from mqbroker.core.store.transaction import TX_STATES, Transaction, Tx, TxEvent
from mqbroker.journal.records import encode_attributes
from mqbroker.wire.performatives import Accepted, Modified, Rejected, Released
from mqbroker.wire.run import Run, single
from mqbroker.wire.sections import build_message

from tests.support import frames
from tests.support.stage import Stage, options_with
from tests.support.values import replaced

FAILURE = Refused("amqp:transaction:rollback", "for the test")


def message(body: str = "m", *, durable: bool = True) -> Run:
    return single(build_message(body.encode(), durable=durable))


def taken(stage: Stage, count: int) -> tuple[Queue, Segment]:
    """Messages of `orders` in delivery, all of one run."""
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun() + frames.sender())
    stage.talk(conn, b"".join(frames.transfer(number, durable=True) for number in range(300, 300 + count)))
    queue = stage.broker.store.queues["orders"]
    segment = queue.take(count)
    assert segment.n == count
    return queue, segment


def act(event: TxEvent, work: Transaction) -> None:
    {
        TxEvent.WORK: lambda: work.post("orders", message()),
        TxEvent.FAIL: lambda: work.fail(FAILURE),
        TxEvent.COMMIT: lambda: work.commit({}),
        TxEvent.ROLL_BACK: work.roll_back,
    }[event]()


WAYS = {Tx.OPEN: (), Tx.FAILED: (TxEvent.FAIL,), Tx.DONE: (TxEvent.ROLL_BACK,)}


@pytest.mark.parametrize("event", TxEvent)
@pytest.mark.parametrize("state", Tx)
def test_every_state_and_event(state: Tx, event: TxEvent) -> None:
    work = Transaction(Stage().broker.store)
    for each in WAYS[state]:
        act(each, work)
    assert work.state is state
    if (state, event) in TX_STATES.moves:
        act(event, work)
        assert work.state is TX_STATES.moves[state, event]
    else:
        with pytest.raises(Bug, match=event.words):
            act(event, work)


def test_a_commit_is_one_append_and_releases_what_was_held() -> None:
    stage = Stage()
    queue, segment = taken(stage, 3)
    store, before = stage.broker.store, len(stage.appends)
    work = Transaction(store)
    work.retire(queue, segment, Accepted())
    for body in ("a", "b"):
        work.post("invoices", message(body))
    assert work.size_bytes > 0
    assert store.memory.held_bytes > work.size_bytes
    held = store.memory.held_bytes - segment.run.held_bytes
    assert work.commit(work.prepare(BROKER))
    assert (work.size_bytes, work.parts_count) == (0, 0)
    store.decisions.wait(lambda: None)
    stage.step()
    assert len(stage.appends) == before + 1
    stage.sync()
    stage.run()
    assert store.queues["invoices"].ready_count == 2
    assert store.queues["orders"].message_count == 0
    assert store.memory.held_bytes == held


def test_what_is_not_durable_needs_no_disk() -> None:
    stage = Stage()
    stage.broker.store.address_for("orders", BROKER)
    stage.run()
    work = Transaction(stage.broker.store)
    work.post("orders", message(durable=False))
    assert not work.commit(work.prepare(BROKER))
    assert stage.broker.store.queues["orders"].ready_count == 1


@pytest.mark.parametrize("end", [Transaction.roll_back, lambda work: work.fail(FAILURE)], ids=["roll back", "fail"])
def test_a_rollback_drops_and_returns(end: object) -> None:
    stage = Stage()
    queue, segment = taken(stage, 2)
    work = Transaction(stage.broker.store)
    held = stage.broker.store.memory.held_bytes
    work.retire(queue, segment, Accepted())
    work.post("orders", message())
    assert callable(end)
    end(work)
    assert queue.backlog.head == replaced(segment, deliveries=1)
    assert queue.message_count == 2
    assert stage.broker.store.memory.held_bytes == held
    assert (list(work.in_delivery()), work.size_bytes) == ([], 0)


OUTCOMES = {
    "accepted": (Accepted(), 0, 0),
    "without a word": (None, 0, 0),
    "rejected": (Rejected(), 0, 0),
    "released": (Released(), 1, 0),
    "modified": (Modified(delivery_failed=True), 1, 1),
    "modified, not failed": (Modified(), 1, 0),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_outcomes_happen_by_the_commit(name: str) -> None:
    outcome, left, deliveries = OUTCOMES[name]
    stage = Stage()
    queue, segment = taken(stage, 1)
    work = Transaction(stage.broker.store)
    work.retire(queue, segment, outcome)
    assert list(work.in_delivery()) == [(queue, segment)]
    assert queue.message_count == 1
    assert work.rejected_count == int(isinstance(outcome, Rejected))
    assert work.commit({}) is (left == 0)
    stage.broker.store.decisions.wait(lambda: None)
    stage.broker.store.journal.declare(99, encode_attributes({"name": "x", "address": "x"}))
    stage.step()
    stage.sync()
    assert queue.message_count == left
    assert [each.deliveries for each in queue.segments()] == [deliveries] * left


def test_neighbours_are_one_part() -> None:
    stage = Stage()
    queue, segment = taken(stage, 4)
    work = Transaction(stage.broker.store)
    for index in range(4):
        work.retire(queue, replaced(segment, start=segment.start + index, n=1), Accepted())
    assert work.parts_count == 1
    work.retire(queue, segment, Released())
    assert work.parts_count == 2


@pytest.mark.option("limits.transaction-max-size-bytes")
@pytest.mark.option("limits.transaction-parts-max")
def test_bytes_and_parts_are_bounded() -> None:
    stage = Stage(options_with(limits={"transaction_max_size_bytes": 100, "transaction_parts_max": 2}))
    work = Transaction(stage.broker.store)
    work.check(100)
    with pytest.raises(Refused, match="transaction-max-size-bytes"):
        work.check(101)
    work.post("orders", message())
    work.check()
    with pytest.raises(Refused, match=r"over 2 parts.*transaction-parts-max"):
        work.check(more_parts=1)


def test_a_full_memory_takes_in_nothing_more_and_still_commits() -> None:
    stage = Stage(options_with(limits={"global_max_size_bytes": 10}))
    work = Transaction(stage.broker.store)
    work.check(1)
    work.post("orders", message())
    with pytest.raises(Refused, match="global-max-size"):
        work.check(1)
    work.check()
    assert work.commit(work.prepare(BROKER))


def test_prepare_says_what_cannot_be_reached() -> None:
    stage = Stage(options_with(address_settings={"closed": {"auto_create_queues": False}}))
    work = Transaction(stage.broker.store)
    work.post("orders", message())
    work.post("closed", message())
    with pytest.raises(Refused, match="closed"):
        work.prepare(BROKER)
    work.roll_back()
    assert stage.broker.store.memory.held_bytes == 0
