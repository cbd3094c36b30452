"""Nodes for the training of a native build (native_training.py): driven turn by turn, in memory.

Loop and connections are the real ones. Clients read nothing of what is written to them, the disk is memory, and
time stands still but for a step with each turn: nothing depends on how fast this machine is, or on chance.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, cast
from unittest import mock

from native_clock import CLOCK

# isort: split
from mqbroker.admin.operations import perform
from mqbroker.base.histogram import Histogram
from mqbroker.base.notice import Level
from mqbroker.base.time import NS_PER_MS, At
from mqbroker.cluster.discovery.datagram import derive_key
from mqbroker.config.file.load import parse
from mqbroker.config.slices import BrokerOptions
from mqbroker.config.users import make_verifier
from mqbroker.io.files.writes import write_chunks_synced
from mqbroker.io.loop.log import Log, LogShape
from mqbroker.io.loop.loop import NodeLoop
from mqbroker.io.sockets.connections import Connections, ListenerOrigin
from mqbroker.journal.append import Append
from mqbroker.journal.entry import Chunk, frame_entry
from mqbroker.journal.recovered import Recovered
from mqbroker.node.broker.broker import Broker, Setup
from mqbroker.node.values.effects import (
    AdminReply,
    CloseConnection,
    Connect,
    DelayStop,
    DeleteJournalSegment,
    DeleteLarge,
    Derive,
    Effect,
    FinishLarge,
    JoinGroup,
    LoadConfiguration,
    PauseReading,
    Probe,
    ReadLarge,
    ReadPage,
    RelayRecord,
    Send,
    SendDatagram,
    WriteLarge,
)
from mqbroker.node.values.inputs import Done, Synced

USER, PASSWORD = "training", "a password of nobody"
TURN_NS = 200_000  # a turn of the loop that carries one message takes about as long
WALL_NS = 1_700_000_000_000_000_000
TURNS_MAX = 100_000  # of the loop without anything new from outside

NODE = """\
[node]
name = "{name}"

[[listeners]]
name = "clients"
port = 5672
"""
CLUSTER = """\
[[listeners]]
name = "cluster"
kind = "cluster"
port = 5673

[[connectors]]
name = "a"
host = "127.0.0.1"
port = 5673

[[connectors]]
name = "b"
host = "127.0.0.2"
port = 5673

