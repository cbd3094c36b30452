"""Places: addresses whose settings, bounds and traffic are drawn from the seed, and what they lead to."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from mqbroker.config.slices import AddressMatch, BrokerOptions

HOME, DEAD, EXPIRED, MOVED = "home", "dead", "expired", "moved"
COLOURS = ("red", "blue")
GROUPS = ("", "a", "b", "c")
# Longer than that no returned message waits, so that all are there when the drain begins.
DELAY_MS_MAX = 500


@dataclass(slots=True)
class Place:
    """One address. `settings` are those of its match; the rest says what its producers make use of."""

    address: str
    settings: dict[str, Any]
    has_priorities: bool = False
    has_colours: bool = False
    has_groups: bool = False
    is_topic: bool = False  # gives copies to subscribers
    is_calm: bool = False  # its consumers accept whatever they get
    delays_ms: tuple[int, ...] = ()
    ttls_ms: tuple[int, ...] = ()
    is_moved: bool = False  # a person moved messages to another address
    is_retried: bool = False  # a person sent dead letters back
    is_deleted: bool = False  # a person deleted its queue, and with it, where it was the last, the ids that were seen
    extras: dict[str, str] = field(default_factory=dict)  # addresses that messages end up at: what they are there

    @property
    def attempts_max(self) -> int:
        """Deliveries in vain that make a dead letter; -1: none does."""
        return int(self.settings["max_delivery_attempts"])

    @property
    def retains(self) -> int:
        """How many messages are kept for subscriptions that are made later."""
        return int(self.settings.get("retroactive_message_count", 0))

    @property
    def drops(self) -> bool:
        """Whether what does not fit is accepted and dropped."""
        return self.settings.get("address_full_policy") == "DROP"

    @property
    def moved(self) -> str:
        """Where a person moves messages to."""
        return f"{self.address}-{MOVED}"

    @property
    def dead_letters(self) -> str:
        """The queue of dead letters."""
        own = self.settings.get("auto_create_dead_letter_resources")
        return f"DLQ.{self.address}" if own else f"{self.address}-{DEAD}"

    def leads_to(self, where: str) -> bool:
        """Whether there is an address for dead letters, or for expired messages."""
        return where in self.extras.values()


def drawn(rng: random.Random, address: str) -> Place:
    """A place of that name."""
    place = Place(address, {"max_delivery_attempts": rng.choice((-1, 2, 3))})
    place.has_priorities = rng.random() < 0.6
    place.has_colours = rng.random() < 0.5
    place.ttls_ms = rng.choice(((), (), (20, 200, 1500)))
    place.has_groups = rng.random() < 0.4
    place.delays_ms = rng.choice(((), (), (30, 300, 1000)))
    place.is_calm = rng.random() < 0.3
    place.is_topic = rng.random() < 0.35
    settings = place.settings
    if place.is_topic:
        settings["default_address_routing_type"] = "MULTICAST"
    if rng.random() < 0.75:
        _lead(place, DEAD, "dead_letter_address")
        settings["auto_create_dead_letter_resources"] = rng.random() < 0.5
    if rng.random() < 0.75:
        _lead(place, EXPIRED, "expiry_address")
        settings["auto_create_expiry_resources"] = rng.random() < 0.5
    place.extras[place.moved] = MOVED
    settings["redelivery_delay"] = rng.choice((0, 0, 50))
    settings["redelivery_delay_multiplier"] = rng.choice((1.0, 3.0))
    settings["max_redelivery_delay"] = DELAY_MS_MAX
    if rng.random() < 0.4:
        settings["address_full_policy"] = rng.choice(("BLOCK", "FAIL", "DROP"))
        settings.update(rng.choice(({"max_size_messages": 15}, {"max_size_bytes": 4000})))
    if place.is_topic:
        # By dice of their own, so that histories of other places stay what they are.
        settings["retroactive_message_count"] = random.Random(repr((address, settings))).choice((0, 0, 3, 20))
    return place


def _lead(place: Place, where: str, option: str) -> None:
    place.settings[option] = f"{place.address}-{where}"
    place.extras[place.settings[option]] = where


def with_places(options: BrokerOptions, places: Iterable[Place]) -> BrokerOptions:
    """Options of a node that has these places."""
    matches = tuple(AddressMatch(place.address, place.settings) for place in places)
    return replace(options, address_settings=replace(options.address_settings, matches=matches))
