"""The store over a real journal: names, routes, limits, recovery, compaction."""

from __future__ import annotations

import random
from typing import Any

import pytest
from mqbroker.base.errors import Bug, Refused, StorageFault
from mqbroker.base.time import At
from mqbroker.core.address.address import MULTICAST
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.queue.queue import QueueKind, Segment
from mqbroker.core.store.store import Store
from mqbroker.journal.recovered import Recovered, RecoveredRun
from mqbroker.node.values import inputs as given
from mqbroker.wire.run import single
from mqbroker.wire.sections import build_message, describe_message

from tests.support.stage import Stage, options_with


def send(stage: Stage, count: int, address: str = "orders", *, body: str = "m", durable: bool = True) -> None:
    messages = [{"body": f"{body}{number}", "durable": durable} for number in range(count)]
    assert stage.admin("send", address=address, messages=messages) == {"accepted": count}


def take(stage: Stage, count: int, queue: str = "orders", *, session: int = 1) -> tuple[list[tuple[str, int]], int]:
    """(body, delivery count) of the next messages, and the tag under which they are in delivery."""
    answer = stage.admin("receive", session, address=queue, count_max=count, wait_ms=1)
    assert answer is not None, "nothing is there"
    return [(message["body"], message["delivery_count"]) for message in answer["messages"]], answer["tag"]


def settle(stage: Stage, tag: int, outcome: str = "accepted") -> None:
    assert stage.admin("settle", tag=tag, outcome=outcome) == {}


def rows(stage: Stage) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in stage.admin("queues")["queues"]}


def restart(stage: Stage) -> None:
    stage.crash()
    stage.start()


# -- names ------------------------------------------------------------------------------------------------------------


def test_a_queue_is_made_when_it_is_first_used() -> None:
    stage = Stage()
    send(stage, 1)
    assert rows(stage)["orders"]["routing_type"] == "anycast"


def refusal(call: Any, *arguments: Any) -> str:
    with pytest.raises(Refused) as caught:
        call(*arguments)
    return caught.value.condition


def test_what_is_refused_and_as_what() -> None:
    settings = {"#": {"auto_create_queues": False}}
    store = Stage(options_with(limits={"queues_max": 2}, address_settings=settings)).broker.store
    assert refusal(store.address_for, "orders", BROKER) == "amqp:not-found"
    assert refusal(store.queue_for, "orders", BROKER) == "amqp:not-found"
    store.create_queue(QueueKind("orders", "orders"), BROKER)
    assert refusal(store.create_queue, QueueKind("orders", "orders"), BROKER) == "amqp:precondition-failed"
    assert refusal(store.create_queue, QueueKind("", "orders"), BROKER) == "amqp:invalid-field"
    assert refusal(store.create_queue, QueueKind("x" * 1025, "orders"), BROKER) == "amqp:invalid-field"
    assert refusal(store.create_queue, QueueKind("x", ""), BROKER) == "amqp:invalid-field"
    store.create_queue(QueueKind("invoices", "sales", MULTICAST), BROKER)
    assert refusal(store.create_queue, QueueKind("third", "third"), BROKER) == "amqp:resource-limit-exceeded"
    assert refusal(store.queue_for, "sales", BROKER) == "amqp:not-found"
    assert store.queue_for("invoices", BROKER).kind.address == "sales"


# -- routes -----------------------------------------------------------------------------------------------------------


def sales_stage() -> Stage:
    """Two anycast queues that share, and two multicast queues that get a copy each."""
    stage = Stage()
    for name, routing in (("a1", "anycast"), ("a2", "anycast"), ("m1", "multicast"), ("m2", "multicast")):
        stage.admin("queue-create", name=name, address="sales", routing_type=routing)
    return stage


