"""Conversations with several nodes: lines begin with the node that they are for.

    cluster A B [max-hops=2] [balancing=STRICT] [address=jms] [redistribution-delay=0] [shape=chain]
                [arbiter=A] [group-timeout=1000]
                                          nodes that know each other, all links up; one decides where groups go
    A: attach p to orders                 a command of tests/golden/conversation.py, at a node
    cut A B | mend A B                    nothing gets through, in both directions; `reset A B` breaks the links
    wait 1500                             milliseconds pass for all
    bindings A                            what a node knows of the queues of others
    delete A orders                       a queue of a node
    owners A                              groups that a node knows the owners of
    depths                                messages in all queues of clients, and on their way

What clients hear begins with their node. Nothing moves unless a line moves it, and nothing is random.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from mqbroker.base.time import NS_PER_MS
from mqbroker.config.cluster_connections import ClusterConnectionTable, cluster_connection
from mqbroker.config.options import default_listener
from mqbroker.config.slices import BrokerOptions, ConnectorOptions
from mqbroker.node import inputs as given
from mqbroker.node.effects import Close, Connect, PauseReading, Send

from tests.golden.conversation import VERBS, Conversation, ScriptStage, gathered, played
from tests.support.stage import options_with

PORT: Final = 5673
KEY: Final = b"scenario".ljust(32, b"\0")
ROUNDS_MAX: Final = 10_000
OPTIONS: Final = {"balancing": "message-load-balancing", "max-hops": "max-hops", "address": "address"}


def node_id(name: str) -> str:
    """As a node has it for its life."""
    return f"{ord(name):08d}-0000-4000-8000-{ord(name):012d}"


class Wire:
    """A connection between two nodes; what is sent is there at once, unless the way is cut."""

    def __init__(self, ends: tuple[NodeStage, NodeStage], conns: tuple[int, int]) -> None:
        self.ends = ends
        self.conns = conns
        self.held: list[tuple[int, given.Input]] = []

    def pass_on(self, to: int, item: given.Input) -> None:
        """From one end to the other."""
        if self.ends[0].cluster.is_cut(self.ends[0].name, self.ends[1].name):
            self.held.append((to, item))
        else:
            self.hand_over(to, item)

    def hand_over(self, to: int, item: given.Input) -> None:
        node, conn = self.ends[to], self.conns[to]
        if node.wires.get(conn) is self and node.is_up:
            if isinstance(item, given.Closed):
                del node.wires[conn]
            node.give(item)
            node.is_busy = True

    def other(self, node: NodeStage) -> int:
        return 1 if self.ends[0] is node else 0

    def close(self, node: NodeStage, why: str) -> None:
        """One end is closed."""
        to = self.other(node)
        node.wires.pop(self.conns[1 - to], None)
        self.pass_on(to, given.Closed(self.conns[to], why))


class NodeStage(ScriptStage):
    """A node of a cluster on a stage of its own."""

    def __init__(self, script: Conversation, cluster: Cluster, name: str, options: BrokerOptions) -> None:
        self.cluster = cluster
        self.name = name
        self.wires: dict[int, Wire] = {}
        self.is_busy = False
        self._lives = 0
        self._dialled: dict[int, Connect] = {}
        self.script = script
        super(ScriptStage, self).__init__(options, identity={"node_id": node_id(name), "cluster_key": KEY})

    def start(self) -> None:
        self._lives += 1
        self.identity["boot_id"] = f"{ord(self.name):016d}{self._lives:016d}"
        self._dialled.clear()
        self.now_ns = max(self.now_ns, self.cluster.now_ns)
        super().start()

    def crash(self) -> None:
        super().crash()
        self._down("reset")

    def _down(self, why: str) -> None:
        for wire in list(self.wires.values()):
            wire.close(self, why)

    def next_conn(self) -> int:
        self._ids += 1
        return self._ids

    def _carry_out(self, effect: object) -> None:
        match effect:
            case Connect(conn):
                self._dialled[conn] = effect
                self.cluster.dials.append((self, self._lives, effect))
            case Send(conn, chunks) if conn in self.wires:
                wire = self.wires[conn]
                to = wire.other(self)
                data = b"".join(bytes(chunk) for chunk in chunks)
                wire.pass_on(to, given.Received(wire.conns[to], data))
            case Close(conn, _) if conn in self.wires:
                self.wires[conn].close(self, "closed by the other end")
                self.give(given.Closed(conn, "closed here"))
            case Close(conn, _) if conn < 0:
                if self._dialled.pop(conn, None) is not None:
                    self.give(given.Closed(conn, "closed by us while connecting"))
            case PauseReading(conn, _) if conn in self.wires:
                pass  # what was sent is there already
            case _:
                super()._carry_out(effect)
        if self.halted is not None:
            self._down("closed by the other end")

    def answer_dial(self, life: int, effect: Connect) -> None:
        """The attempt has its outcome."""
        if life != self._lives or not self.is_up or self._dialled.pop(effect.conn, None) is None:
            return
        target = self.cluster.stages.get(effect.host)
        if target is None or not target.is_up or self.cluster.is_cut(self.name, effect.host):
            self.give(given.Closed(effect.conn, "refused"))
            return
        conn = target.next_conn()
        wire = self.wires[effect.conn] = target.wires[conn] = Wire((self, target), (effect.conn, conn))
        assert wire is not None
        target.give(given.Accepted(conn, "cluster", self.name, f"{self.name}{conn}".encode().ljust(32, b"e")))
        self.give(given.Connected(effect.conn, b"d" * 32))


class Talk(Conversation):
    """What is said to one node and what its clients hear. Messages are numbered over all nodes."""

    def __init__(self, cluster: Cluster, name: str, options: BrokerOptions) -> None:
        self.cluster = cluster
        super().__init__()
        self.stage = NodeStage(self, cluster, name, options)

    @property
    def count(self) -> int:
        return self.cluster.count

    @count.setter
    def count(self, value: int) -> None:
        self.cluster.count = max(value, self.cluster.count)


class Cluster:
    """Nodes, time, and what came of a block of lines."""

    def __init__(self) -> None:
        self.talks: dict[str, Talk] = {}
        self.stages: dict[str, NodeStage] = {}
        self.dials: list[tuple[NodeStage, int, Connect]] = []
        self.count = 0
        self.now_ns = NS_PER_MS
        self._cuts: set[frozenset[str]] = set()

    def is_cut(self, a: str, b: str) -> bool:
        """Whether nothing gets through between two nodes."""
        return frozenset((a, b)) in self._cuts

    # -- commands ------------------------------------------------------------------------------------------------------

    def run(self, line: str) -> list[str]:
        """The lines that come of one line."""
        name, colon, command = line.partition(": ")
        found: list[str] = []
        if colon and name in self.talks:
            verb = command.split()[0]
            talk = self.talks[name]
            talk.lines = []
            VERBS[verb](talk, command.split()[1:])
        else:
            verb, *words = line.split()
            found = COMMANDS[verb](self, words) or []
        self.settle()
        for who, talk in self.talks.items():
            found += [f"{who}| {each}" for each in gathered(talk.lines)]
            talk.lines = []
        return found

    def build(self, words: list[str]) -> None:
        names = [word for word in words if "=" not in word]
        said = dict(word.split("=", 1) for word in words if "=" in word)
        for number, name in enumerate(names):
            dialled = [each for each in names if each != name]
            if said.get("shape") == "chain":
                dialled = [names[each] for each in (number - 1, number + 1) if 0 <= each < len(names)]
            elif said.get("shape") == "one-way":
                dialled = names[number + 1 : number + 2]
            talk = self.talks[name] = Talk(self, name, _options(name, dialled, said))
            self.stages[name] = talk.stage
        self.settle()
        self.wait(["100"])
        for talk in self.talks.values():
            talk.lines = []

    def wait(self, words: list[str]) -> None:
        """Time passes, the same for all."""
        end_ns = self.now_ns + int(words[0]) * NS_PER_MS
        for _ in range(ROUNDS_MAX):
            wakes = [stage.broker.timers.wake_at_ns for stage in self._up()]
            due_ns = min((wake for wake in wakes if wake is not None), default=end_ns + 1)
            if due_ns > end_ns:
                break
            self._set_time(max(due_ns, self.now_ns))
            self.settle()
        self._set_time(end_ns)
        self.settle()

    def _up(self) -> list[NodeStage]:
        return [stage for stage in self.stages.values() if stage.is_up]

    def _set_time(self, now_ns: int) -> None:
        self.now_ns = now_ns
        for stage in self._up():
            stage.now_ns = now_ns
            stage.step()

    def settle(self) -> None:
        """Until no node has anything to say."""
        for _ in range(ROUNDS_MAX):
            dials, self.dials = self.dials, []
            for stage, life, effect in dials:
                stage.answer_dial(life, effect)
            for stage in self._up():
                stage.is_busy = False
            for stage in self._up():
                stage.run()
            if not self.dials and not any(stage.is_busy for stage in self._up()):
                return
        raise AssertionError("the nodes never stop talking")

    def cut(self, words: list[str]) -> None:
        self._cuts.add(frozenset(words))

    def mend(self, words: list[str]) -> None:
        self._cuts.discard(frozenset(words))
        for wire in self._wires(words):
            held, wire.held = wire.held, []
            for to, item in held:
                wire.hand_over(to, item)

    def reset(self, words: list[str]) -> None:
        for wire in self._wires(words):
            for node, conn in zip(wire.ends, wire.conns, strict=True):
                node.wires.pop(conn, None)
                node.give(given.Closed(conn, "reset"))

    def _wires(self, names: list[str]) -> list[Wire]:
        wires = [wire for stage in self.stages.values() for wire in stage.wires.values() if wire.ends[0] is stage]
        return [wire for wire in wires if {wire.ends[0].name, wire.ends[1].name} == set(names)]

    def bindings(self, words: list[str]) -> list[str]:
        remotes = self.stages[words[0]].broker.store.remotes.by_name.values()
        found = []
        for each in sorted((remote.binding for remote in remotes), key=lambda each: each.cluster_name):
            owner = chr(int(each.node_id[:8]))
            line = f"{words[0]} knows: {each.queue} of {owner} at {each.address}, {each.routing}, "
            line += f"{each.consumers_count} consumers, distance {each.distance}"
            found.append(line + ("" if each.is_connected else ", not reached"))
        return found

    def delete(self, words: list[str]) -> None:
        self.stages[words[0]].admin("queue-delete", name=words[1], force=True)

    def owners(self, words: list[str]) -> list[str]:
        grouping = self.stages[words[0]].broker.store.grouping
        assert grouping is not None
        pins = sorted((key, pin.owner) for key, pin in grouping.pins.items())
        return [f"{words[0]} knows: group {group} of {queue} is at {chr(int(owner[-36:][:8]))}"
                for (queue, group), owner in pins]  # fmt: skip

    def depths(self, words: list[str]) -> list[str]:
        found = []
        for name, stage in self.stages.items():
            for queue in stage.broker.store.queues.values() if stage.is_up else ():
                kind = queue.kind
                if not kind.is_forwarding:
                    found.append(f"{name} {kind.name}: {queue.message_count} messages")
                elif queue.message_count:
                    to = chr(int(kind.forwards_to[:8]))
                    found.append(f"{name} on the way to {to}, {kind.address}: {queue.message_count} messages")
        return sorted(found)


COMMANDS: Final[dict[str, Any]] = {
    "cluster": Cluster.build, "wait": Cluster.wait, "cut": Cluster.cut, "mend": Cluster.mend, "reset": Cluster.reset,
    "bindings": Cluster.bindings, "owners": Cluster.owners, "delete": Cluster.delete,
    "depths": Cluster.depths,
}  # fmt: skip


def _options(name: str, dialled: list[str], said: Mapping[str, str]) -> BrokerOptions:
    settings: dict[str, Any] = {"redistribution_delay": int(said.get("redistribution-delay", -1))}
    base = options_with(address_settings={"#": settings})
    values: dict[str, Any] = {
        "name": "c", "connector-ref": f"to-{name}", "static-connectors": [f"to-{each}" for each in dialled],
        "retry-interval": 100, "check-period": 3000, "connection-ttl": 6000, "call-timeout": 2000,
        "allow-direct-connections-only": "shape" in said,
    }  # fmt: skip
    values |= {OPTIONS[key]: int(text) if text.isdigit() else text for key, text in said.items() if key in OPTIONS}
    listener = replace(
        default_listener(), name="cluster", kind="cluster", port=PORT, sasl_mechanisms=("SCRAM-SHA-256",),
        idle_timeout_ms=6000,
    )  # fmt: skip
    handler = base.grouping_handler
    if "arbiter" in said:
        is_arbiter = name in said["arbiter"]
        handler = replace(handler, type="LOCAL" if is_arbiter else "REMOTE", timeout=2000, reaper_period=100,
                          group_timeout=int(said.get("group-timeout", -1)))  # fmt: skip
    return replace(
        base,
        grouping_handler=handler,
        listeners=(*base.listeners, listener),
        connectors=tuple(
            ConnectorOptions(f"to-{each}", each, PORT, tls_enabled=False) for each in sorted({name, *dialled})
        ),
        cluster_connections=(cluster_connection(ClusterConnectionTable.model_validate(values)),),
    )


def play(text: str) -> str:
    """The conversation with what comes of its lines now. A line `cluster …` begins with other nodes."""
    cluster = Cluster()

    def run(line: str) -> list[str]:
        nonlocal cluster
        if line.startswith("cluster "):
            cluster = Cluster()
        return cluster.run(line)

    return played(text, run)
