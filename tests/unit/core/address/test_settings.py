"""Which settings hold where."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from mqbroker.config.declarations.options import defaults
from mqbroker.config.slices import AddressMatch, AddressSettingsOptions
from mqbroker.core.address.settings import Settings, matches
from mqbroker.core.queue.backlog import EXPIRED
from mqbroker.core.queue.leaving_reasons import KILLED

BUILT_IN = defaults().address_settings.built_in


def settings(rows: dict[str, dict[str, Any]]) -> Settings:
    return Settings(AddressSettingsOptions(BUILT_IN, tuple(AddressMatch(*row) for row in rows.items())))


@pytest.mark.parametrize(
    ("pattern", "address", "expected"),
    [
        ("orders", "orders", True),
        ("orders", "orders.eu", False),
        ("#", "", True),
        ("#", "a.b.c", True),
        ("orders.#", "orders", True),
        ("orders.#", "orders.eu.de", True),
        ("orders.*", "orders", False),
        ("orders.*", "orders.eu", True),
        ("orders.*", "orders.eu.de", False),
        ("*.eu", "orders.eu", True),
        ("#.de", "orders.eu.de", True),
        ("#.de", "orders.de.eu", False),
        ("a.#.z", "a.z", True),
        ("a.#.z", "a.b.z.c.z", True),
        ("a.#.b.#.c", "a.x.b.y.b.c", True),
        ("a.#.b.#.c", "a.x.b.y.b.d", False),
        ("*", "a*", True),
        ("orders.*", "orders.", True),
    ],
)
def test_patterns(pattern: str, address: str, expected: bool) -> None:
    assert matches(pattern.split("."), address.split(".")) is expected


def test_many_wildcards_cost_little() -> None:
    pattern = ["#", "a"] * 200 + ["z"]
    assert not matches(pattern, ["a"] * 2000)


@pytest.mark.option("address-settings.match")
def test_the_most_specific_match_wins_option_by_option_in_any_order() -> None:
    rows = {
        "#": {"max_delivery_attempts": 1, "redelivery_delay": 1, "expiry_delay": 1, "dead_letter_address": "all"},
        "orders.#": {"max_delivery_attempts": 2, "redelivery_delay": 2, "expiry_delay": 2},
        "orders.*": {"max_delivery_attempts": 3, "redelivery_delay": 3},
        "orders.eu": {"max_delivery_attempts": 4},
    }
    for order in permutations(rows):
        found = settings({match: rows[match] for match in order}).of("orders.eu")
        assert found.max_delivery_attempts == 4
        assert found.redelivery_delay == 3
        assert found.expiry_delay == 2
        assert found.dead_letter_address == "all"
        assert found.default_ring_size == BUILT_IN.default_ring_size


def test_what_nobody_says_is_built_in() -> None:
    assert settings({"orders": {"max_delivery_attempts": 4}}).of("other") == BUILT_IN


def test_more_addresses_than_are_remembered() -> None:
    found = settings({"a.#": {"max_delivery_attempts": 4}})
    assert {found.of(f"a.{number}").max_delivery_attempts for number in range(25_000)} == {4}


def test_addresses_with_the_same_matches_share_one_value() -> None:
    """Settings have dozens of fields: a broker with ten thousand addresses neither makes nor keeps as many."""
    held = settings({"#": {"expiry_delay": 1}, "orders.#": {"expiry_delay": 2}, "orders.eu": {"expiry_delay": 3}})
    assert len({id(held.of(f"bench.{number}")) for number in range(2000)}) == 1
    assert held.of("orders.us") is held.of("orders.de")
    assert [held.of(name).expiry_delay for name in ("bench.1", "orders.us", "orders.eu")] == [1, 2, 3]
    held.change(AddressSettingsOptions(BUILT_IN, (AddressMatch("#", {"expiry_delay": 4}),)))
    assert [held.of(name).expiry_delay for name in ("bench.1", "orders.us", "orders.eu")] == [4, 4, 4]


MOVED = {
    "#": {"dead_letter_address": "dead", "auto_create_dead_letter_resources": True},
    "orders.#": {"dead_letter_queue_prefix": "D.", "expiry_address": "late", "auto_create_expiry_resources": True},
    "orders.eu.#": {"dead_letter_queue_suffix": ".end", "expiry_queue_prefix": "L.", "expiry_address": "dead"},
    "shared.#": {"auto_create_dead_letter_resources": False},
    "named.#": {"dead_letter_address": "dead::DLQ.named"},
    "other.#": {"dead_letter_address": "gone"},
}


@pytest.mark.parametrize(
    ("address", "queue", "origin"),
    [
        ("dead", "DLQ.invoices", "invoices"),
        ("late", "DLQ.invoices", ""),  # at another address
        ("dead", "D.invoices", ""),  # as it would be called elsewhere
        ("dead", "invoices", ""),
        ("dead", "DLQ.", ""),
        ("dead", "DLQ.DLQ.x", "DLQ.x"),
        ("dead", "D.orders", "orders"),
        ("dead", "DLQ.orders", ""),
        ("late", "EXP.orders", "orders"),
        ("dead", "D.orders.eu.end", "orders.eu"),  # its prefix and its suffix are of two matches
        ("dead", "D.orders.eu", ""),
        ("dead", "L.orders.eu", "orders.eu"),
        ("dead", "DLQ.shared", ""),
        ("dead", "DLQ.named", ""),  # one queue for all that say so
        ("gone", "DLQ.other", "other"),
        ("dead", "DLQ.dead", ""),  # its own dead letters stay there
    ],
)
def test_a_queue_is_for_what_is_moved_from_one_address_where_the_settings_of_that_one_call_it_so(
    address: str, queue: str, origin: str
) -> None:
    known = settings(MOVED)
    assert known.origin_of(address, queue) == origin
    if origin:
        assert (address, queue) in [known.move_target(origin, why) for why in (KILLED, EXPIRED)]


def test_a_queue_is_called_as_other_settings_say_once_they_hold() -> None:
    known = settings(MOVED)
    known.change(
        AddressSettingsOptions(BUILT_IN, (AddressMatch("#", MOVED["#"] | {"dead_letter_queue_prefix": "X."}),))
    )
    assert [known.origin_of("dead", name) for name in ("X.orders", "D.orders", "DLQ.invoices")] == ["orders", "", ""]
