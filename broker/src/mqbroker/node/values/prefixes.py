"""Prefixes of addresses that say which routing is meant: `queue://orders`, `topic://orders`.

A listener sets them, for clients that were written so. What stands behind the prefix is the address; permissions,
settings and everything else know that name alone. A client is answered with the name that it used. Source: Artemis's
`anycastPrefix` and `multicastPrefix` of acceptors.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, TypeVar

from mqbroker.config.slices import ListenerOptions
from mqbroker.core.address.address import ANYCAST, MULTICAST
from mqbroker.wire.performatives import Source, Target
from mqbroker.wire.types import Symbol

TOPIC, QUEUE = ("topic", "temporary-topic"), ("queue", "temporary-queue")

Terminus = TypeVar("Terminus", Source, Target)


class TerminusPlace(NamedTuple):
    """An address, or `address::queue`, and what is wanted there: anycast, multicast, empty for any, or more than a
    terminus can say (core/address/routing_demands.py)."""

    name: str
    routing: str = ""


class Prefixes(NamedTuple):
    """The prefixes of addresses at a listener that name a routing type."""

    anycast: tuple[str, ...] = ()
    multicast: tuple[str, ...] = ()

    @classmethod
    def of(cls, listener: ListenerOptions) -> Prefixes:
        """Those that the options of a listener declare."""
        return cls(listener.anycast_prefix, listener.multicast_prefix)

    def place_of(self, name: str) -> TerminusPlace:
        """What a name means. Where several prefixes fit, the longest one counts."""
        size, routing = 0, ""
        for prefixes, kind in ((self.anycast, ANYCAST), (self.multicast, MULTICAST)):
            for prefix in prefixes:
                if len(prefix) > size and name.startswith(prefix):
                    size, routing = len(prefix), kind
        return TerminusPlace(name[size:], routing)

    def meant(self, terminus: Terminus) -> Terminus:
        """The terminus as it would be without a prefix: with a capability instead, in place of what it said itself."""
        if not isinstance(terminus.address, str):
            return terminus
        name, routing = self.place_of(terminus.address)
        if not routing:
            return terminus
        others: tuple[Symbol, ...] = tuple(each for each in terminus.capabilities or () if each not in (*TOPIC, *QUEUE))
        said = Symbol((TOPIC if routing == MULTICAST else QUEUE)[0])
        return replace(terminus, address=name, capabilities=(*others, said))
