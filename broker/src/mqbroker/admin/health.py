"""Whether a node is well: named checks over what the node says of itself and what surrounds it. Plain values only.

A check says yes or no, why, and the numbers that it looked at, so that an operator needs nothing else to act. What
the node knows comes from `of_node`, what only `io/` can know is `Surroundings`. Meaning of each: docs/METRICS.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mqbroker.cluster.rivals import NEW_ID, REMEDY, WHY
from mqbroker.config.slices import JournalOptions
from mqbroker.node.broker.broker import Broker

ACTIVE, STOPPING = "active", "stopping"
JOURNAL_FILES_FREE_MIN = 2  # the next one is made while the current one fills

Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Space:
    """The file system that the journal is on, in bytes; what only root may use is not free."""

    size_bytes: int
    free_bytes: int

    @property
    def used_share(self) -> float:
        """0 to 1."""
        return 1 - self.free_bytes / self.size_bytes if self.size_bytes else 1.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the node cannot know. `listeners`: name -> why it accepts nobody, or nothing."""

    is_disk_alive: bool
    disk_pending_bytes: int
    space: Space
    space_free_bytes_min: int
    listeners: dict[str, str]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a check. `why` is a sentence without its full stop."""

    is_good: bool
    why: str
    facts: Facts = field(default_factory=dict)


def of_node(broker: Broker) -> Facts:
    """What the node itself knows; cheap, however many queues there are."""
    store, memory = broker.store, broker.store.memory
    is_full = not memory.has_room and not memory.is_shut  # a full disk is another check's
    holds_back = is_full and not all(map(store.takes_when_full, store.addresses.values()))
    return {
        "state": STOPPING if broker.is_stopping else ACTIVE,
        "grants_credit": broker.may_grant,
        "has_room": memory.has_room or memory.is_shut,
        "holds_back": holds_back,
        "held_bytes": memory.held_bytes,
        "global_max_size_bytes": memory.max_bytes,
        "journal_segments": broker.journal.segments_count,
        "journal_position": broker.journal.position,
        "synced_position": broker.store.decisions.synced,
        "node_id": broker.node_id,
        "has_rival": broker.rivals.is_there,
        "has_yielded": broker.rivals.has_yielded,
    }


def space_free_bytes_min(journal: JournalOptions) -> int:
    """Room for the next journal files and for all that may be on its way to the disk."""
    needed = JOURNAL_FILES_FREE_MIN * journal.journal_file_size_bytes + journal.disk_pending_bytes_max
    return max(needed, journal.min_disk_free_bytes)


def _disk_space(node: Facts, around: Surroundings) -> Verdict:
    space, needed = around.space, around.space_free_bytes_min
    facts = {"free_bytes": space.free_bytes, "size_bytes": space.size_bytes, "free_bytes_min": needed}
    if space.free_bytes >= needed:
        return Verdict(True, f"{space.free_bytes} bytes are free, at least {needed} are needed", facts)
    why = f"only {space.free_bytes} bytes are free, {needed} are needed to take messages in; make room on the disk"
    return Verdict(False, why, facts)


def _journal(node: Facts, around: Surroundings) -> Verdict:
    facts = {name: node[name] for name in ("journal_position", "synced_position", "journal_segments")}
    facts["pending_bytes"] = around.disk_pending_bytes
    if around.is_disk_alive:
        return Verdict(True, "the journal takes writes", facts)
    return Verdict(False, "the disk failed, or hangs in a write or sync; see the log and the disk", facts)


def _memory(node: Facts, around: Surroundings) -> Verdict:
    facts = {name: node[name] for name in ("held_bytes", "global_max_size_bytes")}
    held = f"messages hold {node['held_bytes']} of {node['global_max_size_bytes']} bytes"
    if node["has_room"]:
        return Verdict(True, held, facts)
    if not node["holds_back"]:
        return Verdict(True, f"{held}; all addresses page, so what is too much stays on disk", facts)
    why = f"{held}, so publishers get no credit; consume messages or raise limits.global-max-size-bytes"
    return Verdict(False, why, facts)


def _listeners(node: Facts, around: Surroundings) -> Verdict:
    troubled = [f"{name} ({why})" for name, why in around.listeners.items() if why]
    facts = {"listeners": {name: why or "accepting" for name, why in around.listeners.items()}}
    if troubled:
        return Verdict(False, f"not accepting: {', '.join(troubled)}", facts)
    return Verdict(True, f"{len(around.listeners)} listeners accept connections", facts)


def _node_id(node: Facts, around: Surroundings) -> Verdict:
    facts: Facts = {"node_id": node["node_id"]}
    if node["has_yielded"]:
        return Verdict(False, f"{WHY}; {REMEDY}", facts)
    if not node["has_rival"]:
        return Verdict(True, "no other broker is heard with this node id", facts)
    why = (
        f"another broker runs with this node id and was started later; stop it, run {NEW_ID} where the data was "
        "copied, and start it"
    )
    return Verdict(True, why, facts | {"warning": True})


CHECKS: dict[str, Callable[[Facts, Surroundings], Verdict]] = {
    "disk-space": _disk_space,
    "journal": _journal,
    "listeners": _listeners,
    "memory": _memory,
    "node-id": _node_id,
}


def readiness(node: Facts | None, is_disk_alive: bool) -> Verdict:
    """Whether clients should be sent here. `node` is None when it does not answer any more."""
    if node is None or node["state"] != ACTIVE:
        return Verdict(False, "the broker stops")
    if node["has_yielded"]:
        return Verdict(False, WHY)
    if not is_disk_alive:
        return Verdict(False, "the journal does not take writes")
    return Verdict(True, "ready")
