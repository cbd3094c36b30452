"""What each node of a cluster says of whom it serves, asked for all at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeVar

from mqctl.admin import AdminClient, AdminError
from mqctl.brokers import node_state
from mqctl.errors import CommandError
from mqctl.fanout import on_each
from mqctl.gate.losses import UNASKED, Gossip, Standing
from mqctl.nodes import Node, open_admin
from mqctl.scaledown.cluster_look import SERVES, show
from mqctl.world import World

_Answer = TypeVar("_Answer")
FORWARD: Final = "forward"
TEMPORARY: Final = "temporary."
PEERS: Final = ".peers"
INVITES: Final = ".client-connector-ref"
AUTO_CREATE: Final = "auto-create-addresses"
FULL_POLICY: Final = "address-full-policy"
PAGE: Final = "PAGE"
BLOCKED: Final = "the memory for messages is full there, and it does not page"
ACTIVE: Final = "active"
# States of a unit without a broker that has let clients in: one that starts, or tries to again and again, has not yet.
SERVES_NOBODY: Final = ("absent", "failed", "inactive", "activating")
LOOK_S: Final = 15
ADDRESSES_MAX: Final = 1000  # of which settings are asked for


def standings(world: World, nodes: Sequence[Node]) -> list[Standing]:
    """Of all of them; who does not answer stays for nobody."""
    return Survey(world, nodes).standings()


class Survey:
    """What nodes have answered. A method that asks is a round of questions to all whom they concern, at once."""

    def __init__(self, world: World, nodes: Sequence[Node]) -> None:
        self._world = world
        self._said: dict[str, dict[str, Any]] = {}
        self._silent: list[tuple[Node, str]] = []
        for node, answer in on_each(nodes, lambda one: _ask(world, one)):
            if isinstance(answer, CommandError):
                self._silent.append((node, answer.what))
            else:
                self._said[node.name] = answer
        self._answering = [node for node in nodes if node.name in self._said]
        self._written = sorted({name for answer in self._said.values() for name in written_in(answer)})
        self._asked_for = self._written[:ADDRESSES_MAX]

    def standings(self) -> list[Standing]:
        """Where each broker stands: those that answered, then those that are silent."""
        made, blocked, by_connector = self._made(), self._blocked(), self._by_connector()
        answering = [
            standing_of(name, answer, made.get(name, ()), by_connector, blocked.get(name, {}))
            for name, answer in self._said.items()
        ]
        return answering + self._of_silent()

    def _made(self) -> dict[str, list[str]]:
        """Node -> which addresses that clients send to anywhere would be made there, of those that it does not have."""
        missing = {
            node.name: sorted(set(self._asked_for) - {row["name"] for row in self._said[node.name]["addresses"]})
            for node in self._answering
        }
        asked = [node for node in self._answering if missing[node.name]]
        return _answered(on_each(asked, lambda one: _made(self._world, one, missing[one.name])))

    def _blocked(self) -> dict[str, dict[str, str]]:
        """Node whose memory is full -> address -> why it takes nothing for it, or that nobody knows."""
        tight = [node for node in self._answering if self._said[node.name]["health"].get("holds_back", False)]
        paged = _answered(on_each(tight, lambda one: _paged(self._world, one, self._asked_for)))
        asked_for = frozenset(self._asked_for)
        return {
            node.name: {
                name: BLOCKED if node.name in paged and name in asked_for else UNASKED
                for name in blocked_in(self._said[node.name], self._written, paged.get(node.name, ()))
            }
            for node in tight
        }

    def _by_connector(self) -> dict[str, str]:
        """The names of nodes by how they are reached."""
        names = {answer["node_id"]: name for name, answer in self._said.items()}
        return {
            row["connector"]: names.get(row["node_id"], row["node"])
            for each in self._said.values()
            for row in each["members"]
        }

    def _of_silent(self) -> list[Standing]:
        answers = on_each(self._silent, lambda one: _silent(self._world, *one))
        return [standing for _, standing in answers if not isinstance(standing, CommandError)]


def _answered(answers: Iterable[tuple[Node, _Answer | CommandError]]) -> dict[str, _Answer]:
    """Node -> what it said, of those that said something."""
    return {node.name: answer for node, answer in answers if not isinstance(answer, CommandError)}


def _silent(world: World, node: Node, why: str) -> Standing:
    """A node that does not answer: where no broker has come up it serves nobody."""
    try:
        is_stopped = node_state.look(world, node, LOOK_S)["unit"] in SERVES_NOBODY
    except CommandError:
        is_stopped = False
    return Standing(node.name, takes_clients=False, answers=False, faults=() if is_stopped else (why,))


def _ask(world: World, node: Node) -> dict[str, Any]:
    with open_admin(world, node) as session:
        topology, producers = session.call("topology"), session.call("producers")
        return {
            "node_id": topology["node_id"],
            "members": topology["members"],
            "queues": session.call("queues")["queues"],
            "addresses": session.call("addresses")["addresses"],
            "producers": producers["producers"],
            "is_whole": producers.get("is_whole", True),
            "options": session.call("config-show")["options"],
            "heard": session.call("discovery")["nodes"],
            "drain": show(session),
            "health": session.call("health"),
        }


def _made(world: World, node: Node, names: Sequence[str]) -> list[str]:
    """Which of these addresses would be made there for who sends to them."""
    with open_admin(world, node) as session:
        return [name for name in names if _is_made(session, name)]


def _is_made(session: AdminClient, name: str) -> bool:
    return bool(_setting(session, name, AUTO_CREATE))


def _paged(world: World, node: Node, names: Sequence[str]) -> list[str]:
    """Which of these addresses are to stay on disk there where the memory is full."""
    with open_admin(world, node) as session:
        return [name for name in names if _setting(session, name, FULL_POLICY) == PAGE]


def _setting(session: AdminClient, name: str, setting: str) -> Any:
    """None where it does not say."""
    try:
        rows = session.call("address-settings-show", address=name)["settings"]
    except AdminError:
        return None
    return next((row["value"] for row in rows if row["setting"] == setting), None)


def blocked_in(answer: Mapping[str, Any], names: Collection[str], paged: Collection[str]) -> set[str]:
    """Which of these addresses a node whose memory is full takes nothing for: all but those that page, and can."""
    unable = {str(row["name"]) for row in answer["addresses"] if not row.get("can_page", True)}
    return set(names) - set(paged) | unable & set(names)


def written_in(answer: Mapping[str, Any]) -> set[str]:
    """Addresses that clients of a node send to; a link that names none may send anywhere. What is made for one client,
    as for its answers, goes with it."""
    return {
        str(row["address"])
        for row in answer["producers"]
        if row["address"] and not str(row["address"]).startswith(("$", TEMPORARY))
    }


def standing_of(
    name: str,
    answer: Mapping[str, Any],
    made: Collection[str],
    by_connector: Mapping[str, str],
    blocked: Mapping[str, str] = MappingProxyType({}),
) -> Standing:
    """What a node has said, in the terms of losses. `by_connector`: the names of nodes by how they are reached;
    `blocked`: why addresses have no room in its memory."""
    # One that is paused hands out nothing, and takes what is sent.
    addresses = {row["name"] for row in answer["addresses"]}
    return Standing(
        name,
        takes_clients=answer["drain"].get("state", SERVES) == SERVES and is_ready(answer["health"]),
        invites=any(row["option"].endswith(INVITES) and row["value"] for row in answer["options"]),
        read=frozenset(row["name"] for row in answer["queues"] if is_read(row)),
        idle=frozenset(row["name"] for row in answer["queues"] if row["paused"]),
        kept=frozenset(row["name"] for row in answer["queues"] if is_read(row) and row["routing_type"] == "multicast"),
        written=frozenset(written_in(answer)),
        open=(frozenset(addresses) | frozenset(made)) - blocked.keys(),
        shut=blocked,
        full=full(answer["health"]),
        gossip=_gossip_of(answer["options"]),
        resolved=_resolved_of(answer["heard"], by_connector),
        faults=() if answer["is_whole"] else ("it has more producers than are listed",),
    )


def is_ready(health: Mapping[str, Any]) -> bool:
    """Whether a node goes on to let clients in."""
    return health.get("state", ACTIVE) == ACTIVE and not health.get("has_yielded", False)


def full(health: Mapping[str, Any]) -> str:
    """Why a node takes no messages in, whatever they are for; empty where it does. A journal that is behind for a
    moment is no reason. A release that does not say how its disk is has room there."""
    return "its disk has no room" if health.get("is_disk_low", False) else ""


def is_read(row: Mapping[str, Any]) -> bool:
    """Whether clients consume from a queue that others could consume from elsewhere: neither what waits for another
    node, nor what is made for one client and goes with it."""
    is_own = row["routing_type"] == "multicast" and not row["durable"]
    is_ours = row["routing_type"] == FORWARD or str(row["name"]).startswith(("$", TEMPORARY))
    return bool(row["consumer_count"]) and not is_own and not is_ours


def _gossip_of(options: Sequence[Mapping[str, Any]]) -> list[Gossip]:
    values = {row["option"]: row["value"] for row in options}
    heads = [option.removesuffix(PEERS) for option in values if option.endswith(PEERS)]
    return [
        Gossip(
            head.rpartition(".")[2],
            f"{values.get(f'{head}.local-bind-address')}:{values.get(f'{head}.local-bind-port')}",
            frozenset(map(str, values[f"{head}{PEERS}"] or ())),
        )
        for head in heads
        if head.startswith("discovery-groups.") and values.get(f"{head}.discovery") == "gossip"
    ]


def _resolved_of(heard: Sequence[Mapping[str, Any]], by_connector: Mapping[str, str]) -> dict[str, frozenset[str]]:
    by_group: dict[str, set[str]] = {}
    for row in heard:
        if row["discovery"] == "dns":
            # What is nobody's of the cluster keeps its own name, so that it counts as one that stays.
            by_group.setdefault(row["group"], set()).add(by_connector.get(row["connector"], row["connector"]))
    return {group: frozenset(names) for group, names in by_group.items()}
