"""A node that stops in order, in the middle of whatever it does: the next start knows that it was no crash."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.base.time import NS_PER_MS
from mqbroker.node.values import inputs as given
from mqbroker.node.values.node_states import NodeState
from mqbroker.wire.run import single
from mqbroker.wire.sections import Header, build_message

from tests.support import frames
from tests.support.stage import Stage, options_with
from tests.unit.node.test_bystander_work import GO

HOUR_MS = 3_600_000
COUNT = 1000
STEPS_MAX = 100
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
