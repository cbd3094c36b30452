"""What an address keeps for queues that are made later."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.amqp import frame_costs
from mqbroker.core.address.address import MULTICAST
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.cluster.queue_observer import QueueObserver
from mqbroker.core.queue.kinds import RING_PREFIX, QueueKind
from mqbroker.core.queue.queue import Queue
from mqbroker.node.amqp.peers.turns import ALONE_WORK
from mqbroker.node.values.inputs import OptionsChanged
from mqbroker.wire.performatives import Attach, Source, Target
from mqbroker.wire.run import single
from mqbroker.wire.sections import build_message
from mqbroker.wire.types import Symbol

from tests.support import frames
from tests.support.stage import Stage, options_with
from tests.unit.core.address.test_diverts import counts, divert, stage_with
from tests.unit.node.test_address_settings import Site

RING = f"{RING_PREFIX}news"


def settings(**values: Any) -> dict[str, Any]:
    return {"default_address_routing_type": "MULTICAST", "retroactive_message_count": 3, **values}


def site(**values: Any) -> Site:
    return Site(**settings(**values))


def subscribe(here: Site, name: str, routing: str = "multicast", **kind: Any) -> list[str]:
    """A queue that is made now, and the bodies that are in it, in order."""
    here.stage.admin("queue-create", name=name, address="news", routing_type=routing, **kind)
    return bodies(here, name)


def bodies(here: Site, queue: str) -> list[str]:
    """What is in a queue; nothing is taken."""
    return [row["body"] for row in here.stage.admin("browse", queue=queue, limit=100)["messages"]]


@pytest.mark.option("address-settings.retroactive-message-count")
@pytest.mark.parametrize(("count", "got"), [(0, []), (1, ["4"]), (3, ["2", "3", "4"]), (9, ["1", "2", "3", "4"])])
def test_queues_that_are_made_later_get_the_newest(count: int, got: list[str]) -> None:
    here = site(retroactive_message_count=count)
    here.send("1", "2", to="news")
    here.send("3", "4", to="news")
    assert subscribe(here, "a") == got
    here.send("5", to="news")
    assert bodies(here, "a") == [*got, "5"]
    assert subscribe(here, "b") == ["1", "2", "3", "4", "5"][5 - count :] if count < 5 else bodies(here, "a")


def test_shared_queues_get_them_too() -> None:
    here = site()
    here.send("1", "2", to="news")
    assert subscribe(here, "a", "anycast") == ["1", "2"]


def test_the_newest_are_kept_whatever_their_priority() -> None:
    here = site()
    for priority, body in ((9, "old"), (0, "1"), (9, "2"), (4, "3")):
        here.send(body, to="news", priority=priority)
    assert subscribe(here, "a") == ["2", "3", "1"]


def test_what_is_durable_outlives_a_crash() -> None:
    here = site()
    here.send("1", "2", to="news")
    here.send("3", to="news", durable=False)
    here.stage.crash()
    here.stage.start()
    here.send("4", to="news")
    assert here.queues() == {RING: 3}
    assert subscribe(here, "a") == ["1", "2", "4"]
    here.stage.crash()
    here.stage.start()
    assert bodies(here, "a") == ["1", "2", "4"]


def test_a_queue_gets_what_its_filter_takes() -> None:
    here = site()
    for colour in ("red", "blue", "red"):
        here.send(colour, to="news", application_properties={"colour": colour})
    assert subscribe(here, "a", selector="colour = 'red'") == ["red", "red"]


def test_what_has_expired_is_not_given_and_leaves_nothing_behind() -> None:
    here = site(expiry_address="moved.late")
    here.send("1", to="news", ttl_ms=100)
    here.send("2", to="news")
    here.stage.wait(200)
    assert here.queues() == {RING: 1}
    assert subscribe(here, "a") == ["2"]


@pytest.mark.parametrize(("count", "kept"), [(2, ["3", "4"]), (9, ["2", "3", "4"]), (0, [])])
def test_a_reload_changes_how_many_are_kept(count: int, kept: list[str]) -> None:
    here = site()
    here.send("1", "2", "3", "4", to="news")
    here.stage.options = options_with(address_settings={"#": settings(retroactive_message_count=count)})
    here.stage.admin("config-reload")
    assert here.queues() == ({RING: len(kept)} if count else {})
    here.stage.crash()
    here.stage.start()
    assert subscribe(here, "a") == kept


def test_a_ring_that_is_made_much_smaller_shrinks_piece_by_piece_and_gives_what_it_is_to_have() -> None:
    here = site(retroactive_message_count=2000)
    stage, store = here.stage, here.stage.broker.store
    here.send("first", to="news")
    for number in range(1000):
        store.publish(store.addresses["news"], single(build_message(b"%d" % number)))
    here.send("1", "2", to="news")
    ring = store.queues[RING]
    stage.options = options_with(address_settings={"#": settings(retroactive_message_count=2)})
    stage.give(OptionsChanged(stage.options))
    left, steps = ring.ready_count, 0
    while stage.turn().more or stage.pending:
        stage.sync()
        assert left - ring.ready_count <= 2 * (ALONE_WORK // frame_costs.DROPPED + 1)
        left, steps = ring.ready_count, steps + 1
        assert ring.ready_count == 2 + ring.excess_count
        if steps == 3:
            assert ring.excess_count
            made = store.create_queue(QueueKind("b", "news", MULTICAST), BROKER)
            assert made.message_count == 2
    assert (ring.ready_count, ring.message_count, steps > 5) == (2, 2, True)
    assert subscribe(here, "a") == ["1", "2"]


def test_settings_that_changed_while_nothing_ran_hold() -> None:
    here = site()
    here.send("1", "2", "3", to="news")
    here.stage.crash()
    here.stage.options = options_with(address_settings={"#": settings(retroactive_message_count=1)})
    here.stage.start()
    assert subscribe(here, "a") == ["3"]


def test_an_address_that_keeps_messages_stays_until_somebody_deletes_it() -> None:
    here = site(auto_delete_addresses=True)
    here.send("1", to="news")
    here.stage.wait(10 * 60_000)
    assert here.queues() == {RING: 1}
    here.stage.admin("address-delete", name="news")
    assert here.queues() == {}
    assert [row["name"] for row in here.stage.admin("addresses")["addresses"]] == []
    here.stage.crash()
    here.stage.start()
    assert here.queues() == {}


def test_what_is_kept_counts_at_no_bound_of_its_address() -> None:
    here = site(max_size_messages=2, address_full_policy="FAIL")
    for body in "12345":
        here.send(body, to="news")
    assert here.queues() == {RING: 3}
    assert subscribe(here, "a") == ["4", "5"]  # as many as it may hold


def test_rings_make_room_where_the_memory_is_full() -> None:
    matches = {"news": settings(retroactive_message_count=1000), "#": {"address_full_policy": "BLOCK"}}
    stage = Stage(options_with(limits={"global_max_size_bytes": 100_000}, address_settings=matches))
    here = Site()
    here.stage = stage
    for _ in range(40):
        here.send(*["x" * 1000] * 10, to="news")
    held = stage.broker.store.memory.held_bytes
    assert held < 100_000
    here.send("y" * 1000, to="orders")
    assert stage.broker.store.memory.has_room


def test_queues_of_one_address_of_dead_letters_get_none() -> None:
    here = site(dead_letter_address="moved.dead", auto_create_dead_letter_resources=True, max_delivery_attempts=1)
    here.send("1", to="moved.dead")
    subscribe(here, "a")
    here.send("2", to="news")
    _, tag = here.take(of="a")
    here.settle(tag, "rejected")
    assert bodies(here, "DLQ.news") == ["2"]


@pytest.mark.parametrize("is_taken", [False, True])
def test_what_is_held_is_kept_when_it_is_taken_and_then_once(is_taken: bool) -> None:
    """Each attempt to bring it there would have the ring keep one more."""
    stage = Stage(
        options_with(
            address_settings={
                "orders": {"expiry_address": "late"},
                "late": {"retroactive_message_count": 100, "auto_create_queues": False},
            }
        )
    )
    stage.admin("queue-create", name="orders")
    stage.admin("address-create", name="late", routing_types=["multicast"])
    if is_taken:
        stage.admin("queue-create", name="first", address="late", routing_type="multicast")
    stage.admin("send", address="orders", messages=[{"body": "x", "ttl_ms": 10}])
    for _ in range(5):
        stage.wait(61_000)
    assert (
        stage.broker.store.dead_letters.held_total == 0 if is_taken else stage.broker.store.dead_letters.held_total > 2
    )
    stage.admin("queue-create", name="second", address="late", routing_type="multicast")
    stage.wait(61_000)
    assert stage.broker.store.queues["second"].message_count == 1


def test_what_a_divert_takes_is_kept_where_no_queue_of_its_address_does() -> None:
    """It is not held, so it comes once."""
    late = {"retroactive_message_count": 100, "auto_create_queues": False}
    stage = stage_with(
        divert("d", "late", "audit"), address_settings={"orders": {"expiry_address": "late"}, "late": late}
    )
    for queue in ("orders", "audit"):
        stage.admin("queue-create", name=queue)
    stage.admin("address-create", name="late", routing_types=["multicast"])
    stage.admin("send", address="orders", messages=[{"body": "x", "ttl_ms": 10}])
    for _ in range(3):
        stage.wait(61_000)
    assert stage.broker.store.dead_letters.held_total == 0
    stage.admin("queue-create", name="second", address="late", routing_type="multicast")
    assert counts(stage) == {RING_PREFIX + "late": 1, "audit": 1, "second": 1}


def test_what_is_held_pushes_nothing_out_of_what_its_address_keeps_though_a_divert_may_take_it() -> None:
    """It comes again each minute, and is kept when the divert takes it, once, and behind what came before."""
    there = {"auto_create_queues": False, "auto_create_addresses": False, "auto_delete_addresses": False}
    late = {"retroactive_message_count": 5, **there}
    settings = {"orders": {"expiry_address": "late"}, "late": late, "hub": late, "gone": there}
    stage = stage_with(divert("1", "late", "hub"), divert("2", "late", "gone"), address_settings=settings)
    stage.admin("queue-create", name="orders")
    for name in ("late", "hub"):
        stage.admin("address-create", name=name, routing_types=["multicast"])
    stage.admin("send", address="late", messages=[{"body": f"good{number}"} for number in range(4)])
    assert counts(stage) == {RING_PREFIX + "late": 4, RING_PREFIX + "hub": 4}
    stage.admin("send", address="orders", messages=[{"body": "dead", "ttl_ms": 10}])
    for _ in range(6):
        stage.wait(61_000)
    assert counts(stage) == {RING_PREFIX + "late": 4, RING_PREFIX + "hub": 4, "orders": 1}
    stage.admin("queue-create", name="gone")
    for _ in range(2):
        stage.wait(61_000)
    stage.crash()
    stage.start()
    assert counts(stage) == {RING_PREFIX + "late": 5, RING_PREFIX + "hub": 5, "gone": 1}
    for name in ("late", "hub"):
        stage.admin("queue-create", name=f"second of {name}", address=name, routing_type="multicast")
        answer = stage.admin("receive", address=f"second of {name}", count_max=100, wait_ms=1)
        assert [each["body"] for each in answer["messages"]] == ["good0", "good1", "good2", "good3", "dead"]


def test_what_goes_astray_is_kept_though_no_queue_takes_it() -> None:
    """Nobody holds it, so it would be gone; also after one that is held."""
    astray = {"send_to_dla_on_no_route": True, "dead_letter_address": "late"}
    late = {"retroactive_message_count": 100, "auto_create_queues": False}
    stage = Stage(options_with(address_settings={"orders": astray, "late": late, "ends": {"expiry_address": "late"}}))
    for name in ("orders", "late"):
        stage.admin("address-create", name=name, routing_types=["multicast"])
    stage.admin("queue-create", name="ends")
    stage.admin("send", address="ends", messages=[{"body": "held", "ttl_ms": 10}])
    stage.wait(1000)
    assert "amqp:" not in str(stage.admin("send", address="orders", messages=[{"body": "x"}]))
    stage.admin("queue-create", name="second", address="late", routing_type="multicast")
    assert stage.broker.store.queues["second"].message_count == 1


def test_an_address_that_ends_with_its_client_keeps_none() -> None:
    here = site()
    conn = here.stage.accept()
    dynamic = Source(dynamic=True, capabilities=(Symbol("topic"),))
    attach = frames.frame(Attach(name="t", handle=0, role=True, source=dynamic, target=Target()))
    said = here.stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun() + attach)
    name = frames.of_kind(said, Attach)[0].source.address
    here.send("1", to=name)
    assert [queue for queue in here.stage.broker.store.queues if queue.startswith("$.")] == []
    here.stage.talk(conn, frames.detach())
    assert here.queues() == {}


class Noting(QueueObserver):
    """What a cluster would tell its nodes of."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def queue_added(self, queue: Queue) -> None:
        self.told.append(("added", queue.kind.name))

    def queue_removed(self, queue: Queue) -> None:
        self.told.append(("removed", queue.kind.name))


def test_other_nodes_hear_nothing_of_it() -> None:
    here = site()
    watcher = Noting()
    here.stage.broker.store.observe_queues(watcher)
    here.send("1", to="news")
    subscribe(here, "a")
    here.stage.options = options_with(address_settings={"#": settings(retroactive_message_count=0)})
    here.stage.admin("config-reload")
    assert here.queues() == {"a": 1}
    assert watcher.told == [("added", "a")]
