"""A node that is given up: what waits for it is taken out as others can wait for, also where it came in long runs."""

from __future__ import annotations

import pytest
from mqbroker.node.broker.broker import DISPATCH_MAX, LOOK_COST
from mqbroker.node.cluster.forwarding.abandoned_messages import DEAD_LETTER, TAKEN_LOOKS, TAKEN_MAX, AbandonedConsumer
from mqbroker.wire.run import single
from mqbroker.wire.sections import build_message

from tests.support.stage import Stage, options_with
from tests.unit.core.queue.test_memory import run_of

COUNT = 1000


@pytest.mark.parametrize("is_run", [True, False])
def test_a_step_takes_as_many_as_others_can_wait_for(is_run: bool) -> None:
    stage = Stage(options_with(address_settings={"#": {"dead_letter_address": "letters"}}))
    for name in ("orders", "letters"):
        stage.admin("queue-create", name=name)
    store = stage.broker.store
    for run in (run_of(COUNT, 10),) if is_run else (single(build_message(b"x")) for _ in range(COUNT)):
        store.publish(store.addresses["orders"], run)
    stage.step()
    stage.run()
    left, queue = COUNT, store.queues["orders"]
    store.join(queue, AbandonedConsumer(store, DEAD_LETTER))
    while stage.turn().more or stage.pending:
        stage.sync()
        assert left - queue.message_count <= TAKEN_MAX
        left = queue.message_count
    assert (queue.message_count, store.queues["letters"].message_count) == (0, COUNT)


def test_who_takes_no_more_ends_the_deliveries_of_a_step() -> None:
    """Else a queue that it left half full would be looked at by nobody."""
    assert TAKEN_MAX * TAKEN_LOOKS * LOOK_COST >= DISPATCH_MAX
