"""What diverts make of the messages of a transaction counts, as its commit is one step; a rollback goes in pieces."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from mqbroker.base.errors import Refused
from mqbroker.core.address.address import MULTICAST
from mqbroker.core.address.diverts import COPIES_MAX, QUEUES_PER_COPY
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.queue.kinds import QueueKind
from mqbroker.core.queue.queue import Queue, Segment
from mqbroker.core.store.transaction import MOVED_MAX, Transaction
from mqbroker.wire.performatives import Accepted, Modified, Rejected, Released
from mqbroker.wire.run import runs_of, single
from mqbroker.wire.sections import build_message

from tests.support.bytecodes import Bytecodes
from tests.support.stage import Stage
from tests.unit.core.address.test_diverts import counts, divert, stage_with
from tests.unit.core.cluster.test_cluster_bindings import know

CLOSING_BYTECODES = 200
DIES = {"dead_letter_address": "DLQ", "max_delivery_attempts": 1}


def circle(*names: str) -> tuple[Any, ...]:
    """Diverts of each of these to each other one: of four, a message makes COPIES_MAX copies."""
    return tuple(divert(f"{one}-{other}", one, other) for one, other in permutations(names, 2))


def posted(stage: Stage, count: int, to: str = "orders", *, is_alike: bool = True) -> Transaction:
    work = Transaction(stage.broker.store)
    for number in range(count):
        run = single(build_message("x", durable=is_alike or number % 2 > 0))
        run.is_plain = True
        work.check(1, posted=((to, ""), run))
        work.post(to, run)
    return work


def taken(stage: Stage, count: int) -> tuple[Queue, Segment]:
    """Messages of `orders` in delivery, all of one run."""
    stage.admin("queue-create", name="orders")
    (run,) = runs_of([build_message("x")] * count)
    store = stage.broker.store
    store.publish(store.addresses["orders"], run)
    stage.run()
    segment = store.queues["orders"].take(count)
    assert segment.n == count
    return store.queues["orders"], segment


@pytest.mark.parametrize("is_alike", [True, False])
@pytest.mark.parametrize("to", ["orders", "orders::orders"])
def test_copies_of_what_is_posted_are_parts_and_too_many_are_refused_before_anything_is_done(
    is_alike: bool, to: str
) -> None:
    ways = circle("orders", "b", "c", "d")
    if to != "orders":
        ways = tuple(replace(each, exclusive=True) for each in ways)
    stage = stage_with(*ways, limits={"transaction_parts_max": 303})
    stage.admin("queue-create", name="orders")
    work = posted(stage, 4, to, is_alike=is_alike)
    assert work.close() == 4 * (1 + COPIES_MAX // 10)
    with pytest.raises(Refused, match=r"over 303 parts .*transaction-parts-max; 10 copies of a message"):
        work.prepare(BROKER)
    assert counts(stage) == {}
    assert work.is_open
    work.roll_back()
    assert stage.broker.store.memory.held_bytes == 0
    less = posted(stage, 3, to, is_alike=is_alike)
    less.commit(less.prepare(BROKER))
    stage.run()
    assert sum(counts(stage).values()) >= 3


def widen(stage: Stage, by: str, count: int, name: str = "a.b") -> None:
    """So many queues or addresses with wildcards get copies of what comes to an address."""
    for number in range(count):
        address = {"wildcards": name + ".#" * (number + 1), "queues": name}.get(by, f"{name}.#")
        stage.admin("queue-create", name=f"s{number}", address=address, routing_type="multicast")


WIDE = {"wildcards": 89, "queues": 800, "queues of an address with wildcards": 799}


@pytest.mark.parametrize("is_diverted", [False, True])
@pytest.mark.parametrize("by", WIDE)
def test_copies_for_queues_and_addresses_with_wildcards_are_parts(by: str, is_diverted: bool) -> None:
    stage = stage_with(*[divert("1", "orders", "a.b")] * is_diverted, limits={"transaction_parts_max": 43})
    for queue in ("orders", "a.b"):
        stage.admin("queue-create", name=queue)
    widen(stage, by, WIDE[by])
    to = "orders" if is_diverted else "a.b"
    work = posted(stage, 4, to, is_alike=False)
    assert work.close() == 4 * (1 + 10)
    with pytest.raises(Refused, match=r"over 43 parts .*transaction-parts-max; 10 copies of a message"):
        work.prepare(BROKER)
    assert counts(stage) == {}
    less = posted(stage, 3, to, is_alike=False)
    less.commit(less.prepare(BROKER))
    stage.run()
    assert sum(counts(stage).values()) == 3 * (WIDE[by] + 1 + is_diverted)


def test_messages_that_are_alike_are_copied_as_one_run_and_those_for_one_queue_are_not_copied() -> None:
    stage = stage_with()
    stage.admin("queue-create", name="a.b")
    widen(stage, "queues", 800)
    assert posted(stage, 4).close() == 1
    assert posted(stage, 4, "a.b").close() == 1 + 10
    assert posted(stage, 4, "a.b::s1").close() == 1
    stage.admin("queue-create", name="s800", address="a.b", routing_type="multicast", selector="x = 1")
    assert posted(stage, 4, "a.b").close() == 4 * (1 + 10)


@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_queues_that_keep_the_dead_letters_of_one_address_each_are_no_copies(where: str) -> None:
    kept = DIES | {"auto_create_dead_letter_resources": True}
    stage = stage_with(address_settings={"#": kept}, limits={"transaction_parts_max": 4})
    queue, segment = taken(stage, 4)
    stage.admin("queue-create", name="all", address="DLQ", routing_type="multicast")
    for number in range(10 * QUEUES_PER_COPY):
        kind = QueueKind(f"DLQ.q{number}", "DLQ", MULTICAST, auto_created=True, moved_from=f"q{number}")
        if where == "here":
            stage.broker.store.create_queue(kind, BROKER)
        else:
            know(stage.broker.store, 2, kind.name, address="DLQ", routing=MULTICAST, moved_from=kind.moved_from)
    assert posted(stage, 1, "DLQ").close() == 1
    work = Transaction(stage.broker.store)
    work.retire(queue, segment, Rejected())
    assert work.close() == 4
    work.commit(work.prepare(BROKER))
    stage.run()
    assert counts(stage) == {"DLQ.orders": 4, "all": 4}


def test_one_message_that_nobody_has_copies_of_is_closed_with_little_work() -> None:
    stage = stage_with()
    stage.admin("queue-create", name="orders")
    posted(stage, 1).close()
    counted = Bytecodes()
    assert counted.of(posted(stage, 1).close) == 1
    assert counted.count < CLOSING_BYTECODES


@pytest.mark.parametrize("is_exclusive", [False, True])
def test_only_exclusive_diverts_take_what_is_for_one_queue(is_exclusive: bool) -> None:
    stage = stage_with(
        replace(divert("1", "orders", "b"), exclusive=is_exclusive),
        *circle("b", "c", "d", "e"),
        divert("2", "x", "b::b"),
    )
    stage.admin("queue-create", name="orders")
    diverts = stage.broker.store.diverts
    assert diverts.copies_of("orders") == COPIES_MAX
    assert diverts.copies_of("orders::orders") == (COPIES_MAX if is_exclusive else 0)
    assert diverts.copies_of("x") == 1


def test_few_copies_count_for_nothing_and_what_is_gathered_before_diverts_come_counts() -> None:
    stage = stage_with(divert("1", "orders", "b"), limits={"transaction_parts_max": 303})
    stage.admin("queue-create", name="orders")
    stage.admin("queue-create", name="other")
    assert posted(stage, 4).close() == 4
    assert posted(stage, 4, "other").close() == 1
    work = posted(stage, 4, "other")
    stage.broker.store.diverts = type(stage.broker.store.diverts)(circle("other", "b", "c", "d"), stage.broker.store)
    assert work.close() == 4 * (1 + COPIES_MAX // 10)


@pytest.mark.parametrize("by", ["diverts", "queues"])
@pytest.mark.parametrize("is_enlisted", [True, False])
@pytest.mark.parametrize("outcome", [Rejected(), Modified(delivery_failed=True)])
def test_copies_of_dead_letters_are_parts(outcome: Any, is_enlisted: bool, by: str) -> None:
    diverts, parts = (circle("DLQ", "b", "c", "d"), 1 + COPIES_MAX // 10) if by == "diverts" else ((), 1 + 9)
    stage = stage_with(*diverts, address_settings={"#": DIES}, limits={"transaction_parts_max": 4 * parts - 5})
    queue, segment = taken(stage, 4)
    stage.admin("queue-create", name="DLQ")
    if by == "queues":
        stage.admin("queue-create", name="all", address="#", routing_type="multicast")  # gets no dead letters
        widen(stage, by, 796, "DLQ")
    work = Transaction(stage.broker.store)
    if is_enlisted:
        enlisted = [(queue, segment, outcome)]
    else:
        enlisted = []
        work.retire(queue, segment, outcome)
        assert work.close() == 4 * parts
    with pytest.raises(Refused, match=r"over \d+ parts"):
        work.prepare(BROKER, enlisted)
    assert counts(stage) == {"orders": 4}
    less = Transaction(stage.broker.store)
    less.retire(queue, segment.part(segment.start, 2), outcome)
    less.commit(less.prepare(BROKER))
    stage.run()
    assert counts(stage)["DLQ"] >= 2


@pytest.mark.parametrize(
    ("outcome", "parts"),
    [
        (Accepted(), 1), (Released(), 1), (None, 1), (Modified(), 1), (Rejected(), 20),
        (Modified(delivery_failed=True), 20),
    ],
)  # fmt: skip
def test_each_message_that_is_delivered_in_vain_for_the_last_time_is_a_part(outcome: Any, parts: int) -> None:
    stage = stage_with(address_settings={"#": DIES})
    queue, segment = taken(stage, 20)
    work = Transaction(stage.broker.store)
    work.retire(queue, segment.part(segment.start, 10), outcome)
    work.retire(queue, segment.part(segment.start + 10, 10), outcome)
    assert work.parts_count == work.close() == parts


@pytest.mark.parametrize(("names", "most"), [(("DLQ", "b", "c", "d"), 1), (("DLQ", "b"), MOVED_MAX // 3)])
def test_a_piece_of_a_rollback_makes_few_dead_letters_where_these_are_copied(names: tuple[str, ...], most: int) -> None:
    stage = stage_with(*circle(*names), address_settings={"#": DIES})
    queue, segment = taken(stage, 12)
    stage.admin("queue-create", name="DLQ")
    work = Transaction(stage.broker.store)
    work.retire(queue, segment, Accepted())
    work.roll_back(0)
    left, pieces = 12, 0
    while not work.is_empty:
        assert work.give_up(MOVED_MAX) > most
        now = sum(each.n for _, each in work.in_delivery())
        assert 0 < left - now <= (most if most == 1 else 2 * MOVED_MAX)
        left, pieces = now, pieces + 1
    assert pieces > 1
    stage.run()
    assert counts(stage)["DLQ"] >= 12
