"""Very much that comes due at one moment: a piece of it in each step, and messages of others pass in between."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
from mqbroker.amqp import frame_costs
from mqbroker.base.time import NS_PER_MS
from mqbroker.core.address.overdue import LOOKS_PER_MS
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.queue.dispatch import DROPPED_MAX
from mqbroker.node.amqp.peers.turns import ALONE_WORK
from mqbroker.node.values import inputs as given
from mqbroker.node.values.timers import FIRED_MAX
from mqbroker.wire.composites import encode_composite
from mqbroker.wire.run import single
from mqbroker.wire.scan import MESSAGE_ANNOTATIONS
from mqbroker.wire.sections import Header, build_message, encode_section
from mqbroker.wire.values import Long, Symbol

from tests.support import frames
from tests.support.stage import Stage, options_with
from tests.unit.core.address.test_diverts import divert
from tests.unit.node.test_bystander_work import GO, Site
from tests.unit.node.test_flood_work import TURN_BYTECODES

COUNT = 1000
HOUR_MS = 3_600_000
TO_EXPIRY = {"orders": {"expiry_address": "expired"}}


def stage_with(said: dict[str, dict[str, str]] | None = None) -> Stage:
    stage = Stage(options_with(address_settings=said or {}))
    for name in ("orders", "expired"):
        stage.admin("queue-create", name=name)
    return stage


def publish(stage: Stage, payloads: list[bytes]) -> None:
    """None makes a run with its neighbour."""
    store = stage.broker.store
    for payload in payloads:
        store.publish(store.addresses["orders"], single(payload))
    stage.step()


def expiring(count: int, *, apart_ms: int = 0) -> list[bytes]:
    return [build_message(b"x", header=Header(ttl=HOUR_MS + number * apart_ms)) for number in range(count)]


def scheduled(count: int, due_ms: int) -> list[bytes]:
    head, whole = encode_composite(Header()), build_message(b"x")
    notes = encode_section(MESSAGE_ANNOTATIONS, {Symbol("x-opt-delivery-time"): Long(due_ms)})
    return [head + notes + whole[len(head) :]] * count


def counts(stage: Stage) -> tuple[int, int]:
    """What `orders` has, and what could be delivered of it."""
    queue = stage.broker.store.queues["orders"]
    return queue.message_count, queue.ready_count


@pytest.mark.parametrize("said", [{}, TO_EXPIRY])
def test_messages_that_expire_at_once_leave_piece_by_piece(said: dict[str, dict[str, str]]) -> None:
    stage = stage_with(said)
    publish(stage, expiring(COUNT))
    piece = ALONE_WORK // (frame_costs.MADE_ANEW if said else frame_costs.DROPPED) + 1
    stage.now_ns += HOUR_MS * NS_PER_MS
    left = COUNT
    while stage.turn().more:
        stage.sync()
        assert left - counts(stage)[0] <= piece
        left = counts(stage)[0]
    assert counts(stage) == (0, 0)
    assert stage.broker.store.queues["orders"].expired_total == COUNT
    assert stage.broker.store.queues["expired"].message_count == (COUNT if said else 0)
    assert not stage.broker.store.overdue.is_due


def test_few_leave_in_a_piece_where_diverts_make_many_copies_of_each() -> None:
    ways = [divert(f"{one}-{other}", one, other) for one, other in permutations(("expired", "b", "c"), 2)]
    stage = Stage(replace(options_with(address_settings=TO_EXPIRY), diverts=tuple(ways)))
    for name in ("orders", "expired", "b", "c"):
        stage.admin("queue-create", name=name)
    each = frame_costs.MADE_ANEW + frame_costs.FOLLOWED * stage.broker.store.diverts.copies_of("expired")
    assert each > 2 * frame_costs.MADE_ANEW
    publish(stage, expiring(COUNT // 4))
    stage.now_ns += HOUR_MS * NS_PER_MS
    left = COUNT // 4
    while stage.turn().more:
        stage.sync()
        assert left - counts(stage)[0] <= ALONE_WORK // each + 1
        left = counts(stage)[0]
    assert counts(stage) == (0, 0)
    assert stage.broker.store.queues["b"].message_count > COUNT // 4


def test_one_that_expires_leaves_at_its_time() -> None:
    stage = stage_with(TO_EXPIRY)
    publish(stage, expiring(1))
    stage.wait(HOUR_MS - 1)
    assert counts(stage) == (1, 1)
    stage.wait(1)
    assert counts(stage) == (0, 0)


@pytest.mark.slow
def test_a_queue_in_which_something_expires_again_and_again_is_not_looked_through_each_time() -> None:
    stage = stage_with()
    publish(stage, expiring(COUNT, apart_ms=1))
    queue = stage.broker.store.queues["orders"]
    stage.wait(HOUR_MS - 1)
    looks, before = 0, 0
    for _ in range(COUNT):
        stage.wait(1)
        looks += max(queue.vain_looks - before, 0)
        before = queue.vain_looks
    assert looks <= COUNT * LOOKS_PER_MS + COUNT
    stage.wait(COUNT // LOOKS_PER_MS)
    assert counts(stage) == (0, 0)


def test_who_looked_in_vain_rests_for_as_long_as_that_took() -> None:
    """One expires, and those behind it are looked at for nothing."""
    stage = stage_with()
    publish(stage, [*expiring(1), *(build_message(b"x", header=Header(ttl=2 * HOUR_MS)) for _ in range(COUNT))])
    stage.wait(HOUR_MS)
    queue = stage.broker.store.queues["orders"]
    assert (queue.message_count, queue.vain_looks) == (COUNT, COUNT)
    assert queue.rested_ms == stage.at.wall_ms + COUNT // LOOKS_PER_MS


def test_scheduled_messages_whose_time_comes_at_once_come_piece_by_piece() -> None:
    stage = stage_with()
    publish(stage, scheduled(COUNT, stage.at.wall_ms + HOUR_MS))
    assert counts(stage) == (COUNT, 0)
    stage.now_ns += HOUR_MS * NS_PER_MS
    came = 0
    while stage.turn().more:
        assert counts(stage)[1] - came <= ALONE_WORK // frame_costs.SCHEDULED + 1
        came = counts(stage)[1]
    assert counts(stage) == (COUNT, COUNT)


@pytest.mark.parametrize("payloads", [expiring(COUNT), scheduled(COUNT, 1_700_000_000_000 + HOUR_MS)])
def test_a_bystander_waits_for_a_piece_of_it(payloads: list[bytes]) -> None:
    site = Site()
    stage = site.stage
    alone = site.work_of_message(is_answered=True)
    stage.admin("queue-create", name="orders")
    publish(stage, payloads)
    stage.now_ns += HOUR_MS * NS_PER_MS
    stage.broker.peers[site.bystander].due_ns = 0  # it has said nothing for an hour
    stage.turn()
    for _ in range(4):
        assert stage.broker.store.overdue.is_due
        assert site.work_of_message(is_answered=True) <= alone + TURN_BYTECODES


def test_what_is_in_the_way_of_a_consumer_is_dropped_piece_by_piece() -> None:
    stage = stage_with()
    publish(stage, [*expiring(COUNT), build_message(b"lasts")])
    conn = stage.accept()
    stage.talk(conn, GO + frames.receiver("orders"))
    stage.now_ns += HOUR_MS * NS_PER_MS
    stage.broker.timers.add(stage.broker.peers[conn])
    stage.broker.peers[conn].due_ns = 0
    stage.give(given.BytesReceived(conn, frames.flow(1, 10)))
    left = COUNT + 1
    while stage.turn().more:
        most = DROPPED_MAX + ALONE_WORK // frame_costs.DROPPED + 1
        assert left - counts(stage)[0] <= most
        left = counts(stage)[0]
    assert counts(stage) == (1, 0)
    assert stage.broker.store.queues["orders"].delivering_count == 1


def test_deadlines_of_one_moment_fire_a_few_in_a_step() -> None:
    stage = Stage()
    for number in range(3 * FIRED_MAX):
        stage.broker.store.make_address(f"topic.{number}", BROKER)
    stage.step()
    before = len(stage.broker.store.addresses)
    for address in stage.broker.store.addresses.values():
        address.was_bound = True
    stage.now_ns += HOUR_MS * NS_PER_MS
    steps = 0
    while stage.turn().more:
        steps += 1
        assert before - len(stage.broker.store.addresses) <= FIRED_MAX * (steps + 1)
    assert steps >= 2
    assert not stage.broker.store.addresses


@pytest.mark.parametrize("expiry_address", ["expired", "", "orders"])
def test_messages_that_expire_as_their_queue_goes_are_moved_before(expiry_address: str) -> None:
    """The queue is idle for as long as they may live. Where they have to stay, it stays with them."""
    stage = Stage(options_with(address_settings={"orders": {"expiry_address": expiry_address}}))
    stage.admin("queue-create", name="expired")
    store = stage.broker.store
    conn = stage.accept()
    stage.talk(conn, GO + frames.receiver("orders"))
    stage.give(given.Closed(conn, "lost"))
    stage.step()
    queue = store.queues["orders"]
    left_ms = queue.idle_until_ms - stage.at.wall_ms
    publish(stage, [build_message(b"x", durable=True, header=Header(durable=True, ttl=left_ms))] * 3)
    stage.run()
    stage.wait(left_ms)
    stage.run()
    held = sum(each.message_count for each in store.queues.values())
    assert held == (3 if expiry_address else 0)
    assert ("orders" in store.queues) is (expiry_address == "orders")
    assert (store.memory.held_bytes > 0) is (held > 0)
    stage.crash()
    stage.start()
    assert sum(each.message_count for each in stage.broker.store.queues.values()) == held


def test_each_piece_is_moved_before_the_next_one() -> None:
    stage = stage_with(TO_EXPIRY)
    publish(stage, expiring(COUNT))
    expired = stage.broker.store.queues["expired"]
    stage.now_ns += HOUR_MS * NS_PER_MS
    while stage.turn().more:
        assert counts(stage)[0] + expired.message_count == COUNT
        stage.sync()
    assert expired.message_count == COUNT


@pytest.mark.parametrize("said", [{}, TO_EXPIRY])
def test_a_queue_that_is_deleted_between_two_pieces_goes_with_the_rest(said: dict[str, dict[str, str]]) -> None:
    """And one of the same name begins with nothing."""
    stage = stage_with(said)
    store = stage.broker.store
    publish(stage, expiring(COUNT))
    stage.now_ns += HOUR_MS * NS_PER_MS
    stage.turn()
    stage.sync()
    assert store.overdue.is_due
    moved = store.queues["expired"].message_count
    queue = store.queues["orders"]
    store.delete_queue(queue, BROKER)
    stage.admin("queue-create", name="orders")
    publish(stage, [build_message(b"y")])
    stage.run()
    assert counts(stage) == (1, 1)
    assert queue not in store.dirty
    assert not store.overdue.is_due
    assert store.queues["expired"].message_count <= moved + len(said) * ALONE_WORK
    stage.crash()
    stage.start()
    assert stage.broker.store.queues["orders"].message_count == 0


def test_those_that_have_long_work_take_turns() -> None:
    """What a deleted queue held is given back beside what expires, whichever came first."""
    stage = stage_with(TO_EXPIRY)
    store = stage.broker.store
    stage.admin("queue-create", name="other")
    publish(stage, expiring(COUNT))
    for _ in range(4 * COUNT):
        store.publish(store.addresses["other"], single(build_message(b"x")))
    stage.step()
    store.delete_queue(store.queues["other"], BROKER)
    stage.now_ns += HOUR_MS * NS_PER_MS
    is_given_back_first, turns = False, 0
    while store.overdue.is_due or store.remains.is_due or not turns:
        stage.turn()
        stage.sync()
        turns += 1
        is_given_back_first |= store.overdue.is_due and not store.remains.is_due
    assert is_given_back_first, "the shorter work does not wait for the longer one"
    assert counts(stage) == (0, 0)


def test_a_queue_that_was_to_go_after_its_messages_and_is_deleted_before_goes_once() -> None:
    stage = Stage(options_with())
    conn = stage.accept()
    stage.talk(conn, GO + frames.receiver("orders"))
    stage.drop_bare(conn)
    store = stage.broker.store
    queue = store.queues["orders"]
    left_ms = queue.idle_until_ms - stage.at.wall_ms
    publish(stage, [build_message(b"x", header=Header(ttl=left_ms))] * COUNT)
    stage.now_ns += left_ms * NS_PER_MS
    stage.turn()
    assert store.overdue.is_due
    store.delete_queue(queue, BROKER)
    stage.sync()
    while stage.turn().more:
        stage.sync()
    assert not store.overdue.is_due
    assert store.memory.held_bytes == 0
