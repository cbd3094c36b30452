"""Several nodes in memory whose connections to each other are pipes: nothing moves unless the test moves it.

    cluster = ClusterStage()
    a = cluster.node("a", static=["b"])
    b = cluster.node("b", static=["a"])
    cluster.run()

Each node is a Stage. Its cluster listener is reached as host `<name>`, port 5673. Pipes can be reset (both ends are
told), fall silent (nobody is, and what is sent is lost), or be held up with the way between two nodes (nobody is, and
what is sent arrives when the way is open again). Nodes may have broadcast and discovery groups as well: datagrams
arrive at all who listen to their place over a card in the same network, the sender among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from mqbroker.base.time import NS_PER_MS
from mqbroker.cluster.discovery.datagram import derive_key
from mqbroker.config.declarations.cluster_connections import ClusterConnectionTable, cluster_connection
from mqbroker.config.declarations.options import BrokerFile, default_listener, to_slices
from mqbroker.config.slices import BrokerOptions, ClusterConnectionOptions, ConnectorOptions
from mqbroker.node.cluster.membership.bridge import Bridge
from mqbroker.node.values import inputs as given
from mqbroker.node.values.effects import (
    CloseConnection,
    Connect,
    Derive,
    Effect,
    JoinGroup,
    PauseReading,
    Send,
    SendDatagram,
)

from tests.support.derived import key_of
from tests.support.stage import ROUNDS_MAX, Stage, options_with

PORT = 5673
KEY = derive_key("a secret of the cluster")
OTHER_KEY = derive_key("the secret of another cluster")


def node_id_of(name: str) -> str:
    """Ids that can be told from each other, and are well-formed."""
    return f"{name.encode().hex():0<8}-0000-4000-8000-000000000000"


def connection_with(**changes: Any) -> ClusterConnectionOptions:
    """A cluster connection as a file gives it; names with underscores."""
    row = {"name": "cluster", "connector_ref": "own", **changes}
    return cluster_connection(ClusterConnectionTable.model_validate({k.replace("_", "-"): v for k, v in row.items()}))


class Pipe:
    """One connection between two nodes: (node, id there) of either end, who dialled first."""

    def __init__(self, dialler: tuple[ClusterNode, int], acceptor: tuple[ClusterNode, int]) -> None:
        self.ends = (dialler, acceptor)
        self.unheard: set[str] = set()  # nodes whose bytes do not arrive
        self.held: list[tuple[ClusterNode, given.Input]] = []  # what arrives when the way is open again

    def far(self, node: ClusterNode, conn: int) -> tuple[ClusterNode, int]:
        """The other end."""
        return self.ends[1] if self.ends[0] == (node, conn) else self.ends[0]

    def deliver(self, node: ClusterNode, item: given.BytesReceived | given.Closed) -> None:
        """Something has come to this end."""
        if node.pipes.get(item.conn) is self and node.is_up:
            if isinstance(item, given.Closed):
                del node.pipes[item.conn]
            node.give(item)


class ClusterNode(Stage):
    """A node of a ClusterStage."""

    def __init__(self, cluster: ClusterStage, name: str, options: BrokerOptions, **identity: Any) -> None:
        self.cluster = cluster
        self.name = name
        self.pipes: dict[int, Pipe] = {}
        self.ears: set[str] = set()  # discovery groups that it listens to
        self.dials: list[Connect] = []
        self.lives = 0
        self.are_derives_held = False  # keys of logins come later
        self.now_ns = cluster.now_ns
        said = {"node_id": node_id_of(name), "boot_id": self._boot_id(), "cluster_key": KEY, **identity}
        cluster.nodes[name] = self
        super().__init__(options, identity=said)

    def _boot_id(self) -> str:
        return f"{self.name.encode().hex()}{self.lives:02x}".ljust(32, "0")

    def start(self) -> None:
        """Boot, in a new process."""
        self.now_ns = max(self.now_ns, self.cluster.now_ns)
        if self.lives:
            self.identity["boot_id"] = self._boot_id()
        self.lives += 1
        self.ears.clear()
        super().start()

    @property
    def is_busy(self) -> bool:
        """Whether it has something to do without being told."""
        return self.is_up and bool(self._inputs or (self.pending and not self.is_disk_held))

    def crash(self) -> None:
        """The process is gone, and its connections are cut."""
        super().crash()
        self._hang_up_all("reset")

    def unplug(self) -> None:
        """Its card for discovery is gone."""
        self.network_trouble = "no network card of this host has this address; it is tried again"
        self.ears.clear()

    def _hang_up_all(self, why: str) -> None:
        for conn in list(self.pipes):
            self.cluster.hang_up(self, conn, why)

    def events(self, event: str) -> list[Mapping[str, Any]]:
        """The fields of all notices of this name."""
        return [notice.fields for notice in self.notices if notice.event == event]

    def bridge(self, name: str) -> Bridge:
        """Its bridge to another node."""
        return self.broker.cluster.connections["cluster"].bridges[node_id_of(name)]

    def state(self, name: str) -> str:
        """How that bridge stands; empty where there is none."""
        bridges = self.broker.cluster.connections["cluster"].bridges
        return bridges[node_id_of(name)].state.value if node_id_of(name) in bridges else ""

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Derive(effect_id):
                self.derives.append(effect)
                if not self.are_derives_held:
                    self.give(given.Done(effect_id, key_of(effect)))
            case Connect():
                self.dials.append(effect)
                self.cluster.dial(self, effect)
            case Send(conn, chunks) if conn in self.pipes:
                self.cluster.send(self, conn, b"".join(bytes(chunk) for chunk in chunks))
            case CloseConnection(conn, _) if conn in self.pipes:
                self.cluster.hang_up(self, conn, "closed by the other end")
                self.give(given.Closed(conn, "closed here"))
            case CloseConnection(conn, _) if conn < 0:
                self.give(given.Closed(conn, "closed by us while connecting"))
            case PauseReading(conn) if conn in self.pipes:
                pass
            case SendDatagram(effect_id, group, data) if not self.network_trouble:
                self.give(given.Done(effect_id))
                self.cluster.spread(self, group, data)
            case _:
                if isinstance(effect, JoinGroup) and not self.network_trouble:
                    self.ears.add(effect.group)
                super()._carry_out(effect)
        if self.halted is not None:
            self._hang_up_all("closed by the other end")


class ClusterStage:
    """See the module's docstring."""

    def __init__(self) -> None:
        self.now_ns = NS_PER_MS
        self.nodes: dict[str, ClusterNode] = {}
        self.unreachable: set[str] = set()  # hosts that refuse connections
        self.mute: set[str] = set()  # hosts that never answer
        self.held_up: set[frozenset[str]] = set()  # pairs of nodes between which nothing gets through
        self.on_sent: Callable[[int], None] = lambda size_bytes: None  # told of all that one node sends to another

    def node(
        self, name: str, /, static: Iterable[str] = (), *, identity: Mapping[str, Any] | None = None, **changes: Any
    ) -> ClusterNode:
        """Start a node. `changes` are options of its cluster connection; `options` further tables of it; `listener`
        changes that for other nodes; `groups` are its groups of discovery as a file gives them.
        """
        return self.make(name, options_for(name, static, changes), identity or {})

    def make(self, name: str, options: BrokerOptions, identity: Mapping[str, Any]) -> ClusterNode:
        """What a node is here."""
        return ClusterNode(self, name, options, **identity)

    def run(self) -> None:
        """Until nobody has anything to say."""
        for _ in range(ROUNDS_MAX):
            is_busy = any(node.is_busy for node in self.nodes.values())
            before = [len(node.batches) for node in self.nodes.values()]
            for node in self.nodes.values():
                if node.is_up:
                    node.run()
            if not is_busy and before == [len(node.batches) for node in self.nodes.values()]:
                return
        raise AssertionError("the nodes never fall silent")

    def wait(self, duration_ms: int) -> None:
        """Time passes for all, stopping wherever a node asked to be woken."""
        self.run()
        end_ns = self.now_ns + duration_ms * NS_PER_MS
        for _ in range(ROUNDS_MAX):
            wakes = [node.broker.timers.wake_at_ns for node in self.nodes.values() if node.is_up]
            wake_ns = min((each for each in wakes if each is not None), default=end_ns + 1)
            if wake_ns > end_ns:
                break
            self._set_clock(max(self.now_ns, wake_ns))
        else:
            raise AssertionError("the nodes are woken without end")
        self._set_clock(end_ns)

    def _set_clock(self, now_ns: int) -> None:
        self.now_ns = now_ns
        for node in self.nodes.values():
            node.now_ns = now_ns
            if node.is_up:
                node.step()
        self.run()

    # -- pipes ---------------------------------------------------------------------------------------------------------

    def dial(self, node: ClusterNode, effect: Connect) -> None:
        """A node opens a connection."""
        if effect.host in self.mute:
            return
        far = self.nodes.get(effect.host)
        is_open = effect.host not in self.unreachable and frozenset((node.name, effect.host)) not in self.held_up
        if far is None or not far.is_up or not is_open or effect.port != PORT:
            node.give(given.Closed(effect.conn, f"{effect.host} port {effect.port}: Connection refused"))
            return
        far._ids += 1
        pipe = Pipe((node, effect.conn), (far, far._ids))
        node.pipes[effect.conn] = far.pipes[far._ids] = pipe
        node.give(given.Connected(effect.conn, b"d" * 32))
        far.give(given.ConnectionAccepted(far._ids, "cluster", f"{node.name}:40000", b"e" * 32))

    def send(self, node: ClusterNode, conn: int, data: bytes) -> None:
        """Bytes go over."""
        self.on_sent(len(data))
        pipe = node.pipes[conn]
        far, far_conn = pipe.far(node, conn)
        if node.name not in pipe.unheard:
            self._pass_on(pipe, node, far, given.BytesReceived(far_conn, data))

    def hang_up(self, node: ClusterNode, conn: int, why: str) -> None:
        """One end closes; the other one is told."""
        pipe = node.pipes.pop(conn)
        far, far_conn = pipe.far(node, conn)
        self._pass_on(pipe, node, far, given.Closed(far_conn, why))

    def _pass_on(
        self, pipe: Pipe, node: ClusterNode, far: ClusterNode, item: given.BytesReceived | given.Closed
    ) -> None:
        if frozenset((node.name, far.name)) in self.held_up:
            pipe.held.append((far, item))
        else:
            pipe.deliver(far, item)

    def cut(self, pipe: Pipe, why: str = "reset") -> None:
        """The connection is over; both ends are told."""
        for node, conn in pipe.ends:
            pipe.deliver(node, given.Closed(conn, why))

    def cut_all(self, node: ClusterNode) -> None:
        """All connections of a node."""
        for pipe in list(node.pipes.values()):
            self.cut(pipe)

    def silence(self, node: ClusterNode, *, is_deaf: bool = True) -> None:
        """What a node sends is lost from now on, and nobody is told; where it `is_deaf`, so is what it is sent."""
        for pipe in node.pipes.values():
            pipe.unheard |= {end.name for end, _ in pipe.ends} if is_deaf else {node.name}

    def between(self, one: str, other: str) -> list[Pipe]:
        """The connections of two nodes with each other."""
        pipes = dict.fromkeys([*self.nodes[one].pipes.values(), *self.nodes[other].pipes.values()])
        return [pipe for pipe in pipes if {end.name for end, _ in pipe.ends} == {one, other}]

    def hold_up(self, one: str, other: str) -> None:
        """Nothing gets through between two nodes."""
        self.held_up.add(frozenset((one, other)))

    def let_through(self, one: str, other: str) -> None:
        """What was held up arrives, and what comes later does at once."""
        self.held_up.discard(frozenset((one, other)))
        for pipe in self.between(one, other):
            held, pipe.held = pipe.held, []
            for node, item in held:
                pipe.deliver(node, item)

    # -- datagrams -----------------------------------------------------------------------------------------------------

    def spread(self, node: ClusterNode, group: str, data: bytes) -> None:
        """A datagram reaches everybody who listens to its place in its network."""
        (said,) = [each for each in node.options.broadcast_groups if each.name == group]
        place = (said.group_address, said.group_port, network_of(said.local_bind_address))
        for far in self.nodes.values():
            for heard in far.options.discovery_groups if far.is_up else ():
                there = (heard.group_address, heard.group_port, network_of(heard.local_bind_address))
                if heard.name in far.ears and there == place:
                    far.give(given.Datagram(heard.name, f"{said.local_bind_address}:40000", data))


