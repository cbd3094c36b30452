"""Histories of one node that go where a planted bug shows, instead of waiting for one of many to come past there.

Each is drawn from a seed as any other, and is good without the bug whatever the seed. What it adds are faults at the
moment that matters: the power goes when a file was deleted, or after a start from what no sync has confirmed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Final

from mqbroker.config.slices import BrokerOptions
from mqbroker.node.values.effects import DeleteLarge

from tests.sim.changes import Changes
from tests.sim.disk import Faults
from tests.sim.features import Subscriber
from tests.sim.histories import BUSY_MS, CHANGES_FROM, FEATURES, LARGE_FROM, Simulation, has_changes, seeds_of
from tests.sim.large_files import LargeEffect
from tests.sim.places import Place
from tests.sim.world import SimNode

POWER_CUTS_MAX: Final = 6


class PowerGoesWithAFile(Simulation):
    """The power of a node goes when it has deleted a file, whatever of the journal is on its way to the disk."""

    def made(self, name: str, options: BrokerOptions, faults: Faults) -> SimNode:
        node = super().made(name, options, faults)
        node.large_files.observe = partial(self._seen, node)
        return node

    def plan_faults(self) -> None:
        """Those alone."""
        self._left = POWER_CUTS_MAX

    def _seen(self, node: SimNode, effect: LargeEffect) -> None:
        if isinstance(effect, DeleteLarge) and node.unsynced and self._left > 0:
            self._left -= 1
            self.world.after(0, partial(self.crash, node, power_cut=True))


class UnprovenNode(SimNode):
    """Its power goes soon after a start from what no sync has confirmed."""

    fall: Callable[[], None]

    def start(self) -> None:
        is_unproven = self.disk.is_cache_ahead
        super().start()
        if is_unproven and self.is_up:
            self.world.after(20 + self.world.rng.random() * 100, self.fall)


class FailedSyncs(Simulation):
    """Syncs fail, and the power goes when the node has been started again."""

    def made(self, name: str, options: BrokerOptions, faults: Faults) -> SimNode:
        faults.sync_error = 0.05
        node = UnprovenNode(self.world, name, options, faults)
        node.fall = partial(self.crash, node, power_cut=True)
        return node

    def plan_faults(self) -> None:
        """Those alone."""


class Retroactive(Simulation):
    """All addresses are topics that keep messages for subscriptions to come, and some come late."""

    def plan_faults(self) -> None:
        for place in self.model.places.values():
            node = next(each for each in self.nodes if place.address.startswith(each.name))
            for number in range(4):
                name = f"{place.address}-c{5 + number}"
                self.world.after(self.world.rng.random() * BUSY_MS, partial(self._come, node, name, place))

    def _come(self, node: SimNode, name: str, place: Place) -> None:
        self.clients.append(Subscriber(self.world, node, name, self.model, place))

    def drawn(self, rng: random.Random, address: str) -> Place:
        while True:
            place = super().drawn(rng, address)
            if place.retains:
                return place


class DeletedQueues(Simulation):
    """Queues are deleted again and again while their producers send."""

    def drawn(self, rng: random.Random, address: str) -> Place:
        while True:
            place = super().drawn(rng, address)
            if not place.is_topic:
                return place

    def plan_faults(self) -> None:
        """None of them."""

    def plan_changes(self) -> None:
        changes = Changes(self.model)
        for place in self.model.places.values():
            node = next(each for each in self.nodes if place.address.startswith(each.name))
            for _ in range(10):
                self.world.after(self.world.rng.random() * BUSY_MS / 4, partial(self._delete, changes, node, place))

    @staticmethod
    def _delete(changes: Changes, node: SimNode, place: Place) -> None:
        if node.is_up:
            changes.delete(node, place)


LARGE: Final = range(LARGE_FROM + 4, LARGE_FROM + 4 + 6 * 8, 6)
CHANGED: Final = [seed for seed in range(CHANGES_FROM, CHANGES_FROM + 32) if has_changes(seed)][:8]

# By the name of the bug: the histories that are made for it.
DIRECTED: Final[dict[str, tuple[Callable[[int], Simulation], list[int]]]] = {
    "files deleted before settlements are on disk": (PowerGoesWithAFile, list(LARGE)),
    "what a failed sync left in memory is not written again": (FailedSyncs, list(range(8))),
    "the newest of what is kept is not given": (Retroactive, seeds_of(FEATURES, 8)),
    "a sender whose queue was deleted sends to nobody": (DeletedQueues, CHANGED),
}
