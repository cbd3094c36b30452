"""Disks without room: for a while nothing new finds place on the file system of a node.

Files of the journal are written with zeros beforehand, so what goes into the present one finds place, and what goes
into the one that was made ahead. A further one does not, and that ends the node. On a file system that copies what it
overwrites nothing finds place: there a start that has something to cut off, or to write again, is refused as well. In
half of the cases the node hears of it before (io/disk/space_watch.py), and gives no credit to whoever attaches
meanwhile.
"""

from __future__ import annotations

import random
from functools import partial

from mqbroker.node.values.inputs import JournalSpace

from tests.sim.world import SimNode, World

DURATION_MS_MAX = 800
NOTICE_MS = 20  # from what the node is told to what the disk does, and back


class FullDisks:
    """Says whose disk is full from when on, and for how long, by a generator of its own."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._rng = random.Random(f"room {seed}")

    def plan(self, nodes: list[SimNode], until_ms: int) -> None:
        """Some cases."""
        rng = self._rng
        for _ in range(rng.choice((1, 2, 4))):
            node, copies, is_told = rng.choice(nodes), rng.random() < 0.5, rng.random() < 0.5
            self._world.after(rng.random() * until_ms, partial(self._begin, node, copies, is_told))

    def _begin(self, node: SimNode, copies: bool, is_told: bool) -> None:
        if node.disk.is_full or node.low_since_ns is not None:
            return
        if is_told:
            tell(node, True)
        duration_ms = self._rng.random() * DURATION_MS_MAX
        self._world.after(NOTICE_MS, partial(fill, node, copies, has_spare=self._rng.random() < 0.5))
        self._world.after(NOTICE_MS + duration_ms, partial(make_room, node))
        self._world.after(2 * NOTICE_MS + duration_ms, partial(tell, node, False))


def tell(node: SimNode, is_low: bool) -> None:
    """What the watch of the room says; to whoever starts meanwhile as well."""
    if is_low == (node.low_since_ns is not None):
        return
    node.low_since_ns = node.world.now_ns if is_low else None
    node.give(JournalSpace(is_low, 0))


def fill(node: SimNode, copies: bool, *, has_spare: bool) -> None:
    """No room from now on. `copies`: not even for what is overwritten."""
    node.disk.is_full, node.disk.copies, node.disk.has_spare = True, copies, has_spare and not copies


def make_room(node: SimNode) -> None:
    """Somebody frees space."""
    node.disk.is_full = False
