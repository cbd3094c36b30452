"""How one of several brokers is chosen. Artemis's five.

Targets come by id and there is at least one. Hashes depend on the key and the ids alone, so every broker that knows
the same targets chooses the same one; a target that comes or goes moves only the keys that are, or were, its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple


class RoutingTarget(NamedTuple):
    """A broker that connections may be sent to. `id`: by which all brokers know it."""

    id: str
    host: str
    port: int
    is_local: bool = False


class Situation(NamedTuple):
    """What a choice may depend on. `counts`: connections that were routed to a target since it is there, by id."""

    targets: Sequence[RoutingTarget]
    counts: Mapping[str, int]


RoutingPolicy = Callable[[str, Situation], RoutingTarget]


def first_element(key: str, now: Situation) -> RoutingTarget:
    """The target that comes first by its id, whatever the key."""
    return now.targets[0]


class RoundRobin:
    """Each the next one by id, also where some come and go."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, key: str, now: Situation) -> RoutingTarget:
        later = [each for each in now.targets if each.id > self._last]
        chosen = (later or now.targets)[0]
        self._last = chosen.id
        return chosen


def consistent_hash(key: str, now: Situation) -> RoutingTarget:
    """The one with the highest hash of key and id."""
    return max(now.targets, key=lambda each: (_hash(f"{key}\0{each.id}"), each.id))


def modulo(number: int) -> RoutingPolicy:
    """The same for the number of the group that the key falls into."""

    def choose(key: str, now: Situation) -> RoutingTarget:
        return consistent_hash(str(_hash(key) % number), now)

    return choose


def least_connections(key: str, now: Situation) -> RoutingTarget:
    """The one that the fewest connections were routed to since it is there; of equals the first by id."""
    return min(now.targets, key=lambda each: (now.counts.get(each.id, 0), each.id))


def policy_of(name: str, number: int) -> RoutingPolicy:
    """A policy by its name in the options; `number` is their modulo."""
    if name == "CONSISTENT_HASH_MODULO":
        return modulo(number)
    if name == "ROUND_ROBIN":
        return RoundRobin()
    return {
        "FIRST_ELEMENT": first_element, "CONSISTENT_HASH": consistent_hash, "LEAST_CONNECTIONS": least_connections,
    }[name]  # fmt: skip


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:8], "big")
