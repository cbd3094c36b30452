# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Network cards of a host as `ip -json address` shows them, and the address that listeners are bound to. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LOOPBACK = "127.0.0.1"


class NoAddress(Exception):
    """The wanted card or address is not there; the text says what is."""


@dataclass(frozen=True)
class Card:
    """A network card. `is_up`: it is switched on and has a carrier."""

    name: str
    is_up: bool
    addresses: tuple[str, ...]


def cards_of(rows: list[Mapping[str, Any]]) -> dict[str, Card]:
    """The cards by name. A card of a pair is shown as `eth0@if5`; its name is what stands before the @."""
    cards = {}
    for row in rows:
        if not row.get("ifname"):
            continue
        name = str(row["ifname"]).split("@", 1)[0]
        flags = row.get("flags") or []
        addresses = [str(one["local"]) for one in row.get("addr_info") or [] if one.get("local")]
        is_up = "UP" in flags and "NO-CARRIER" not in flags and row.get("operstate") != "DOWN"
        cards[name] = Card(name, is_up, tuple(addresses))
    return cards


def bind_address(cards: Mapping[str, Card], interface: str, address: str) -> str:
    """The address of listeners: the one given, else that of the card, else loopback. Raises NoAddress."""
    if interface and address:
        raise NoAddress(
            f"both the network card {interface} and the address {address} are given; keep one of mq_cluster_interface "
            "and mq_local_bind_address"
        )
    if address:
        return _existing(cards, address)
    return _of_card(cards, interface) if interface else LOOPBACK


def is_loopback(address: str) -> bool:
    """Whether only this host itself reaches the address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _existing(cards: Mapping[str, Card], address: str) -> str:
    try:
        wanted = ipaddress.ip_address(address)
    except ValueError:
        raise NoAddress(f"mq_local_bind_address {address} is no IP address") from None
    if wanted.is_unspecified or wanted.is_loopback:
        return address
    present = [ipaddress.ip_address(one) for card in cards.values() for one in card.addresses]
    if wanted not in present:
        useful = [str(one) for one in present if not one.is_loopback and not one.is_link_local]
        raise NoAddress(
            f"mq_local_bind_address {address} is no address of this host; it has {', '.join(sorted(useful)) or 'none'}"
        )
    return address


def _of_card(cards: Mapping[str, Card], name: str) -> str:
    card = cards.get(name)
    if card is None:
        known = ", ".join(sorted(cards)) or "none"
        raise NoAddress(f"mq_cluster_interface {name} is no network card of this host; it has {known}")
    if not card.is_up:
        raise NoAddress(f"mq_cluster_interface {name} is down or has no carrier; check the cable and the switch")
    found = next((one for one in card.addresses if ipaddress.ip_address(one).version == 4), None)
    if found is None:
        raise NoAddress(f"mq_cluster_interface {name} has no IPv4 address; give it one or use mq_local_bind_address")
    return found