def network_of(address: str | None) -> str:
    """What stands for the network of a card that has this address."""
    return (address or "").rpartition(".")[0]


def options_for(name: str, static: Iterable[str], changes: Mapping[str, Any]) -> BrokerOptions:
    """Options of a node: clients come in at its first listener, other nodes at the second."""
    said = dict(changes)
    base = options_with(**said.pop("options", {}))
    cluster = replace(
        default_listener("cluster", PORT), kind="cluster", sasl_mechanisms=("SCRAM-SHA-512", "SCRAM-SHA-256"),
        **said.pop("listener", {}),
    )  # fmt: skip
    connectors = [ConnectorOptions("own", name, PORT, False)]
    connectors += [ConnectorOptions(f"to-{each}", each, PORT, False) for each in static]
    own = {"name": "own", "host": name, "port": PORT}
    groups = to_slices(BrokerFile.model_validate({"connectors": [own], **said.pop("groups", {})}))
    if "discovery_group_ref" not in said:
        said.setdefault("static_connectors", [f"to-{each}" for each in static])
    return replace(
        base, node=replace(base.node, name=name), listeners=(*base.listeners, cluster), connectors=tuple(connectors),
        cluster_connections=(connection_with(**said),), broadcast_groups=groups.broadcast_groups,
        discovery_groups=groups.discovery_groups,
    )  # fmt: skip
