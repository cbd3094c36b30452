"""The end of a transaction that holds very much: what a rollback gives back goes piece by piece, a commit has a step of
its own and a bound, and what comes behind either waits for it.

Counted in bytecodes, as in test_flood_work.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from mqbroker.amqp import frame_costs
from mqbroker.core.address.gathering import COUNT_MAX
from mqbroker.node.values import inputs as given
from mqbroker.wire.performatives import (
    Accepted,
    Declare,
    Declared,
    Discharge,
    Disposition,
    Rejected,
    TransactionalState,
    Transfer,
)
from mqbroker.wire.sections import build_message

from tests.support import frames, transactions
from tests.unit.node.test_deliveries_by_turns import GO, LAST, MANY, Loaded
from tests.unit.node.test_flood_work import TURN_BYTECODES, UNIT_BYTECODES

TXN = (1).to_bytes(8, "big")
CONTROL, TO = 7, 8  # handles
DISCHARGE = 1  # the delivery that asks for the end
FIRST_POST = 10
DEARER = 2


def retired(outcome: Any = None, *, settled: bool = True) -> bytes:
    """All that the consumer has becomes a part of the transaction."""
    state = TransactionalState(txn_id=TXN, outcome=outcome or Accepted())
    return frames.disposition(0, LAST, state, settled=settled)


def posted(count: int, *, is_alike: bool = False, first: int = FIRST_POST) -> bytes:
    """So many messages for `new`, in the transaction: every other one has its header section in other bytes."""
    state = TransactionalState(txn_id=TXN)
    usual = build_message(b"new", durable=True)
    payloads = usual, usual if is_alike else b"\x00\x53\x70\xc0\x04\x02\x41\x50\x04" + build_message(b"new")[4:]
    return b"".join(
        frames.frame(Transfer(handle=TO, delivery_id=first + number, delivery_tag=b"%d" % number, message_format=0,
                              settled=True, state=state), payloads[number % 2])
        for number in range(count)
    )  # fmt: skip


def discharge(*, fail: bool = False) -> bytes:
    """The end of the transaction is asked for."""
    return transactions.request(DISCHARGE, Discharge(txn_id=TXN, fail=fail), CONTROL)


class Transacting(Loaded):
    """A consumer with very many deliveries, and a transaction that is open."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        attach = frames.frame(replace(transactions.coordinator_attach(), handle=CONTROL))
        self.stage.talk(self.conn, attach + frames.sender("new", handle=TO))
        said = self.talk(transactions.request(0, Declare(), CONTROL))
        assert [each.state for each in said] == [Declared(txn_id=TXN)]

    def talk(self, data: bytes) -> list[Disposition]:
        """What is told the consumer of outcomes until nothing is left to be done."""
        return frames.of_kind(self.stage.talk(self.conn, data), Disposition)

    def steps_of(self, data: bytes) -> list[int]:
        """What the bystander's messages wait for from when the consumer says this (or is gone) until all is done."""
        steps = [self.work_of_message(self.said(data), is_answered=True)]
        while self.stage.broker.turns.is_due:
            steps.append(self.work_of_message(is_answered=True))
        return steps

    def counts(self) -> tuple[int, int, int]:
        """Messages in `orders`, of them in delivery, and in `new`."""
        queues = self.stage.broker.store.queues
        new = queues["new"].message_count if "new" in queues else 0
        return queues["orders"].message_count, queues["orders"].delivering_count, new


ENDS: dict[str, bytes] = {
    "rolled back": discharge(fail=True),
    "its link ends": frames.detach(CONTROL),
    "its session ends": frames.end(),
    "its connection ends": frames.close(),
    "its connection is lost": b"",
}


@pytest.mark.slow
@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("end", ENDS)
def test_a_rollback_costs_a_bystander_a_turn_of_it(end: str, settled: bool) -> None:
    site = Transacting()
    alone = site.work_of_message(is_answered=True)
    site.talk(retired(settled=settled) + posted(100))
    held = site.stage.broker.store.memory.held_bytes
    steps = site.steps_of(ENDS[end])
    assert max(steps[1:]) <= alone + 2 * TURN_BYTECODES
    assert steps[0] <= alone + 6 * TURN_BYTECODES, "who is gone has a bound of its own"
    assert len(steps) > 3, "it was divided"
    site.stage.run()
    dead = site.queues.get("dead", 0)
    assert dead or site.stage.broker.store.memory.held_bytes < held
    kept = MANY if not settled and end in ("rolled back", "its link ends") else 0
    assert dead == MANY - kept
    assert site.counts() == (MANY - dead, kept, 0)


def test_a_rollback_is_answered_after_all_of_it_and_what_comes_behind_waits() -> None:
    site = Transacting()
    site.talk(retired() + posted(100))
    before = len(site.stage.sent[site.conn])
    plain = frames.transfer(50, b"behind", handle=TO, durable=False, settled=True)
    site.stage.give(site.said(discharge(fail=True) + plain))
    seen = 0
    while site.stage.turn().more:
        answers = frames.of_kind(bytes(site.stage.sent[site.conn][before:]), Disposition)
        if site.counts()[1]:
            seen += 1
            assert not answers
            assert site.counts()[2] == 0, "what was sent behind it is not there yet"
    assert seen > 3
    site.stage.run()
    said = frames.of_kind(bytes(site.stage.sent[site.conn][before:]), Disposition)
    assert [(each.first, each.state) for each in said] == [(DISCHARGE, Accepted())]
    assert site.counts() == (0, 0, 1)
    assert site.queues["dead"] == MANY


