"""Moves and retries keep to the bounds of memory and disk as senders do, and a step of them does little."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from mqbroker.admin import moves
from mqbroker.core.address.permissions import BROKER
from mqbroker.node.values.inputs import AdminRequest
from mqbroker.wire.parts import DELIVERY_DELAY
from mqbroker.wire.run import single
from mqbroker.wire.scan import MESSAGE_ANNOTATIONS, scan_sections
from mqbroker.wire.sections import build_message, encode_section
from mqbroker.wire.values import Long

from tests.support.stage import Stage
from tests.unit.core.address.test_diverts import ELEVEN_WAYS, counts, divert, send, stage_with

MEMORY_BYTES = 200_000
DIES = {"dead_letter_address": "DLQ", "max_delivery_attempts": 1}
REQUEST = 9_999


def settle_all(stage: Stage, queue: str, count: int, outcome: str) -> None:
    answer = stage.admin("receive", address=queue, count_max=count, wait_ms=1)
    assert len(answer["messages"]) == count
    assert stage.admin("settle", tag=answer["tag"], outcome=outcome) == {}


def pieces_of(stage: Stage, queue: str, **said: Any) -> Iterable[int]:
    """How many messages leave the queue in each step of a request."""
    stage.give(AdminRequest(REQUEST, 1, "messages-move", {"queue": queue, **said}))
    store, is_due = stage.broker.store, True
    while is_due:
        before = store.queues[queue].message_count
        is_due = stage.turn().more
        yield before - store.queues[queue].message_count
    stage.run()


# -- memory and disk ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bounds",
    [
        {"address_full_policy": "FAIL"},
        {"address_full_policy": "BLOCK"},
        {"address_full_policy": "BLOCK", "max_size_bytes": 50_000},
        {"address_full_policy": "PAGE", "default_last_value_queue": True},
    ],
)
def test_what_is_paged_is_moved_as_far_as_memory_has_room(bounds: dict[str, Any]) -> None:
    paged = {"page_size_bytes": 50_000}
    stage = stage_with(
        limits={"global_max_size_bytes": MEMORY_BYTES}, address_settings={"source": paged, "target": bounds}
    )
    for queue in ("source", "target"):
        stage.admin("queue-create", name=queue)
    for _ in range(10):
        stage.admin("send", address="source", messages=[{"body": "x" * 10_000, "durable": True}] * 10)
    memory = stage.broker.store.memory
    said = stage.admin("messages-move", queue="source", address="target")
    assert said["moved"] > 0
    assert counts(stage) == {"source": said["left"], "target": said["moved"]}
    assert memory.held_bytes <= MEMORY_BYTES + 10_100


@pytest.mark.parametrize("is_diverted", [False, True])
@pytest.mark.parametrize("beside", [None, {"address_full_policy": "FAIL"}, {"page_size_bytes": 50_000}])
def test_while_memory_is_full_what_is_paged_is_moved_where_whatever_gets_it_keeps_it_on_disk(
    beside: dict[str, Any] | None, is_diverted: bool
) -> None:
    """An address with wildcards gets copies too, also where the address has no queue itself."""
    paged = {"page_size_bytes": 50_000}
    stage = stage_with(
        *[divert("1", "a.b", "copies")] * is_diverted,
        address_settings={"#": paged, "a.#": beside or {}, "a.b": paged},
    )
    for queue in ("full", "source", "copies" if is_diverted else "a.b"):
        stage.admin("queue-create", name=queue)
    if is_diverted:
        stage.admin("address-create", name="a.b", routing_types=["multicast"])
    if beside is not None:
        stage.admin("queue-create", name="sub", address="a.#", routing_type="multicast")
    messages = [{"body": "x" * 10_000, "durable": True}] * 20
    stage.admin("send", address="full", messages=messages)
    memory = stage.broker.store.memory
    memory.max_bytes = memory.held_bytes
    for _ in range(3):
        stage.admin("send", address="source", messages=messages)
    said = stage.admin("messages-move", queue="source", address="a.b")
    goes = beside != {"address_full_policy": "FAIL"}
    assert said == {"moved": 60 * goes, "left": 60 * (not goes)}
    assert memory.held_bytes <= memory.max_bytes + 2 * 10_100


@pytest.mark.parametrize("ways", [0, 3])
def test_what_fills_the_memory_is_moved_within_it_but_for_a_quarter(ways: int) -> None:
    """It gives back what it takes, so a broker that is full of dead letters is not stuck; its copies give back none."""
    rules = {**DIES, "address_full_policy": "FAIL"}
    diverts = (divert(str(number), "orders", f"copies{number}") for number in range(ways))
    stage = stage_with(*diverts, address_settings={"#": rules})
    for queue in ("source", "orders", "DLQ"):
        stage.admin("queue-create", name=queue)
    stage.admin("send", address="source", messages=[{"body": "x" * 10_000}] * 40)
    settle_all(stage, "source", 40, "rejected")
    memory = stage.broker.store.memory
    memory.max_bytes = memory.held_bytes
    said = stage.admin("messages-move", queue="DLQ", address="orders")
    assert said["left"] > 20 if ways else said == {"moved": 40, "left": 0}
    assert memory.held_bytes <= memory.max_bytes * 5 // 4 + (ways + 1) * 10_100


@pytest.mark.parametrize("operation", ["messages-move", "dead-letters-retry"])
def test_nothing_is_moved_while_the_disk_is_nearly_full_and_purges_go_on(operation: str) -> None:
    stage = stage_with(address_settings={"#": DIES})
    for queue in ("orders", "DLQ", "target"):
        stage.admin("queue-create", name=queue)
    send(stage, *["red"] * 5)
    settle_all(stage, "orders", 5, "rejected")
    said = {"address": "target"} if operation == "messages-move" else {}
    stage.broker.store.memory.is_shut = True
    request = stage.ask(operation, queue="DLQ", **said)
    error = stage.replies[request].error
    assert error is not None
    assert "min-disk-free" in error["description"]
    assert "0 messages were" in error["description"]
    assert counts(stage) == {"DLQ": 5}
    assert stage.admin("queue-purge", name="DLQ", selector="TRUE") == {"purged": 5}


# -- work of a step ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["wildcards", "queues", "queues of an address with wildcards"])
def test_the_more_copies_of_each_message_the_fewer_are_moved_in_a_step(by: str) -> None:
    stage = stage_with()
    for queue in ("source", "a.b"):
        stage.admin("queue-create", name=queue)
    wide = moves.LOOKS_MAX if by == "wildcards" else moves.LOOKS_MAX * moves.QUEUES_PER_LOOK
    for number in range(wide):
        name = {"wildcards": "a.b" + ".#" * (number + 1), "queues": "a.b"}.get(by, "a.#")
        stage.admin("queue-create", name=f"s{number}", address=name, routing_type="multicast")
    send(stage, *["red"] * 4, to="source")
    assert max(pieces_of(stage, "source", address="a.b")) == 1
    assert sum(counts(stage).values()) == 4 * (wide + 1)


def delayed(color: str) -> bytes:
    whole = build_message("x", application_properties={"color": color})
    bare = scan_sections(whole, 0, len(whole)).bare
    return whole[:bare] + encode_section(MESSAGE_ANNOTATIONS, {DELIVERY_DELAY: Long(3_600_000)}) + whole[bare:]


def schedule(stage: Stage, count: int) -> None:
    source = stage.broker.store.target_for("source", BROKER)
    for _ in range(count):
        stage.broker.store.publish(source, single(delayed("red")))
    stage.run()
    assert len(stage.broker.store.queues["source"].scheduled) == count


def test_few_scheduled_messages_that_are_left_are_looked_at_in_a_step() -> None:
    """Its budget is large for the cost of their order alone."""
    stage = stage_with()
    stage.admin("queue-create", name="source")
    stage.admin("queue-create", name="target", selector="color = 'blue'", routing_type="multicast")
    count = moves.LOOKS_MAX * 4
    schedule(stage, count)
    assert len(list(pieces_of(stage, "source", address="target"))) >= 4
    assert stage.replies[REQUEST].result == {"moved": 0, "left": count}


def test_a_step_follows_few_diverts_for_scheduled_messages() -> None:
    stage = stage_with(*ELEVEN_WAYS)
    for queue in ("source", "orders"):
        stage.admin("queue-create", name=queue)
    schedule(stage, 40)
    assert max(pieces_of(stage, "source", address="orders")) <= moves.LOOKS_MAX // 11
    assert counts(stage)["red9"] == 40
