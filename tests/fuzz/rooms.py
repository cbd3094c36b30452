"""Everything that takes bytes of others, beside AMQP: each room with what is valid there, and what it may answer.

The contract is one for all: a value, or the fault that the room documents, and nothing else; and whoever was asked
still works afterwards. What keeps a node keeps one for all inputs of a room.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Iterable
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from mqbroker.admin.operations import OPERATIONS
from mqbroker.base.errors import ConfigFault, MqError, PeerFault, Refused, StorageFault
from mqbroker.client.errors import MessageFault
from mqbroker.client.message import Message, decode_message, encode_message
from mqbroker.cluster import notices
from mqbroker.cluster.discovery.announcement import Announcement, to_json
from mqbroker.cluster.discovery.datagram import MAGIC, VERSION, seal
from mqbroker.cluster.discovery.gossip import pieces
from mqbroker.cluster.discovery.note import to_datagram, to_note
from mqbroker.cluster.fields import Connector
from mqbroker.config.users import make_verifier, users_from_text, users_to_text
from mqbroker.core.selector.selector import compile_selector
from mqbroker.core.store.journal_export import Importer, rows_of
from mqbroker.io.discovery.gossip import GossipPlace
from mqbroker.io.files.identity import _parsed
from mqbroker.io.requests.admin_socket import AdminServer, AdminSession
from mqbroker.io.requests.http_head import Head, Response, take_head
from mqbroker.journal.plan import Journal
from mqbroker.journal.recover import recover
from mqbroker.journal.recovered import Recovered
from mqbroker.node.cluster.membership.notice_links import _section
from mqbroker.node.values import inputs as given
from mqbroker.node.values.effects import Connect

from tests.fuzz import journals
from tests.fuzz.test_frame_ends_dialled import NODE_TAPE, transfer
from tests.support.cluster_stage import ClusterNode, node_id_of
from tests.support.false_node import FalseNode
from tests.support.stage import Stage
from tests.unit.core.store.test_journal_export import Kept
from tests.unit.node.cluster.discovery import test_discovery as air

SOURCE: Final = "192.0.2.7:9876"


class Room(NamedTuple):
    """`take` is given any bytes. `valid`: what it takes; `is_json`: that is JSON; `step`: between two broken bytes."""

    take: Callable[[bytes], object]
    valid: tuple[bytes, ...]
    faults: tuple[type[MqError] | type[Exception], ...] = ()
    is_json: bool = False
    step: int = 1


# -- discovery ---------------------------------------------------------------------------------------------------------

SAID = Announcement(
    node_id_of("b"), "b" * 32, 7, "mq2", 2000, (Connector("own", "amqp", "192.0.2.7", 5673),), 1_700_000_000_000,
    hears=("c" * 32,),
)  # fmt: skip


class Listening:
    """A node that discovers others, as a group that gossips or listens to datagrams."""

    def __init__(self) -> None:
        self.air = air.Air()
        self.stage = self.air.add("mq1")
        self.stage.wait(1)

    def heard(self, source: str, data: bytes) -> None:
        """Something came."""
        stage = self.stage
        stage.give(given.Datagram("lan", source, data))
        stage.step()
        stage.batches.clear()
        stage.notices.clear()
        stage.network_effects.clear()
        assert stage.broker.counters.bugs_contained == 0, "what is contained is a bug all the same"

    def resolved(self, places: tuple[tuple[str, str, int], ...]) -> None:
        """No names are asked for here."""

    def looked(self, why: str) -> None:
        """Nothing is polled here."""


@cache
def listening() -> Listening:
    return Listening()


def _sealed(text: bytes) -> bytes:
    """A datagram that says this, whatever it is, of somebody who knows the secret."""
    import hmac
    import struct

    head = struct.pack(">4sBH", MAGIC, VERSION, len(text) & 0xFFFF)
    return head + text + hmac.digest(air.KEY, head + text, "sha256")


def _datagram(raw: bytes) -> None:
    listening().heard(SOURCE, raw)


def _announcement(text: bytes) -> None:
    listening().heard(SOURCE, _sealed(text))


def _note(raw: bytes) -> None:
    listening().heard("/shared/node.json", to_datagram(raw))


class Gossip:
    """A place that is told what a peer says, without a network."""

    def __init__(self) -> None:
        options = air.options(
            discovery_groups=[{"name": "lan", "discovery": "gossip", "peers": ["192.0.2.7:9876"],
                               "local-bind-address": "127.0.0.1", "local-bind-port": 9876}],
            broadcast_groups=[],
        ).discovery_groups[0]  # fmt: skip
        self.place = GossipPlace(options)
        self.place.listener = listening()
        self.runner = asyncio.Runner()

    def take(self, raw: bytes) -> None:
        self.runner.run(self._read(raw))

    async def _read(self, raw: bytes) -> None:
        reader = asyncio.StreamReader(limit=16 * 1024)
        reader.feed_data(raw)
        reader.feed_eof()
        await self.place._read(reader, SOURCE)


@cache
def gossip() -> Gossip:
    return Gossip()


# -- neighbours --------------------------------------------------------------------------------------------------------


class OneNeighbour(FalseNode):
    """Nobody is there but the node that was listed."""

    def dial(self, node: ClusterNode, effect: Connect) -> None:
        """See ClusterStage."""
        if effect.host == "b":
            super().dial(node, effect)
        else:
            node.give(given.Closed(effect.conn, "nobody is there"))


class Neighbour:
    """A node that dialled a false one, which knows the secret of the cluster and tells of its queues."""

    def __init__(self) -> None:
        self.far = OneNeighbour(
            retry_interval=1, retry_interval_multiplier=1.0, max_retry_interval=1, reconnect_attempts=-1
        )
        self.number = 0
        self._begin()

    def _begin(self) -> None:
        self.far.dialled_again()
        self.far.answers_login()
        self.far.says(b"".join(NODE_TAPE[:4]))
        self.number = 0

    def take(self, text: bytes) -> None:
        """A notice, and what is told of it after the state that all notices need."""
        node = self.far.dialler
        for each in (TOLD_FIRST, text):
            if self.far.conn not in node.sent or self.far.bridge.state.value != "up":
                self._begin()
            self.far.says(transfer(self.number, _section(each), settled=True))
            self.number += 1
        self.far.wait(1)
        assert node.halted is None
        assert node.broker.counters.bugs_contained == 0
        for kept in (node.batches, node.appends, node.notices, node.derives, node.dials):
            kept.clear()
        if self.number > NUMBERS_MAX:
            self._begin()


@cache
def neighbour() -> Neighbour:
    return Neighbour()


NUMBERS_MAX: Final = 400  # less than half of the credit for notices
TOLD_FIRST: Final = notices.encode(notices.Reset())


# -- the admin socket --------------------------------------------------------------------------------------------------


class Lines(asyncio.Transport):
    """The other end of an admin session: what was written, on a socket whose peer is this process."""

    def __init__(self) -> None:
        super().__init__()
        self.ends = socket.socketpair()
        self.written = b""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.ends[0] if name == "socket" else default

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.ends[0].fileno() < 0

    def is_reading(self) -> bool:
        return True

    def pause_reading(self) -> None:
        """It is given no more."""

    def write_eof(self) -> None:
        """It was refused."""

    def abort(self) -> None:
        """It was refused."""

    def close(self) -> None:
        for end in self.ends:
            end.close()


class Administered:
    """A node, and administrators who may say anything but that it stops."""

    def __init__(self) -> None:
        self.stage = Stage(journals.OPTIONS)
        self.stage.admin("send", address="orders", messages=[{"body": "m"}] * 3)
        self.stage.replies.clear()  # requests of the socket are numbered from one on
        self.server = AdminServer("/nowhere", cast(Any, self), cast(Any, self))
        self.runner = asyncio.Runner()

    def post(self, item: given.Input) -> None:
        """As NodeLoop does."""
        if not (isinstance(item, given.AdminRequest) and item.operation == "stop"):
            self.stage.give(item)

    def warning(self, event: str, **fields: Any) -> None:
        """As Log does."""

    def take(self, raw: bytes) -> None:
        self.runner.run(self._session(raw))
        stage = self.stage
        assert stage.halted is None
        stage.batches.clear()
        stage.notices.clear()

    async def _session(self, raw: bytes) -> None:
        session, transport = AdminSession(self.server), Lines()
        try:
            session.connection_made(transport)
            session.data_received(raw)
            session.eof_received()
            self._run()
            self.stage.wait(5)
            self._run()
            for line in transport.written.splitlines():
                assert set(json.loads(line)) <= {"id", "result", "error"}
            session.connection_lost(None)
            self._run()
        finally:
            transport.close()

    def _run(self) -> None:
        self.stage.run()
        replies, self.stage.replies = self.stage.replies, {}
        for reply in replies.values():
            self.server.reply(reply)


@cache
def administered() -> Administered:
    return Administered()


ARGUMENTS: dict[str, Any] = {
    "send": {"address": "orders", "messages": [{"body": "x", "durable": True, "priority": 4, "ttl_ms": 5,
                                                "properties": {"message_id": "m", "creation_time": 1},
                                                "application_properties": {"n": 1, "s": "x"}}]},
    "receive": {"address": "orders", "count_max": 1, "wait_ms": 1, "selector": "n = 1"},
    "settle": {"tag": 1, "outcome": "accepted"},
    "browse": {"queue": "orders", "selector": "n = 1", "from": 1, "limit": 2},
    "message-show": {"queue": "orders", "id": 1},
    "queue-create": {"name": "q", "address": "a", "routing_type": "anycast", "durable": True, "max_consumers": 1,
                     "exclusive": True, "last_value": True, "last_value_key": "k", "non_destructive": False,
                     "ring_size": 1, "consumers_before_dispatch": 1, "delay_before_dispatch_ms": 1,
                     "group_rebalance": True, "group_buckets": 3, "group_first_key": "f", "selector": "a = 1",
                     "purge_on_no_consumers": True, "paused": True},
    "queue-delete": {"name": "q", "force": True},
    "address-create": {"name": "a", "routing_types": ["anycast", "multicast"]},
    "address-delete": {"name": "a", "force": True},
    "address-pause": {"name": "orders", "persist": True},
    "address-settings-show": {"address": "a"},
    "queue-purge": {"name": "orders", "selector": "n = 1"},
    "messages-move": {"queue": "orders", "address": "b", "selector": "n = 1", "count_max": 1},
    "dead-letters-retry": {"queue": "orders", "selector": "n = 1", "count_max": 1},
    "events": {"after": 1, "level": "info", "name": "x*", "limit": 1},
    "metrics": {"per_object": True},
    "connections": {}, "consumers": {"connection": 1, "user": "u", "container_id": "c", "queue": "q"},
    "connection-close": {"user": "nobody"}, "groups": {"queue": "q", "limit": 1},
    "cluster-canary": {"timeout_ms": 100}, "cluster-forget": {"node_id": "n", "action": "drop"},
}  # fmt: skip
REQUESTS = tuple(
    json.dumps({"id": 1, "op": name, "args": ARGUMENTS.get(name, {"name": "orders"})}).encode() for name in OPERATIONS
)


# -- files and texts ---------------------------------------------------------------------------------------------------


def _import(text: bytes) -> None:
    """A row behind those of a whole export that come before the first of its type."""
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        return  # the command says so, of each line
    kind = row.get("type") if isinstance(row, dict) else None
    importer = Importer(Journal(journals.OPTIONS.journal, Recovered()), Kept())
    for before in takewhile(lambda each: each["type"] != kind, EXPORT):
        importer.take(before)
    importer.take(row)
    if importer.is_complete:
        importer.finish()


def _exported() -> list[Any]:
    found = recover([(1, journals.file_of(list(journals.RECORDS.values())))], journals.NODE_ID)
    return list(rows_of(found, "node"))


EXPORT: Final = _exported()


def _head(raw: bytes) -> None:
    """All at once, and byte by byte, which makes no difference."""
    at_once, slowly = bytearray(raw), bytearray()
    first = take_head(at_once)
    found: Head | Response | None = None
    for byte in raw:
        slowly.append(byte)
        found = take_head(slowly)
        if found is not None:
            break
    assert found == first


def _message(raw: bytes) -> None:
    """As an application gets it: what can be read can be sent on."""
    message = decode_message(raw)
    again = encode_message(message)
    assert encode_message(decode_message(again)) == again


def _identity(raw: bytes) -> None:
    assert _parsed(Path("identity.json"), raw).node_id_bytes


def _text(take: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda raw: take(raw.decode(errors="replace"))


MESSAGES = tuple(map(encode_message, (
    Message(b"x"), Message("text", durable=True, ttl_ms=9, id="i", application_properties={"a": 1, "b": None}),
    Message([1, {"a": "b"}], body_kind="sequence", annotations={"x-opt": 1}, footer={"f": 2}, group_id="g"),
)))  # fmt: skip
USERS = users_to_text({"app": make_verifier("right", b"salt" * 4, ("client",))}).encode()
IDENTITY = json.dumps(
    {"format": 1, "node_id": node_id_of("a"), "created": "2026", "machine_id": "m", "data_directory": "/d",
     "device": 1, "inode": 2}
).encode()  # fmt: skip
HEADS = (
    b"GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: text/plain\r\nConnection: close, x\r\n\r\n",
    b"HEAD http://a:1/health?x=1 HTTP/1.0\nContent-Length: 0\n\n",
)
SELECTORS = (
    b"a = 1 AND b LIKE 'x%' ESCAPE '!' OR NOT (c IS NULL) AND d IN ('a', 'b') AND e BETWEEN 1.5 AND 0x2L",
    b"JMSPriority > 3 AND \"x y\" <> 'it''s' AND -a + b * 2 / c >= 1e3",
)
SAID_OF_THE_CLUSTER: tuple[notices.ClusterNotice, ...] = (
    notices.Member(node_id_of("c"), "c" * 32, "mq3", SAID.connectors, notices.Version(1, 2), "LOCAL", SAID.connectors),
    notices.MemberGone(node_id_of("c"), notices.Version(1, 3)), notices.Reset(),
    notices.BindingAdded("orders", "orders", "anycast", "a = 1", node_id_of("b"), 1),
    notices.BindingRemoved(f"orders{node_id_of('b')}", True), notices.ConsumerCreated(f"orders{node_id_of('b')}", ""),
    notices.ConsumerClosed(f"orders{node_id_of('b')}", ""), notices.ResetComplete(),
    notices.GroupClusterNotice(notices.PROPOSAL, "q", "g", f"q{node_id_of('b')}", node_id_of("b"), "", 1, 1),
)  # fmt: skip
NOTICES: tuple[bytes, ...] = tuple(notices.encode(each) for each in SAID_OF_THE_CLUSTER)
RECORDED: Iterable[bytes] = journals.RECORDS.values()
JOURNAL_FILES: tuple[bytes, ...] = tuple(
    journals.file_of([*RECORDED], journals.header_of(term))[: journals.written_bytes()] for term in journals.TERMS
)

ROOMS: Final[dict[str, Room]] = {
    "datagram": Room(_datagram, (seal(SAID, air.KEY),), step=3),
    "announcement": Room(_announcement, (to_json(SAID),), is_json=True),
    "note": Room(_note, (to_note(seal(SAID, air.KEY)),), step=5),
    "gossip": Room(lambda raw: gossip().take(raw), (b"".join(pieces([seal(SAID, air.KEY)] * 2)),),
                   (asyncio.IncompleteReadError,), step=7),
    "notice": Room(notices.decode, NOTICES, (PeerFault,), is_json=True),
    "notice of a neighbour": Room(lambda raw: neighbour().take(raw), NOTICES, is_json=True),
    "admin line": Room(lambda raw: administered().take(raw), REQUESTS, is_json=True),
    "export row": Room(_import, tuple(json.dumps(row).encode() for row in EXPORT), (ConfigFault,), is_json=True),
    "http head": Room(_head, HEADS),
    "message": Room(_message, MESSAGES, (MessageFault,)),
    "selector": Room(_text(compile_selector), SELECTORS, (Refused,)),
    "users file": Room(_text(users_from_text), (USERS,), (ConfigFault,), is_json=True),
    "identity": Room(_identity, (IDENTITY,), (StorageFault,), is_json=True),
    "journal record": Room(journals.read_record, (*RECORDED,), (StorageFault,), step=9),
    "journal file": Room(journals.read_file, JOURNAL_FILES, (StorageFault,), step=29),
    "journal file, what it says of itself": Room(journals.read_header, tuple(map(journals.header_of, journals.TERMS)),
                                                 (StorageFault,)),
    "queue of a journal": Room(journals.read_queue, tuple(map(journals._json, journals.QUEUES)), (StorageFault,),
                               is_json=True),
    "queue declared anew": Room(journals.read_queue_anew, tuple(map(journals._json, journals.QUEUES)), (StorageFault,),
                                is_json=True),
    "address of a journal": Room(journals.read_address, (journals._json(journals.SAID),), (StorageFault,),
                                 is_json=True),
    "page": Room(journals.read_page, (journals.RECORDS["run of two"],), (StorageFault,)),
}  # fmt: skip
