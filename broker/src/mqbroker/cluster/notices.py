"""What nodes tell each other over a link of notices: who belongs to the cluster, and which queues and consumers it has.

Each notice is one JSON object with `kind`. Kinds and keys that this release does not know are passed over, so a later
one may add some; what is known is checked to the letter, and what is malformed is the fault of the link. A cluster
name is the name of a queue and the id of the node that has it. Source: docs/adr/0012-cluster-connections.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import total_ordering
from typing import Any, Final

from mqbroker.base.errors import PeerFault, Scope
from mqbroker.base.term import TERM_MAX
from mqbroker.cluster.fields import (
    BOOT_ID,
    NAME,
    NODE_ID,
    Connector,
    MalformedField,
    MalformedObject,
    connector_rows,
    connectors_of,
    flag_of,
    number_of,
    object_in,
    text_of,
)
from mqbroker.core.cluster.remote_binding import cluster_name_of

NOTICE_BYTES_MAX: Final = 64 * 1024
CONNECTORS_MAX: Final = 8
DISTANCE_MAX: Final = 64
FORMATS_MAX: Final = 16
FORMAT_MAX: Final = 2**16 - 1
VERSION_MAX: Final = 2**63 - 1
TERM: Final = "term"

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_ROUTING: Final = re.compile("anycast|multicast")
_GROUPING: Final = re.compile("|LOCAL|REMOTE")
PROPOSAL, RESPONSE, UNPROPOSAL = "proposal", "response", "unproposal"
_ACT: Final = re.compile(f"{PROPOSAL}|{RESPONSE}|{UNPROPOSAL}")
_CLUSTER_NAME: Final = re.compile(rf".*{NODE_ID.pattern}", re.DOTALL)


@total_ordering
@dataclass(frozen=True, slots=True)
class Version:
    """How new it is what a node says of itself: by no clock.

    `term` goes before all; `epoch` grows with each start of the node, `counter` within it.
    """

    epoch: int
    counter: int
    term: int = 0

    def __lt__(self, other: Version) -> bool:
        return (self.term, self.epoch, self.counter) < (other.term, other.epoch, other.counter)


@dataclass(frozen=True, slots=True)
class Member:
    """A node of the cluster. Without connectors it is known, and nobody knows how to reach it."""

    node_id: str
    boot_id: str
    name: str
    connectors: tuple[Connector, ...]
    version: Version
    grouping: str = ""  # the type of its grouping handler, where it has one
    clients: tuple[Connector, ...] = ()  # how clients reach it, where it says so
    heir: str = ""  # the id of the node that it leaves everything to, where it leaves; its own: it is cordoned
    scale_down_group: str = ""  # of nodes that take each other's messages
    journal_formats: tuple[int, ...] = ()  # of files that it reads, ascending; nothing: cluster/journal_formats.py


@dataclass(frozen=True, slots=True)
class MemberGone:
    """A node has left the cluster. What is said of it up to `version` holds no more."""

    node_id: str
    version: Version


@dataclass(frozen=True, slots=True)
class Reset:
    """All bindings are told from here on; those that are not are no more."""


@dataclass(frozen=True, slots=True)
class BindingAdded:
    """A queue of a node. `distance` is 0 where the queue is the teller's own, else as the teller knows it.

    `volatile`: it does not outlive the process that has it. `exclusive`: one consumer at a time gets its messages.
    `moved_from`: it gets nothing but what is moved to its address, as dead or expired, from this one, and what names
    it, `address::queue`.
    """

    queue: str
    address: str
    routing: str
    selector: str
    node_id: str
    distance: int
    volatile: bool = False
    exclusive: bool = False
    moved_from: str = ""

    @property
    def cluster_name(self) -> str:
        """The name of the queue in the cluster: its own, and the id of its node."""
        return cluster_name_of(self.queue, self.node_id)


@dataclass(frozen=True, slots=True)
class BindingRemoved:
    """It is not reached any more; `deleted`: it is no more, as its owner said."""

    cluster_name: str
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class ConsumerCreated:
    """One more consumer of the queue; `selector` is empty where it takes all."""

    cluster_name: str
    selector: str


@dataclass(frozen=True, slots=True)
class ConsumerClosed:
    """One less with this selector."""

    cluster_name: str
    selector: str


@dataclass(frozen=True, slots=True)
class ResetComplete:
    """All bindings have been told; what follows are changes."""


@dataclass(frozen=True, slots=True)
class GroupClusterNotice:
    """Of the owner of a group. `node_id` says it, and `number` tells apart what it says.

    PROPOSAL: a node would have `cluster_name` own the group; RESPONSE: it is owned by that, or by nobody where
    that is empty; UNPROPOSAL: not by that any more. `to` is the node that it is for, empty for all; `distance` counts
    the nodes that have passed it on.
    """

    act: str
    queue: str
    group_id: str
    cluster_name: str
    node_id: str
    to: str
    number: int
    distance: int = 0


ClusterNotice = (
    Member | MemberGone | Reset | BindingAdded | BindingRemoved | ConsumerCreated | ConsumerClosed | ResetComplete
    | GroupClusterNotice
)  # fmt: skip

KINDS: Final[dict[type[Any], str]] = {
    Member: "member",
    MemberGone: "member-gone",
    Reset: "reset",
    BindingAdded: "binding-added",
    BindingRemoved: "binding-removed",
    ConsumerCreated: "consumer-created",
    ConsumerClosed: "consumer-closed",
    ResetComplete: "reset-complete",
    GroupClusterNotice: "group",
}


# Fields that earlier releases do not have; they are left out where they say nothing.
_LATER: Final = (
    "grouping", "clients", "heir", "scale_down_group", "journal_formats", "deleted", "volatile", "exclusive",
    "moved_from",
)  # fmt: skip
_CONNECTORS: Final = ("connectors", "clients")


def encode(notice: ClusterNotice) -> bytes:
    """As compact as it gets. Long names make more than NOTICE_BYTES_MAX, and that must not be sent."""
    row: dict[str, Any] = {"kind": KINDS[type(notice)]}
    for name in notice.__slots__:
        value = getattr(notice, name)
        if isinstance(value, Version):
            if value.term:
                row[TERM] = value.term  # of its own: earlier releases take two numbers for a version, and no third
            value = [value.epoch, value.counter]
        if name not in _LATER or value:
            row[name] = connector_rows(value) if name in _CONNECTORS else value
    return _ENCODER.encode(row).encode()


def decode(data: bytes) -> ClusterNotice | None:
    """The notice, None for a kind that is not known. Raises PeerFault of the link, whatever the bytes are."""
    try:
        if len(data) > NOTICE_BYTES_MAX:
            raise MalformedObject(f"has {len(data)} bytes; {NOTICE_BYTES_MAX} are allowed")
        row = object_in(data)
        kind = text_of(row, "kind")
        read = _READ.get(kind)
        return None if read is None else read(row)
    except MalformedObject as fault:
        raise _blamed(str(fault)) from None
    except MalformedField as fault:
        raise _blamed(f"is malformed: {fault}") from None


def _blamed(why: str) -> PeerFault:
    return PeerFault("amqp:decode-error", f"a notice of the cluster {why}", Scope.LINK)


def _member(row: dict[str, Any]) -> Member:
    return Member(
        text_of(row, "node_id", NODE_ID),
        text_of(row, "boot_id", BOOT_ID),
        text_of(row, "name", NAME),
        connectors_of(row, CONNECTORS_MAX, 0),
        _version(row),
        text_of(row, "grouping", _GROUPING) if "grouping" in row else "",
        connectors_of(row, CONNECTORS_MAX, 0, "clients") if "clients" in row else (),
        text_of(row, "heir", NODE_ID) if "heir" in row else "",
        text_of(row, "scale_down_group", NAME) if "scale_down_group" in row else "",
        _formats(row) if "journal_formats" in row else (),
    )


def _formats(row: dict[str, Any]) -> tuple[int, ...]:
    formats = row["journal_formats"]
    is_list = isinstance(formats, list) and 1 <= len(formats) <= FORMATS_MAX
    if not is_list or any(type(each) is not int or not 1 <= each <= FORMAT_MAX for each in formats):
        raise MalformedField(f"journal_formats must be a list of 1 to {FORMATS_MAX} numbers from 1 to {FORMAT_MAX}")
    if formats != sorted(set(formats)):
        raise MalformedField("journal_formats must ascend")
    return tuple(formats)


def _version(row: dict[str, Any]) -> Version:
    pair = row.get("version")
    if not isinstance(pair, list) or len(pair) != 2:
        raise MalformedField("version must be a list of two numbers")
    said = {"epoch": pair[0], "counter": pair[1], TERM: row.get(TERM, 0)}
    epoch, counter = (number_of(said, name, VERSION_MAX, 0) for name in ("epoch", "counter"))
    return Version(epoch, counter, number_of(said, TERM, TERM_MAX, 0))


def _binding_added(row: dict[str, Any]) -> BindingAdded:
    return BindingAdded(
        text_of(row, "queue"),
        text_of(row, "address"),
        text_of(row, "routing", _ROUTING),
        text_of(row, "selector"),
        text_of(row, "node_id", NODE_ID),
        number_of(row, "distance", DISTANCE_MAX, 0),
        flag_of(row, "volatile"),
        flag_of(row, "exclusive"),
        text_of(row, "moved_from") if "moved_from" in row else "",
    )


def _cluster_name(row: dict[str, Any]) -> str:
    return text_of(row, "cluster_name", _CLUSTER_NAME)


def _group(row: dict[str, Any]) -> GroupClusterNotice:
    return GroupClusterNotice(
        text_of(row, "act", _ACT),
        text_of(row, "queue"),
        text_of(row, "group_id"),
        text_of(row, "cluster_name", _CLUSTER_NAME) if row.get("cluster_name") else "",
        text_of(row, "node_id", NODE_ID),
        text_of(row, "to", NODE_ID) if row.get("to") else "",
        number_of(row, "number", VERSION_MAX, 0),
        number_of(row, "distance", DISTANCE_MAX, 0),
    )


_READ: Final[dict[str, Callable[[dict[str, Any]], ClusterNotice]]] = {
    "member": _member,
    "member-gone": lambda row: MemberGone(text_of(row, "node_id", NODE_ID), _version(row)),
    "reset": lambda _row: Reset(),
    "binding-added": _binding_added,
    "binding-removed": lambda row: BindingRemoved(_cluster_name(row), row.get("deleted") is True),
    "consumer-created": lambda row: ConsumerCreated(_cluster_name(row), text_of(row, "selector")),
    "consumer-closed": lambda row: ConsumerClosed(_cluster_name(row), text_of(row, "selector")),
    "reset-complete": lambda _row: ResetComplete(),
    "group": _group,
}
