"""Which addresses an option `address` matches, as a table and against a naive reading of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.cluster.address_match import AddressPrefixes, is_internal


@pytest.mark.parametrize(
    ("option", "address", "is_so"),
    [
        ("", "orders", True),
        ("", "", True),
        ("orders", "orders", True),
        ("orders", "orders.eu", True),
        ("orders", "ordersale", True),
        ("orders", "order", False),
        ("orders", "Orders", False),
        ("orders,sales", "sales.eu", True),
        ("orders,sales", "stock", False),
        (" orders , , sales,", "sales", True),
        ("!orders", "orders.eu", False),
        ("!orders", "sales", True),
        ("!orders,!sales", "sales", False),
        ("orders,!orders.eu", "orders.eu.de", False),
        ("orders,!orders.eu", "orders.us", True),
        ("!orders.eu,orders", "orders.eu", False),
        ("orders.eu,!orders", "orders.eu", False),
        ("orders,!", "orders", True),
        (",", "anything", True),
        ("#", "orders", False),
        ("orders.#", "orders.eu", False),
        ("orders.#", "orders.#", True),
        ("*", "*x", True),
        ("", "$.sf.all.1", False),
        ("$.sf", "$.sf.all.1", False),
        ("", "$sys", True),
    ],
)
def test_matches(option: str, address: str, is_so: bool) -> None:
    assert AddressPrefixes(option).matches(address) is is_so


def test_internal_names() -> None:
    assert (is_internal("$.sf.all"), is_internal("$sys"), is_internal("a$.b")) == (True, False, False)


@given(st.lists(st.text("ab! ", max_size=3), max_size=4), st.text("ab$.", max_size=4))
def test_exclusions_win_over_inclusions(items: list[str], address: str) -> None:
    stripped = [item.strip() for item in items]
    excluded = [item[1:].strip() for item in stripped if item.startswith("!")]
    included = [item for item in stripped if item and not item.startswith("!")]
    is_out = any(item and address.startswith(item) for item in excluded) or address.startswith("$.")
    is_in = not included or any(address.startswith(item) for item in included)
    assert AddressPrefixes(",".join(items)).matches(address) is (is_in and not is_out)
