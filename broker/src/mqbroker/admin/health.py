"""Whether a node is well: named checks over what the node says of itself and what surrounds it. Plain values only.

A check says yes or no, why, and the numbers that it looked at, so that an operator needs nothing else to act. What
the node knows comes from `of_node`, what only `io/` can know is `Surroundings`. Meaning of each: docs/METRICS.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mqbroker.cluster.node_id_conflict import NEW_ID, REMEDY
from mqbroker.config.slices import JournalOptions
from mqbroker.node.broker.broker import Broker
from mqbroker.node.values.node_states import NodeState

ACTIVE, CORDONED, STOPPING = "active", "cordoned", "stopping"
WHY_NO_CLIENTS = {CORDONED: "the broker is cordoned: it lets no client in", STOPPING: "the broker stops"}
JOURNAL_FILES_FREE_MIN = 2  # the next one is made while the current one fills

HealthFacts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """The file system that the journal is on, in bytes; what only root may use is not free."""

    size_bytes: int
    free_bytes: int

    @property
    def used_share(self) -> float:
        """Which share of the file system is used, 0 to 1; 1 where its size is not known."""
        return 1 - self.free_bytes / self.size_bytes if self.size_bytes else 1.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the node cannot know. `listeners`: name -> why it accepts nobody, or nothing."""

    is_disk_alive: bool
    disk_pending_bytes: int
    space: DiskSpace
    space_free_bytes_min: int
    listeners: dict[str, str]


@dataclass(frozen=True, slots=True)
class HealthVerdict:
    """The outcome of a check. `why` is a sentence without its full stop."""

    is_good: bool
    why: str
    facts: HealthFacts = field(default_factory=dict)


def state_of(broker: Broker) -> str:
    """Whether it serves clients, lets none in, or is on its way to its end."""
    if broker.is_to_stop:
        return STOPPING
    return CORDONED if broker.stopping.state is NodeState.CORDONED else ACTIVE


def of_node(broker: Broker) -> HealthFacts:
    """What the node itself knows; cheap, however many queues there are."""
    store, memory = broker.store, broker.store.memory
    is_full = not memory.has_room and not memory.is_shut  # a full disk is another check's
    holds_back = is_full and not all(map(store.takes_when_full, store.addresses.values()))
    return {
        "state": state_of(broker),
        "grants_credit": broker.may_grant,
        "has_room": memory.has_room or memory.is_shut,
        "holds_back": holds_back,
        "is_disk_low": memory.is_shut,
        "held_bytes": memory.held_bytes,
        "global_max_size_bytes": memory.max_bytes,
        "journal_segments": broker.journal.segments_count,
        "journal_position": broker.journal.position,
        "synced_position": broker.store.journal.synced_position,
        "node_id": broker.node_id,
        "has_rival": broker.has_rival,
        "has_yielded": broker.node_id_conflict.has_yielded,
        "yielded_why": broker.node_id_conflict.why if broker.node_id_conflict.has_yielded else "",
    }


def space_free_bytes_min(journal: JournalOptions) -> int:
    """Room for the next journal files and for all that may be on its way to the disk."""
    needed = JOURNAL_FILES_FREE_MIN * journal.journal_file_size_bytes + journal.disk_pending_bytes_max
    return max(needed, journal.min_disk_free_bytes)


def _disk_space(node: HealthFacts, around: Surroundings) -> HealthVerdict:
    space, needed = around.space, around.space_free_bytes_min
    facts = {"free_bytes": space.free_bytes, "size_bytes": space.size_bytes, "free_bytes_min": needed}
    if space.free_bytes >= needed:
        return HealthVerdict(True, f"{space.free_bytes} bytes are free, at least {needed} are needed", facts)
    why = f"only {space.free_bytes} bytes are free, {needed} are needed to take messages in; make room on the disk"
    return HealthVerdict(False, why, facts)


def _journal(node: HealthFacts, around: Surroundings) -> HealthVerdict:
    facts = {name: node[name] for name in ("journal_position", "synced_position", "journal_segments")}
    facts["pending_bytes"] = around.disk_pending_bytes
    if around.is_disk_alive:
        return HealthVerdict(True, "the journal takes writes", facts)
    return HealthVerdict(False, "the disk failed, or hangs in a write or sync; see the log and the disk", facts)


def _memory(node: HealthFacts, around: Surroundings) -> HealthVerdict:
    facts = {name: node[name] for name in ("held_bytes", "global_max_size_bytes")}
    held = f"messages hold {node['held_bytes']} of {node['global_max_size_bytes']} bytes"
    if node["has_room"]:
        return HealthVerdict(True, held, facts)
    if not node["holds_back"]:
        return HealthVerdict(True, f"{held}; all addresses page, so what is too much stays on disk", facts)
    why = f"{held}, so publishers get no credit; consume messages or raise limits.global-max-size-bytes"
    return HealthVerdict(False, why, facts)


def _listeners(node: HealthFacts, around: Surroundings) -> HealthVerdict:
    troubled = [f"{name} ({why})" for name, why in around.listeners.items() if why]
    facts = {"listeners": {name: why or "accepting" for name, why in around.listeners.items()}}
    if troubled:
        return HealthVerdict(False, f"not accepting: {', '.join(troubled)}", facts)
    return HealthVerdict(True, f"{len(around.listeners)} listeners accept connections", facts)


def _node_id(node: HealthFacts, around: Surroundings) -> HealthVerdict:
    facts: HealthFacts = {"node_id": node["node_id"]}
    if node["has_yielded"]:
        return HealthVerdict(False, f"{node['yielded_why']}; {REMEDY}", facts)
    if not node["has_rival"]:
        return HealthVerdict(True, "no other broker is heard with this node id", facts)
    why = (
        f"another broker runs with this node id and yields to this one; stop it, run {NEW_ID} where the data was "
        "copied, and start it"
    )
    return HealthVerdict(True, why, facts | {"warning": True})


CHECKS: dict[str, Callable[[HealthFacts, Surroundings], HealthVerdict]] = {
    "disk-space": _disk_space,
    "journal": _journal,
    "listeners": _listeners,
    "memory": _memory,
    "node-id": _node_id,
}


def readiness(node: HealthFacts | None, is_disk_alive: bool) -> HealthVerdict:
    """Whether clients should be sent here. `node` is None when it does not answer any more."""
    if node is None or node["state"] != ACTIVE:
        return HealthVerdict(False, WHY_NO_CLIENTS[STOPPING if node is None else node["state"]])
    if node["has_yielded"]:
        return HealthVerdict(False, node["yielded_why"])
    if not is_disk_alive:
        return HealthVerdict(False, "the journal does not take writes")
    return HealthVerdict(True, "ready")