def test_anycast_queues_share_and_multicast_queues_copy() -> None:
    stage = sales_stage()
    send(stage, 6, "sales")
    assert {name: row["message_count"] for name, row in rows(stage).items()} == {"a1": 3, "a2": 3, "m1": 6, "m2": 6}
    assert [body for body, _ in take(stage, 10, "a1")[0]] == ["m0", "m2", "m4"]
    assert [body for body, _ in take(stage, 10, "m2")[0]] == [f"m{n}" for n in range(6)]


def test_a_message_in_several_queues_is_stored_once() -> None:
    stage = sales_stage()
    send(stage, 1, "sales", body="a body that is easily found ")
    stored = b"".join(bytes(chunk) for append in stage.appends for chunk in append.chunks)
    assert stored.count(b"a body that is easily found") == 1
    held = stage.broker.store.memory.held_bytes
    assert 0 < held < 200


def test_memory_is_free_when_the_last_queue_is_done() -> None:
    stage = sales_stage()
    send(stage, 2, "sales")
    for number, name in enumerate(("m1", "a1", "m2", "a2")):
        assert stage.broker.store.memory.held_bytes > 0, number
        settle(stage, take(stage, 10, name)[1])
    assert stage.broker.store.memory.held_bytes == 0
    assert {row["message_count"] for row in rows(stage).values()} == {0}


def test_copies_are_recovered_each_with_its_own_fate() -> None:
    stage = sales_stage()
    send(stage, 4, "sales")
    settle(stage, take(stage, 2, "m1")[1])
    settle(stage, take(stage, 1, "a2")[1])
    restart(stage)
    assert {name: row["message_count"] for name, row in rows(stage).items()} == {"a1": 2, "a2": 1, "m1": 2, "m2": 4}
    assert [body for body, _ in take(stage, 10, "m1")[0]] == ["m2", "m3"]
    assert [body for body, _ in take(stage, 10, "a2")[0]] == ["m3"]


def test_queues_that_are_not_durable_are_gone_after_a_restart_and_keep_nothing_in_the_journal() -> None:
    stage = Stage()
    stage.admin("queue-create", name="volatile", durable=False)
    before = len(stage.appends)
    send(stage, 3, "volatile")
    assert len(stage.appends) == before
    restart(stage)
    assert rows(stage) == {}


def test_messages_that_are_not_durable_never_touch_the_disk() -> None:
    stage = Stage()
    stage.admin("queue-create", name="orders")
    take_nothing = stage.ask("receive", address="orders", count_max=1, wait_ms=1)
    stage.wait(5)
    assert stage.replies[take_nothing].result == {"messages": [], "tag": None}
    before = len(stage.appends)
    send(stage, 100, durable=False)
    found, tag = take(stage, 100)
    settle(stage, tag)
    assert len(found) == 100
    assert len(stage.appends) == before


# -- recovery ---------------------------------------------------------------------------------------------------------


def test_messages_and_settlements_survive() -> None:
    stage = Stage()
    send(stage, 10)
    settle(stage, take(stage, 4)[1])
    restart(stage)
    assert rows(stage)["orders"]["message_count"] == 6
    found, _ = take(stage, 10)
    assert [body for body, _ in found] == [f"m{n}" for n in range(4, 10)]


def test_a_crash_counts_a_delivery_where_there_was_a_consumer_and_nowhere_else() -> None:
    stage = Stage()
    send(stage, 2, "consumed")
    send(stage, 2, "untouched")
    take(stage, 1, "consumed")
    restart(stage)
    assert [count for _, count in take(stage, 9, "consumed")[0]] == [1, 1]
    assert [count for _, count in take(stage, 9, "untouched")[0]] == [0, 0]


def test_counts_add_up_over_crashes_even_without_a_consumer_in_between() -> None:
    stage = Stage()
    send(stage, 2)
    take(stage, 1)
    restart(stage)
    restart(stage)
    found, _ = take(stage, 9)
    assert found == [("m0", 1), ("m1", 1)]
    restart(stage)
    assert take(stage, 9)[0] == [("m0", 2), ("m1", 2)]


