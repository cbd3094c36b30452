"""Whoever observes a store is told of each run once from each point, and of nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pytest
from mqbroker.base.errors import Refused
from mqbroker.core.address.message_observer import MessageObserver
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.cluster.queue_observer import QueueObserver
from mqbroker.core.queue.queue import Consumer, Queue, Segment
from mqbroker.node.values import inputs as given
from mqbroker.wire.performatives import Accepted
from mqbroker.wire.run import runs_of
from mqbroker.wire.sections import Header, build_message

from tests.sim.ledger import Ledger
from tests.support import frames
from tests.support.bytecodes import Bytecodes
from tests.support.stage import Stage, options_with

COUNT = 100


class Noting(QueueObserver, MessageObserver):
    """What it was told, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def queue_added(self, queue: Queue) -> None:
        self.told.append(("added", queue.kind.name))

    def queue_removed(self, queue: Queue) -> None:
        self.told.append(("removed", queue.kind.name))

    def consumer_joined(self, queue: Queue, consumer: Consumer) -> None:
        self.told.append(("joined", queue.kind.name))

    def consumer_left(self, queue: Queue, consumer: Consumer) -> None:
        self.told.append(("parted", queue.kind.name))

    def messages_entered(self, queues: Sequence[Queue], segment: Segment) -> None:
        self.told.append(("entered", *(queue.kind.name for queue in queues), segment.first_id, segment.n))

    def messages_restored(self, queue: Queue, first_id: int, count: int) -> None:
        self.told.append(("restored", queue.kind.name, first_id, count))

    def messages_returned(self, queue: Queue, segment: Segment) -> None:
        self.told.append(("returned", queue.kind.name, segment.first_id, segment.n, segment.deliveries))

    def messages_left(self, queue: Queue, first_id: int, count: int, why: str) -> None:
        self.told.append((why, queue.kind.name, first_id, count))

    def message_outdated(self, queue: Queue, message_id: int) -> None:
        self.told.append(("outdated", queue.kind.name, message_id))


def observed(**settings: Any) -> tuple[Stage, Noting]:
    stage, noting = Stage(options_with(address_settings={"#": settings})), Noting()
    stage.broker.store.observe_queues(noting)
    stage.broker.store.observe_messages(noting)
    return stage, noting


def publish(stage: Stage, address: str, count: int = 1, *, durable: bool = True, ttl: int | None = None) -> int:
    """One run of messages; the id of the first."""
    (run,) = runs_of([build_message(b"x", header=Header(durable=durable, ttl=ttl))] * count)
    store = stage.broker.store
    store.publish(store.address_for(address, BROKER), run)
    stage.step()
    stage.run()
    return run.first_id


def of_messages(noting: Noting) -> list[tuple[Any, ...]]:
    said = [each for each in noting.told if each[0] not in ("added", "removed", "joined", "parted")]
    noting.told.clear()
    return said


def test_a_run_is_told_of_once_where_it_comes_and_once_where_it_goes() -> None:
    stage, noting = observed()
    first = publish(stage, "orders", COUNT)
    assert noting.told == [("added", "orders"), ("entered", "orders", first, COUNT)]
    conn = stage.accept()
    receiver = frames.receiver("orders", credit=2 * COUNT)
    stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun() + receiver)
    noting.told.clear()
    stage.talk(conn, frames.disposition(0, COUNT - 1, Accepted()))
    assert noting.told == [("acknowledged", "orders", first, COUNT)]
    noting.told.clear()
    stage.give(given.Closed(conn, "gone"))
    stage.run()
    assert ("parted", "orders") in noting.told


def test_copies_of_a_run_enter_together_and_leave_each_by_itself() -> None:
    stage, noting = observed()
    for name in ("a", "b"):
        stage.admin("queue-create", name=name, address="news", routing_type="multicast")
    noting.told.clear()
    first = publish(stage, "news", 3)
    assert noting.told == [("entered", "a", "b", first, 3)]
    noting.told.clear()
    stage.admin("queue-purge", name="b")
    assert noting.told == [("purged", "b", first, 3)]


def test_all_observers_hear_the_same_in_the_order_in_which_they_came() -> None:
    stage, noting = observed()
    ledger = Ledger()
    stage.broker.store.observe_messages(ledger)
    publish(stage, "orders", 2)
    assert [type(each) for each in stage.broker.store.message_observers] == [Noting, Ledger]
    assert of_messages(noting) == [("entered", "orders", 1, 2)]
    assert ledger.told == {"entered": 2}
    assert ledger.compare(stage.broker.store) == []


def test_messages_that_come_back_say_how_often_they_were_delivered() -> None:
    stage, noting = observed(max_delivery_attempts=2)
    first = publish(stage, "orders")
    for outcome, expected in (
        ("released", ("returned", "orders", first, 1, 0)),
        ("modified", ("returned", "orders", first, 1, 1)),
        ("modified", ("killed", "orders", first, 1)),
    ):
        of_messages(noting)
        tag = stage.admin("receive", 1, address="orders", count_max=1, wait_ms=1)["tag"]
        stage.admin("settle", tag=tag, outcome=outcome)
        assert of_messages(noting) == [expected]


