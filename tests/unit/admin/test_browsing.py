"""Looking at messages takes none, page by page, and finds one wherever it is."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.admin import browsing

from tests.unit.admin.site import Site


def pages(site: Site, **arguments: Any) -> list[list[str]]:
    """Bodies of all pages of queue `orders`."""
    found, place = [], None
    while True:
        answer = site.do("browse", queue="orders", **arguments, **({"from": place} if place else {}))
        found.append([message["body"] for message in answer["messages"]])
        place = answer["next"]
        if place is None:
            return found


def test_a_browsed_queue_is_as_before() -> None:
    site = Site()
    site.send("orders", "low", priority=1, ttl_ms=5000)
    site.send("orders", "one", "two")
    before = site.do("queue-show", name="orders")
    answer = site.do("browse", queue="orders")
    assert [(one["body"], one["state"]) for one in answer["messages"]] == [
        ("one", "ready"), ("two", "ready"), ("low", "ready"),
    ]  # fmt: skip
    low = answer["messages"][2]
    assert (low["message_id_in_queue"], low["delivery_count"]) == (1, 0)
    assert low["expires_ms"] == low["arrived_ms"] + 5000
    assert low["size_bytes"] > 10
    assert answer["messages"][0]["expires_ms"] is None
    assert site.do("queue-show", name="orders") == before
    assert [message["body"] for message in site.take("orders")] == ["one", "two", "low"]


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_pages_hold_everything_once(limit: int) -> None:
    site = Site({"#": {"redelivery_delay": 60_000}})
    site.send("orders", "a", "b", "c")
    request = site.stage.ask("receive", 3, address="orders", count_max=9, wait_ms=1)
    site.stage.wait(2)
    site.stage.admin("settle", 3, tag=site.stage.replies[request].result["tag"], outcome="modified")
    site.send("orders", "d", "e")
    found = pages(site, limit=limit)
    assert [body for page in found for body in page] == ["d", "e", "a", "b", "c"]
    assert max(map(len, found)) <= limit


def test_a_selector_is_looked_for_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browsing, "LOOKS_MAX", 10)
    site = Site()
    for number in range(25):
        site.send("orders", str(number), application_properties={"last": number == 24})
    assert pages(site, selector="last = TRUE") == [[], [], ["24"]]


def test_large_messages_are_shown_without_their_bodies_in_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browsing, "BODY_BYTES_MAX", 100)
    monkeypatch.setattr(browsing, "PAGE_BYTES_MAX", 150)
    site = Site()
    site.send("orders", "x" * 200, "y" * 200, "z" * 200)
    (message, _) = site.do("browse", queue="orders")["messages"]
    assert (message["body"], message["body_encoding"]) == (None, "omitted")
    whole = site.do("message-show", queue="orders", id=message["message_id_in_queue"])
    assert whole["body"] == "x" * 200


def test_one_message_wherever_it_is() -> None:
    site = Site({"#": {"redelivery_delay": 60_000}})
    site.send("orders", "one", "two", "three", priority=7)
    request = site.stage.ask("receive", 3, address="orders", count_max=1, wait_ms=1)
    site.stage.wait(2)
    site.stage.admin("settle", 3, tag=site.stage.replies[request].result["tag"], outcome="modified")
    site.take("orders", 1)
    site.stage.is_disk_held = True
    site.stage.ask("send", address="orders", messages=[{"body": "four"}])
    states = [site.do("message-show", queue="orders", id=number) for number in (1, 2, 3, 4)]
    assert [(one["body"], one["state"], one["delivery_count"]) for one in states] == [
        ("one", "scheduled", 1), ("two", "delivering", 0), ("three", "ready", 0), ("four", "waiting", 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "arguments", "said"),
    [
        ("browse", {}, "'queue' is missing"),
        ("browse", {"queue": "orders", "limit": 0}, "from 1 to 1000, not 0"),
        ("browse", {"queue": "orders", "from": "ready:x:1"}, "is what 'next' said before"),
        ("browse", {"queue": "orders", "selector": "a ="}, "column"),
        ("browse", {"queue": "orders", "count": 1}, "unknown argument 'count'"),
        ("message-show", {"queue": "orders"}, "'id' is missing"),
        ("message-show", {"queue": "orders", "id": 99}, "has no message 99"),
    ],
)
def test_wrong_arguments(operation: str, arguments: dict[str, Any], said: str) -> None:
    site = Site()
    site.send("orders", "one")
    assert said in site.refused(operation, **arguments)[1]


# -- what is paged -----------------------------------------------------------------------------------------------------


def paged(count: int = 40) -> Site:
    site = Site({"orders": {"max_size_messages": 8, "address_full_policy": "PAGE", "redelivery_delay": 60_000}})
    for number in range(count):
        site.send("orders", str(number), application_properties={"last": number == count - 1})
    return site


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_what_is_paged_is_shown_behind_the_rest_and_stays(limit: int) -> None:
    site = paged()
    before = site.do("queue-show", name="orders")
    found = pages(site, limit=limit)
    assert [int(body) for page in found for body in page] == list(range(40))
    assert max(map(len, found)) <= limit
    assert site.do("queue-show", name="orders") == before
    answer = site.do("browse", queue="orders", limit=1000)
    assert {one["state"] for one in answer["messages"]} == {"ready", "paged"}
    assert site.stage.broker.store.memory.held_bytes < 10 * 300


def test_a_selector_finds_the_last_message_of_the_last_page(monkeypatch: pytest.MonkeyPatch) -> None:
    site = paged()
    assert [page for page in pages(site, selector="last = TRUE") if page] == [["39"]]
    monkeypatch.setattr(browsing, "LOOKS_MAX", 10)
    found = pages(site, selector="last = TRUE")
    assert found[-1] == ["39"]
    assert len(found) >= 4


def test_what_is_read_for_consumers_meanwhile_is_not_missed() -> None:
    site = paged()
    first = site.do("browse", queue="orders", limit=12)
    assert [one["body"] for one in first["messages"]] == [str(number) for number in range(12)]
    request = site.stage.ask("receive", 3, address="orders", count_max=8, wait_ms=1)
    site.stage.wait(2)
    assert len(site.stage.replies[request].result["messages"]) == 8
    held = site.stage.broker.store.queues["orders"]
    assert held.paged_count < 32
    bodies: list[str] = []
    place = first["next"]
    states = set()
    while place is not None:
        answer = site.do("browse", queue="orders", limit=5, **{"from": place})
        bodies += [one["body"] for one in answer["messages"]]
        states |= {one["state"] for one in answer["messages"]}
        place = answer["next"]
    assert bodies == [str(number) for number in range(12, 40)]


def test_one_message_that_is_paged_or_was() -> None:
    site = paged()
    shown = site.do("message-show", queue="orders", id=30)
    assert (shown["body"], shown["state"], shown["message_id_in_queue"]) == ("29", "paged", 30)
    assert "has no message 99" in site.refused("message-show", queue="orders", id=99)[1]
    site.take("orders", 3, session=3)
    assert site.do("message-show", queue="orders", id=2)["state"] == "delivering"
    site.do("queue-purge", name="orders", selector="last = TRUE")
    assert "has no message 40" in site.refused("message-show", queue="orders", id=40)[1]


def test_looking_at_pages_ends_with_the_queue_and_with_the_node() -> None:
    site = paged()
    site.stage.are_pages_held = True
    request = site.stage.ask("browse", queue="orders")
    assert request not in site.stage.replies
    assert site.do("queue-delete", name="orders")["messages"] == 40
    error = site.stage.replies[request].error
    assert error is not None
    assert error["condition"] == "amqp:resource-deleted"
    site = paged()
    site.stage.are_pages_held = True
    request = site.stage.ask("message-show", queue="orders", id=30)
    site.stage.stop()
    error = site.stage.replies[request].error
    assert error is not None
    assert error["condition"] == "amqp:connection:forced"
