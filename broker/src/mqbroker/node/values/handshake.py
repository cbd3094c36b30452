"""What two nodes say of themselves when one opens a connection to the other, and what the one that dialled makes of it.

Both Opens have properties: who the node is, in which process, over which cluster connection, and how it is reached.
Source: docs/adr/0012-cluster-connections.md.
"""

from __future__ import annotations

import enum
import re
from typing import Any, Final, NamedTuple

from mqbroker.base.term import TERM_MAX
from mqbroker.cluster.discovery.announcement import Connector
from mqbroker.cluster.node_id_conflict import ProcessStart
from mqbroker.wire.performatives import Open
from mqbroker.wire.types import Symbol, UInt, ULong

NODE_ID: Final = Symbol("mq:node-id")
BOOT_ID: Final = Symbol("mq:boot-id")
CONNECTION: Final = Symbol("mq:cluster-connection")
CONNECTOR: Final = Symbol("mq:connector")
STARTED: Final = Symbol("mq:started-ms")  # by the clock of the node's host
TERM: Final = Symbol("mq:term")
YIELDED: Final = Symbol("mq:yielded")  # it has left its node id to another process
TTL: Final = Symbol("mq:connection-ttl")  # ms without a word of the one that dialled, after which it is gone
TTL_MS_MIN: Final = 200
TTL_MS_MAX: Final = 86_400_000
STARTED_MS_MAX: Final = 2**63 - 1
ULONG_MAX: Final = 2**64 - 1
_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
PORT_MAX: Final = 65_535
_URI: Final = re.compile(
    r"(?P<scheme>amqps?)://(\[(?P<six>[0-9A-Fa-f:.]{2,45})\]|(?P<host>[A-Za-z0-9][A-Za-z0-9._-]{0,252})):(?P<port>[0-9]{1,5})"
)


class Hello(NamedTuple):
    """What a node says of itself. `ttl_ms`, `started_ms` and `term` are 0 where it says none."""

    node_id: str
    boot_id: str
    connection: str
    connector: Connector | None
    ttl_ms: int = 0
    started_ms: int = 0
    has_yielded: bool = False
    term: int = 0

    @property
    def start(self) -> ProcessStart:
        """The start of the process that says hello: when, its boot id and term."""
        return ProcessStart(self.started_ms, self.boot_id, self.term)

    @property
    def properties(self) -> dict[Symbol, Any]:
        """The properties of an Open that say it (AMQP 1.0 §2.7.1)."""
        said: dict[Symbol, Any] = {NODE_ID: self.node_id, BOOT_ID: self.boot_id, CONNECTION: self.connection}
        if self.connector is not None:
            said[CONNECTOR] = self.connector.uri
        if self.started_ms:
            said[STARTED] = ULong(self.started_ms)
        if self.ttl_ms:
            said[TTL] = UInt(self.ttl_ms)
        if self.has_yielded:
            said[YIELDED] = True
        if self.term:
            said[TERM] = ULong(self.term)
        return said


def hello_of(opened: Open) -> Hello | None:
    """What the peer says, None where it is no node of a cluster."""
    said = opened.properties or {}
    node_id, boot_id, connection = (said.get(name) for name in (NODE_ID, BOOT_ID, CONNECTION))
    if not isinstance(node_id, str) or not isinstance(boot_id, str) or not isinstance(connection, str):
        return None
    if not _ID.fullmatch(node_id) or not _ID.fullmatch(boot_id):
        return None
    uri, ttl_ms = said.get(CONNECTOR), _number(said.get(TTL), ULONG_MAX)
    bounded_ms = min(max(ttl_ms, TTL_MS_MIN), TTL_MS_MAX) if ttl_ms else 0
    started_ms, term = _number(said.get(STARTED), STARTED_MS_MAX), _number(said.get(TERM), TERM_MAX)
    connector = connector_of(uri) if isinstance(uri, str) else None
    has_yielded = said.get(YIELDED) is True
    return Hello(node_id, boot_id, connection[:256], connector, bounded_ms, started_ms, has_yielded, term)


def _number(value: Any, maximum: int) -> int:
    """What is no number within bounds, such as a truth, says nothing."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= maximum else 0


def connector_of(uri: str) -> Connector | None:
    """The way back of `Connector.uri`, None where it is none."""
    match = _URI.fullmatch(uri)
    if match is None or not 1 <= int(match["port"]) <= PORT_MAX:
        return None
    return Connector("", match["scheme"], match["six"] or match["host"], int(match["port"]))


class HandshakeVerdict(enum.Enum):
    """What an answer means to the one that dialled."""

    GOOD = "good"
    NO_NODE = "no node"  # a broker without cluster connections, or something else
    OURSELVES = "ourselves"
    CONFLICT = "conflict"  # another process has our node id
    ANOTHER = "another"  # not the one that was dialled


def verdict(dialled: str, hello: Hello | None, node_id: str, boot_id: str) -> HandshakeVerdict:
    """`dialled`: the node id that was expected, empty where none was known. The others are ours."""
    if hello is None:
        return HandshakeVerdict.NO_NODE
    if hello.node_id == node_id:
        return HandshakeVerdict.OURSELVES if hello.boot_id == boot_id else HandshakeVerdict.CONFLICT
    return HandshakeVerdict.ANOTHER if dialled not in ("", hello.node_id) else HandshakeVerdict.GOOD
