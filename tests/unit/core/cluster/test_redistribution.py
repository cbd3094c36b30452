"""Moving messages to other nodes: what conversations do not show (tests/golden/conversations/cluster_redistr*)."""

from __future__ import annotations

import pytest
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.cluster.remote_binding import RemoteBinding
from mqbroker.core.queue.kinds import kind_of
from mqbroker.core.store.store import Store
from mqbroker.wire.run import single
from mqbroker.wire.sections import build_message

from tests.support.bytecodes import Bytecodes
from tests.support.stage import Stage, options_with
from tests.unit.core.address.test_purged_messages import STEP_BYTECODES
from tests.unit.core.queue.test_memory import run_of
from tests.unit.core.queue.test_queue import Taker
from tests.unit.core.store.test_store import restart, send, take

NODE = "n" * 36


def know(store: Store, *, consumers: int = 1) -> RemoteBinding:
    """Another node with such a queue."""
    binding = RemoteBinding("orders", "orders", "anycast", "", NODE, NODE, 1)
    for _ in range(consumers):
        binding.consumer_created("")
    store.remotes.connection("c").add(binding)
    return binding


def waiting(store: Store) -> int:
    """Messages on their way to the other node."""
    return sum(queue.message_count for queue in store.remotes.queues_of(NODE))


def make(**settings: int | str) -> Stage:
    return Stage(options_with(address_settings={"#": {"redistribution_delay": 0, **settings}}))


def go_on(stage: Stage) -> None:
    """Steps until nothing is left to do."""
    stage.step()
    stage.run()


@pytest.mark.option("address-settings.redistribution-delay")
@pytest.mark.parametrize(("delay", "moves"), [(-1, False), (0, True), (1_000, True)])
def test_messages_move_after_the_delay(delay: int, moves: bool) -> None:
    stage = Stage(options_with(address_settings={"#": {"redistribution_delay": delay}}))
    send(stage, 3)
    know(stage.broker.store)
    go_on(stage)
    stage.wait(max(delay, 1) - 1)
    assert waiting(stage.broker.store) == (3 if delay == 0 else 0)
    stage.wait(2)
    assert waiting(stage.broker.store) == (3 if moves else 0)
    assert stage.broker.store.redistribution.moved_total == (3 if moves else 0)


def test_a_copy_has_a_new_id_and_the_original_is_gone_after_a_crash() -> None:
    stage = make()
    send(stage, 2)
    first = next(stage.broker.store.queues["orders"].segments()).first_id
    know(stage.broker.store)
    go_on(stage)
    restart(stage)
    store = stage.broker.store
    assert store.queues["orders"].message_count == 0
    moved = [segment.first_id + index for queue in store.remotes.queues_of(NODE) for segment in queue.segments()
             for index in range(segment.n)]  # fmt: skip
    assert len(moved) == 2
    assert min(moved) > first + 1


@pytest.mark.slow
def test_many_messages_move_in_bounded_steps() -> None:
    stage = make()
    for _ in range(14):
        send(stage, 1000)
    know(stage.broker.store)
    moved = []
    while not moved or moved[-1] < 14_000:
        stage.step()
        moved.append(stage.broker.store.redistribution.moved_total)
        stage.sync()
        assert len(moved) < 50
    steps = [after - before for before, after in zip([0, *moved], moved, strict=False)]
    assert max(steps) <= 20_000
    assert waiting(stage.broker.store) == 14_000


@pytest.mark.slow
@pytest.mark.parametrize("selector", ["", "x = 1", "x IS NULL"])
@pytest.mark.parametrize("is_run", [True, False])
def test_a_step_moves_as_much_as_others_can_wait_for(is_run: bool, selector: str) -> None:
    stage = make()
    stage.admin("queue-create", name="orders")
    store, count = stage.broker.store, 2000
    for run in (run_of(count, 10),) if is_run else (single(build_message(b"x")) for _ in range(count)):
        store.publish(store.addresses["orders"], run)
    stage.step()
    stage.run()
    binding = know(store, consumers=0)
    binding.consumer_created(selector)
    store.redistribution.look(store.queues["orders"], is_new=True)
    steps, more = 0, True
    while more:
        counted = Bytecodes()
        more = counted.of(stage.turn).more
        stage.sync()
        assert counted.count < STEP_BYTECODES
        steps += 1
    assert steps >= (1 if is_run and not selector else count // 200)
    assert waiting(store) == (0 if selector == "x = 1" else count)


def test_what_is_paged_moves_too() -> None:
    stage = make(max_size_bytes=20_000)
    for _ in range(10):
        send(stage, 100, body="x" * 100)
    assert stage.broker.store.queues["orders"].paged_count
    know(stage.broker.store)
    for _ in range(200):
        go_on(stage)
    store = stage.broker.store
    assert store.queues["orders"].message_count == 0
    assert waiting(store) == 1000


def test_a_message_that_was_delivered_in_vain_moves_with_the_others() -> None:
    stage = make(redelivery_delay=50)
    send(stage, 1)
    _, tag = take(stage, 1)
    assert stage.admin("settle", tag=tag, outcome="modified") == {}
    know(stage.broker.store)
    go_on(stage)
    assert waiting(stage.broker.store) == 0
    stage.wait(60)
    assert waiting(stage.broker.store) == 1


def test_a_queue_that_is_made_while_others_have_consumers_passes_messages_on() -> None:
    stage = make()
    store = stage.broker.store
    know(store)
    queue = store.create_queue(kind_of("orders", "orders", store.settings.of("orders")), BROKER)
    assert queue.redistributor is not None
    store.remotes.connection("c").remove(store.remotes.by_name["orders" + NODE].binding)
    assert queue.redistributor is None


def test_how_often_a_message_was_delivered_goes_with_it_and_is_kept() -> None:
    stage = make()
    send(stage, 2)
    _, tag = take(stage, 1)
    assert stage.admin("settle", tag=tag, outcome="modified") == {}
    know(stage.broker.store)
    go_on(stage)

    def counts() -> list[int]:
        queues = stage.broker.store.remotes.queues_of(NODE)
        return [segment.deliveries for queue in queues for segment in queue.segments()]

    assert counts() == [1, 0]
    restart(stage)
    assert counts() == [1, 0]


def test_a_queue_that_all_may_read_keeps_its_messages() -> None:
    stage = make(default_non_destructive=True)
    send(stage, 3)
    know(stage.broker.store)
    go_on(stage)
    assert stage.broker.store.queues["orders"].message_count == 3
    assert waiting(stage.broker.store) == 0


def test_a_browser_keeps_no_messages_from_moving() -> None:
    stage = make()
    send(stage, 3)
    store = stage.broker.store
    store.join(store.queues["orders"], Taker(10, is_browser=True))
    know(store)
    go_on(stage)
    assert waiting(store) == 3
