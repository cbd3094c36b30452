"""Owns names and addresses: which host has which cards, where they are plugged in, and what they are called.

Invariant: everything here follows from (rack name, number of hosts, jump pairs) alone, so a rack can be taken
down by name when every file about it is lost. Networks are those that RFC 5737 reserves for documentation;
racks may share them because each rack lives in namespaces of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from mqrack.errors import RackError

HOSTS_MAX = 100
LIGHTS_MAX = 120
NETWORKS = {"management": "192.0.2", "cluster": "198.51.100", "behind": "203.0.113"}
BRIDGES = {"management": "br-mgmt", "cluster": "br-cluster", "behind": "br-behind"}
CONTROLLER_ADDRESS = "192.0.2.1"
# The control sockets of ssh live below the run folder, and the path of a Unix socket ends at 107 bytes.
_NAME = re.compile(r"[a-z][a-z0-9-]{0,15}")


@dataclass(frozen=True, slots=True)
class Card:
    """One network card: its name in the host and the network that its cable leads to."""

    name: str
    network: str
    address: str
    mac: str

    @property
    def bridge(self) -> str:
        return BRIDGES[self.network]


@dataclass(frozen=True, slots=True)
class Host:
    """One host of a rack. A light host has no init, only an ssh server and the management card."""

    name: str
    cards: tuple[Card, ...]
    light: bool = False
    jump: str | None = None

    @property
    def address(self) -> str:
        return self.cards[0].address

    @property
    def gateway(self) -> str:
        """Where the default route points: the controller, or nobody's address in a network behind a jump host."""
        return f"{NETWORKS[self.cards[0].network]}.1"

    def card(self, name: str) -> Card:
        for card in self.cards:
            if card.name == name:
                return card
        known = ", ".join(card.name for card in self.cards)
        raise RackError(f"host {self.name} has no card {name!r}; it has {known}.")


@dataclass(frozen=True, slots=True)
class Plan:
    """A rack as it was asked for."""

    name: str
    hosts_count: int
    lights_count: int = 0
    behind: Mapping[str, str] = field(default_factory=dict)

    @property
    def hosts(self) -> tuple[Host, ...]:
        full = tuple(self._full(index) for index in range(1, self.hosts_count + 1))
        return full + tuple(_light(index) for index in range(1, self.lights_count + 1))

    def host(self, name: str) -> Host:
        for host in self.hosts:
            if host.name == name:
                return host
        known = ", ".join(host.name for host in self.hosts) or "no host at all"
        raise RackError(f"rack {self.name} has no host {name!r}; it has {known}.")

    def _full(self, index: int) -> Host:
        name = f"mq{index}"
        jump = self.behind.get(name)
        cards = [
            _card("eth0", "behind" if jump else "management", index, 10 + index),
            _card("eth1", "cluster", index, 10 + index),
        ]
        if name in self.behind.values():
            cards.append(_card("eth2", "behind", index, 10 + index))
        return Host(name, tuple(cards), jump=jump)


def _light(index: int) -> Host:
    return Host(f"lt{index}", (_card("eth0", "management", 128 + index, 120 + index),), light=True)


def _card(name: str, network: str, index: int, last_byte: int) -> Card:
    # A host keeps its hardware addresses when it boots again, as real ones do: neighbours' caches stay right.
    mac = f"02:00:00:00:{int(name[3:]):02x}:{index:02x}"
    return Card(name, network, f"{NETWORKS[network]}.{last_byte}", mac)


def make_plan(name: str, hosts_count: int, lights_count: int = 0, behind: Mapping[str, str] | None = None) -> Plan:
    """Checks everything that a caller can get wrong before anything is touched."""
    check_name(name)
    _check_count("hosts", hosts_count, HOSTS_MAX)
    _check_count("light hosts", lights_count, LIGHTS_MAX)
    plan = Plan(name, hosts_count, lights_count, dict(behind or {}))
    for hidden, jump in plan.behind.items():
        plan.host(hidden)
        plan.host(jump)
        if jump in plan.behind:
            raise RackError(f"--behind {hidden}={jump}: {jump} is itself behind a host; name one that is not.")
    return plan


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise RackError(
            f"rack name {name!r} is not usable: 1 to 16 of a-z, 0-9 and '-', starting with a letter. "
            "Choose another with --name or RACK_NAME."
        )
    return name


def _check_count(what: str, count: int, count_max: int) -> None:
    if not 0 <= count <= count_max:
        raise RackError(f"{count} {what} asked for; a rack holds 0 to {count_max}.")
