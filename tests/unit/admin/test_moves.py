"""Purge, move and retry: what goes where, in how many steps, and what a crash in the middle leaves."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.admin import moves
from mqbroker.node.values.inputs import AdminRequest, Stop
from mqbroker.node.values.jobs import JOBS_MAX

from tests.support.bytecodes import Bytecodes
from tests.support.stage import Stage, options_with
from tests.unit.admin.site import Site

STEP_BYTECODES = 150_000  # of a step that does a piece: about three milliseconds
DEAD = {"#": {"dead_letter_address": "DLQ", "expiry_address": "EXP", "auto_create_dead_letter_resources": False}}


def dead(*bodies: str, of: str = "orders", **fields: Any) -> Site:
    site = Site(DEAD)
    site.do("queue-create", name="DLQ")
    site.send(of, *bodies, **fields)
    site.kill(of)
    assert site.counts() == {"DLQ": len(bodies), of: 0}
    return site


# -- purge ------------------------------------------------------------------------------------------------------------


def test_purge_drops_all_but_what_is_in_delivery() -> None:
    site = Site()
    site.send("orders", "one", "two", "three")
    site.take("orders", 1)
    assert site.do("queue-purge", name="orders") == {"purged": 2}
    assert site.counts() == {"orders": 1}
    site.restart()
    assert site.bodies("orders") == ["one"]


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["queue-purge", "messages-move"])
def test_a_step_deals_with_a_small_piece_of_messages_that_are_unlike(operation: str) -> None:
    site, stage, count = Site(), Stage(options_with()), 1000
    site.stage = stage
    for name in ("orders", "other"):
        site.do("queue-create", name=name)
    site.send("orders", *("x" * (number % 7 + 1) for number in range(count)))
    said = {"name": "orders"} if operation == "queue-purge" else {"queue": "orders", "address": "other"}
    most = moves.LOOKS_MAX if operation == "queue-purge" else moves.MOVED_MAX
    queue, left = stage.broker.store.queues["orders"], count
    stage.give(AdminRequest(9999, 1, operation, said))
    work = []
    while True:
        counted = Bytecodes()
        batch = counted.of(stage.turn)
        work.append(counted.count)
        assert left - queue.message_count <= most
        left = queue.message_count
        if not batch.more:
            break
    assert left == 0
    assert max(work) < STEP_BYTECODES


def test_purge_by_selector() -> None:
    site = Site()
    site.send("orders", "a", "b", application_properties={"kind": "x"})
    site.send("orders", "c", application_properties={"kind": "y"})
    request = site.stage.ask("receive", 3, address="orders", count_max=1, wait_ms=1)
    site.stage.wait(2)
    assert site.stage.replies[request].result["messages"][0]["body"] == "a"
    assert site.do("queue-purge", name="orders", selector="kind = 'x'") == {"purged": 1}
    assert site.bodies("orders") == ["c"]


def test_purge_of_messages_whose_time_has_not_come() -> None:
    site = Site({"#": {"redelivery_delay": 60_000}})
    for colour in ("red", "blue", "red"):
        site.send("orders", colour, application_properties={"colour": colour})
    request = site.stage.ask("receive", 3, address="orders", count_max=9, wait_ms=1)
    site.stage.wait(2)
    site.stage.admin("settle", 3, tag=site.stage.replies[request].result["tag"], outcome="modified")
    (row,) = site.do("queues")["queues"]
    assert (row["scheduled_count"], row["ready_count"]) == (3, 0)
    assert site.do("queue-purge", name="orders", selector="colour = 'red'") == {"purged": 2}
    (row,) = site.do("queues")["queues"]
    assert (row["scheduled_count"], row["delivering_count"], row["message_count"]) == (1, 0, 1)
    site.stage.wait(61_000)
    assert site.bodies("orders") == ["blue"]


def test_a_long_purge_takes_many_steps_and_lets_others_have_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves.Purge, "bounds", (10, moves.UNBOUNDED))
    site = Site()
    site.send("orders", *map(str, range(95)))
    before = len(site.stage.batches)
    assert site.do("queue-purge", name="orders") == {"purged": 95}
    assert len(site.stage.batches) - before >= 10
    assert [batch.more for batch in site.stage.batches[before : before + 9]] == [True] * 9
    assert site.counts() == {"orders": 0}


def test_the_answer_waits_for_the_disk() -> None:
    site = Site()
    site.send("orders", "one")
    site.stage.is_disk_held = True
    request = site.stage.ask("queue-purge", name="orders")
    assert request not in site.stage.replies
    site.restart()
    site.stage.is_disk_held = False
    assert site.bodies("orders") == ["one"]


def test_what_was_accepted_before_is_purged_and_what_comes_later_stays() -> None:
    site = Site()
    site.stage.is_disk_held = True
    first = site.stage.ask("send", address="orders", messages=[{"body": "before"}])
    purge = site.stage.ask("queue-purge", name="orders")
    later = site.stage.ask("send", address="orders", messages=[{"body": "later"}])
    site.stage.is_disk_held = False
    site.stage.run()
    assert [site.stage.replies[each].result for each in (first, purge, later)] == [
        {"accepted": 1}, {"purged": 1}, {"accepted": 1},
    ]  # fmt: skip
    assert site.bodies("orders") == ["later"]


# -- move -------------------------------------------------------------------------------------------------------------


def test_move_by_selector_and_count() -> None:
    site = Site()
    for number in range(6):
        site.send("orders", str(number), application_properties={"even": number % 2 == 0})
    moved = site.do("messages-move", queue="orders", address="parked", selector="even = TRUE", count_max=2)
    assert moved == {"moved": 2, "left": 0}
    assert site.bodies("parked") == ["0", "2"]
    assert site.bodies("orders") == ["1", "3", "4", "5"]
    site.restart()
    assert site.counts() == {"orders": 4, "parked": 2}


def test_a_moved_message_keeps_its_order_priority_and_the_rest_of_its_time() -> None:
    site = Site()
    site.send("orders", "low", priority=1, ttl_ms=10_000)
    site.send("orders", "high", priority=9)
    site.stage.wait(4_000)
    site.do("messages-move", queue="orders", address="parked")
    high, low = site.take("parked")
    assert (high["body"], low["body"], low["header"]["priority"]) == ("high", "low", 1)
    assert low["header"]["ttl"] == 6_000
    site.stage.broker.local.closed(9)
    site.stage.wait(6_001)
    assert site.bodies("parked") == ["high"]


def test_what_would_reach_no_queue_stays() -> None:
    site = Site()
    site.do("queue-create", name="red", address="colours", routing_type="multicast", selector="colour = 'red'")
    for colour in ("red", "blue"):
        site.send("orders", colour, application_properties={"colour": colour})
    assert site.do("messages-move", queue="orders", address="colours") == {"moved": 1, "left": 1}
    assert (site.bodies("orders"), site.bodies("red")) == (["blue"], ["red"])


@pytest.mark.parametrize("synced", range(6))
def test_a_crash_in_the_middle_of_a_move_loses_and_doubles_nothing(
    synced: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves.Move, "bounds", (2, moves.MOVED_BYTES_MAX))
    site = Site()
    bodies = [f"{number:02}" for number in range(10)]
    site.send("orders", *bodies)
    site.do("queue-create", name="parked")
    site.stage.is_disk_held = True
    request = site.stage.ask("messages-move", queue="orders", address="parked")
    assert request not in site.stage.replies
    assert site.counts() == {"orders": 0, "parked": 10}
    for append in site.stage.pending[:synced]:
        site.stage.disk.commit([append])
    site.restart()
    site.stage.is_disk_held = False
    here, there = site.bodies("orders"), site.bodies("parked")
    assert there + here == bodies
    assert len(there) == min(2 * synced, 10)


def test_a_queue_that_is_deleted_meanwhile_ends_the_move(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves.Move, "bounds", (1, moves.MOVED_BYTES_MAX))
    site = Site()
    site.send("orders", "one", "two")
    stage = site.stage
    first, second = 5001, 5002
    stage.give(AdminRequest(first, 1, "messages-move", {"queue": "orders", "address": "parked"}))
    batch = stage.broker.step(stage._inputs, stage.at)
    stage._inputs = []
    assert batch.more
    stage.appends.append(batch.append)  # type: ignore[arg-type]
    stage.pending.append(batch.append)  # type: ignore[arg-type]
    stage.give(AdminRequest(second, 1, "queue-delete", {"name": "orders"}))
    stage.run()
    assert stage.replies[second].result == {"name": "orders", "messages": 1}
    assert stage.replies[first].error == {
        "condition": "amqp:resource-deleted",
        "description": "messages-move: the queue was deleted; 1 messages were moved before",
    }


def test_a_stop_ends_it_with_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves.Move, "bounds", (1, moves.MOVED_BYTES_MAX))
    site = Site()
    site.send("orders", "one", "two", "three")
    site.stage.give(AdminRequest(5001, 1, "messages-move", {"queue": "orders", "address": "parked"}))
    site.stage.give(Stop())
    site.stage.run()
    assert site.stage.halted == 0
    error = site.stage.replies[5001].error
    assert error is not None
    assert error["description"].startswith("messages-move: the broker stops; 0 messages were moved before")
    site.stage.start()
    assert site.counts()["orders"] == 3


def test_no_more_than_so_many_at_a_time() -> None:
    site = Site()
    site.send("orders", "one")
    for number in range(JOBS_MAX + 1):
        site.stage.give(AdminRequest(5000 + number, 1, "queue-purge", {"name": "orders"}))
    site.stage.run()
    errors = [site.stage.replies[5000 + number].error for number in range(JOBS_MAX + 1)]
    assert errors[:-1] == [None] * JOBS_MAX
    assert errors[-1] is not None
    assert errors[-1]["condition"] == "amqp:resource-limit-exceeded"


# -- retry ------------------------------------------------------------------------------------------------------------


def test_dead_letters_go_back_as_they_were() -> None:
    site = dead("one", "two", application_properties={"a": 1})
    assert site.do("dead-letters-retry", queue="DLQ") == {"retried": 2, "left": 0}
    assert site.counts() == {"DLQ": 0, "orders": 2}
    site.stage.stop()
    site.stage.start()
    one, two = site.take("orders")
    assert (one["body"], two["body"], one["delivery_count"]) == ("one", "two", 0)
    assert "message_annotations" not in one
    assert one["application_properties"] == {"a": 1}


def test_a_duplicate_id_does_not_make_a_duplicate_of_what_is_retried_or_moved_back() -> None:
    site = dead("a", application_properties={"_AMQ_DUPL_ID": "1"})
    assert site.do("dead-letters-retry", queue="DLQ") == {"retried": 1, "left": 0}
    assert site.counts() == {"DLQ": 0, "orders": 1}
    site.do("messages-move", queue="orders", address="elsewhere")
    assert site.do("messages-move", queue="elsewhere", address="orders") == {"moved": 1, "left": 0}
    assert site.bodies("orders") == ["a"]


def test_retry_of_some_leaves_the_others() -> None:
    site = dead("one", "two", "three")
    assert site.do("dead-letters-retry", queue="DLQ", count_max=1) == {"retried": 1, "left": 0}
    assert (site.bodies("DLQ"), site.bodies("orders")) == (["two", "three"], ["one"])


def test_what_is_no_dead_letter_or_cannot_go_back_stays() -> None:
    site = Site(DEAD | {"orders": {"auto_create_queues": False, "dead_letter_address": "DLQ"}})
    site.do("queue-create", name="DLQ")
    site.do("queue-create", name="orders")
    site.send("DLQ", "sent here")
    site.send("orders", "one")
    site.kill("orders")
    site.do("queue-delete", name="orders")
    assert site.do("dead-letters-retry", queue="DLQ") == {"retried": 0, "left": 2}
    assert site.bodies("DLQ") == ["sent here", "one"]


def test_a_copy_whose_subscription_is_gone_does_not_go_to_those_who_had_it() -> None:
    site = Site(DEAD)
    site.do("queue-create", name="DLQ")
    for name in ("a", "b"):
        site.do("queue-create", name=name, address="news", routing_type="multicast")
    site.send("news", "one")
    site.kill("a")
    site.do("queue-delete", name="a")
    assert site.do("dead-letters-retry", queue="DLQ") == {"retried": 0, "left": 1}
    assert site.bodies("b") == ["one"]
    assert site.do("dead-letters-retry", queue="DLQ", to_address=True) == {"retried": 1, "left": 0}
    assert site.bodies("b") == ["one", "one"]


@pytest.mark.parametrize("stays", [{}, {"auto_delete_addresses": False}])
def test_a_copy_whose_topic_is_gone_makes_no_queue_that_nobody_reads(stays: dict[str, Any]) -> None:
    site = Site({"#": {**DEAD["#"], **stays}})
    site.do("queue-create", name="DLQ")
    site.do("queue-create", name="a", address="news", routing_type="multicast")
    site.send("news", "one")
    site.kill("a")
    site.do("queue-delete", name="a")
    site.stage.wait(60_000)
    assert ("news" in site.stage.broker.store.addresses) == bool(stays)
    assert site.do("dead-letters-retry", queue="DLQ") == {"retried": 0, "left": 1}
    assert site.counts() == {"DLQ": 1}
    site.do("queue-create", name="a", address="news", routing_type="multicast")
    assert site.do("dead-letters-retry", queue="DLQ") == {"retried": 1, "left": 0}
    assert site.bodies("a") == ["one"]


def test_what_a_queue_shared_goes_to_another_queue_of_its_address() -> None:
    site = Site(DEAD)
    site.do("queue-create", name="DLQ")
    site.do("queue-create", name="a", address="orders")
    site.send("orders", "one")
    site.kill("a")
    site.do("queue-delete", name="a")
    site.do("queue-create", name="b", address="orders")
    assert site.do("dead-letters-retry", queue="DLQ") == {"retried": 1, "left": 0}
    assert site.bodies("b") == ["one"]


def test_what_goes_back_counts_at_the_bounds_of_its_address_as_all_that_is_there() -> None:
    bounds = {"max_size_messages": 2, "address_full_policy": "FAIL"}
    site = Site({**DEAD, "orders": bounds})
    site.send("orders", "one", "two")
    site.kill("orders")
    assert site.do("dead-letters-retry", queue="DLQ") == {"retried": 2, "left": 0}
    meter = site.stage.broker.store.addresses["orders"].meter
    assert meter is not None
    assert (meter.count, meter.is_full) == (2, True)
    site.do("queue-purge", name="orders")
    assert (meter.count, meter.size_bytes) == (0, 0)
    site.send("orders", "three")
    assert meter.count == 1


def test_of_many_subscribers_only_the_one_that_failed_gets_it_again() -> None:
    site = Site(DEAD)
    site.do("queue-create", name="DLQ")
    for name in ("a", "b"):
        site.do("queue-create", name=name, address="news", routing_type="multicast")
    site.send("news", "today")
    site.kill("a")
    assert site.counts() == {"DLQ": 1, "a": 0, "b": 1}
    assert site.do("dead-letters-retry", queue="DLQ") == {"retried": 1, "left": 0}
    assert site.counts() == {"DLQ": 0, "a": 1, "b": 1}


@pytest.mark.parametrize("synced", range(4))
def test_a_crash_in_the_middle_of_a_retry(synced: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves.Retry, "bounds", (1, moves.MOVED_BYTES_MAX))
    site = dead("one", "two", "three")
    site.stage.is_disk_held = True
    site.stage.ask("dead-letters-retry", queue="DLQ")
    for append in site.stage.pending[:synced]:
        site.stage.disk.commit([append])
    site.restart()
    site.stage.is_disk_held = False
    assert site.bodies("orders") + site.bodies("DLQ") == ["one", "two", "three"]
    assert len(site.bodies("orders")) == synced


# -- wrong arguments --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "arguments", "said"),
    [
        ("queue-purge", {}, "'name' is missing"),
        ("queue-purge", {"name": "nowhere"}, "there is no queue 'nowhere'"),
        ("queue-purge", {"name": "orders", "selector": "a ="}, "column"),
        ("queue-purge", {"name": "orders", "filter": "a = 1"}, "unknown argument 'filter'"),
        ("messages-move", {"queue": "orders"}, "'address' is missing"),
        ("messages-move", {"queue": "orders", "address": "orders"}, "is bound to address 'orders' itself"),
        ("messages-move", {"queue": "orders", "address": "none"}, "no queue gets what is sent"),
        ("messages-move", {"queue": "orders", "address": "x", "count_max": -2}, "from -1 to"),
        ("messages-move", {"queue": "orders", "address": "x", "count_max": True}, "must be int"),
        ("dead-letters-retry", {"queue": "nowhere"}, "there is no queue 'nowhere'"),
        ("dead-letters-retry", {"queue": "orders", "address": "x"}, "unknown argument 'address'"),
    ],
)
def test_wrong_arguments(operation: str, arguments: dict[str, Any], said: str) -> None:
    site = Site({"none": {"default_address_routing_type": "MULTICAST"}})
    site.send("orders", "one")
    assert said in site.refused(operation, **arguments)[1]
    assert site.bodies("orders") == ["one"]


def test_a_move_to_one_queue_of_an_address_makes_no_other() -> None:
    site = Site()
    for name in ("one", "two"):
        site.do("queue-create", name=name, address="shop")
    site.send("shop::one", "a", "b")
    assert site.do("messages-move", queue="one", address="shop::two") == {"moved": 2, "left": 0}
    assert site.counts() == {"one": 0, "two": 2}
    assert "is bound to" in site.refused("messages-move", queue="two", address="shop::two")[1]
    assert "belongs to address 'shop'" in site.refused("messages-move", queue="two", address="stall::one")[1]


BOUNDS = [
    ({"max_size_messages": 3, "address_full_policy": "FAIL"}, 3),
    ({"max_size_messages": 3, "address_full_policy": "DROP"}, 3),
    ({"max_size_messages": 2, "page_limit_messages": 1}, 3),
    ({"max_size_messages": 2, "page_limit_messages": 1, "page_full_policy": "DROP"}, 3),
    ({"max_size_messages": 3, "address_full_policy": "BLOCK"}, 3),
    ({"max_size_messages": 3, "address_full_policy": "PAGE"}, 5),
]


@pytest.mark.parametrize(("bounds", "most"), BOUNDS)
@pytest.mark.parametrize("at_a_time", [1, 2, 200])
def test_what_does_not_fit_is_left(
    bounds: dict[str, Any], most: int, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves.Move, "bounds", (at_a_time, moves.MOVED_BYTES_MAX))
    site = Site({"full": bounds})
    site.send("full", "there")
    site.send("orders", *"abcd")
    wanted = {"moved": most - 1, "left": 5 - most}
    assert site.do("messages-move", queue="orders", address="full") == wanted
    site.restart()
    assert site.counts() == {"full": most, "orders": 5 - most}
    assert site.bodies("orders") == list("abcd")[most - 1 :]


@pytest.mark.parametrize(("bounds", "most"), BOUNDS[:2] + BOUNDS[4:])
def test_dead_letters_that_do_not_fit_are_left(bounds: dict[str, Any], most: int) -> None:
    site = Site({**DEAD, "orders": bounds})
    site.do("queue-create", name="DLQ")
    site.send("prices", "p")
    site.send("orders", *"abc")
    for name in ("orders", "prices"):
        site.kill(name)
    site.send("orders", "1", "2")
    assert site.do("dead-letters-retry", queue="DLQ") == {"retried": most - 1, "left": 5 - most}
    assert site.counts() == {"DLQ": 5 - most, "orders": most, "prices": 1}


def test_from_queue_to_queue_of_a_full_address_no_room_is_needed() -> None:
    site = Site({"shop": {"max_size_messages": 2, "address_full_policy": "FAIL"}})
    for name in ("one", "two"):
        site.do("queue-create", name=name, address="shop")
    site.send("shop::one", "a", "b")
    assert site.do("messages-move", queue="one", address="shop::two") == {"moved": 2, "left": 0}
