"""Each outcome of each kind of delivery: where the message is afterwards, and whether the answer waits."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.core.store.outcomes import apply_outcome, cause_of, is_final
from mqbroker.wire.performatives import Accepted, Error, Modified, Rejected, Released
from mqbroker.wire.types import Symbol

from tests.support.stage import Stage

# outcome: whether the message leaves its queue, deliveries that it has if it stays
ROWS: list[tuple[Any, bool, int]] = [
    (None, True, 0),
    (Accepted(), True, 0),
    (Rejected(), True, 0),
    (Released(), False, 0),
    (Modified(), False, 0),
    (Modified(delivery_failed=True), False, 1),
    (Modified(undeliverable_here=True), False, 0),
]


@pytest.mark.parametrize("is_durable", [True, False])
@pytest.mark.parametrize(("outcome", "leaves", "deliveries"), ROWS, ids=[repr(row[0]) for row in ROWS])
def test_every_outcome(outcome: Any, leaves: bool, deliveries: int, is_durable: bool) -> None:
    stage = Stage()
    stage.admin("send", address="orders", messages=[{"body": "m", "durable": is_durable}])
    store = stage.broker.store
    queue = store.queues["orders"]
    segment = queue.take(1)
    assert is_final(outcome) is leaves
    assert apply_outcome(store, queue, segment, outcome) is (leaves and is_durable)
    assert queue in store.dirty
    assert [each.deliveries for each in queue.segments()] == ([] if leaves else [deliveries])
    assert queue.message_count == int(not leaves)


def test_the_cause_of_a_rejection_is_one_line() -> None:
    assert cause_of(Rejected()) == "rejected"
    assert cause_of(Rejected(error=Error(condition=Symbol("amqp:decode-error")))) == "rejected: amqp:decode-error"
    error = Error(condition=Symbol("amqp:decode-error"), description="no header")
    assert cause_of(Rejected(error=error)) == "rejected: amqp:decode-error no header"
