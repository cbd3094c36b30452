"""Which address listeners are bound to, from what `ip -json address` prints."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.mqops.cluster.plugins.module_utils.network import (
    NoAddress,
    bind_address,
    cards_of,
    is_loopback,
)

ROWS: list[dict[str, Any]] = [
    {"ifname": "lo", "flags": ["LOOPBACK", "UP"], "operstate": "UNKNOWN",
     "addr_info": [{"local": "127.0.0.1"}, {"local": "::1"}]},
    {"ifname": "eth0@if7", "flags": ["UP"], "operstate": "UP", "addr_info": [{"local": "192.0.2.11"}]},
    {"ifname": "eth1", "flags": ["UP"], "operstate": "UP",
     "addr_info": [{"local": "fe80::1"}, {"local": "198.51.100.11"}, {"local": "2001:db8::11"}]},
    {"ifname": "eth2", "flags": ["UP", "NO-CARRIER"], "operstate": "DOWN", "addr_info": [{"local": "203.0.113.1"}]},
    {"ifname": "eth3", "flags": ["UP"], "operstate": "UP", "addr_info": [{"local": "fe80::3"}]},
    {"ifname": "eth4", "flags": [], "operstate": "DOWN"},
    {},
]  # fmt: skip
CARDS = cards_of(ROWS)


def test_cards_have_their_own_name_and_all_addresses() -> None:
    assert list(CARDS) == ["lo", "eth0", "eth1", "eth2", "eth3", "eth4"]
    assert CARDS["eth1"].addresses == ("fe80::1", "198.51.100.11", "2001:db8::11")
    assert [name for name, card in CARDS.items() if card.is_up] == ["lo", "eth0", "eth1", "eth3"]


@pytest.mark.parametrize(
    ("interface", "address", "expected"),
    [
        ("", "", "127.0.0.1"),
        ("eth1", "", "198.51.100.11"),
        ("", "192.0.2.11", "192.0.2.11"),
        ("", "2001:0db8::0011", "2001:0db8::0011"),
        ("", "0.0.0.0", "0.0.0.0"),
        ("", "127.0.0.2", "127.0.0.2"),
    ],
)
def test_address_of_listeners(interface: str, address: str, expected: str) -> None:
    assert bind_address(CARDS, interface, address) == expected


@pytest.mark.parametrize(
    ("interface", "address", "complaint"),
    [
        ("eth9", "", "eth9 is no network card of this host; it has eth0, eth1, eth2, eth3, eth4, lo"),
        ("eth2", "", "eth2 is down or has no carrier"),
        ("eth4", "", "eth4 is down or has no carrier"),
        ("eth3", "", "eth3 has no IPv4 address"),
        ("", "198.51.100.12", "no address of this host; it has 192.0.2.11, 198.51.100.11, 2001:db8::11, 203.0.113.1"),
        ("", "here", "here is no IP address"),
        ("eth1", "198.51.100.11", "keep one of"),
    ],
)
def test_what_is_not_there_is_named_with_what_is(interface: str, address: str, complaint: str) -> None:
    with pytest.raises(NoAddress, match=complaint.replace(".", r"\.")):
        bind_address(CARDS, interface, address)


def test_loopback_is_more_than_one_address() -> None:
    assert [is_loopback(one) for one in ("127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "192.0.2.1", "name")] == [
        True, True, True, False, False, False,
    ]  # fmt: skip
