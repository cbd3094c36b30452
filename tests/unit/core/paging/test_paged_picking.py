"""What a picker takes out of a queue that pages, while consumers take from it too: each message goes one way."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from mqbroker.admin import moves
from mqbroker.core.paging import page_look

from tests.unit.admin.site import Site

SETTINGS = {"max_size_messages": 8, "address_full_policy": "PAGE"}


def paged(count: int = 40, *, durable: bool = True, **limits: Any) -> Site:
    """Messages 0 to `count` in queue `orders`, all but the first eight in pages; every third of them is red."""
    site = Site({"orders": SETTINGS}, journal={"journal_file_size_bytes": 16384}, **limits)
    fill(site, 0, count, durable=durable)
    assert site.do("queue-show", name="orders")["paged_count"] > count - 10
    return site


def fill(site: Site, first: int, end: int, *, durable: bool = True) -> None:
    for number in range(first, end):
        colour = {"colour": "red" if number % 3 == 0 else "blue"}
        site.send("orders", str(number), durable=durable, application_properties=colour)


def numbers(site: Site, queue: str = "orders") -> list[int]:
    """All messages of a queue in their order, taken for good."""
    found: list[int] = []
    while True:
        bodies = [int(message["body"]) for message in site.take(queue, 7, session=5)]
        if not bodies:
            return found
        found += bodies
        site.stage.admin("settle", 5, tag=site.stage.broker.local._tag)


def check_empty(site: Site) -> None:
    """Nothing is held for messages that are gone."""
    store = site.stage.broker.store
    assert (store.memory.held_bytes, store.paging.queues) == (0, {})
    assert sum(segment.pins for segment in store.journal._ledger.segments) == 0
    assert sum(segment.loose_bytes for segment in store.journal._ledger.segments) == 0


def reds(end: int) -> list[int]:
    return list(range(0, end, 3))


def others(end: int) -> list[int]:
    return [number for number in range(end) if number % 3]


@pytest.mark.parametrize("durable", [True, False])
def test_a_purge_by_selector_goes_through_the_pages_and_brings_none_in(durable: bool) -> None:
    site = paged(durable=durable)
    orders = site.stage.broker.store.queues["orders"]
    held = orders.ready_count
    assert site.do("queue-purge", name="orders", selector="colour = 'red'") == {"purged": 14}
    assert (orders.message_count, orders.paged_count >= 26 - held) == (26, True)
    if durable:
        site.restart()
    assert numbers(site) == others(40)
    check_empty(site)


@pytest.mark.parametrize("durable", [True, False])
def test_a_move_takes_all_in_order_and_pages_it_where_it_goes(durable: bool) -> None:
    site = Site({"#": SETTINGS})
    fill(site, 0, 40, durable=durable)
    assert site.do("messages-move", queue="orders", address="parked") == {"moved": 40, "left": 0}
    assert site.counts() == {"orders": 0, "parked": 40}
    assert site.do("queue-show", name="parked")["paged_count"] > 20
    if durable:
        site.restart()
    assert numbers(site, "parked") == list(range(40))
    check_empty(site)


def test_a_move_ends_at_its_count_in_the_middle_of_a_page() -> None:
    site = paged()
    moved = site.do("messages-move", queue="orders", address="parked", selector="colour = 'red'", count_max=9)
    assert moved == {"moved": 9, "left": 0}
    assert numbers(site, "parked") == reds(40)[:9]
    assert numbers(site) == sorted(others(40) + reds(40)[9:])
    check_empty(site)


def test_dead_letters_that_are_paged_go_back() -> None:
    site = Site({"#": {"dead_letter_address": "DLQ", "auto_create_dead_letter_resources": False}, "DLQ": SETTINGS})
    site.do("queue-create", name="DLQ")
    fill(site, 0, 30)
    site.kill("orders")
    assert site.do("queue-show", name="DLQ")["paged_count"] > 20
    assert site.do("dead-letters-retry", queue="DLQ", selector="colour = 'red'") == {"retried": 10, "left": 0}
    assert numbers(site) == reds(30)
    site.restart()
    assert site.do("dead-letters-retry", queue="DLQ") == {"retried": 20, "left": 0}
    assert numbers(site) == others(30)
    check_empty(site)


def test_what_is_not_on_disk_yet_is_waited_for() -> None:
    site = paged()
    site.stage.is_disk_held = True
    request = site.stage.ask("queue-purge", name="orders", selector="colour = 'red'")
    for number in (42, 45):
        body = {"body": str(number), "application_properties": {"colour": "red"}}
        site.stage.ask("send", address="orders", messages=[body])
    assert request not in site.stage.replies
    site.stage.is_disk_held = False
    site.stage.run()
    assert site.stage.replies[request].result == {"purged": 14}
    assert numbers(site) == [*others(40), 42, 45]


def test_a_request_that_waits_for_a_page_makes_no_steps_and_ends_with_its_queue() -> None:
    site = paged()
    site.stage.are_pages_held = True
    request = site.stage.ask("queue-purge", name="orders", selector="colour = 'red'")
    assert (len(site.stage.page_reads), request in site.stage.replies) == (1, False)
    assert site.stage.step().more is False
    assert site.do("queue-delete", name="orders")["messages"] == 37
    site.stage.run()
    error = site.stage.replies[request].error
    assert error is not None
    assert error["description"].endswith("the queue was deleted; 3 messages were purged before")
    site.stage.read_pages()
    site.stage.run()
    check_empty(site)


def test_a_stop_answers_a_request_that_waits() -> None:
    site = paged()
    site.stage.are_pages_held = True
    request = site.stage.ask("messages-move", queue="orders", address="parked")
    site.stage.stop()
    error = site.stage.replies[request].error
    assert error is not None
    assert "the broker stops; 8 messages were moved before" in error["description"]
    site.stage.are_pages_held = False
    site.stage.start()
    assert sorted(numbers(site) + numbers(site, "parked")) == list(range(40))


def test_two_requests_at_once_take_each_message_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves.Move, "bounds", (3, moves.MOVED_BYTES_MAX))
    site = paged(60)
    site.stage.are_pages_held = True
    first = site.stage.ask("messages-move", queue="orders", address="one")
    second = site.stage.ask("messages-move", queue="orders", address="two", selector="colour = 'red'")
    for _ in range(200):
        site.stage.read_pages(1)
        site.stage.run()
    counts = [site.stage.replies[each].result["moved"] for each in (first, second)]
    site.stage.are_pages_held = False
    site.stage.read_pages()
    site.stage.run()
    one, two = numbers(site, "one"), numbers(site, "two")
    assert counts == [len(one), len(two)]
    assert sorted(one + two) == list(range(60))
    check_empty(site)


def test_compaction_goes_on_beside_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    site = paged(90)
    site.stage.are_pages_held = True
    request = site.stage.ask("queue-purge", name="orders", selector="colour = 'red'")
    before = set(site.stage.disk.stable)
    for _ in range(60):
        site.send("busy", *["x" * 1000] * 4)
        site.do("queue-purge", name="busy")
        site.stage.read_pages(1)
        site.stage.run()
    assert not before & set(site.stage.disk.stable), "no old segment is left"
    site.stage.are_pages_held = False
    site.stage.read_pages()
    site.stage.run()
    assert site.stage.replies[request].result == {"purged": 30}
    site.restart()
    assert numbers(site) == others(90)
    check_empty(site)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_lost_or_doubled_beside_consumers(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Consumers have pages read and pages come slowly, while messages are moved and purged in small pieces."""
    rng = random.Random(seed)
    monkeypatch.setattr(moves.Move, "bounds", (rng.choice((1, 3, 20)), moves.MOVED_BYTES_MAX))
    monkeypatch.setattr(page_look, "STRETCH_BYTES_MAX", rng.choice((1, 500, 1 << 20)))
    site = paged(60)
    site.stage.are_pages_held = True
    taken: list[int] = []
    requests: list[int] = []
    number = 60
    for _ in range(80):
        dice = rng.random()
        if dice < 0.3:
            taken += [int(one["body"]) for one in site.take("orders", rng.choice((1, 5)), session=4)]
        elif dice < 0.5:
            fill(site, number, number + 2, durable=rng.random() < 0.5)
            number += 2
        elif dice < 0.6 and len(requests) < 8:
            said = {"selector": "colour = 'red'"} if rng.random() < 0.7 else {}
            requests.append(site.stage.ask("messages-move", queue="orders", address=rng.choice(("one", "two")), **said))
        elif dice < 0.65 and len(requests) < 12:
            requests.append(site.stage.ask("queue-purge", name="orders", selector="colour = 'green'"))
        else:
            site.stage.read_pages(rng.choice((1, 2)))
            site.stage.run()
    site.stage.are_pages_held = False
    site.stage.read_pages()
    site.stage.run()
    assert all(site.stage.replies[each].error is None for each in requests)
    moved = sum(site.stage.replies[each].result.get("moved", 0) for each in requests)
    left = numbers(site)
    gone = [each for name in ("one", "two") if name in site.counts() for each in numbers(site, name)]
    assert Counter(taken + left + gone) == Counter(range(number))
    assert moved == len(gone)
    assert left == sorted(left)
    site.stage.admin("settle", 4, tag=1)
