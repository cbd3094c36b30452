"""A consumer or browser that wants nothing of very much: a step looks at as many messages as others can wait for."""

from __future__ import annotations

import pytest
from mqbroker.node.values import inputs as given
from mqbroker.wire.performatives import Attach, Source, Target
from mqbroker.wire.run import single
from mqbroker.wire.sections import build_message
from mqbroker.wire.types import Described, Symbol

from tests.support import frames
from tests.support.bytecodes import Bytecodes
from tests.support.stage import Stage
from tests.unit.core.address.test_purged_messages import STEP_BYTECODES
from tests.unit.core.queue.test_memory import run_of
from tests.unit.node.test_bystander_work import GO

COUNT = 2000
NOTHING = {Symbol("s"): Described(Symbol("apache.org:selector-filter:string"), "x = 1")}


def wanting_nothing(mode: str) -> bytes:
    source = Source(address="orders", filter=NOTHING, distribution_mode=Symbol(mode))
    attach = Attach(name="r", handle=0, role=True, source=source, target=Target())
    return frames.frame(attach) + frames.flow(0, 10)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["move", "copy"])
@pytest.mark.parametrize("is_run", [True, False])
def test_a_step_looks_at_a_piece_of_what_is_there(mode: str, is_run: bool) -> None:
    stage = Stage()
    stage.admin("queue-create", name="orders")
    store = stage.broker.store
    for run in (run_of(COUNT, 10),) if is_run else (single(build_message(b"x")) for _ in range(COUNT)):
        store.publish(store.addresses["orders"], run)
    stage.step()
    conn = stage.accept()
    stage.talk(conn, GO)
    stage.give(given.BytesReceived(conn, wanting_nothing(mode)))
    stage.turn()
    stage.sync()
    steps, more = 0, True
    while more:
        counted = Bytecodes()
        more = counted.of(stage.turn).more
        assert counted.count < STEP_BYTECODES
        steps += 1
    assert steps >= COUNT // 500
    assert store.queues["orders"].ready_count == COUNT
    assert stage.broker.counters.delivered == 0, "to look at a message is not to deliver it"


@pytest.mark.parametrize("mode", ["move", "copy"])
def test_what_is_handed_out_of_what_is_looked_at_is_counted(mode: str) -> None:
    stage = Stage()
    stage.admin("queue-create", name="orders")
    store = stage.broker.store
    for number in range(20):
        message = build_message(b"x", application_properties={"x": number % 5})
        store.publish(store.addresses["orders"], single(message))
    stage.step()
    conn = stage.accept()
    stage.talk(conn, GO)
    stage.give(given.BytesReceived(conn, wanting_nothing(mode)))
    stage.turn()
    stage.sync()
    while stage.turn().more:
        pass
    assert stage.broker.counters.delivered == 4
