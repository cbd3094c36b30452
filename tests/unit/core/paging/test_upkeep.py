"""Upkeep looks at what it is about, however much else there is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.paging.upkeep import live_of_ids
from mqbroker.core.queue import memory
from mqbroker.core.queue.backlog import Segment
from mqbroker.core.queue.queue import Queue
from mqbroker.wire.run import single
from mqbroker.wire.sections import Header, build_message

from tests.support.stage import Stage
from tests.unit.core.queue.test_memory import run_of

OTHERS = 3000
QUEUES = 300


def filled(queues: int, messages: int) -> Stage:
    """A node with so many messages in each of these queues, all unlike, and two runs in `sparse` that come first."""
    stage = Stage()
    store = stage.broker.store
    for run in (run_of(100, 500), run_of(100, 500)):
        store.publish(store.address_for("sparse", BROKER), run)
    for number in range(queues):
        address = store.address_for(f"queue.{number}", BROKER)
        for _ in range(messages):
            store.publish(address, single(build_message(b"y" * 50, durable=True)))
    stage.step()
    stage.run()
    return stage


@pytest.mark.parametrize(("queues", "messages"), [(1, OTHERS), (QUEUES, 1)])
def test_a_sweep_looks_at_none_but_its_runs_and_keeps_what_is_live(
    monkeypatch: pytest.MonkeyPatch, queues: int, messages: int
) -> None:
    monkeypatch.setattr(memory, "SWEEP_MIN_BYTES", 10_000)
    stage = filled(queues, messages)
    looked: list[int] = []

    def counted(self: Queue, first_id: int, end_id: int) -> Iterator[tuple[Segment, int]]:
        for found in segments_of(self, first_id, end_id):
            looked.append(found[0].n)
            yield found

    segments_of = Queue.segments_of
    monkeypatch.setattr(Queue, "segments_of", counted)
    store = stage.broker.store
    queue = store.queues["sparse"]
    kept = queue.backlog.head.run
    bodies = [bytes(kept.payload(index)) for index in range(90, 100)]
    before = store.memory.held_bytes
    store.settle(queue, queue.take(90))
    stage.step()
    assert store.memory.held_bytes < before - 20_000
    assert [bytes(kept.payload(index)) for index in range(90, 100)] == bodies
    assert len(looked) <= 2
    assert store.memory.unused_bytes == 0


@pytest.mark.slow
def test_queues_without_any_of_the_ids_are_passed_by() -> None:
    stage = filled(QUEUES, 1)
    store = stage.broker.store
    ids = [queue.backlog.head.first_id for queue in store.queues.values()]
    for queue, first_id in zip(store.queues.values(), ids, strict=True):
        others = [each for each in store.queues.values() if each.has_any_of(first_id, first_id + 1)]
        assert others == [queue]
    assert {one.queue for one in live_of_ids(store, [(1, 10_000)])} == set(store.queues.values())


def test_several_priorities_are_all_looked_at() -> None:
    stage = Stage()
    store = stage.broker.store
    address = store.address_for("orders", BROKER)
    for priority in (9, 4, 4, 0, 9):
        store.publish(address, single(build_message(b"x", header=Header(priority=priority, durable=True))))
    stage.step()
    stage.run()
    queue = store.queues["orders"]
    first = min(segment.first_id for segment in queue.backlog)
    for number in range(5):
        found = [segment.first_id for segment, _ in queue.segments_of(first + number, first + number + 1)]
        assert found == [first + number]
