"""Seeded histories of nodes whose disks do not do what they say, or lose their power in the middle of a start.

By the seed it is one of three kinds. With REUSED everything is as promised, files of the journal are small and used
again soon, and the power goes at any call: nothing may be lost and nothing refused. With MISDIRECTED sectors land
elsewhere now and then, with LYING syncs are confirmed and a later power cut loses what they were for: confirmed
messages may be lost then. What a start has to be is in `worn_disk.py`; what is sent after it is judged as ever.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import Any, Final

from mqbroker.config.slices import BrokerOptions

from tests.sim.clients import Consumer, Producer
from tests.sim.disk import Faults
from tests.sim.histories import BUSY_MS, PLAIN, Simulation, Verdict
from tests.sim.world import SimNode
from tests.sim.worn_disk import WornDisk

REUSED, MISDIRECTED, LYING = "reused", "misdirected", "lying"
WORN: Final = (REUSED, MISDIRECTED, LYING)
CALLS_MAX: Final = 40  # of the file system, until the power goes


def worn_of(seed: int) -> str:
    """What the disks of a history are like."""
    return WORN[seed // 2 % len(WORN)]


class WornDisks(Simulation):
    """See the module's docstring."""

    IS_PATIENT = True
    HAS_LARGE = False
    KIND = PLAIN

    def __init__(self, seed: int) -> None:
        self.worn = worn_of(seed)
        self.chance = random.Random(f"worn {seed}")
        self.disks: list[WornDisk] = []
        super().__init__(seed)

    def made(self, name: str, options: BrokerOptions, faults: Faults) -> SimNode:
        size = self.chance.choice((4096, 8192, 32768))
        journal = replace(options.journal, journal_file_size_bytes=size, journal_pool_files=8)
        options = replace(options, journal=journal)
        node = SimNode(self.world, name, options, faults)
        disk = WornDisk(self.world.rng, name.encode().ljust(16, b"\0"), options.journal)
        disk.on_lost = self.history.forgive
        self.disks.append(disk)
        held: Any = disk
        node.disk = held
        life = partial(self.crash, node, power_cut=True)
        disk.files.when_off = lambda: self.world.after(0, life)  # it may not have been a commit that met it
        return node

    def _populate(self, node: SimNode) -> None:
        """One more consumer takes all there is, so that files go."""
        super()._populate(node)
        for queue in sorted({each.queue for each in self.clients if isinstance(each, Producer) and each.node is node}):
            self.clients.append(Consumer(self.world, node, f"{queue}-c9", self.history, queue, is_drain=True))

    def plan_faults(self) -> None:
        super().plan_faults()
        self.world.after(BUSY_MS + 500, self._relent)
        for _ in range(self.chance.choice((2, 4, 8))):
            node, at_ms = self.chance.choice(self.nodes), self.chance.random() * BUSY_MS
            self.world.after(at_ms, partial(self._strike, node, node.disk))

    def _strike(self, node: SimNode, disk: Any) -> None:
        files, chance = disk.files, self.chance
        if self.worn == REUSED:
            files.calls_left = chance.randrange(CALLS_MAX)
            return
        if self.worn == MISDIRECTED:
            files.is_misdirecting = True
        else:
            files.is_lying = True
            self.world.after(chance.random() * 300, partial(setattr, files, "is_lying", False))
        power_cut = chance.random() < 0.7
        self.world.after(chance.random() * 300, lambda: self.crash(node, power_cut=power_cut))

    def _relent(self) -> None:
        for disk in self.disks:
            disk.files.calls_left, disk.files.is_lying, disk.files.is_misdirecting = None, False, False

    def run(self) -> Verdict:
        """The history from beginning to end."""
        verdict = super().run()
        verdict.violations += [each for disk in self.disks for each in disk.violations]
        return verdict