def test_a_clean_stop_counts_only_what_was_in_delivery() -> None:
    stage = Stage()
    send(stage, 4)
    take(stage, 2)
    stage.stop()
    assert stage.halted == 0
    stage.start()
    assert take(stage, 9)[0] == [("m0", 1), ("m1", 1), ("m2", 0), ("m3", 0)]


def test_released_messages_are_not_counted_and_lost_sessions_are() -> None:
    stage = Stage()
    send(stage, 2)
    settle(stage, take(stage, 2)[1], "released")
    assert take(stage, 2)[0] == [("m0", 0), ("m1", 0)]
    stage.give(given.AdminClosed(1))
    stage.run()
    assert take(stage, 2)[0] == [("m0", 1), ("m1", 1)]


def test_ids_are_never_used_again() -> None:
    stage = Stage()
    send(stage, 3)
    settle(stage, take(stage, 3)[1])
    before = stage.broker.store.next_id
    restart(stage)
    assert stage.broker.store.next_id == before
    send(stage, 1)
    assert take(stage, 9)[0] == [("m0", 0)]


def test_frames_that_are_no_run_are_damage() -> None:
    stage = Stage()
    recovered = Recovered(queues={1: {"name": "orders", "address": "orders"}}, next_id=5, last_position=3)
    recovered.runs = [RecoveredRun(1, 2, memoryview(b"junk" * 20), 1, {1: [(1, 2)]})]
    options, broker = stage.options, stage.broker
    around = broker.store.surroundings
    store = Store(options.limits, options.address_settings, broker.journal, around, At(0, 0))
    with pytest.raises(StorageFault, match="messages 1\\+2 holds 0 frames"):
        store.load(recovered, {})


# -- compaction -------------------------------------------------------------------------------------------------------

JOURNAL = {"journal_file_size_bytes": 65536, "journal_compact_min_files": 3, "journal_compact_percentage": 30}


def churn(stage: Stage, rounds: int, keep_every: int) -> list[str]:
    """Send and settle, keeping some messages that then lie scattered over old files; what must be there."""
    kept: list[str] = []
    for number in range(rounds):
        body = f"r{number}-" + "x" * 400
        send(stage, 20, "stream", body=body)
        if number % keep_every == 0:
            send(stage, 1, "keep", body=body)
            kept.append(f"{body}0")
        settle(stage, take(stage, 20, "stream")[1])
    return kept


@pytest.mark.slow
@pytest.mark.option("journal.journal-compact-min-files")
@pytest.mark.parametrize("files_min", [0, 3])
def test_compaction_keeps_the_journal_small_and_everything_in_it(files_min: int) -> None:
    stage = Stage(options_with(journal={**JOURNAL, "journal_compact_min_files": files_min}))
    kept = churn(stage, 100, 5)
    files = stage.broker.journal.segments_count
    assert (files < 8) if files_min else (files > 10), "nothing is compacted where it is turned off"
    for _ in range(2):
        restart(stage)
        assert rows(stage)["keep"]["message_count"] == len(kept)
        assert rows(stage)["stream"]["message_count"] == 0
    assert [body for body, _ in take(stage, 100, "keep")[0]] == kept


@pytest.mark.option("journal.journal-compact-percentage")
@pytest.mark.parametrize(("percentage", "is_small"), [(1, False), (30, True)])
def test_compaction_starts_at_its_share_of_live_messages(percentage: int, is_small: bool) -> None:
    stage = Stage(options_with(journal={**JOURNAL, "journal_compact_percentage": percentage}))
    churn(stage, 100, 5)
    assert (stage.broker.journal.segments_count < 8) == is_small


def test_compaction_repeats_delivery_counts_and_keeps_several_queues() -> None:
    stage = Stage(options_with(journal=JOURNAL))
    for name in ("one", "two"):
        stage.admin("queue-create", name=name, address="copies", routing_type="multicast")
    send(stage, 10, "copies")
    for _ in range(3):
        take(stage, 2, "one", session=9)
        stage.give(given.AdminClosed(9))
        stage.run()
    settle(stage, take(stage, 1, "two")[1])
    first = min(stage.disk.stable)
    churn(stage, 60, 1000)
    assert min(stage.disk.stable) > first, "the first file is gone"
    stage.stop()
    stage.start()
    assert [count for _, count in take(stage, 20, "one")[0]] == [3, 3] + [0] * 8
    assert [body for body, _ in take(stage, 20, "two")[0]] == [f"m{n}" for n in range(1, 10)]


