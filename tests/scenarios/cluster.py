"""Conversations with several nodes: lines begin with the node that they are for.

    cluster A B [max-hops=2] [balancing=STRICT] [address=jms] [shape=chain] [redistribution-delay=0] [ring-size=5] …
                                          nodes that know each other, all links up; any other word of the form
                                          name=value is an address setting, or an option of [limits], of all of them
    cluster A B arbiter=A [group-timeout=1000]
                                          the same; A decides where groups go
    discover A B [card=eth1] [at=231.7.7.7:9876,231.7.7.8:9876] [secret=west] [refresh-timeout=10000] …
                                          nodes that find each other by multicast on that card, beside those that are
                                          there; links come up by themselves
    A: attach p to orders                 a command of tests/golden/conversation.py, at a node
    copy C of B                           a node on a copy of another's disk: with its id, dialling all others
    cut A B | mend A B                    nothing gets through, in both directions; `reset A B` breaks the links
    unplug A | plug A                     the card of a node: nothing is sent or heard by multicast
    wait 1500                             milliseconds pass for all
    bindings A                            what a node knows of the queues of others
    delete A orders                       a queue of a node
    owners A                              groups that a node knows the owners of
    links                                 bridges that there are, and who has yielded its id
    depths                                messages in all queues of clients, on their way, on pages and in files
    hears A | drops A | members A         what discovery has heard and dropped, and what the cluster consists of
    watch discovery- bridge-              notices that begin so are shown from now on
    sections B                            what the messages consist of that clients of B have got since then

What clients hear begins with their node. Nothing moves unless a line moves it, and nothing is random.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from mqbroker.amqp import events as told
from mqbroker.cluster.discovery.datagram import derive_key
from mqbroker.config.slices import BrokerOptions, LimitOptions
from mqbroker.wire.sections import describe_message

from tests.golden.conversation import VERBS, Conversation, gathered, played
from tests.support.cluster_stage import KEY, PORT, ClusterNode, ClusterStage, node_id_of
from tests.support.stage import Talker

OPTIONS: Final = {"balancing": "message_load_balancing", "max-hops": "max_hops", "address": "address"}
NOT_SETTINGS: Final = {
    *OPTIONS,
    "shape",
    "arbiter",
    "group-timeout",
    "card",
    "at",
    "secret",
    "broadcast-period",
    "refresh-timeout",
}
PLACE: Final = "231.7.7.7:9876"
NETWORKS: Final = {"eth0": "192.0.2", "eth1": "198.51.100"}
TIMES: Final = {
    "retry_interval": 100, "check_period": 3000, "connection_ttl": 6000, "call_timeout": 2000,
    "listener": {"idle_timeout_ms": 6000},
}  # fmt: skip
LIMITS: Final = {field.name for field in fields(LimitOptions)}
SHOWN: Final = ("group", "node", "reason", "why")  # of a notice


class ScriptNode(ClusterNode):
    """A node that writes down what its clients hear."""

    def __init__(self, talk: Talk, options: BrokerOptions, identity: Mapping[str, Any]) -> None:
        self.talk = talk
        super().__init__(talk.cluster, talk.name, options, **identity)

    def heard(self, talker: Talker, event: Any) -> None:
        self.talk.heard(talker, event)


class Talk(Conversation):
    """What is said to one node and what its clients hear. Messages are numbered over all nodes."""

    def __init__(self, cluster: Cluster, name: str, options: BrokerOptions, identity: Mapping[str, Any]) -> None:
        self.cluster = cluster
        self.name = name
        super().__init__()
        self.got: list[str] = []  # what messages consist of, since it was asked last
        self.node_stage = self.stage = ScriptNode(self, options, identity)

    @property
    def count(self) -> int:
        return self.cluster.count

    @count.setter
    def count(self, value: int) -> None:
        self.cluster.count = max(value, self.cluster.count)

    def _got(self, talker: Talker, event: told.Incoming) -> None:
        super()._got(talker, event)
        self.got += [_sections(bytes(event.run.payload(index))) for index in range(event.run.count)]

    def tell_notices(self, beginnings: tuple[str, ...]) -> None:
        """What is watched for has happened."""
        for notice in self.stage.notices[self._notices :]:
            if beginnings and notice.event.startswith(beginnings):
                shown = " ".join(f"{name}={notice.fields[name]}" for name in SHOWN if name in notice.fields)
                self._say(f"node: {notice.event} {shown}".rstrip())
        self._notices = len(self.stage.notices)


class Cluster(ClusterStage):
    """Nodes, time, and what came of a block of lines."""

    def __init__(self) -> None:
        super().__init__()
        self.talks: dict[str, Talk] = {}
        self.count = 0
        self.watched: tuple[str, ...] = ()

    def make(self, name: str, options: BrokerOptions, identity: Mapping[str, Any]) -> ClusterNode:
        talk = self.talks[name] = Talk(self, name, options, identity)
        return talk.node_stage

    def say(self, line: str) -> list[str]:
        """The lines that come of one line."""
        name, colon, command = line.partition(": ")
        found: list[str] = []
        if colon and name in self.talks:
            verb, *words = command.split()
            VERBS[verb](self.talks[name], words)
        else:
            verb, *words = line.split()
            found = COMMANDS[verb](self, words) or []
        self.run()
        for who, talk in self.talks.items():
            talk.tell_notices(self.watched)
            found += [f"{who}| {each}" for each in gathered(talk.lines)]
            talk.lines = []
        return found

    # -- commands ------------------------------------------------------------------------------------------------------

    def build(self, words: list[str]) -> None:
        names, said = _parsed(words)
        for number, name in enumerate(names):
            dialled = [each for each in names if each != name]
            if said.get("shape") == "chain":
                dialled = [names[each] for each in (number - 1, number + 1) if 0 <= each < len(names)]
            changes = {"allow_direct_connections_only": "shape" in said, **TIMES, **_changes(said)}
            if "arbiter" in said:
                changes["options"]["grouping_handler"] = _grouping(said, is_arbiter=name == said["arbiter"])
            self.node(name, dialled, **changes)
        self.wait(100)
        for talk in self.talks.values():
            talk.lines = []

    def discover(self, words: list[str]) -> None:
        names, said = _parsed(words)
        key = derive_key(said["secret"]) if "secret" in said else KEY
        for name in names:
            changes = {"discovery_group_ref": "lan", "groups": _groups(name, said), **TIMES, **_changes(said)}
            self.node(name, identity={"cluster_key": key}, **changes)

    def copy(self, words: list[str]) -> None:
        name, _, origin = words
        self.node(name, list(self.nodes), identity={"node_id": node_id_of(origin)}, **TIMES)

    def links(self, words: list[str]) -> list[str]:
        found = []
        for name, node in self.nodes.items():
            bridges = node.broker.cluster.connections["cluster"].bridges if node.is_up else {}
            found += [f"{name} to {self._name_of(each)}: {bridges[each].state.value}" for each in sorted(bridges)]
            if node.is_up and node.broker.node_id_conflict.has_yielded:
                found.append(f"{name} has yielded")
        return found

    def pass_time(self, words: list[str]) -> None:
        self.wait(int(words[0]))

    def reset(self, words: list[str]) -> None:
        for pipe in self.between(*words):
            self.cut(pipe)

    def unplug(self, words: list[str]) -> None:
        self.nodes[words[0]].unplug()

    def plug(self, words: list[str]) -> None:
        self.nodes[words[0]].network_trouble = ""

    def watch(self, words: list[str]) -> None:
        self.watched = tuple(words)

    def bindings(self, words: list[str]) -> list[str]:
        remotes = self.nodes[words[0]].broker.store.remotes.by_name.values()
        found = []
        for each in sorted((remote.binding for remote in remotes), key=lambda each: each.cluster_name):
            line = f"{words[0]} knows: {each.queue} of {self._name_of(each.node_id)} at {each.address}, "
            line += f"{each.routing}, {each.consumers_count} consumers, distance {each.distance}"
            found.append(line + ("" if each.is_connected else ", not reached"))
        return found

    def delete(self, words: list[str]) -> None:
        self.nodes[words[0]].admin("queue-delete", name=words[1], force=True)

    def owners(self, words: list[str]) -> list[str]:
        grouping = self.nodes[words[0]].broker.store.grouping
        assert grouping is not None
        pins = sorted((key, pin.owner) for key, pin in grouping.owners.items())
        return [f"{words[0]} knows: group {group} of {queue} is at {self._name_of(owner[-36:])}"
                for (queue, group), owner in pins]  # fmt: skip

    def depths(self, words: list[str]) -> list[str]:
        found = []
        for name, node in self.nodes.items():
            for queue in node.broker.store.queues.values() if node.is_up else ():
                kind = queue.kind
                if not kind.is_forwarding:
                    paged = f", {queue.paged_count} of them on pages" if queue.paged_count else ""
                    found.append(f"{name} {kind.name}: {queue.message_count} messages{paged}")
                elif queue.message_count:
                    to = self._name_of(kind.forwards_to)
                    found.append(f"{name} on the way to {to}, {kind.address}: {queue.message_count} messages")
            if node.large_files.sizes:
                found.append(f"{name} has files of large messages: {len(node.large_files.sizes)}")
        return sorted(found)

    def hears(self, words: list[str]) -> list[str]:
        rows = self.nodes[words[0]].admin("discovery")["nodes"]
        found = [f"{row['node']} in {row['group']} from {row['source'].partition(':')[0]}" for row in rows]
        return [f"{words[0]} hears: {', '.join(found) or 'nobody'}"]

    def drops(self, words: list[str]) -> list[str]:
        rows = self.nodes[words[0]].admin("discovery")["groups"]
        found = []
        for row in rows:
            counts = [f"{count} {reason}" for reason, count in (row["dropped_by_reason"] or {}).items() if count]
            if row["kind"] == "discovery":
                found.append(f"{words[0]} has dropped in {row['group']}: {', '.join(counts) or 'nothing'}")
        return found

    def members(self, words: list[str]) -> list[str]:
        shown = self.nodes[words[0]].admin("topology")
        members = sorted(row["node"] for row in shown["members"])
        links = sorted(f"{self._name_of(row['node_id'] or '')} {row['state']}" for row in shown["links"])
        return [f"{words[0]} is in a cluster of: {' '.join(members)}; links: {', '.join(links) or 'none'}"]

    def sections(self, words: list[str]) -> list[str]:
        talk = self.talks[words[0]]
        found, talk.got = talk.got, []
        return [f"{words[0]} has got {each}" for each in found]

    def _name_of(self, node_id: str) -> str:
        return next((name for name, node in self.nodes.items() if node.broker.node_id == node_id), "nobody known")


COMMANDS: Final[dict[str, Any]] = {
    "cluster": Cluster.build, "discover": Cluster.discover, "copy": Cluster.copy, "links": Cluster.links,
    "wait": Cluster.pass_time,
    "cut": lambda cluster, words: cluster.hold_up(*words), "mend": lambda cluster, words: cluster.let_through(*words),
    "reset": Cluster.reset, "unplug": Cluster.unplug, "plug": Cluster.plug, "watch": Cluster.watch,
    "bindings": Cluster.bindings, "depths": Cluster.depths, "hears": Cluster.hears, "drops": Cluster.drops,
    "members": Cluster.members, "owners": Cluster.owners, "delete": Cluster.delete, "sections": Cluster.sections,
}  # fmt: skip


def _parsed(words: list[str]) -> tuple[list[str], dict[str, str]]:
    return [word for word in words if "=" not in word], dict(word.split("=", 1) for word in words if "=" in word)


def _value(text: str) -> int | str:
    return int(text) if text.lstrip("-").isdigit() else text


def _changes(said: Mapping[str, str]) -> dict[str, Any]:
    """Options of the cluster connection, address settings and limits that the words say."""
    names = {name.replace("-", "_"): _value(text) for name, text in said.items() if name not in NOT_SETTINGS}
    settings = {"redistribution_delay": -1, **{name: value for name, value in names.items() if name not in LIMITS}}
    limits = {name: value for name, value in names.items() if name in LIMITS}
    tables = {"address_settings": {"#": settings}, **({"limits": limits} if limits else {})}
    options = {OPTIONS[name]: _value(text) for name, text in said.items() if name in OPTIONS}
    return {"options": tables, **options}


def _grouping(said: Mapping[str, str], *, is_arbiter: bool) -> dict[str, Any]:
    who = "LOCAL" if is_arbiter else "REMOTE"
    lasts_ms = int(said.get("group-timeout", -1))
    return {"type": who, "timeout": 2000, "reaper_period": 100, "group_timeout": lasts_ms}


def _groups(name: str, said: Mapping[str, str]) -> dict[str, Any]:
    """Tables of discovery: the first place is called lan, the next ones lan2, and so on."""
    local = f"{NETWORKS[said.get('card', 'eth1')]}.{ord(name) - ord('A') + 11}"
    broadcast, discovery = [], []
    for number, place in enumerate(said.get("at", PLACE).split(","), 1):
        address, port = place.split(":")
        group = {"name": "lan" if number == 1 else f"lan{number}", "group-address": address, "group-port": int(port)}
        group["local-bind-address"] = local
        period = int(said.get("broadcast-period", 2000))
        broadcast.append({**group, "connector-ref": "own", "broadcast-period": period})
        discovery.append({**group, "refresh-timeout": int(said.get("refresh-timeout", 10_000))})
    own = {"name": "own", "host": name, "port": PORT}
    return {"connectors": [own], "broadcast-groups": broadcast, "discovery-groups": discovery}


def _sections(payload: bytes) -> str:
    """Sections of a message and what they hold, but for the body."""
    described = describe_message(payload)
    name, _, rest = str(described["body"]).partition("|")
    shown = []
    for section in ("header", "delivery_annotations", "message_annotations", "properties", "application_properties"):
        if section in described:
            held = " ".join(f"{key}={value}" for key, value in described[section].items() if value is not None)
            shown.append(f"{section.replace('_', ' ')} ({held})")
    body = f"{described['body_kind']} ({len(rest)} bytes more, of {' '.join(sorted(set(rest)))})" if rest else ""
    return f"{name}: {', '.join([*shown, body or described['body_kind']])}"


def play(text: str) -> str:
    """The conversation with what comes of its lines now. A line `cluster …` begins with other nodes."""
    cluster = Cluster()

    def run(line: str) -> list[str]:
        nonlocal cluster
        if line.startswith("cluster"):
            cluster = Cluster()
        return cluster.say(line)

    return played(text, run)
