"""One seeded history: nodes, clients, faults, then quiet, a drain, and the checker's verdict."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from mqbroker.config.slices import BrokerOptions
from mqbroker.node.values.effects import AdminReply
from mqbroker.wire.flat import decode_disposition_flat
from mqbroker.wire.performatives import Accepted

from tests.sim.changes import Changes
from tests.sim.clients import Client, Consumer, Producer
from tests.sim.disk import Faults
from tests.sim.features import Browser, Drain, Person, Publisher, Sight, Subscriber, Taker, frames_in
from tests.sim.full_disks import FullDisks, make_room, tell
from tests.sim.keepers import MOVED, Keeper, MovedDrain
from tests.sim.model import Model
from tests.sim.places import Place, drawn, with_places
from tests.sim.transactors import Transactor
from tests.sim.world import MARKER, Pipe, SimNode, World, options_for, paging, patient, with_large
from tests.support.checker import History

BUSY_MS = 2_000
MIXED_FROM = 1000  # from this seed on histories are of all kinds, before they are plain
PLAIN, TRANSACTIONS, FEATURES = "plain", "transactions", "features"
KINDS = (TRANSACTIONS, FEATURES, PLAIN, FEATURES)  # by the seed's remainder
# From these seeds on every third history of another kind than FEATURES has addresses that page, or messages in files.
PAGING_FROM = 3000
LARGE_FROM = 2000
# From this seed on every second history of FEATURES has an administrator who changes things under its clients.
CHANGES_FROM = 4000
# From this seed on two in five of the histories of another kind than FEATURES have disks that are full for a while.
FULL_FROM = 5000
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
    large: int = 0  # files of large messages that were finished
    ends: Counter[str] = field(
        default_factory=Counter
    )  # of messages that left their queue otherwise than to a consumer
    moved: int = 0  # messages that an administrator moved out of a queue that may page
    no_room: Counter[str] = field(default_factory=Counter)  # what found none on a disk that was full


def kind_of(seed: int) -> str:
    """What the clients of a history use."""
    return PLAIN if seed < MIXED_FROM else KINDS[seed % len(KINDS)]


def seeds_of(kind: str, count: int) -> list[int]:
    """The first seeds of a kind among the mixed ones."""
    return [seed for seed in range(MIXED_FROM, MIXED_FROM + count * len(KINDS)) if kind_of(seed) == kind][:count]


def has_changes(seed: int) -> bool:
    """Whether an administrator changes things under the clients of a history."""
    return seed >= CHANGES_FROM and seed % 8 < 4 and kind_of(seed) == FEATURES


def has_full_disks(seed: int) -> bool:
    """Whether disks of a history are full for a while."""
    return seed >= FULL_FROM and seed % 5 in (2, 3) and kind_of(seed) != FEATURES


class Simulation:
    """Builds a history from its seed and runs it."""

    IS_PATIENT = False  # nodes fall so often that messages would be dead letters, which a plain history does not know

    KIND = ""  # of all histories, where the seed does not say it
    HAS_LARGE = True  # some histories have messages in files

    def __init__(self, seed: int, flips: int = 0) -> None:
        self.seed = seed
        self.kind = self.KIND or kind_of(seed)
        self._has_paging = seed >= PAGING_FROM and seed % 3 == 0 and self.kind != FEATURES
        self._has_large = self.HAS_LARGE and seed >= LARGE_FROM and seed % 3 == 0 and self.kind != FEATURES
        self.world = World(seed)
        self.history = History()
        self.model = Model()
        self.counts: dict[str, int] = {}
        rng = self.world.rng
        faults = Faults(
            write_error=rng.choice((0, 0, 0.003)), sync_error=rng.choice((0, 0, 0.003)), flips=flips, seed=seed,
            delete_error=(0, 0.3)[seed % 2], read_error=0.01 * (seed % 5 == 1),
        )  # fmt: skip
        self.nodes = []
        for number in range(rng.choice((1, 1, 2))):
            options = options_for(
                rng.choice((4096, 65536, 1 << 20)), rng.choice((20_000, 1 << 28)), rng.choice((3, 100))
            )
            if self.kind == TRANSACTIONS or (self.IS_PATIENT and self.kind == PLAIN):
                options = patient(options)
            elif self.kind == FEATURES:
                options = with_places(options, self._draw_places(f"node{number}"))
            if self._has_paging:
                options = paging(options, rng)
            if self._has_large:
                kept_max = 20_000 if seed % 5 < 2 else 0
                options = with_large(options, rng.choice((600, 2000)), rng.choice((512, 2048, 65536)), kept_max)
            self.nodes.append(self.made(f"node{number}", options, faults))
            if self._has_large:
                self.nodes[-1].large_sizes = (300, 3000, 40_000)
                self.nodes[-1].large_gathered_max = (0, 1500, 20_000, 1 << 20)[seed // 12 % 4]
                self.nodes[-1].large_files.write_error = rng.choice((0.0, 0.0, 0.01))
        self.clients: list[Client] = []
        for node in self.nodes:
            node.start()
            node.observers.append(Watch(node, self.history).sent)
            if self.kind == FEATURES:
                self._populate_places(node)
            else:
                self._populate(node)
        self._faults: list[tuple[str, Callable[[SimNode], None]]] = [
            ("kill", lambda node: self.crash(node, power_cut=False)),
            ("power cut", lambda node: self.crash(node, power_cut=True)),
            ("crash loop", self._crash_loop),
            ("pause", lambda node: node.freeze(rng.random() * 400)),
            ("connection reset", self._reset),
            ("reader stops", self._stop_reading),
            ("clock jump", self._jump),
            ("clean stop", self._clean_stop),
        ]
        if self.kind == FEATURES:
            self._faults = [each for each in self._faults if each[0] != "clock jump"]  # the model knows one time

    def made(self, name: str, options: BrokerOptions, faults: Faults) -> SimNode:
        """A node of this history."""
        return SimNode(self.world, name, options, faults)

    def _populate(self, node: SimNode) -> None:
        rng = self.world.rng
        queues = [f"{node.name}-q{number}" for number in range(rng.choice((1, 2)))]
        for queue in queues:
            for number in range(rng.choice((1, 1, 2, 3))):
                count = rng.choice((20, 100, 300))
                self.clients.append(Producer(self.world, node, f"{queue}-p{number}", self.history, queue, count))
            for number in range(rng.choice((0, 1, 2, 3))):
                self.clients.append(Consumer(self.world, node, f"{queue}-c{number}", self.history, queue))
            if self.kind == TRANSACTIONS:
                for number in range(rng.choice((1, 2, 3))):
                    name = f"{queue}-p9{number}"
                    self.clients.append(Transactor(self.world, node, name, self.history, queue, rng.choice((10, 60))))

    def drawn(self, rng: random.Random, address: str) -> Place:
        """A place of this history."""
        return drawn(rng, address)

    def _draw_places(self, node: str) -> list[Place]:
        rng = self.world.rng
        places = [self.drawn(rng, f"{node}-q{number}") for number in range(rng.choice((1, 2)))]
        self.model.places.update({place.address: place for place in places})
        return places

    def _populate_places(self, node: SimNode) -> None:
        rng = self.world.rng
        sight = Sight(node, self.model)
        node.batch_observers.append(sight.decided)
        node.observers.append(sight.sent)
        for place in [each for each in self.model.places.values() if each.address.startswith(node.name)]:
            for number in range(rng.choice((1, 2, 3))):
                count = rng.choice((20, 60))
                name = f"{place.address}-p{number}"
                self.clients.append(Publisher(self.world, node, name, self.model, place, count))
            takers: list[type[Taker]] = [Subscriber if place.is_topic else Taker] * rng.choice((0, 1, 2, 3))
            if not place.is_topic:
                takers += [Browser] * rng.choice((0, 0, 1))
            for number, taker in enumerate(takers):
                self.clients.append(taker(self.world, node, f"{place.address}-c{number}", self.model, place))

    # -- faults --------------------------------------------------------------------------------------------------------

    def crash(self, node: SimNode, *, power_cut: bool) -> None:
        """It falls, and is started again."""
        node.crash(power_cut=power_cut)
        self._revive(node)

    def _revive(self, node: SimNode) -> None:
        """Whatever ended the node (a disk fault too), somebody starts it again."""

        def start() -> None:
            if not node.is_up:
                for sent in self.history.sent.values():
                    if not sent.is_durable and sent.queue.startswith(node.name):
                        sent.is_exempt = True
                self.model.restarted(node.name)
                node.start()

        self.world.after(20 + self.world.rng.random() * 200, start)

    def _crash_loop(self, node: SimNode) -> None:
        for number in range(3):
            self.world.after(number * 60, lambda: self.crash(node, power_cut=True))

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

    def plan_faults(self) -> None:
        """Those of the whole history."""
        rng = self.world.rng
        for _ in range(rng.choice((0, 3, 10))):
            name, fault = rng.choice(self._faults)
            node = rng.choice(self.nodes)
            self.counts[name] = self.counts.get(name, 0) + 1
            self.world.after(rng.random() * BUSY_MS, partial(fault, node))

    def _plan_requests(self) -> None:
        """What an administrator does, in some histories."""
        rng, person = self.world.rng, Person(self.model)
        for _ in range(rng.choice((0, 1, 4))):
            request, node = rng.choice((person.purge, person.move, person.retry)), rng.choice(self.nodes)
            self.world.after(rng.random() * BUSY_MS, partial(request, node))

    def plan_changes(self) -> None:
        """What one changes under clients that go on."""
        rng, changes = self.world.rng, Changes(self.model)
        for _ in range(rng.choice((1, 3, 6))):
            self.world.after(rng.random() * BUSY_MS / 2, partial(changes.act, rng.choice(self.nodes)))

    def _plan_keeping(self) -> None:
        """The same where queues page."""
        rng = self.world.rng
        for _ in range(rng.choice((0, 6, 12))):
            node = rng.choice(self.nodes)
            queues = list(dict.fromkeys(each.queue for each in self.clients if isinstance(each, Producer)))
            keeper = Keeper(self.history, [queue for queue in queues if queue.startswith(node.name)])
            self.world.after(rng.random() * BUSY_MS / 4, partial(keeper.act, node))  # while there is much

    # -- the whole -----------------------------------------------------------------------------------------------------

    def run(self) -> Verdict:
        """The history from beginning to end."""
        self.plan_faults()
        if self.kind == FEATURES:
            self._plan_requests()
        if has_changes(self.seed) and not self.KIND:
            self.plan_changes()
        if self._has_paging:
            self._plan_keeping()
        if has_full_disks(self.seed) and not self.KIND:
            FullDisks(self.world, self.seed).plan(self.nodes, BUSY_MS)
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
            make_room(node)
            tell(node, False)
            node.large_files.write_error = 0.0
            if not node.is_up:
                self._revive(node)
        self.world.run(BUSY_MS + 5_000)
        left = self._drain()
        sent = [*self.history.sent.values(), *self.model.letters.values()]
        return Verdict(
            self.seed, self.world.trace, self.history.check_drained(left) + self.model.check() + self._leaks(),
            len(sent), sum(each.outcome == "accepted" for each in sent),
            self.history.received.total() + sum(copy.seen for copy in self.model.copies.values()),
            sum(node.epoch for node in self.nodes), self.world.steps, self.counts,
            Counter(transacted.outcome for transacted in self.history.transactions.values()),
            sum(node.pages_read for node in self.nodes),
            sum(node.large_files.finished_count for node in self.nodes), self.model.ends, len(self.history.moved),
            sum((node.disk.found_no_room for node in self.nodes), Counter()),
        )  # fmt: skip

    def _drain(self) -> int:
        for node in self.nodes:
            for name, queue in list(node.broker.store.queues.items()):
                if queue.kind.is_internal:
                    node.ask("queue-purge", {"name": name}, _purged)  # nobody would take what is kept for later
                elif self.kind == FEATURES:
                    Drain(self.world, node, self.model, self._place_of(queue.kind.address), (queue.kind.address, name))
                else:
                    drain = MovedDrain if name.endswith(MOVED) else Consumer
                    drain(self.world, node, f"drain-{name}", self.history, name, is_drain=True)
        self.world.run(BUSY_MS + QUIET_MS, lambda: self._depth() == 0)
        self.world.run(self.world.now_ns // 1_000_000 + 500)
        return self._depth()

    def _place_of(self, address: str) -> Place:
        return next(each for each in self.model.places.values() if address in (each.address, *each.extras))

    def _depth(self) -> int:
        return sum(q.message_count for node in self.nodes for q in node.broker.store.queues.values())

    def _leaks(self) -> list[str]:
        return (
            [
                f"leak: {node.name} holds {node.broker.store.memory.held_bytes} bytes of no message"
                for node in self.nodes
                if node.broker.store.memory.held_bytes
            ]
            + [
                f"leak: {node.name} holds {pins} places of no message"
                for node in self.nodes
                if (pins := sum(segment.pins for segment in node.broker.journal._ledger.segments))
            ]
            + [
                f"leak: {node.name} has files of no message: {node.large_files.sizes}"
                for node in self.nodes
                if node.large_files.sizes or node.broker.store.large.count
            ]
        )


def _purged(reply: AdminReply) -> None:
    assert reply.error is None, reply.error


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
    for frame in frames_in(data):
        flat = decode_disposition_flat(data, frame.body_offset, frame.end)
        if flat is not None and flat[0] and isinstance(flat[4], Accepted):
            found.extend(range(flat[1], (flat[1] if flat[2] is None else flat[2]) + 1))
    return found