def test_what_nobody_takes_in_instead_returns_to_where_it_was() -> None:
    stage, noting = observed(expiry_address="orders")
    first = publish(stage, "orders", ttl=10)
    of_messages(noting)
    stage.wait(20_000)
    assert of_messages(noting) == [("returned", "orders", first, 1, 0)]


def test_expired_and_replaced_messages_say_so() -> None:
    stage, noting = observed(default_ring_size=1)
    first = publish(stage, "orders", ttl=10)
    second = publish(stage, "orders", ttl=10)
    assert of_messages(noting)[1:] == [("entered", "orders", second, 1), ("replaced", "orders", first, 1)]
    stage.wait(20_000)
    assert of_messages(noting) == [("expired", "orders", second, 1)]


@pytest.mark.parametrize("size_max", [-1, 1])
@pytest.mark.parametrize(("operation", "why"), [("queue-delete", "deleted"), ("queue-purge", "purged")])
def test_what_a_queue_held_leaves_with_it_also_what_is_paged(operation: str, why: str, size_max: int) -> None:
    stage, noting = observed(max_size_messages=size_max, address_full_policy="PAGE")
    firsts = [publish(stage, "orders", 2) for _ in range(4)]
    queue = stage.broker.store.queues["orders"]
    assert bool(queue.paged_count) is (size_max > 0)
    noting.told.clear()
    stage.admin(operation, name="orders")
    said = of_messages(noting)
    assert {each[:2] for each in said} == {(why, "orders")}
    assert sorted(each for _, _, first, n in said for each in range(first, first + n)) == [
        *range(firsts[0], firsts[0] + 8)
    ]


def test_what_is_moved_leaves_one_queue_and_enters_another() -> None:
    stage, noting = observed()
    first = publish(stage, "orders")
    stage.admin("queue-create", name="others")
    of_messages(noting)
    stage.admin("messages-move", queue="orders", address="others")
    assert of_messages(noting) == [("entered", "others", first + 1, 1), ("moved", "orders", first, 1)]


def test_an_older_value_that_is_not_let_in_is_told_of() -> None:
    stage, noting = observed(default_last_value_queue=True, dead_letter_address="dead")
    store = stage.broker.store
    queue = store.queue_for("orders", BROKER)
    store.dead_letters.outdated([queue], 77)
    assert of_messages(noting) == [("outdated", "orders", 77)]


def test_what_recovery_finds_is_told_to_those_who_are_there_before() -> None:
    stage = Stage()
    first = publish(stage, "orders", 3)
    noting = Noting()
    stage.identity["observers"] = (noting,)
    stage.crash()
    stage.start()
    assert noting.told == [("restored", "orders", first, 3)]


def test_a_bug_of_an_observer_is_one_of_the_node() -> None:
    class Broken(MessageObserver):
        def messages_entered(self, queues: Sequence[Queue], segment: Segment) -> None:
            raise Refused("amqp:internal-error", "broken")

    stage = Stage()
    stage.broker.store.observe_messages(Broken())
    with pytest.raises(Refused, match="broken"):
        publish(stage, "orders")


def work_of_run(stage: Stage, count: int) -> int:
    """Bytecodes from a run that comes to a queue until it is settled."""
    store = stage.broker.store
    (run,) = runs_of([build_message(b"x")] * count)
    queue, work = store.queue_for("orders", BROKER), Bytecodes()

    def there_and_back() -> None:
        store.publish(store.addresses["orders"], run)
        store.settle(queue, queue.take(count))

    work.of(there_and_back)
    stage.run()
    return work.count


class Nobody(tuple[MessageObserver, ...]):
    """No observers, who count how often they are asked for."""

    asked: ClassVar[list[str]] = []

    def __bool__(self) -> bool:
        self.asked.append("whether")
        return False

    def __iter__(self) -> Iterator[MessageObserver]:
        self.asked.append("each")
        return iter(())


@pytest.mark.parametrize("count", [1, COUNT])
def test_where_nobody_observes_a_run_costs_a_question_at_each_of_its_ends(count: int) -> None:
    stage = Stage()
    work_of_run(stage, count)
    stage.broker.store.message_observers = Nobody()
    Nobody.asked.clear()
    work_of_run(stage, count)
    assert Nobody.asked == ["whether", "whether"]


def test_observers_cost_by_run_and_those_who_are_not_there_next_to_nothing() -> None:
    stage = Stage()
    for count in (1, COUNT):
        work_of_run(stage, count)  # what is remembered from now on
    alone = [work_of_run(stage, count) for count in (1, COUNT)]
    assert alone[0] < 1200, "1043 by CPython 3.11: a run costs more where nobody observes"
    assert alone[1] - alone[0] < 300, "284: a message of a run does"
    stage.broker.store.observe_messages(MessageObserver())
    observed_ = [work_of_run(stage, count) for count in (1, COUNT)]
    assert observed_[1] - alone[1] == observed_[0] - alone[0] < 100
