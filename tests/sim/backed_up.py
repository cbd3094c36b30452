"""Seeded histories of nodes that are backed up while clients, kills and failing disks go on.

A reader asks for the files of a position, reads them one after the other while the node goes on, and says when it is
done. What was held until then has to be what a power cut at that position would leave: recovery reads all of it, every
message is in it that was accepted before the reader asked and that nobody settled, and none whose settlement was
confirmed before. Readers also go away in the middle, are too slow for what they asked for, and find that room on the
disk is scarce; nodes fall while files are held. What is judged of the node is what is judged of any history: nothing is
lost, and no file is left.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from mqbroker.base.errors import StorageFault
from mqbroker.config.slices import BrokerOptions
from mqbroker.core.paging.recorded_messages import run_of
from mqbroker.core.queue.large import fault_of
from mqbroker.core.store.journal_export import large_runs, pieces_of
from mqbroker.journal.recover import recover
from mqbroker.journal.recovered import Recovered
from mqbroker.node.values.effects import AdminReply
from mqbroker.node.values.inputs import AdminClosed

from tests.sim.clients import Consumer, Producer
from tests.sim.disk import Faults
from tests.sim.full_disks import tell
from tests.sim.histories import BUSY_MS, PLAIN, Simulation, Verdict
from tests.sim.world import MARKER, SimNode

GOOD, REFUSED, LET_GO, LEFT, CUT_OFF = "good", "refused", "let go", "left", "cut off"
FIRST_SESSION: Final = 100
PIECE_MS_MAX: Final = 80.0  # between two files


@dataclass(slots=True)
class Reader:
    """One backup of one node, from the question to its end. `must`: what has to be in it; `gone`: what may not."""

    history: BackedUp
    node: SimNode
    session: int
    life: int = 0
    must: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    manifest: dict[str, Any] = field(default_factory=dict)
    files: dict[int, bytes] = field(default_factory=dict)
    large: dict[int, bytes] = field(default_factory=dict)

    def begin(self) -> None:
        """Ask for the files, where anybody listens."""
        if not self.node.is_up:
            return
        known = self.history.history
        self.life = self.node.life
        self.must = {
            marker for marker, sent in known.sent.items()
            if sent.outcome == "accepted" and sent.is_durable and sent.queue.startswith(self.node.name)
        }  # fmt: skip
        self.gone = set(known.settle_confirmed)
        hold_ms = self.history.chance.choice((30, 300, 5_000, 5_000))
        self.node.ask("backup-begin", {"hold_ms": hold_ms}, self._begun, self.session)

    def _begun(self, reply: AdminReply) -> None:
        if reply.error is not None:
            self._end_with(REFUSED)
            return
        self.manifest = reply.result
        self.must -= self.history.history.settle_tried
        places = [*self.manifest["segments"], *([file, None] for file in self.manifest["large"])]
        self.history.chance.shuffle(places)
        self._next(places)

    def _next(self, places: list[list[Any]]) -> None:
        chance = self.history.chance
        self.history.world.after(chance.random() * chance.choice((0.0, PIECE_MS_MAX)), partial(self._read, places))

    def _read(self, places: list[list[Any]]) -> None:
        if self.node.life != self.life:
            self._end_with(CUT_OFF)
        elif not places:
            self.node.ask("backup-end", {}, self._ended, self.session)
        elif self.history.chance.random() < 0.02:
            self.node.give(AdminClosed(self.session))
            self._end_with(LEFT)
        else:
            number, used = places.pop()
            self._copy(number, used)
            self._next(places)

    def _copy(self, number: int, used: int | None) -> None:
        """What is gone by now shows at the end: the node may have let go of it, and has to say so."""
        if used is None:
            if number in self.node.large_files.sizes:
                self.large[number] = self.node.large_files.content(number)
        elif number in self.node.disk.cached:
            content = bytes(self.node.disk.cached[number])
            self.files[number] = content[:used] + bytes(len(content) - used)

    def _ended(self, reply: AdminReply) -> None:
        if reply.error is not None:
            self._end_with(LET_GO)
            return
        self._end_with(GOOD)
        self.history.held += [f"backup {self.session}: {why}" for why in self._judged()]

    def _end_with(self, how: str) -> None:
        self.history.ends[how] += 1

    def _judged(self) -> list[str]:
        """What is wrong with the copy."""
        lack = {number for number, _ in self.manifest["segments"]} - self.files.keys()
        lack |= set(self.manifest["large"]) - self.large.keys()
        if lack:
            return [f"files went while they were held: {sorted(lack)}"]
        node_id = self.node.name.encode().ljust(16, b"\0")
        try:
            found = recover(iter(sorted(self.files.items())), node_id, "stop")
        except StorageFault as fault:
            return [f"cannot be read: {fault}"]
        wrong = []
        for name in ("position", "boot"):
            is_there = found.last_position if name == "position" else found.boot
            if is_there != self.manifest[name]:
                wrong.append(f"its {name} is {is_there} and not {self.manifest[name]}")
        sizes = {file: len(content) for file, content in self.large.items()}
        wrong += [str(cause) for run in large_runs(found) if (cause := fault_of(run, sizes)) is not None]
        return wrong or self._compared(self._markers(found))

    def _markers(self, found: Recovered) -> set[str]:
        markers: set[bytes] = set()
        for piece in pieces_of(found):
            run = run_of(piece.record)
            bodies = b"".join(bytes(run.block(index - run.first_id, 1)) for index in range(piece.first, piece.end))
            markers.update(MARKER.findall(bodies if run.large is None else self.large[run.large.file]))
        return {marker.decode() for marker in markers}

    def _compared(self, markers: set[str]) -> list[str]:
        wrong = []
        if lost := self.must - markers:
            wrong.append(f"{len(lost)} accepted messages are not in it: {sorted(lost)[:3]}")
        if again := self.gone & markers:
            wrong.append(f"{len(again)} settled messages are in it: {sorted(again)[:3]}")
        return wrong


class BackedUp(Simulation):
    """See the module's docstring. `ends`: how backups ended."""

    IS_PATIENT = True
    KIND = PLAIN

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(f"backups {seed}")
        self.ends: Counter[str] = Counter()
        self.held: list[str] = []
        super().__init__(seed)

    def made(self, name: str, options: BrokerOptions, faults: Faults) -> SimNode:
        size = self.chance.choice((4096, 8192, options.journal.journal_file_size_bytes))
        journal = replace(options.journal, journal_file_size_bytes=size)
        return super().made(name, replace(options, journal=journal), faults)

    def _populate(self, node: SimNode) -> None:
        """One more consumer takes all there is, so that files go."""
        super()._populate(node)
        for queue in sorted({each.queue for each in self.clients if isinstance(each, Producer) and each.node is node}):
            self.clients.append(Consumer(self.world, node, f"{queue}-c9", self.history, queue, is_drain=True))

    def plan_faults(self) -> None:
        super().plan_faults()
        for number in range(self.chance.choice((4, 8, 16))):
            node = self.chance.choice(self.nodes)
            at_ms = self.chance.random() * BUSY_MS
            self.world.after(at_ms, Reader(self, node, FIRST_SESSION + number).begin)
            fate = self.chance.random()
            if fate < 0.3:
                power_cut = self.chance.random() < 0.5
                self.world.after(at_ms + self.chance.random() * 100, partial(self.crash, node, power_cut=power_cut))
            elif fate < 0.4:
                self.world.after(at_ms + self.chance.random() * 100, partial(tell, node, True))
                self.world.after(at_ms + 200, partial(tell, node, False))

    def run(self) -> Verdict:
        """The history from beginning to end."""
        verdict = super().run()
        verdict.violations += self.held
        verdict.violations += [
            f"leak: {node.name} holds files for nobody"
            for node in self.nodes
            if node.broker.snapshots._held is not None or node.broker.snapshots._kept_back
        ]
        return verdict
