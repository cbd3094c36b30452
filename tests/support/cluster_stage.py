"""Several nodes in memory whose connections to each other are pipes: nothing moves unless the test moves it.

    cluster = ClusterStage()
    a = cluster.node("a", static=["b"])
    b = cluster.node("b", static=["a"])
    cluster.run()

Each node is a Stage. Its cluster listener is reached as host `<name>`, port 5673. Pipes can be cut (both ends are
told), or fall silent (nobody is).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from mqbroker.base.time import NS_PER_MS
from mqbroker.cluster.discovery.datagram import derive_key
from mqbroker.config.cluster_connections import ClusterConnectionTable, cluster_connection
from mqbroker.config.options import default_listener
from mqbroker.config.slices import BrokerOptions, ClusterConnectionOptions, ConnectorOptions
from mqbroker.node import inputs as given
from mqbroker.node.bridge import Bridge
from mqbroker.node.effects import Close, Connect, PauseReading, Send

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

    def far(self, node: ClusterNode, conn: int) -> tuple[ClusterNode, int]:
        """The other end."""
        return self.ends[1] if self.ends[0] == (node, conn) else self.ends[0]


class ClusterNode(Stage):
    """A node of a ClusterStage."""

    def __init__(self, cluster: ClusterStage, name: str, options: BrokerOptions, **identity: Any) -> None:
        self.cluster = cluster
        self.name = name
        self.pipes: dict[int, Pipe] = {}
        self.dials: list[Connect] = []
        self.lives = 0
        self.now_ns = cluster.now_ns
        said = {"node_id": node_id_of(name), "boot_id": self._boot_id(), "cluster_key": KEY, **identity}
        super().__init__(options, identity=said)

    def _boot_id(self) -> str:
        return f"{self.name.encode().hex()}{self.lives:02x}".ljust(32, "0")

    def start(self) -> None:
        """Boot, in a new process."""
        self.now_ns = max(self.now_ns, self.cluster.now_ns)
        if self.lives:
            self.identity["boot_id"] = self._boot_id()
        self.lives += 1
        super().start()

    @property
    def is_busy(self) -> bool:
        """Whether it has something to do without being told."""
        return self.is_up and bool(self._inputs or (self.pending and not self.is_disk_held))

    def crash(self) -> None:
        """The process is gone, and its connections are cut."""
        super().crash()
        for pipe in list(self.pipes.values()):
            self.cluster.cut(pipe, "reset")

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

    def _carry_out(self, effect: object) -> None:
        match effect:
            case Connect():
                self.dials.append(effect)
                self.cluster.dial(self, effect)
            case Send(conn, chunks) if conn in self.pipes:
                self.cluster.send(self, conn, b"".join(bytes(chunk) for chunk in chunks))
            case Close(conn, _) if conn in self.pipes:
                self.cluster.cut(self.pipes[conn], "closed by the other end")
            case Close(conn, _) if conn < 0:
                self.give(given.Closed(conn, "closed by us while connecting"))
            case PauseReading(conn) if conn in self.pipes:
                pass
            case _:
                super()._carry_out(effect)


class ClusterStage:
    """See the module's docstring."""

    def __init__(self) -> None:
        self.now_ns = NS_PER_MS
        self.nodes: dict[str, ClusterNode] = {}
        self.unreachable: set[str] = set()  # hosts that refuse connections
        self.mute: set[str] = set()  # hosts that never answer

    def node(
        self, name: str, /, static: Iterable[str] = (), *, identity: Mapping[str, Any] | None = None, **changes: Any
    ) -> ClusterNode:
        """Start a node. `changes` are options of its cluster connection; `options` further tables of it."""
        tables = changes.pop("options", {})
        made = ClusterNode(self, name, options_for(name, static, changes, tables), **(identity or {}))
        self.nodes[name] = made
        return made

    def run(self) -> None:
        """Until nobody has anything to say."""
        for _ in range(ROUNDS_MAX):
            busy = [
                node
                for node in self.nodes.values()
                if node.is_up and (node._inputs or (node.pending and not node.is_disk_held))
            ]
            before = [len(node.batches) for node in self.nodes.values()]
            for node in self.nodes.values():
                if node.is_up:
                    node.run()
            if not busy and before == [len(node.batches) for node in self.nodes.values()]:
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
        if far is None or not far.is_up or effect.host in self.unreachable or effect.port != PORT:
            node.give(given.Closed(effect.conn, f"{effect.host} port {effect.port}: Connection refused"))
            return
        far._ids += 1
        pipe = Pipe((node, effect.conn), (far, far._ids))
        node.pipes[effect.conn] = far.pipes[far._ids] = pipe
        node.give(given.Connected(effect.conn, b"d" * 32))
        far.give(given.Accepted(far._ids, "cluster", f"{node.name}:40000", b"e" * 32))

    def send(self, node: ClusterNode, conn: int, data: bytes) -> None:
        """Bytes go over."""
        pipe = node.pipes[conn]
        far, far_conn = pipe.far(node, conn)
        if node.name not in pipe.unheard:
            far.give(given.Received(far_conn, data))

    def cut(self, pipe: Pipe, why: str = "reset") -> None:
        """The connection is over; both ends are told."""
        for node, conn in pipe.ends:
            if node.pipes.pop(conn, None) is not None and node.is_up:
                node.give(given.Closed(conn, why))

    def cut_all(self, node: ClusterNode) -> None:
        """All connections of a node."""
        for pipe in list(node.pipes.values()):
            self.cut(pipe)

    def silence(self, node: ClusterNode, *, is_deaf: bool = True) -> None:
        """What a node sends is lost from now on, and nobody is told; where it `is_deaf`, so is what it is sent."""
        for pipe in node.pipes.values():
            pipe.unheard |= {end.name for end, _ in pipe.ends} if is_deaf else {node.name}


def options_for(
    name: str, static: Iterable[str], changes: Mapping[str, Any], tables: Mapping[str, Any]
) -> BrokerOptions:
    """Options of a node: clients come in at its first listener, other nodes at the second."""
    base = options_with(**tables)
    cluster = replace(
        default_listener("cluster", PORT), kind="cluster", sasl_mechanisms=("SCRAM-SHA-512", "SCRAM-SHA-256")
    )
    connectors = [ConnectorOptions("own", name, PORT, False)]
    connectors += [ConnectorOptions(f"to-{each}", each, PORT, False) for each in static]
    named = [f"to-{each}" for each in static]
    connection = connection_with(**{"static_connectors": named, **changes})
    return replace(
        base, node=replace(base.node, name=name), listeners=(*base.listeners, cluster), connectors=tuple(connectors),
        cluster_connections=(connection,),
    )  # fmt: skip