@pytest.mark.slow
def test_one_that_may_hold_no_more_gives_all_back_by_turns_and_says_why_by_its_end() -> None:
    site = Transacting(limits={"transaction_parts_max": MANY + 50})
    alone = site.work_of_message(is_answered=True)
    site.talk(retired())
    assert site.counts() == (MANY, MANY, 0)
    steps = site.steps_of(posted(51))
    assert max(steps) <= alone + 2 * TURN_BYTECODES
    site.stage.run()
    assert site.queues["dead"] == MANY, "at the message that was too many"
    (answer,) = site.talk(discharge())
    assert isinstance(answer.state, Rejected)
    assert answer.state.error is not None
    assert answer.state.error.condition == "amqp:resource-limit-exceeded"
    assert "transaction-parts-max" in (answer.state.error.description or "")
    assert site.counts() == (0, 0, 0)


@pytest.mark.parametrize("outcome", [Accepted(), Rejected()])
def test_what_stays_unsettled_counts_as_well(outcome: Any) -> None:
    site = Transacting(limits={"transaction_parts_max": MANY // 2})
    site.talk(retired(outcome, settled=False))
    (answer,) = site.talk(discharge())
    assert isinstance(answer.state, Rejected)
    assert site.counts() == (MANY, MANY, 0), "and is the consumer's again"


def test_a_message_that_is_rejected_counts_by_itself_because_it_is_moved_by_itself() -> None:
    site = Transacting(run=100, limits={"transaction_parts_max": MANY // 2})
    site.talk(retired(Rejected()))
    (answer,) = site.talk(discharge())
    assert isinstance(answer.state, Rejected)
    other = Transacting(run=100, limits={"transaction_parts_max": MANY // 2})
    other.talk(retired())
    assert [each.state for each in other.talk(discharge())] == [Accepted()]
    assert other.counts() == (0, 0, 0)


def test_a_commit_is_one_step_that_grows_with_its_parts() -> None:
    site = Transacting(durable=True)
    alone = site.work_of_message(is_answered=True)
    site.talk(retired() + posted(100))
    steps = site.steps_of(discharge())
    others = sorted(steps)[:-1]
    assert max(others, default=alone) <= alone + 2 * TURN_BYTECODES
    parts = MANY + 100
    assert max(steps) <= alone + 2 * TURN_BYTECODES + parts * frame_costs.COMMITTED * UNIT_BYTECODES * DEARER
    assert site.counts() == (0, 0, 100)


@pytest.mark.slow
def test_messages_that_are_alike_are_few_parts_of_a_commit() -> None:
    site = Transacting(limits={"link_credit": 1_000_000})
    alone = site.work_of_message(is_answered=True)
    count, at_once = 8000, 400
    for first in range(0, count, at_once):
        site.talk(posted(at_once, is_alike=True, first=FIRST_POST + first))
    parts = -(-count // COUNT_MAX)
    steps = site.steps_of(discharge())
    assert max(steps) <= alone + 2 * TURN_BYTECODES + parts * frame_costs.COMMITTED * UNIT_BYTECODES * DEARER
    assert site.counts() == (MANY, MANY, count)


def test_no_step_has_the_commits_of_two() -> None:
    site = Transacting(durable=True)
    first, count = site.conn, 300
    site.talk(posted(count))
    site.conn = site.stage.accept()
    attach = frames.frame(replace(transactions.coordinator_attach(), handle=CONTROL))
    site.stage.talk(site.conn, GO + attach + frames.sender("new", handle=TO))
    assert [each.state for each in site.talk(transactions.request(0, Declare(), CONTROL))] == [Declared(txn_id=TXN)]
    site.talk(posted(count))
    for conn in (first, site.conn):
        site.stage.give(given.BytesReceived(conn, discharge()))
    seen, more = [site.counts()[2]], True
    while more:
        more = site.stage.turn().more
        seen.append(site.counts()[2])
    assert list(dict.fromkeys(seen)) == [0, count, 2 * count]


def test_a_message_behind_a_commit_comes_behind_what_it_brought() -> None:
    site = Transacting(durable=True)
    site.talk(retired() + posted(100))
    plain = frames.transfer(50, b"behind", handle=TO, durable=False, settled=True)
    site.talk(discharge() + plain)
    answer = site.stage.admin("receive", address="new", count_max=200, wait_ms=1)
    assert [each["body"] for each in answer["messages"]] == ["new"] * 100 + ["behind"]


@pytest.mark.parametrize("turns", range(4))
def test_a_crash_before_or_after_a_commit_had_its_turn_finds_all_or_nothing(turns: int) -> None:
    site = Transacting(durable=True)
    site.talk(retired() + posted(100))
    site.stage.give(site.said(discharge()))
    for _ in range(turns):
        site.stage.turn()
    site.stage.sync()
    is_there = site.stage.broker.store.queues["orders"].message_count == 0
    assert is_there or turns < 3
    site.stage.crash()
    site.stage.start()
    assert site.counts() == ((0, 0, 100) if is_there else (MANY, 0, 0))


@pytest.mark.parametrize("fail", [True, False])
def test_a_connection_that_is_lost_in_the_middle_leaves_all_or_nothing(fail: bool) -> None:
    site = Transacting()
    site.talk(retired() + posted(100))
    site.stage.give(site.said(discharge(fail=fail)))
    site.stage.turn()
    site.stage.give(given.Closed(site.conn, "reset"))
    site.stage.run()
    assert site.conn not in site.stage.broker.peers
    dead = site.queues.get("dead", 0)
    orders, delivering, new = site.counts()
    assert (orders, delivering) == (0, 0)
    assert (dead, new) in ([(MANY, 0)] if fail else [(MANY, 0), (0, 100)])
