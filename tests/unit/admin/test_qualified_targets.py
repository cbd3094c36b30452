"""`address::queue` where the options name an address: for dead letters, expired messages and diverts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from mqbroker.config.slices import DivertOptions

from tests.support.stage import Stage, options_with
from tests.unit.admin.site import Site


def site(option: str) -> Site:
    found = Site({"#": {option: "moved::one"}})
    for name in ("one", "two"):
        found.do("queue-create", name=name, address="moved", routing_type="multicast")
    return found


def test_dead_letters_go_to_that_queue_alone() -> None:
    with_letters = site("dead_letter_address")
    with_letters.send("orders", "a", "b")
    with_letters.kill("orders")
    with_letters.restart()
    assert with_letters.counts() == {"one": 2, "orders": 0, "two": 0}
    assert with_letters.do("dead-letters-retry", queue="one") == {"retried": 2, "left": 0}
    assert with_letters.bodies("orders") == ["a", "b"]


def test_dead_letters_of_the_queue_itself_stay_and_those_of_its_neighbour_come() -> None:
    with_letters = site("dead_letter_address")
    with_letters.send("moved", "a")
    for name, counts in (("two", {"one": 2, "two": 0}), ("one", {"one": 2, "two": 0})):
        with_letters.kill(name)
        assert with_letters.counts() == counts


def test_expired_messages_do() -> None:
    with_expired = site("expiry_address")
    with_expired.send("orders", "a", ttl_ms=10)
    with_expired.stage.wait(100)
    assert with_expired.counts() == {"one": 1, "orders": 0, "two": 0}


def test_a_queue_that_is_not_there_is_made_at_its_address() -> None:
    with_letters = Site({"#": {"dead_letter_address": "moved::one", "auto_create_dead_letter_resources": True}})
    with_letters.send("orders", "a")
    with_letters.kill("orders")
    assert with_letters.counts() == {"one": 1, "orders": 0}
    assert with_letters.do("queue-show", name="one")["address"] == "moved"


@pytest.mark.parametrize("routing", ["STRIP", "MULTICAST"])
@pytest.mark.parametrize("is_full", [False, True])
def test_diverts_do(routing: str, is_full: bool) -> None:
    divert = DivertOptions("d", "orders", "moved::one", filter="", exclusive=True, routing_type=routing)
    bound = {"max_size_messages": 1, "address_full_policy": "DROP"} if is_full else {}
    found = Site()
    found.stage = Stage(replace(options_with(address_settings={"moved": bound}), diverts=(divert,)))
    found.do("queue-create", name="two", address="moved", routing_type="multicast")
    found.send("orders", "a", "b")
    assert found.counts() == {"one": 1 if is_full else 2, "orders": 0, "two": 0}


def test_administrators_receive_from_that_queue_and_make_none_of_that_name() -> None:
    found = Site()
    found.do("queue-create", name="one", address="shop", routing_type="multicast")
    found.send("shop", "a")
    assert [message["body"] for message in found.take("shop::one")] == ["a"]
    assert "belongs to address 'shop'" in found.refused("receive", address="stall::one")[1]
    assert found.refused("receive", address="shop::two") == (
        "amqp:not-found",
        "address 'shop' has no queue 'two' on this node",
    )
    assert {row["name"]: row["address"] for row in found.do("queues")["queues"]} == {"one": "shop"}


def test_nothing_is_made_for_administrators_who_receive() -> None:
    found = Site()
    for name in "abcdefg":
        found.do("queue-create", name=name, address="news", routing_type="multicast")
    found.do("address-create", name="empty")
    before = found.do("addresses"), found.counts()
    assert found.refused("receive", address="ordres")[1] == "no queue and no address is called 'ordres' on this node"
    assert found.refused("receive", address="empty")[1] == "address 'empty' has no queue on this node"
    assert found.refused("receive", address="news")[1].endswith("copy; name one: 'a', 'b', 'c', 'd', 'e' and 2 more")
    assert (found.do("addresses"), found.counts()) == before
    found.send("news", "one")
    assert [message["body"] for message in found.take("c")] == ["one"]
