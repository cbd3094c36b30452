"""The network between simulated nodes: connections that are slow, cut, one-way, or reset.

A connection is a wire with two directions. What is sent arrives in order and in pieces, a little later. While a
direction is cut nothing arrives and nothing is lost, as TCP sends it again; who waits too long gives up by itself. A
node that is down refuses new connections and resets old ones, as far as the network lets it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mqbroker.base.time import NS_PER_MS
from mqbroker.node import inputs as given
from mqbroker.node.effects import Close, Connect

if TYPE_CHECKING:
    from tests.sim.world import SimNode, World

CONNECT_TIMEOUT_MS = 10_000


class Wire:
    """One connection between two nodes. Ends are 0 (who dialled) and 1."""

    def __init__(self, network: Network, ends: tuple[SimNode, SimNode], conns: tuple[int, int]) -> None:
        self.network = network
        self.ends = ends
        self.conns = conns
        self.is_open = True
        self._due_ns = [0, 0]  # when the last piece arrives at each end
        self._held: tuple[list[Any], list[Any]] = ([], [])  # what a cut, or a pause of reading, holds back
        self._is_paused = [False, False]

    def _end_of(self, node: SimNode) -> int:
        return 0 if self.ends[0] is node else 1

    def _pass(self, item: given.Received | given.Closed, to: int) -> None:
        """Something is under way."""
        world = self.network.world
        self._due_ns[to] = max(self._due_ns[to], world.now_ns) + int(world.rng.random() * 2 * NS_PER_MS)
        world.after((self._due_ns[to] - world.now_ns) / NS_PER_MS, lambda: self._arrive(item, to))

    def _arrive(self, item: given.Received | given.Closed, to: int) -> None:
        is_cut = self.network.is_cut(self.ends[1 - to], self.ends[to])
        if is_cut or self._held[to] or (self._is_paused[to] and isinstance(item, given.Received)):
            self._held[to].append(item)
        else:
            self._hand_over(item, to)

    def _hand_over(self, item: given.Received | given.Closed, to: int) -> None:
        node, conn = self.ends[to], self.conns[to]
        if node.wires.get(conn) is not self:
            return
        if isinstance(item, given.Closed):
            del node.wires[conn]
        node.give(item)

    def look(self) -> None:
        """A cut or a pause may be over."""
        for to in (0, 1):
            while self._held[to] and not self.network.is_cut(self.ends[1 - to], self.ends[to]):
                if self._is_paused[to] and isinstance(self._held[to][0], given.Received):
                    break
                self._hand_over(self._held[to].pop(0), to)

    def send(self, node: SimNode, data: bytes) -> None:
        """Bytes of one of the nodes."""
        rng, to = self.network.world.rng, 1 - self._end_of(node)
        start = 0
        while start < len(data):
            size = len(data) - start if rng.random() < 0.8 else rng.randrange(1, len(data) - start + 1)
            self._pass(given.Received(self.conns[to], data[start : start + size]), to)
            start += size

    def pause(self, node: SimNode, is_paused: bool) -> None:
        """A node reads no more, or again."""
        self._is_paused[self._end_of(node)] = is_paused
        self.look()

    def close(self, node: SimNode) -> None:
        """A node closes its end: it hears at once, the other one behind what was sent."""
        at = self._end_of(node)
        node.wires.pop(self.conns[at], None)
        node.give(given.Closed(self.conns[at], "closed here"))
        self._pass(given.Closed(self.conns[1 - at], "closed by the other end"), 1 - at)

    def down(self, node: SimNode) -> None:
        """A node is gone, and resets the connection."""
        at = self._end_of(node)
        node.wires.pop(self.conns[at], None)
        self._pass(given.Closed(self.conns[1 - at], "reset"), 1 - at)

    def reset(self) -> None:
        """The connection breaks for both: what is under way is lost."""
        for at in (0, 1):
            self._held[at].clear()
            node, conn = self.ends[at], self.conns[at]
            if node.wires.pop(conn, None) is self:
                node.give(given.Closed(conn, "reset"))


class Network:
    """All nodes of a world, by name, and which directions between them are cut."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.nodes: dict[str, SimNode] = {}
        self._cuts: dict[tuple[str, str], int] = {}
        self.connects = 0

    def add(self, node: SimNode) -> None:
        """A node is on this network."""
        self.nodes[node.name] = node
        node.network = self

    # -- connections ---------------------------------------------------------------------------------------------------

    def connect(self, source: SimNode, effect: Connect) -> None:
        """A node dials another one, whose name is its host."""
        life = source.life
        target = self.nodes.get(effect.host)
        if target is None:
            self._refuse(source, life, effect.conn, "no such host", 1)
        elif self.is_cut(source, target) or self.is_cut(target, source):
            self._refuse(source, life, effect.conn, "no answer", CONNECT_TIMEOUT_MS)
        else:
            self.world.after(self.world.rng.random() * 3, lambda: self._meet(source, life, target, effect))

    def _refuse(self, source: SimNode, life: int, conn: int, why: str, delay_ms: float) -> None:
        def tell() -> None:
            if source.life == life and conn not in source.given_up:
                source.give(given.Closed(conn, why))

        self.world.after(delay_ms, tell)

    def _meet(self, source: SimNode, life: int, target: SimNode, effect: Connect) -> None:
        if source.life != life:
            return
        if effect.conn in source.given_up:
            return
        if not target.is_up:
            source.give(given.Closed(effect.conn, "refused"))
            return
        self.connects += 1
        conn = target.next_conn()
        wire = Wire(self, (source, target), (effect.conn, conn))
        source.wires[effect.conn] = target.wires[conn] = wire
        entropy = self.world.rng.randbytes(32)
        target.give(given.Accepted(conn, "cluster", f"{source.name}:1", entropy))
        source.give(given.Connected(effect.conn, self.world.rng.randbytes(32)))

    def close(self, node: SimNode, effect: Close) -> None:
        """A node closes a connection to another one, or gives up an attempt."""
        wire = node.wires.get(effect.conn)
        if wire is not None:
            wire.close(node)
        elif effect.conn < 0 and effect.conn not in node.given_up:
            node.given_up.add(effect.conn)
            node.give(given.Closed(effect.conn, "closed by us while connecting"))

    def wires(self) -> list[Wire]:
        """All that stand, in the order of nodes."""
        return [wire for node in self.nodes.values() for wire in node.wires.values() if wire.ends[0] is node]

    # -- faults --------------------------------------------------------------------------------------------------------

    def is_cut(self, source: SimNode, target: SimNode) -> bool:
        """Whether nothing gets from one to the other."""
        return self._cuts.get((source.name, target.name), 0) > 0

    def cut(self, pairs: list[tuple[str, str]], duration_ms: float) -> None:
        """Directions between nodes are cut for a while."""
        for pair in pairs:
            self._cuts[pair] = self._cuts.get(pair, 0) + 1
        self.world.after(duration_ms, lambda: self._mend(pairs))

    def _mend(self, pairs: list[tuple[str, str]]) -> None:
        for pair in pairs:
            self._cuts[pair] -= 1
        for wire in self.wires():
            wire.look()
