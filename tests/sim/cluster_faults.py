"""What happens to nodes of a cluster and to the network between them, drawn from the seed of a history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tests.sim.network import ClusterNode, Network
from tests.sim.world import World
from tests.support.checker import History

DURATIONS_MS: Final = (50, 500, 4000)
HOUR_MS: Final = 3_600_000
DATAGRAMS_ONLY: Final = ("discovery silent", "deaf to datagrams")


class ClusterFaults:
    """All kinds of faults, by name. `counts`: how many of each were planned."""

    def __init__(self, network: Network, nodes: Sequence[ClusterNode], histories: list[History]) -> None:
        self.world: World = network.world
        self.network = network
        self.nodes = nodes
        self.histories = histories
        self.counts: dict[str, int] = {}
        self.kinds: dict[str, Callable[[], None]] = {
            "kill": lambda: self._crash(power_cut=False),
            "power cut": lambda: self._crash(power_cut=True),
            "crash loop": self._crash_loop,
            "clean stop": self._clean_stop,
            "pause": lambda: self._node().freeze(self.world.rng.random() * 400),
            "long pause": lambda: self._node().freeze(3000 + self.world.rng.random() * 6000),
            "clock forward": lambda: self._jump(1),
            "clock back": lambda: self._jump(-1),
            "link reset": self._reset_wire,
            "reset at a byte": self._reset_at_a_byte,
            "client reset": self._reset_client,
            "partition": self._partition,
            "one-way cut": self._one_way,
            "flapping": self._flap,
            "delay": self._delay,
            "clogged link": self._clog,
        }
        if any(node.options.discovery_groups for node in nodes):
            silent, deaf = DATAGRAMS_ONLY
            self.kinds |= {silent: self._silence, deaf: self._deafen}
            network.datagram_loss = self.world.rng.choice((0.0, 0.1, 0.3))
            network.datagram_replay = self.world.rng.choice((0.0, 0.2, 0.5))

    def plan(self, busy_ms: int) -> None:
        """Some faults, any time until then."""
        rng = self.world.rng
        for _ in range(rng.choice((0, 2, 5, 12))):
            name = rng.choice(list(self.kinds))
            self.counts[name] = self.counts.get(name, 0) + 1
            self.world.after(rng.random() * busy_ms, self.kinds[name])

    def revive_all(self) -> None:
        """Who is down comes back soon."""
        for node in self.nodes:
            if not node.is_up:
                self.revive(node)

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _node(self) -> ClusterNode:
        return self.world.rng.choice(self.nodes)

    def _crash(self, *, power_cut: bool) -> None:
        node = self._node()
        node.crash(power_cut=power_cut)
        self.revive(node)

    def _crash_loop(self) -> None:
        """A node falls again and again, some of the times before it has said anything."""
        node = self._node()
        for number in range(5):
            self.world.after(number * 250, lambda: node.crash(power_cut=self.world.rng.random() < 0.5))
            self.world.after(number * 250 + 1, lambda: self.revive(node, self.world.rng.random() * 240))

    def _clean_stop(self) -> None:
        node = self._node()
        node.stop()
        self.revive(node)

    def revive(self, node: ClusterNode, delay_ms: float | None = None) -> None:
        """Start it again a little later, or after so long."""

        def start() -> None:
            if not node.is_up:
                for history in self.histories:
                    for sent in history.sent.values():
                        sent.is_exempt = sent.is_exempt or not sent.is_durable
                node.start()

        self.world.after(20 + self.world.rng.random() * 400 if delay_ms is None else delay_ms, start)

    def _jump(self, sign: int) -> None:
        """Its wall clock is set, by seconds or by days."""
        self._node().skew_ms += sign * int(self.world.rng.choice((0.01, 1, 100)) * HOUR_MS)

    # -- connections ---------------------------------------------------------------------------------------------------

    def _reset_wire(self) -> None:
        wires = self.network.wires()
        if wires:
            self.world.rng.choice(wires).reset()

    def _reset_at_a_byte(self) -> None:
        """A connection breaks behind any byte that is still to come."""
        wires = self.network.wires()
        if wires:
            self.world.rng.choice(wires).bytes_left = self.world.rng.randrange(1, self.world.rng.choice((50, 5000)))

    def _reset_client(self) -> None:
        node = self._node()
        pipes = list(node.pipes.values())
        if pipes:
            node.reset(self.world.rng.choice(pipes))

    # -- the network ---------------------------------------------------------------------------------------------------

    def _pair(self) -> tuple[str, str]:
        a, b = self.world.rng.sample(self.nodes, 2)
        return a.name, b.name

    def _partition(self) -> None:
        """Some nodes against the others."""
        rng = self.world.rng
        names = [node.name for node in self.nodes]
        some = rng.sample(names, rng.randrange(1, len(names)))
        others = [name for name in names if name not in some]
        pairs = [pair for a in some for b in others for pair in ((a, b), (b, a))]
        self.network.cut(pairs, rng.choice(DURATIONS_MS))

    def _one_way(self) -> None:
        self.network.cut([self._pair()], self.world.rng.choice(DURATIONS_MS))

    def _flap(self) -> None:
        a, b = self._pair()
        for number in range(6):
            self.world.after(number * 80, lambda: self.network.cut([(a, b), (b, a)], 40))

    def _delay(self) -> None:
        self.network.delay(self._pair(), self.world.rng.choice((20, 200, 1000)), self.world.rng.choice(DURATIONS_MS))

    def _clog(self) -> None:
        """A few KiB in a second."""
        self.network.clog(self._pair(), self.world.rng.choice((1024, 4096, 8192)), self.world.rng.choice(DURATIONS_MS))

    def _silence(self) -> None:
        """Nobody hears anybody's datagrams."""
        names = [node.name for node in self.nodes]
        self.network.silence([(a, b) for a in names for b in names], self.world.rng.choice(DURATIONS_MS))

    def _deafen(self) -> None:
        """One node does not hear another one, which hears it."""
        self.network.silence([self._pair()], self.world.rng.choice(DURATIONS_MS))
