"""One seeded history: nodes, clients, faults, then quiet, a drain, and the checker's verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from mqbroker.wire.flat import decode_disposition_flat
from mqbroker.wire.frames import frame_at
from mqbroker.wire.performatives import Accepted

from tests.sim.clients import Client, Consumer, Producer
from tests.sim.disk import Faults
from tests.sim.transactors import Transactor
from tests.sim.world import MARKER, Pipe, SimNode, World, options_for, paging, patient
from tests.support.checker import History

BUSY_MS = 2_000
TRANSACTIONS_FROM = 1000  # from this seed on every other history has clients that use transactions
PAGING_FROM = 3000  # from this seed on every third history has addresses that page
QUIET_MS = 60_000


@dataclass(slots=True)
class Verdict:
    """What came of one history."""

    seed: int
    trace: str
    violations: list[str]
    sent: int
    accepted: int
    received: int
    crashes: int
    steps: int
    faults: dict[str, int] = field(default_factory=dict)
    transactions: Counter[str] = field(default_factory=Counter)  # by how they ended
    pages_read: int = 0


class Simulation:
    """Builds a history from its seed and runs it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._has_transactions = seed >= TRANSACTIONS_FROM and seed % 2 == 0
        self._has_paging = seed >= PAGING_FROM and seed % 3 == 0
        self.world = World(seed)
        self.history = History()
        self.counts: dict[str, int] = {}
        rng = self.world.rng
        faults = Faults(write_error=rng.choice((0, 0, 0.003)), sync_error=rng.choice((0, 0, 0.003)))
        self.nodes = []
        for number in range(rng.choice((1, 1, 2))):
            options = options_for(
                rng.choice((4096, 65536, 1 << 20)), rng.choice((20_000, 1 << 28)), rng.choice((3, 100))
            )
            if self._has_transactions:
                options = patient(options)
            if self._has_paging:
                options = paging(options, rng)
            self.nodes.append(SimNode(self.world, f"node{number}", options, faults))
        self.clients: list[Client] = []
        for node in self.nodes:
            node.start()
            self._populate(node)
        self._faults: list[tuple[str, Callable[[SimNode], None]]] = [
            ("kill", lambda node: self._crash(node, power_cut=False)),
            ("power cut", lambda node: self._crash(node, power_cut=True)),
            ("crash loop", self._crash_loop),
            ("pause", lambda node: node.freeze(rng.random() * 400)),
            ("connection reset", self._reset),
            ("reader stops", self._stop_reading),
            ("clock jump", self._jump),
            ("clean stop", self._clean_stop),
        ]

    def _populate(self, node: SimNode) -> None:
        rng = self.world.rng
        watch = Watch(node, self.history)
        node.observers.append(watch.sent)
        queues = [f"{node.name}-q{number}" for number in range(rng.choice((1, 2)))]
        for queue in queues:
            for number in range(rng.choice((1, 1, 2, 3))):
                count = rng.choice((20, 100, 300))
                self.clients.append(Producer(self.world, node, f"{queue}-p{number}", self.history, queue, count))
            for number in range(rng.choice((0, 1, 2, 3))):
                self.clients.append(Consumer(self.world, node, f"{queue}-c{number}", self.history, queue))
            if self._has_transactions:
                for number in range(rng.choice((1, 2, 3))):
                    name = f"{queue}-p9{number}"
                    self.clients.append(Transactor(self.world, node, name, self.history, queue, rng.choice((10, 60))))

    # -- faults --------------------------------------------------------------------------------------------------------

    def _crash(self, node: SimNode, *, power_cut: bool) -> None:
        node.crash(power_cut=power_cut)
        self._revive(node)

    def _revive(self, node: SimNode) -> None:
        """Whatever ended the node (a disk fault too), somebody starts it again."""

        def start() -> None:
            if not node.is_up:
                for sent in self.history.sent.values():
                    if not sent.is_durable and sent.queue.startswith(node.name):
                        sent.is_exempt = True
                node.start()

        self.world.after(20 + self.world.rng.random() * 200, start)

    def _crash_loop(self, node: SimNode) -> None:
        for number in range(3):
            self.world.after(number * 60, lambda: self._crash(node, power_cut=True))

    def _any_pipe(self, node: SimNode) -> Pipe | None:
        pipes = list(node.pipes.values())
        return self.world.rng.choice(pipes) if pipes else None

    def _reset(self, node: SimNode) -> None:
        pipe = self._any_pipe(node)
        if pipe is not None:
            node.reset(pipe)

    def _stop_reading(self, node: SimNode) -> None:
        pipe = self._any_pipe(node)
        if pipe is not None and pipe.unread is None:
            node.stop_reading(pipe)
            self.world.after(self.world.rng.random() * 600, lambda: node.resume_reading(pipe))

    def _jump(self, node: SimNode) -> None:
        self.world.wall_skew_ms += self.world.rng.randrange(-86_400_000, 86_400_000)

    def _clean_stop(self, node: SimNode) -> None:
        node.stop()
        self._revive(node)

    def _plan_faults(self) -> None:
        rng = self.world.rng
        for _ in range(rng.choice((0, 3, 10))):
            name, fault = rng.choice(self._faults)
            node = rng.choice(self.nodes)
            self.counts[name] = self.counts.get(name, 0) + 1
            self.world.after(rng.random() * BUSY_MS, partial(fault, node))

    # -- the whole -----------------------------------------------------------------------------------------------------

    def run(self) -> Verdict:
        """The history from beginning to end."""
        self._plan_faults()
        for at_ms in range(0, BUSY_MS, 250):
            self.world.run(at_ms)
            for node in self.nodes:
                if not node.is_up:
                    self._revive(node)
        self.world.run(BUSY_MS + 3_000)
        for client in self.clients:
            client.stop()
        for node in self.nodes:
            node.disk.faults = Faults()
            if not node.is_up:
                self._revive(node)
        self.world.run(BUSY_MS + 5_000)
        left = self._drain()
        return Verdict(
            self.seed, self.world.trace, self.history.check_drained(left) + self._leaks(), len(self.history.sent),
            sum(sent.outcome == "accepted" for sent in self.history.sent.values()), self.history.received.total(),
            sum(node.epoch for node in self.nodes), self.world.steps, self.counts,
            Counter(transacted.outcome for transacted in self.history.transactions.values()),
            sum(node.pages_read for node in self.nodes),
        )  # fmt: skip

    def _drain(self) -> int:
        for node in self.nodes:
            for queue in list(node.broker.store.queues):
                Consumer(self.world, node, f"drain-{queue}", self.history, queue, is_drain=True)
        self.world.run(BUSY_MS + QUIET_MS, lambda: self._depth() == 0)
        self.world.run(self.world.now_ns // 1_000_000 + 500)
        return self._depth()

    def _depth(self) -> int:
        return sum(q.message_count for node in self.nodes for q in node.broker.store.queues.values())

    def _leaks(self) -> list[str]:
        return [
            f"leak: {node.name} holds {node.broker.store.memory.held_bytes} bytes of no message"
            for node in self.nodes
            if node.broker.store.memory.held_bytes
        ] + [
            f"leak: {node.name} holds {pins} places of no message"
            for node in self.nodes
            if (pins := sum(segment.pins for segment in node.broker.journal._ledger.segments))
        ]


class Watch:
    """Sees every frame that a node sends: no acceptance of a durable message may precede its sync.

    Nor may any message of a transaction go out before all that is durable of it is on disk.
    """

    def __init__(self, node: SimNode, history: History) -> None:
        self._node = node
        self._history = history

    def sent(self, conn: int, data: bytes) -> None:
        """What a connection is about to get."""
        positions, synced = self._node.positions, self._node.disk.synced_position
        for marker in map(bytes.decode, MARKER.findall(data) if self._node.together else ()):
            for other in self._node.together.get(marker, ()):
                if positions.get(other, synced + 1) > synced:
                    self._history.violations.append(f"torn: {marker} was sent before {other} was stored")
        for delivery_id in _accepted_in(data):
            marker = self._node.published.get((conn, delivery_id))
            if marker is None:
                continue
            position = positions.get(marker)
            if position is None or position > self._node.disk.synced_position:
                self._history.violations.append(f"acceptance before sync: {marker} at position {position}")


def _accepted_in(data: bytes) -> list[int]:
    """Delivery ids that dispositions in these frames accept as receiver."""
    found: list[int] = []
    offset = 0
    while offset + 8 <= len(data) and not data.startswith(b"AMQP", offset):
        frame = frame_at(data, offset, len(data), 1 << 31)
        if frame is None:
            break
        flat = decode_disposition_flat(data, frame.body_offset, frame.end) if frame.type == 0 else None
        if flat is not None and flat[0] and isinstance(flat[4], Accepted):
            found.extend(range(flat[1], (flat[1] if flat[2] is None else flat[2]) + 1))
        offset = frame.end
    return found
