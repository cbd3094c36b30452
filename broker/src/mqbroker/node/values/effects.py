"""Everything that a node may ask of the world, as values. A Batch (batch.py) carries them.

`io/` carries out a Batch in this order: append first (queued for the disk thread), then effects in their order.
A Send must not be seen by a peer before what it acknowledges is synced: the core guarantees that by making the Send
only after `Synced`, so `io/` needs no rule of its own.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from mqbroker.base.frozen import frozen
from mqbroker.journal.places import Slice
from mqbroker.node.values.traffic import Send as Send


@frozen()
class CloseConnection:
    """Close a connection after what was sent has left (at most `linger_ms`, then hard). `Closed` follows as input."""

    conn: int
    linger_ms: int = 1000


@frozen()
class PauseReading:
    """Stop (or resume) reading this connection: back-pressure on a publisher."""

    conn: int
    is_paused: bool


@frozen()
class Connect:
    """Open an outgoing connection. Comes back as Connected, or as Closed with the reason, within `timeout_ms`.

    `local_bind_address` pins it to a network card. With `is_tls` the other end must prove that it is `host`, and we
    show the certificate of the listener `listener`, whose CA is trusted; without one, or where it has none, no
    certificate, and those CAs that the host trusts.
    """

    conn: int
    host: str
    port: int
    local_bind_address: str | None = None
    is_tls: bool = False
    listener: str = ""
    timeout_ms: int = 10_000


@frozen()
class Derive:
    """PBKDF2-HMAC(`hash_name`, password, salt, iterations), off the loop. Done.result: the derived bytes."""

    id: int
    hash_name: str
    password: bytes = field(repr=False)
    salt: bytes = field(repr=False)
    iterations: int = 4096


@frozen()
class DeleteJournalSegment:
    """Delete a journal segment that nothing needs any more. Done or Failed follows."""

    id: int
    segment: int


@frozen()
class ReadPage:
    """Read these parts of segments, all of which are synced and stay until then. Done.result: the bytes of each.

    What cannot be read, or has another checksum, ends the node.
    """

    id: int
    slices: tuple[Slice, ...]


@frozen()
class WriteLarge:
    """Write to the file of a large message, which the piece at offset 0 makes. Done or Failed follows.

    Effects on one file are carried out in their order.
    """

    id: int
    file: int
    offset: int
    chunks: tuple[bytes, ...] = field(repr=False)


@frozen()
class FinishLarge:
    """Write the rest of a file, which may be all or nothing of it. With `sync`, it and its name are on disk before
    Done comes.

    Failed where any of its writes has failed.
    """

    id: int
    file: int
    offset: int
    chunks: tuple[bytes, ...] = field(repr=False)
    sync: bool


@frozen()
class ReadLarge:
    """Read from the file of a large message. Done.result: the bytes, exactly so many. A failure ends the node."""

    id: int
    file: int
    offset: int
    size_bytes: int


@frozen()
class DeleteLarge:
    """Delete the file of a large message, if it is there. Failed follows where that cannot be done, else nothing."""

    id: int
    file: int


@frozen()
class LoadConfiguration:
    """Read the files of options and users again, and take what a running process may take; nothing of it if anything
    is wrong. Done.result: an inputs.Configuration. Failed.why: every fault, one a line.
    """

    id: int


@frozen()
class JoinGroup:
    """Listen at the place of this discovery group, in place of an ear that it may have. Done or Failed follows."""

    id: int
    group: str


@frozen()
class SendDatagram:
    """Send to the place of this broadcast group. Done or Failed follows."""

    id: int
    group: str
    data: bytes


@frozen()
class Probe:
    """See whether somebody takes TCP connections there, for connection routers. Done or Failed follows."""

    id: int
    host: str
    port: int


@frozen()
class RelayRecord:
    """Pass this datagram of a node on to the peers of this discovery group, in place of an earlier one of that node;
    empty: pass on none. Nothing follows.
    """

    group: str
    node_id: str
    data: bytes


@frozen()
class AdminReply:
    """The one answer to AdminRequest `id`. Either `result` or `error` is set: {"condition": …, "description": …}."""

    id: int
    result: Any = None
    error: dict[str, str] | None = None


@frozen()
class DelayStop:
    """The stop that was asked for waits until what is here has gone to another node; `is_over`: it waits no more, or
    never did. Nothing follows.
    """

    is_over: bool


@frozen()
class Halt:
    """The node is done (graceful stop finished): `io/` closes everything and ends the process with `code`."""

    code: int = 0


Effect = (
    Send | CloseConnection | PauseReading | Connect | Derive | DeleteJournalSegment | WriteLarge | FinishLarge
    | ReadLarge | DeleteLarge | ReadPage | LoadConfiguration | JoinGroup | SendDatagram | RelayRecord | Probe
    | AdminReply | DelayStop | Halt
)  # fmt: skip