[[cluster-connections]]
name = "cluster"
connector-ref = "{name}"
static-connectors = ["{other}"]
"""


class Unexpected(Exception):
    """The training did not go as planned."""


class Handle:
    """A callback that is due at a time, unless it is cancelled before."""

    def __init__(self, due_ns: int, run: Callable[[], object]) -> None:
        self.due_ns = due_ns
        self.run = run
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class World:
    """Time, and what loops and connections ask of asyncio."""

    def __init__(self) -> None:
        self.now_ns = TURN_NS
        self.nodes: list[Node] = []
        self._soon: deque[Callable[[], object]] = deque()
        self._later: list[Handle] = []

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        self._soon.append(lambda: callback(*arguments))

    def call_later(self, delay_s: float, callback: Callable[..., object], *arguments: Any) -> Handle:
        handle = Handle(self.now_ns + int(delay_s * 1e9), lambda: callback(*arguments))
        self._later.append(handle)
        return handle

    def create_future(self) -> Future[int]:
        return Future()

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_ns(self) -> int:
        return WALL_NS + self.now_ns

    def run(self) -> None:
        """Turn until nobody has anything to do; then a moment passes."""
        for _ in range(TURNS_MAX):
            if not self._soon:
                break
            self._soon.popleft()()
        else:
            raise Unexpected("the nodes do not fall silent")
        for node in self.nodes:
            if node.loop.ended.done():
                raise Unexpected("a node has ended; why is said above")
        self.now_ns += TURN_NS
        due = [handle for handle in self._later if handle.due_ns <= self.now_ns or handle.is_cancelled]
        for handle in due:
            self._later.remove(handle)
            if not handle.is_cancelled:
                handle.run()

    def wait(self, duration_ms: int) -> None:
        """Time passes, in steps of a tenth of a second."""
        for _ in range(0, duration_ms, 100):
            self.now_ns += 100 * NS_PER_MS
            self.run()


class Transport:
    """One end of a connection. What is written goes to `far`, or to nobody: then as to a socket that takes all."""

    def __init__(self, world: World, far: Callable[[bytes], object] | None = None) -> None:
        self._world = world
        self._far = far
        self._null = os.open(os.devnull, os.O_WRONLY) if far is None else -1

    def fileno(self) -> int:
        return self._null

    def get_extra_info(self, name: str) -> Transport | None:
        return self if name == "socket" else None

    def write(self, data: bytes) -> None:
        if self._far is not None:
            self._world.call_soon(self._far, bytes(data))

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int, low: int) -> None: ...

    def is_closing(self) -> bool:
        return False

    def is_reading(self) -> bool:
        return True

    def pause_reading(self) -> None: ...

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None:
        if self._null >= 0:
            os.close(self._null)


class Disk:
    """Commits in the loop while `is_inline`, else when told to, as the disk thread does.

    Its file is memory, and each write overwrites the last one.
    """

    pending_bytes = 0

    def __init__(self, loop: NodeLoop) -> None:
        self.is_inline = True
        self._loop = loop
        self._position = 0
        self._group: list[Append] = []
        self._fd = os.memfd_create("journal")
        self._syncs = Histogram((0.001, 0.01))

    def try_inline(self, append: Append) -> bool:
        if self.is_inline:
            self._write([append])
            self._loop.post_from_thread(Synced(append.position))
        return self.is_inline

    def submit(self, append: Append) -> None:
        self._group.append(append)
        self._position = append.position

    def sync(self) -> None:
        self._write(self._group)
        self._group = []
        self._loop.post(Synced(self._position))

    def _write(self, group: list[Append]) -> None:
        chunks: list[Chunk] = []
        for append in group:
            head, end = frame_entry(append.chunks, append.size_bytes, (append.position, self._position), 0)
            chunks += (head, *append.chunks, end)
        write_chunks_synced(self._fd, chunks, 0)
        self._syncs.add(0.0)


class Node:
    """A node with its loop, its connections, and files of large messages in memory."""

    def __init__(self, world: World, name: str, more: str = "") -> None:
        options = parse(NODE.format(name=name) + more)
        if not isinstance(options, BrokerOptions):
            raise Unexpected(f"options of a node: {options}")
        self.world = world
        self.files: dict[int, bytearray] = {}
        log = Log(sys.stderr, LogShape.PLAIN, Level.ERROR)
        self.loop = NodeLoop(cast(Any, world), log, options.journal.disk_pending_bytes_max)
        self.connections = Connections(self.loop)
        self.disk = Disk(self.loop)
        number = len(world.nodes)
        users = {USER: make_verifier(PASSWORD, b"s" * 16, ("client",))}
        setup = Setup(
            f"{number:08d}-0000-4000-8000-000000000000", users, perform, b"secret",
            cluster_key=derive_key("a secret of the cluster"), boot_id=f"{number:032x}",
        )  # fmt: skip
        self.broker = Broker(options, Recovered(), setup, At(world.now_ns, world.wall_ns() // NS_PER_MS))
        world.nodes.append(self)

        self._start()

    def _start(self) -> None:
        handlers: dict[type[Any], Callable[[Any], None]] = {
            Send: self.connections.send,
            CloseConnection: self.connections.close,
            PauseReading: self.connections.pause_reading,
            Connect: self._connect,
            Derive: self._derive,
            DeleteJournalSegment: lambda effect: self.loop.post(Done(effect.id)),
            WriteLarge: self._write,
            FinishLarge: self._write,
            ReadLarge: self._read,
            DeleteLarge: self._delete,
        }
        for kind in (AdminReply, DelayStop, JoinGroup, LoadConfiguration, Probe, ReadPage, RelayRecord, SendDatagram):
            handlers[kind] = self._unexpected
        self.loop.start(self.broker, self.disk, handlers)

    def _unexpected(self, effect: Effect) -> None:
        raise Unexpected(f"no training asks for this: {effect}")

    def _derive(self, effect: Derive) -> None:
        derived = hashlib.pbkdf2_hmac(effect.hash_name, effect.password, effect.salt, effect.iterations)
        self.loop.post(Done(effect.id, derived))

    def _write(self, effect: WriteLarge | FinishLarge) -> None:
        file = self.files.setdefault(effect.file, bytearray())
        data = b"".join(effect.chunks)
        file[effect.offset : effect.offset + len(data)] = data
        self.loop.post(Done(effect.id))

    def _read(self, effect: ReadLarge) -> None:
        piece = bytes(self.files[effect.file][effect.offset : effect.offset + effect.size_bytes])
        self.loop.post(Done(effect.id, piece))

    def _delete(self, effect: DeleteLarge) -> None:
        del self.files[effect.file]

    def _connect(self, effect: Connect) -> None:
        far = self.world.nodes[effect.host == "127.0.0.2"]
        dialled = self.connections.outgoing(effect.conn)
        accepted = far.connections.accepted(ListenerOrigin("cluster", "127.0.0.1:40000", True), lambda: None)
        dialled.connection_made(cast(Any, Transport(self.world, accepted.data_received)))
        accepted.connection_made(cast(Any, Transport(self.world, dialled.data_received)))


@contextmanager
def running() -> Iterator[World]:
    """A new world, whose time and loop are those of the process meanwhile."""
    world = World()
    with CLOCK.told_by(world.monotonic_ns, world.wall_ns), mock.patch.object(os, "urandom", entropy):
        asyncio._set_running_loop(cast(Any, world))
        try:
            yield world
        finally:
            asyncio._set_running_loop(None)


def entropy(size: int) -> bytes:
    return b"e" * size