def test_compaction_repeats_until_when_messages_are_held_back() -> None:
    stage = Stage(options_with(journal=JOURNAL, address_settings={"orders": {"redelivery_delay": 3_600_000}}))
    send(stage, 3, "orders")
    settle(stage, take(stage, 2, "orders")[1], "modified")
    due_ms = stage.at.wall_ms + 3_600_000
    first = min(stage.disk.stable)
    churn(stage, 60, 1000)
    assert min(stage.disk.stable) > first, "the first file is gone"
    stage.crash()
    stage.start()
    orders = stage.broker.store.queues["orders"]
    assert [(when, segment.n, segment.deliveries) for when, _, segment in orders.scheduled] == [(due_ms, 1, 1)] * 2
    assert orders.ready_count == 1


def test_compaction_while_messages_are_with_consumers() -> None:
    """What is in delivery is stored again, too, and can be settled afterwards."""
    stage = Stage(options_with(journal=JOURNAL))
    send(stage, 30, "held")
    found, tag = take(stage, 20, "held", session=7)
    first = min(stage.disk.stable)
    churn(stage, 60, 1000)
    assert min(stage.disk.stable) > first
    assert stage.admin("settle", 7, tag=tag, outcome="accepted") == {}
    restart(stage)
    assert [body for body, _ in take(stage, 30, "held")[0]] == [f"m{n}" for n in range(20, 30)]
    assert len(found) == 20


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_a_long_life_with_restarts(seed: int) -> None:
    """Random sends, settlements, releases, restarts over small files: the queue is what a list would be."""
    rng = random.Random(seed)
    stage = Stage(options_with(journal=JOURNAL))
    model: list[str] = []
    number = 0
    for _ in range(150):
        dice = rng.random()
        if dice < 0.45:
            count = rng.randrange(1, 20)
            send(stage, count, body=f"s{number}-" + "y" * rng.randrange(300))
            model += _sent(stage)[-count:]
            number += 1
        elif dice < 0.9 and model:
            found, tag = take(stage, rng.randrange(1, 30))
            bodies = [body for body, _ in found]
            assert bodies == model[: len(bodies)]
            if rng.random() < 0.8:
                settle(stage, tag)
                del model[: len(bodies)]
            else:
                settle(stage, tag, "released")
        elif dice > 0.95:
            if rng.random() < 0.5:
                stage.stop()
                stage.start()
            else:
                restart(stage)
        assert stage.broker.store.queues.get("orders") is None or rows(stage)["orders"]["message_count"] == len(model)
    while model:
        found, tag = take(stage, 50)
        assert [body for body, _ in found] == model[: len(found)]
        del model[: len(found)]
        settle(stage, tag)
    assert stage.broker.store.memory.held_bytes == 0


def _sent(stage: Stage) -> list[str]:
    """Bodies that are in the queue now, oldest first, without taking them."""
    places = [
        (segment.run, index)
        for segment in stage.broker.store.queues["orders"].segments()
        for index in range(segment.start, segment.start + segment.n)
    ]
    return [_text(bytes(run.payload(index))) for run, index in places]


def _text(payload: bytes) -> str:
    body: str = describe_message(payload)["body"]
    return body


def test_a_run_that_is_settled_too_often_is_a_bug() -> None:
    store = Stage().broker.store
    address = store.address_for("orders", BROKER)
    store.publish(address, single(build_message(b"x")))
    queue = store.queues["orders"]
    segment: Segment = queue.take(1)
    store.settle(queue, segment)
    with pytest.raises(Bug, match="more often"):
        store.settle(queue, segment)
