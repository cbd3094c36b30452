"""What each broker of a cluster says before one of them leaves: its links, its queues, whether it drains already."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mqctl.admin import AdminClient, AdminError
from mqctl.errors import CommandError
from mqctl.fanout import on_each
from mqctl.nodes import Node, open_admin, shell
from mqctl.ssh import shell as remote
from mqctl.world import World

SERVES: Final = "none"
CORDONED: Final = "cordoned"  # it lets no client in, and nothing moves
RESTS: Final = (SERVES, CORDONED)
FAILED: Final = "failed"  # something cannot move, and is tried again
LEAVES: Final = ("moving", "moved", FAILED)  # states of a node that drains, or did and was not taken back
NOT_FOUND: Final = "amqp:not-found"
FILE_SIZE: Final = "journal.journal-file-size-bytes"
DATA: Final = "/var/lib/mq"


@dataclass(frozen=True, slots=True)
class NodeLook:
    """One node. `drain`: its answer to `scale-down-show`, empty where its release knows none; `fault`: why it said
    nothing at all; `free_disk_bytes`: where its messages are, None where there is no shell to ask; `file_bytes`:
    the size of a file of its journal."""

    node: Node
    fault: str = ""
    status: Mapping[str, Any] = field(default_factory=dict)
    topology: Mapping[str, Any] = field(default_factory=dict)
    queues: Sequence[Mapping[str, Any]] = ()
    drain: Mapping[str, Any] = field(default_factory=dict)
    free_disk_bytes: int | None = None
    file_bytes: int = 0

    @property
    def node_id(self) -> str:
        return str(self.status.get("node_id", ""))

    @property
    def name(self) -> str:
        """The name of the node, as the inventory makes it."""
        return self.node.name

    @property
    def version(self) -> str:
        """The release of its broker, as it says it."""
        return str(self.status.get("version", ""))

    @property
    def release(self) -> list[int]:
        """The same, to be compared."""
        return [int(part) for part in re.findall(r"\d+", self.version.partition("+")[0])]

    @property
    def journal_format(self) -> int:
        """The latest of journal files that it reads; one that does not say so reads the first."""
        own = [row for row in self.topology.get("members", ()) if row.get("is_self")]
        return max((int(one) for row in own for one in row.get("journal_formats", ())), default=1)

    @property
    def state(self) -> str:
        """The state of its drain, as the broker says it."""
        return str(self.drain.get("state", SERVES))

    @property
    def held_bytes(self) -> int:
        """What its messages take in memory."""
        return int(self.status.get("held_bytes", 0))

    @property
    def free_memory_bytes(self) -> int:
        return int(self.status.get("global_max_size_bytes", 0)) - self.held_bytes

    @property
    def stored_bytes(self) -> int:
        """What its messages take at most: those in memory, and all that is in its journal; the file that is being
        written counts as empty."""
        files = max(0, int(self.status.get("journal_segments", 1)) - 1) * self.file_bytes
        return max(self.held_bytes, files)

    def link_state(self, node_id: str) -> str:
        """How its link to a node stands; empty where it has none."""
        states = [str(row["state"]) for row in self.topology.get("links", ()) if row["node_id"] == node_id]
        return "up" if "up" in states else states[0] if states else ""


def look_at(world: World, nodes: Sequence[Node]) -> list[NodeLook]:
    """All of them, at the same time."""
    looks = []
    for node, answer in on_each(nodes, lambda one: _look(world, one)):
        looks.append(NodeLook(node, fault=answer.what) if isinstance(answer, CommandError) else answer)
    return looks


def _look(world: World, node: Node) -> NodeLook:
    with open_admin(world, node) as session:
        return NodeLook(
            node,
            status=session.call("status"),
            topology=session.call("topology"),
            queues=session.call("queues")["queues"],
            drain=show(session),
            free_disk_bytes=_free_disk_bytes(world, node),
            file_bytes=_file_bytes(session),
        )


def _file_bytes(session: AdminClient) -> int:
    rows = session.call("config-show")["options"]
    return next((int(row["value"]) for row in rows if row["option"] == FILE_SIZE), 0)


def _free_disk_bytes(world: World, node: Node) -> int | None:
    if node.access is None:
        return None
    result = remote.run(shell(world, node.access), ["df", "--output=avail", "--block-size=1", DATA])
    last = result.out.split()[-1:]
    return int(last[0]) if last and last[0].isdigit() else None


def show(session: AdminClient) -> dict[str, Any]:
    """How the drain of a node stands; nothing where its release knows of none."""
    try:
        answer: dict[str, Any] = session.call("scale-down-show")
    except AdminError as error:
        if error.condition == NOT_FOUND:
            return {}
        raise
    return answer
