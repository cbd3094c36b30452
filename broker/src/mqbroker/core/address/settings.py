"""Address settings: which options hold at an address, from patterns of which several may match.

Option by option the most specific match that says something wins (config/matching.py). Source: Artemis's manual,
"Address settings".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from mqbroker.base.errors import Refused
from mqbroker.base.look import LOOK
from mqbroker.config.matching import DELIMITER, generality, matches
from mqbroker.config.slices import AddressSettings, AddressSettingsOptions
from mqbroker.core.address.address import FULLY_QUALIFIED, MULTICAST
from mqbroker.core.queue.backlog import EXPIRED
from mqbroker.core.queue.kinds import TEMPORARY_PREFIX, QueueKind
from mqbroker.core.queue.leaving_reasons import KILLED

CACHED_MAX: Final = 10_000
AFFIXES: Final = {  # the options that say what stands before and behind an address in the name of a queue for it alone
    KILLED: ("dead_letter_queue_prefix", "dead_letter_queue_suffix"),
    EXPIRED: ("expiry_queue_prefix", "expiry_queue_suffix"),
}


class MoveTarget(NamedTuple):
    """Where dead or expired messages of an address go; empty: nowhere.

    `queue`: the one there that is made for them alone; empty: none is.
    """

    address: str
    queue: str


class Settings:
    """The settings of every address; looked up once, then remembered within a bound."""

    def __init__(self, options: AddressSettingsOptions) -> None:
        self.change(options)

    def change(self, options: AddressSettingsOptions) -> None:
        """Other settings hold from now on. What queues were made of them they stay."""
        LOOK.has_touched = True
        self._built_in = options.built_in
        self._matches = sorted(
            ((match.match.split(DELIMITER), match.values) for match in options.matches),
            key=lambda pair: generality(pair[0]),
            reverse=True,
        )
        self._affixes = {why: [self._said_anywhere(each) for each in options] for why, options in AFFIXES.items()}
        self._known: dict[str, AddressSettings] = {}
        self._made: dict[tuple[int, ...], AddressSettings] = {}  # by the places of the matches that hold

    def of(self, address: str) -> AddressSettings:
        """What holds at this address."""
        known = self._known.get(address)
        if known is None:
            if len(self._known) >= CACHED_MAX:
                self._known.clear()
                self._made.clear()
            known = self._known[address] = self._merged(address)
        return known

    def _said_anywhere(self, option: str) -> list[str]:
        """All that a text is at one address or another, the longest first."""
        texts = {getattr(self._built_in, option), *(said[option] for _, said in self._matches if option in said)}
        return sorted(texts, key=lambda text: (-len(text), text))

    def move_target(self, origin: str, why: str) -> MoveTarget:
        """Where messages of this address go that are dead or expired (`why`: KILLED or EXPIRED)."""
        settings = self.of(origin)
        if why == EXPIRED:
            address, has_own = settings.expiry_address, settings.auto_create_expiry_resources
            own = settings.expiry_queue_prefix + origin + settings.expiry_queue_suffix
        else:
            address, has_own = settings.dead_letter_address, settings.auto_create_dead_letter_resources
            own = settings.dead_letter_queue_prefix + origin + settings.dead_letter_queue_suffix
        # Where the target is `address::queue`, that says which queue gets them.
        return MoveTarget(address, own if has_own and address != origin and FULLY_QUALIFIED not in address else "")

    def origin_of(self, address: str, queue: str) -> str:
        """The address whose dead or expired messages a queue of this name is made for, at this address; empty: none."""
        for why, (prefixes, suffixes) in self._affixes.items():
            for prefix in filter(queue.startswith, prefixes):
                for suffix in filter(queue.endswith, suffixes):
                    origin = queue[len(prefix) : len(queue) - len(suffix)]
                    if origin and self.move_target(origin, why) == (address, queue):
                        return origin
        return ""

    def check_creation(self, address: str, queue: str = "", *, is_new: bool = True) -> None:
        """Whether whoever uses an address, or a queue of it, makes what is not there. Raises Refused.

        `is_new`: neither is the address.
        """
        settings = self.of(address)
        if address.startswith(TEMPORARY_PREFIX) or queue.startswith(TEMPORARY_PREFIX):
            # Left to a message that comes too late, it would be a queue for everybody that nobody ever ends.
            why = f"there is no {queue or address!r}: names with {TEMPORARY_PREFIX!r} are those of temporary queues"
            raise Refused("amqp:not-found", why)
        if queue and not settings.auto_create_queues:
            raise Refused("amqp:not-found", f"there is no queue {queue!r}, and auto-create-queues is off")
        if is_new and not settings.auto_create_addresses:
            raise Refused("amqp:not-found", f"there is no address {address!r}, and auto-create-addresses is off")

    def said(self, address: str) -> list[tuple[str, Mapping[str, Any]]]:
        """The matches that hold at this address and what each says; later ones win."""
        matched = [self._matches[place] for place in self._matching(address)]
        return [(DELIMITER.join(pattern), values) for pattern, values in matched]

    def _matching(self, address: str) -> tuple[int, ...]:
        words = address.split(DELIMITER)
        return tuple(place for place, (pattern, _) in enumerate(self._matches) if matches(pattern, words))

    def _merged(self, address: str) -> AddressSettings:
        """One value for all addresses that the same matches hold at."""
        matching = self._matching(address)
        made = self._made.get(matching)
        if made is None:
            values: dict[str, Any] = {}
            for place in matching:
                values.update(self._matches[place][1])
            made = self._made[matching] = replace(self._built_in, **values)
        return made


def queue_of_origin(target: MoveTarget, origin: str) -> QueueKind:
    """A queue that is made for what is moved there from this address."""
    return QueueKind(target.queue, target.address, MULTICAST, auto_created=True, moved_from=origin)
