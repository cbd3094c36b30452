"""A queue with very many messages goes at once, and what they held is given back piece by piece."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from mqbroker.amqp import frame_costs
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.address.purged_messages import AT_ONCE
from mqbroker.core.paging.upkeep import live_of_ids
from mqbroker.core.queue import memory
from mqbroker.core.queue.leaving_reasons import DELETED, PURGED
from mqbroker.node.amqp.peers.turns import ALONE_WORK
from mqbroker.node.values.inputs import AdminRequest, BytesReceived
from mqbroker.wire.composites import encode_composite
from mqbroker.wire.performatives import Accepted, Disposition
from mqbroker.wire.run import single
from mqbroker.wire.scan import MESSAGE_ANNOTATIONS
from mqbroker.wire.sections import Header, build_message, encode_section
from mqbroker.wire.values import Symbol

from tests.support import frames
from tests.support.bytecodes import Bytecodes
from tests.support.stage import Stage, options_with
from tests.unit.core.queue.test_memory import run_of
from tests.unit.node.test_bystander_work import GO

COUNT = 5000
BODY = b"\x00\x53\x75\xa0\x01y"
BOUNDED = {"max_size_messages": 10 * COUNT}
STEP_BYTECODES = ALONE_WORK * 150


def filled(count: int = COUNT, settings: Mapping[str, Any] = BOUNDED) -> Stage:
    stage = Stage(options_with(address_settings={"orders": settings}))
    store = stage.broker.store
    address = store.address_for("orders", BROKER)
    for _ in range(count):
        store.publish(address, single(build_message(b"x", durable=True)))
    stage.step()
    stage.run()
    return stage


@pytest.mark.slow
def test_a_deleted_queue_gives_back_what_it_held_piece_by_piece() -> None:
    stage = filled()
    stage.admin("queue-create", name="other", address="orders")
    store = stage.broker.store
    meter = store.addresses["orders"].meter
    assert meter is not None
    held_bytes = store.memory.held_bytes
    stage.give(AdminRequest(9999, 1, "queue-delete", {"name": "orders"}))
    left, steps = COUNT, 0
    while True:
        counted = Bytecodes()
        batch = counted.of(stage.turn)
        assert counted.count < STEP_BYTECODES
        assert "orders" not in store.queues
        assert left - meter.count <= ALONE_WORK + AT_ONCE
        left, steps = meter.count, steps + 1
        assert store.memory.held_bytes == held_bytes * left // COUNT
        if not store.remains.is_due:
            break
        assert batch.more is store.decisions.is_idle
        stage.sync()
    assert steps > COUNT // (ALONE_WORK + AT_ONCE)
    assert (meter.count, meter.size_bytes, store.memory.held_bytes) == (0, 0, 0)
    stage.run()
    assert stage.replies[9999].result == {"name": "orders", "messages": COUNT}


def test_a_queue_of_the_same_name_is_another_one() -> None:
    stage = filled()
    store = stage.broker.store
    stage.give(AdminRequest(9999, 1, "queue-delete", {"name": "orders"}))
    stage.turn()
    assert store.remains.is_due
    store.publish(store.address_for("orders", BROKER), single(build_message(b"y", durable=True)))
    stage.step()
    stage.run()
    assert store.queues["orders"].message_count == 1
    assert not store.remains.is_due
    stage.crash()
    stage.start()
    assert stage.broker.store.queues["orders"].message_count == 1


@pytest.mark.slow
@pytest.mark.parametrize("bound", [{"max_size_messages": COUNT}, {"max_size_bytes": 1000}])
@pytest.mark.parametrize("policy", ["FAIL", "DROP", "BLOCK"])
def test_an_address_whose_last_queue_is_deleted_has_room_at_once(bound: dict[str, int], policy: str) -> None:
    """However long it takes to give back what the queue held."""
    stage = filled(settings={**bound, "address_full_policy": policy, "auto_delete_addresses": False})
    store = stage.broker.store
    meter = store.addresses["orders"].meter
    assert meter is not None
    assert meter.is_full
    stage.give(AdminRequest(9999, 1, "queue-delete", {"name": "orders"}))
    stage.turn()
    assert store.remains.is_due
    assert (meter.count, meter.size_bytes, meter.is_full) == (0, 0, False)
    store.publish(store.address_for("orders", BROKER), single(build_message(b"y", durable=True)))
    stage.step()
    stage.run()
    assert not store.remains.is_due
    assert store.addresses["orders"].meter is meter
    assert (meter.count, meter.size_bytes) == (1, store.memory.held_bytes)
    store.delete_queue(store.queues["orders"], BROKER)
    assert (meter.count, meter.size_bytes) == (0, 0)


@pytest.mark.slow
def test_a_sweep_leaves_alone_what_a_deleted_queue_has_not_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "SWEEP_MIN_BYTES", 1000)
    stage = filled()
    # Another one, which takes none of them: else all of the room is there at once.
    stage.admin("queue-create", name="other", address="orders", routing_type="multicast", selector="color = 'red'")
    store = stage.broker.store
    queue = store.queues["orders"]
    store.publish(store.addresses["orders"], run_of(100, 200))
    stage.step()
    last = list(queue.backlog)[-1]
    assert last.n == 100
    store.settle(queue, queue.take_at(last.rank, 95))
    meter = store.addresses["orders"].meter
    assert meter is not None
    stage.give(AdminRequest(9999, 1, "queue-delete", {"name": "orders"}))
    stage.turn()
    assert store.remains.is_due
    stage.run()
    assert (meter.count, meter.size_bytes, store.memory.held_bytes) == (0, 0, 0)


def test_small_queues_are_given_back_at_once() -> None:
    stage = filled(AT_ONCE)
    store = stage.broker.store
    store.delete_queue(store.queues["orders"], BROKER)
    assert store.memory.held_bytes == 0
    assert not store.remains.is_due


def steps_until_done(stage: Stage) -> int:
    """Each within the bound; how many."""
    steps = 0
    while stage.broker.store.remains.is_due:
        counted = Bytecodes()
        counted.of(stage.turn)
        assert counted.count < STEP_BYTECODES
        stage.sync()
        steps += 1
    return steps


@pytest.mark.slow
def test_what_is_purged_is_nobodys_at_once_and_is_settled_piece_by_piece() -> None:
    stage = filled()
    store, queue = stage.broker.store, stage.broker.store.queues["orders"]
    assert store.purge(queue) == COUNT
    assert (queue.message_count, queue.ready_count) == (0, 0)
    assert store.remains.is_due
    store.publish(store.addresses["orders"], single(build_message(b"y", durable=True)))
    assert steps_until_done(stage) >= COUNT * frame_costs.PURGED // (ALONE_WORK + AT_ONCE)
    stage.run()
    assert (queue.message_count, queue.ready_count, queue.delivering_count) == (1, 1, 0)
    assert store.dead_letters.left_totals[PURGED] == COUNT
    assert store.addresses["orders"].meter is not None
    assert store.addresses["orders"].meter.count == 1
    stage.crash()
    stage.start()
    assert stage.broker.store.queues["orders"].message_count == 1


@pytest.mark.slow
def test_what_is_purged_of_a_queue_that_is_deleted_meanwhile_is_given_back_once() -> None:
    stage = filled()
    store, queue = stage.broker.store, stage.broker.store.queues["orders"]
    meter = queue.meter
    assert meter is not None
    store.purge(queue)
    assert store.delete_queue(queue, BROKER) == 0
    steps_until_done(stage)
    stage.run()
    assert (meter.count, meter.size_bytes, store.memory.held_bytes) == (0, 0, 0)
    assert (store.dead_letters.left_totals[PURGED], store.dead_letters.left_totals[DELETED]) == (COUNT, 0)
    stage.crash()
    stage.start()
    assert "orders" not in stage.broker.store.queues


@pytest.mark.slow
def test_a_stop_ends_what_is_being_purged() -> None:
    stage = filled()
    stage.broker.store.purge(stage.broker.store.queues["orders"])
    stage.stop()
    assert stage.halted == 0
    stage.crash()
    stage.start()
    assert stage.broker.store.queues["orders"].message_count == 0


@pytest.mark.slow
def test_compaction_keeps_what_is_purged_and_not_settled_so_far() -> None:
    stage = filled()
    queue = stage.broker.store.queues["orders"]
    last = list(queue.backlog)[-1].first_id
    stage.broker.store.purge(queue)
    assert [one.segment.first_id for one in live_of_ids(stage.broker.store, [(last, 1)])] == [last]
    stage.step()
    stage.run()
    assert not list(live_of_ids(stage.broker.store, [(last, 1)]))


def test_the_last_consumer_of_a_queue_that_is_purged_then_holds_nobody_up() -> None:
    stage = Stage()
    stage.admin("queue-create", name="orders", purge_on_no_consumers=True)
    conn = stage.accept()
    stage.talk(conn, GO + frames.receiver("orders", handle=0))
    store = stage.broker.store
    for _ in range(COUNT):
        store.publish(store.addresses["orders"], single(build_message(b"x")))
    stage.step()
    stage.give(BytesReceived(conn, frames.detach(0)))
    stage.turn()
    assert store.remains.is_due
    assert store.queues["orders"].message_count == 0
    stage.talk(conn, frames.receiver("orders", handle=0, credit=10))
    steps_until_done(stage)
    assert store.dead_letters.left_totals[PURGED] == COUNT
    assert store.queues["orders"].message_count == 0


def test_what_waits_for_the_disk_or_for_its_time_is_given_back_as_well() -> None:
    stage = filled(1)
    stage.admin("queue-create", name="other", address="orders", routing_type="multicast", selector="color = 'red'")
    store = stage.broker.store
    address, queue = store.addresses["orders"], store.queues["orders"]
    meter = address.meter
    assert meter is not None
    store.give_back(queue, queue.take(1), was_delivered=False)
    later = encode_composite(Header(durable=True)) + encode_section(
        MESSAGE_ANNOTATIONS, {Symbol("x-opt-delivery-delay"): 5000}
    )
    for payload in (later + BODY, build_message(b"x", durable=True)):
        store.publish(address, single(payload))
        if payload.endswith(BODY):
            stage.step()
            stage.run()
    assert (queue.ready_count, queue.scheduled_count, queue.waiting_count) == (1, 1, 1)
    store.delete_queue(queue, BROKER)
    assert (meter.count, meter.size_bytes, store.memory.held_bytes) == (0, 0, 0)
    stage.run()
    assert not store.dirty


def purged_while_waiting() -> Stage:
    """A queue with one message on the disk and two on their way there, which is purged."""
    stage = filled(1)
    store = stage.broker.store
    for _ in range(2):  # which no step has handed to the disk so far
        store.publish(store.addresses["orders"], single(build_message(b"w", durable=True)))
    queue = store.queues["orders"]
    assert (queue.ready_count, queue.waiting_count) == (1, 2)
    assert store.purge(queue) == 3
    return stage


def test_what_waits_for_the_disk_is_purged_at_once() -> None:
    stage = purged_while_waiting()
    store, queue = stage.broker.store, stage.broker.store.queues["orders"]
    assert (queue.message_count, queue.waiting_count, queue.added_total) == (0, 0, 3)
    assert store.dead_letters.left_totals[PURGED] == 3
    assert store.memory.held_bytes == 0
    stage.step()
    stage.run()
    assert (queue.message_count, queue.ready_count, queue.delivering_count) == (0, 0, 0)
    stage.crash()
    stage.start()
    assert stage.broker.store.queues["orders"].message_count == 0


@pytest.mark.parametrize("is_behind_the_same_append", [False, True])
def test_what_comes_after_a_purge_waits_for_its_own_append(*, is_behind_the_same_append: bool) -> None:
    """As many appends are still awaited as there were messages that waited."""
    stage = purged_while_waiting()
    store, queue = stage.broker.store, stage.broker.store.queues["orders"]
    if not is_behind_the_same_append:
        stage.turn()
    store.publish(store.addresses["orders"], single(build_message(b"y", durable=True)))
    store.publish(store.addresses["orders"], single(build_message(b"z")))
    assert (queue.waiting_count, queue.ready_count) == (2, 0)
    stage.turn()
    later = stage.pending.pop()
    stage.sync()
    stage.turn()
    assert (queue.waiting_count, queue.ready_count) == (2, 0)
    stage.pending.append(later)
    stage.run()
    assert (queue.waiting_count, queue.ready_count, queue.freed_waits) == (0, 2, 0)


def test_what_comes_in_the_step_of_the_last_detach_is_purged_and_its_sender_is_told_that_it_arrived() -> None:
    stage = Stage()
    stage.admin("queue-create", name="orders", purge_on_no_consumers=True)
    consumer, producer = stage.accept(), stage.accept()
    stage.talk(consumer, GO + frames.receiver("orders", handle=0))
    stage.talk(producer, GO + frames.sender("orders"))
    stage.is_disk_held = True
    stage.talk(producer, frames.transfer(0, durable=True))
    queue = stage.broker.store.queues["orders"]
    assert queue.waiting_count == 1
    stage.talk(consumer, frames.detach(0))
    assert (queue.message_count, queue.waiting_count) == (0, 0)
    stage.is_disk_held = False
    heard = len(stage.sent[producer])
    stage.run()
    assert (queue.message_count, queue.delivering_count) == (0, 0)
    assert frames.of_kind(bytes(stage.sent[producer][heard:]), Disposition)[0].state == Accepted()
    assert stage.broker.store.dead_letters.left_totals[PURGED] == 1


def test_a_last_value_that_waited_and_was_purged_is_nobodys_past() -> None:
    stage = filled(0, {**BOUNDED, "default_last_value_key": "k"})
    store = stage.broker.store
    address = store.address_for("orders", BROKER)
    for number in range(2):
        store.publish(address, single(build_message(b"w", durable=True, application_properties={"k": "a"})))
        queue = store.queues["orders"]
        assert list(queue.coming_values) == ["a"]
        if not number:
            store.purge(queue)
            assert (queue.coming_values, queue.last_values) == ({}, {})
    stage.run()
    stage.step()
    stage.run()
    assert (queue.ready_count, list(queue.last_values), queue.coming_values) == (1, ["a"], {})
