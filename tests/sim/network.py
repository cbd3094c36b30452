"""The network between simulated nodes: connections that are slow, clogged, cut, one-way, or reset, and datagrams.

A connection is a wire with two directions. What is sent arrives in order and in pieces, a little later. While a
direction is cut nothing arrives and nothing is lost, as TCP sends it again; who waits too long gives up by itself. A
node that is down refuses new connections and resets old ones, as far as the network lets it. A way that is clogged lets
a few bytes through at a time. Datagrams get lost, come twice, and overtake each other.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from mqbroker.base.time import NS_PER_MS
from mqbroker.node.values import inputs as given
from mqbroker.node.values.effects import CloseConnection, Connect, Effect, JoinGroup, SendDatagram

from tests.sim.world import SimNode

if TYPE_CHECKING:
    from tests.sim.world import World

CONNECT_TIMEOUT_MS = 10_000
TRICKLE_MS = 50


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
        self.bytes_left: int | None = None  # until it breaks, where it is going to

    def _end_of(self, node: SimNode) -> int:
        return 0 if self.ends[0] is node else 1

    def _pass(self, item: given.BytesReceived | given.Closed, to: int) -> None:
        """Something is under way."""
        world = self.network.world
        delay_ms = world.rng.random() * 2
        due_ns = world.now_ns + int(self.network.delay_ms(self.ends[1 - to], self.ends[to]) * NS_PER_MS)
        self._due_ns[to] = max(self._due_ns[to], due_ns) + int(delay_ms * NS_PER_MS)
        world.after((self._due_ns[to] - world.now_ns) / NS_PER_MS, lambda: self._arrive(item, to))

    def _arrive(self, item: given.BytesReceived | given.Closed, to: int) -> None:
        is_held = self.network.is_held(self.ends[1 - to], self.ends[to])
        if is_held or self._held[to] or (self._is_paused[to] and isinstance(item, given.BytesReceived)):
            self._held[to].append(item)
        else:
            self._hand_over(item, to)

    def _hand_over(self, item: given.BytesReceived | given.Closed, to: int) -> None:
        node, conn = self.ends[to], self.conns[to]
        if node.wires.get(conn) is not self:
            return
        if isinstance(item, given.Closed):
            del node.wires[conn]
        elif self.bytes_left is not None:
            item = given.BytesReceived(conn, item.data[: self.bytes_left])
            self.bytes_left -= len(item.data)
        node.give(item)
        if self.bytes_left == 0:
            self.reset()

    def trickle(self, source: SimNode, size: int) -> None:
        """So many bytes of what one end has sent get through a clogged way."""
        to = 1 - self._end_of(source)
        held = self._held[to]
        while held and size > 0 and isinstance(held[0], given.BytesReceived) and not self._is_paused[to]:
            conn, data = held[0].conn, held[0].data
            if len(data) > size:
                held[0] = given.BytesReceived(conn, data[size:])
            else:
                del held[0]
            self._hand_over(given.BytesReceived(conn, data[:size]), to)
            size -= len(data)

    def look(self) -> None:
        """A cut or a pause may be over."""
        for to in (0, 1):
            while self._held[to] and not self.network.is_held(self.ends[1 - to], self.ends[to]):
                if self._is_paused[to] and isinstance(self._held[to][0], given.BytesReceived):
                    break
                self._hand_over(self._held[to].pop(0), to)

    def send(self, node: SimNode, data: bytes) -> None:
        """Bytes of one of the nodes."""
        rng, to = self.network.world.rng, 1 - self._end_of(node)
        start = 0
        while start < len(data):
            size = len(data) - start if rng.random() < 0.8 else rng.randrange(1, len(data) - start + 1)
            self._pass(given.BytesReceived(self.conns[to], data[start : start + size]), to)
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
        self._clogs: dict[tuple[str, str], int] = {}
        self._delays: dict[tuple[str, str], float] = {}
        self.mute: dict[tuple[str, str], int] = {}  # directions in which no datagram gets through
        self.datagram_loss, self.datagram_replay = 0.0, 0.0
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
        target.give(given.ConnectionAccepted(conn, "cluster", f"{source.name}:1", entropy))
        source.give(given.Connected(effect.conn, self.world.rng.randbytes(32)))

    def close(self, node: SimNode, effect: CloseConnection) -> None:
        """A node closes a connection to another one, or gives up an attempt."""
        wire = node.wires.get(effect.conn)
        if wire is not None:
            wire.close(node)
        elif effect.conn < 0 and effect.conn not in node.given_up:
            node.given_up.add(effect.conn)
            node.give(given.Closed(effect.conn, "closed by us while connecting"))

    # -- datagrams -----------------------------------------------------------------------------------------------------

    def spread(self, source: SimNode, effect: SendDatagram) -> None:
        """A datagram goes to everybody who listens to the group, the sender among them."""
        rng = self.world.rng
        for far in self.nodes.values():
            is_lost = rng.random() < self.datagram_loss
            if is_lost or self.is_cut(source, far) or self.mute.get((source.name, far.name), 0):
                continue
            for _ in range(2 if rng.random() < self.datagram_replay else 1):
                self.world.after(rng.random() * 20, partial(self._hear, source, far, effect))

    @staticmethod
    def _hear(source: SimNode, far: SimNode, effect: SendDatagram) -> None:
        if isinstance(far, ClusterNode) and effect.group in far.ears:
            far.give(given.Datagram(effect.group, f"{source.name}:9876", effect.data))

    def calm(self) -> None:
        """No connection breaks any more that was going to."""
        for wire in self.wires():
            wire.bytes_left = None

    def wires(self) -> list[Wire]:
        """All that stand, in the order of nodes."""
        return [wire for node in self.nodes.values() for wire in node.wires.values() if wire.ends[0] is node]

    # -- faults --------------------------------------------------------------------------------------------------------

    def is_cut(self, source: SimNode, target: SimNode) -> bool:
        """Whether nothing gets from one to the other."""
        return self._cuts.get((source.name, target.name), 0) > 0

    def is_held(self, source: SimNode, target: SimNode) -> bool:
        """Whether what one sends to the other has to wait."""
        pair = source.name, target.name
        return self._cuts.get(pair, 0) > 0 or self._clogs.get(pair, 0) > 0

    def delay_ms(self, source: SimNode, target: SimNode) -> float:
        """How much longer than usual everything takes from one to the other."""
        return self._delays.get((source.name, target.name), 0.0)

    def delay(self, pair: tuple[str, str], delay_ms: float, duration_ms: float) -> None:
        """A direction between two nodes is slow for a while."""
        self._delays[pair] = delay_ms
        self.world.after(duration_ms, lambda: self._delays.pop(pair, None))

    def clog(self, pair: tuple[str, str], bytes_per_s: int, duration_ms: int) -> None:
        """A direction between two nodes has next to no bandwidth for a while."""
        self._clogs[pair] = self._clogs.get(pair, 0) + 1

        def trickle() -> None:
            if not self._cuts.get(pair, 0):
                for wire in self.wires():
                    if pair in ((wire.ends[0].name, wire.ends[1].name), (wire.ends[1].name, wire.ends[0].name)):
                        wire.trickle(self.nodes[pair[0]], bytes_per_s * TRICKLE_MS // 1000)

        for at_ms in range(TRICKLE_MS, duration_ms, TRICKLE_MS):
            self.world.after(at_ms, trickle)
        self.world.after(duration_ms, lambda: self._unclog(pair))

    def _unclog(self, pair: tuple[str, str]) -> None:
        self._clogs[pair] -= 1
        for wire in self.wires():
            wire.look()

    def silence(self, pairs: list[tuple[str, str]], duration_ms: float) -> None:
        """No datagram gets through in these directions for a while; connections do."""
        for pair in pairs:
            self.mute[pair] = self.mute.get(pair, 0) + 1

        def hear() -> None:
            for pair in pairs:
                self.mute[pair] -= 1

        self.world.after(duration_ms, hear)

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


class ClusterNode(SimNode):
    """A node that may find others by datagrams. `ears`: discovery groups that it listens to."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.ears: set[str] = set()

    def start(self) -> None:
        """A new process hears nothing yet."""
        self.ears.clear()
        super().start()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case JoinGroup(effect_id, group):
                self.ears.add(group)
                self.give(given.Done(effect_id))
            case SendDatagram(effect_id):
                assert self.network is not None
                self.give(given.Done(effect_id))
                self.network.spread(self, effect)
            case _:
                super()._carry_out(effect)
