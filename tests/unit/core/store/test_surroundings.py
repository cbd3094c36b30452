"""A store asks what is around it from the moment it is made; nobody has to give it anything afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from mqbroker.base.errors import Refused
from mqbroker.base.time import At
from mqbroker.core.address.permissions import BROKER, CREATE, CREATE_ADDRESS, Actor
from mqbroker.core.cluster.cluster_store import ClusterStore
from mqbroker.core.cluster.grouping import Grouping
from mqbroker.core.queue.kinds import QueueKind
from mqbroker.core.queue.queue import Queue, Segment
from mqbroker.core.store.store import Store
from mqbroker.journal.places import Slice
from mqbroker.wire.run import single
from mqbroker.wire.sections import Header, Properties, build_message

from tests.support.stage import Stage, options_with

ALICE = Actor("alice", (), 7)


class Noting:
    """Surroundings that note what they are asked."""

    node_id = "n1"

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.taken: list[tuple[Queue, Segment]] = []
        self.is_strict = False
        self.grouping: Callable[[ClusterStore], Grouping | None] = lambda store: None

    def permit(self, actor: Actor | None, permission: str, address: str, queue: str = "") -> None:
        self.asked.append((actor, permission, address))
        if self.is_strict:
            raise Refused("amqp:unauthorized-access", "not you")

    def schedule(self, timed: Any) -> None:
        self.asked.append(timed)

    def in_delivery(self) -> Iterator[tuple[Queue, Segment]]:
        return iter(self.taken)

    def read_page(self, slices: tuple[Slice, ...], then: Callable[[list[bytes]], None]) -> None:
        self.asked.append(slices)
        then([])

    def ends_itself(self, queue: Queue) -> bool:
        return queue.kind.name == "brief"

    def grouping_for(self, store: ClusterStore) -> Grouping | None:
        assert store.auto_delete, "all else is there"
        return self.grouping(store)


def store_in(around: Noting, **limits: int) -> Store:
    options = options_with(
        limits=limits, address_settings={"#": {"auto_delete_created_queues": True, "auto_delete_queues": True}}
    )
    return Store(options.limits, options.address_settings, Stage(options).broker.journal, around, At(0, 0))


def test_what_is_made_is_permitted_to_whoever_acts_and_counts_for_them() -> None:
    around = Noting()
    store = store_in(around, queues_per_user_max=1)
    assert store.create_queue(QueueKind("a", "a"), ALICE).kind.maker == "alice"
    assert around.asked == [(ALICE, CREATE_ADDRESS, "a"), (ALICE, CREATE[True], "a")]
    with pytest.raises(Refused, match="queues-per-user-max is 1"):
        store.create_queue(QueueKind("b", "b"), ALICE)
    assert store.create_queue(QueueKind("b", "b"), BROKER).kind.maker == ""


def test_what_is_not_permitted_is_not_made() -> None:
    around = Noting()
    around.is_strict = True
    store = store_in(around)
    with pytest.raises(Refused, match="not you"):
        store.create_queue(QueueKind("a", "a"), BROKER)
    assert not store.queues


def test_what_is_due_later_is_scheduled() -> None:
    around = Noting()
    store = store_in(around)
    queue = store.create_queue(QueueKind("a", "a"), BROKER)
    store.publish(store.addresses["a"], single(build_message(b"x", header=Header(ttl=1000))))
    assert queue in around.asked


def test_a_queue_that_somebody_else_ends_is_spared() -> None:
    store = store_in(Noting())
    queues = [store.create_queue(QueueKind(name, name), BROKER) for name in ("brief", "long")]
    for queue in queues:
        queue.is_used = True
        store.auto_delete.left(queue)
    assert [queue.idle_until_ms > 0 for queue in queues] == [False, True]


def test_the_parts_of_a_store_have_it_too() -> None:
    around = Noting()
    store = store_in(around)
    taken = store.create_queue(QueueKind("a", "a"), BROKER), Segment(single(build_message(b"x")), 0, 1, 0)
    around.taken.append(taken)
    assert list(store.in_delivery()) == [taken]
    assert store.arrivals.node_id == "n1"
    came: list[list[bytes]] = []
    store.paging.read((), came.append)
    assert (() in around.asked, came) == (True, [[]])


def test_groups_are_kept_together_by_what_it_gets() -> None:
    around = Noting()
    assert store_in(around).grouping is None
    around.grouping = lambda store: Grouping(store, "n1", lambda name: True, -1, is_kept=True)
    store = store_in(around)
    store.create_queue(QueueKind("a", "a"), BROKER)
    store.publish(store.addresses["a"], single(build_message(b"x", properties=Properties(group_id="g"))))
    assert store.grouping is not None
    assert [key for key, _ in store.grouping.owners.items()] == [("a", "g")]
