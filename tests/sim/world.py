"""The world: one heap of events, N nodes, their disks, and the pipes between clients and nodes.

Everything random comes from one seeded generator, everything timed from one heap; so a seed is a history. `trace` is a
hash over all that nodes sent and wrote.
"""

from __future__ import annotations

import hashlib
import heapq
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from mqbroker.admin.operations import perform
from mqbroker.base.time import NS_PER_MS, At
from mqbroker.config.declarations.options import default_listener, defaults
from mqbroker.config.slices import BrokerOptions
from mqbroker.config.users import UserVerifier, make_verifier
from mqbroker.core.address.settings import Settings
from mqbroker.core.paging.paging import leave_of
from mqbroker.journal.append import Append
from mqbroker.journal.places import Slice
from mqbroker.node.broker.broker import Broker, Setup
from mqbroker.node.values import inputs as given
from mqbroker.node.values.batch import Batch
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
    Halt,
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

from tests.sim.disk import DiskFailed, Faults, SimDisk
from tests.sim.large_files import LargeEffect, SimLargeFiles
from tests.sim.ledger import Ledger
from tests.support.derived import key_of

if TYPE_CHECKING:
    from tests.sim.network import Network, Wire

MARKER = re.compile(rb"(node\d+-q\d+-p\d+-\d+)\|")
COMPARED_EVERY = 40  # steps of the world, where nodes are observed
SLOW_STEP_MS = 0.05  # of one step, where it is not taken for nothing
PASSWORD = "simulated-password"
USERS: dict[str, UserVerifier] = {"sim": make_verifier(PASSWORD, b"0123456789abcdef", ("client",))}


def options_for(file_size: int, memory: int, credit: int) -> BrokerOptions:
    """Small limits, so that a short history reaches them; nothing pages (`paging` says otherwise)."""
    base = defaults()
    built_in = replace(base.address_settings.built_in, address_full_policy="BLOCK")
    return replace(
        base,
        address_settings=replace(base.address_settings, built_in=built_in),
        listeners=(default_listener(),),
        journal=replace(base.journal, journal_file_size_bytes=file_size, journal_compact_min_files=3),
        limits=replace(base.limits, global_max_size_bytes=memory, link_credit=credit),
    )


def with_large(options: BrokerOptions, size_min: int, frame_size: int, kept_max: int) -> BrokerOptions:
    """Messages become large early, and come in many frames; `kept_max` bytes of one stay in memory."""
    limits = replace(
        options.limits, amqp_min_large_message_size_bytes=size_min, large_message_in_memory_max_size_bytes=kept_max
    )
    listeners = tuple(replace(each, max_frame_size_bytes=frame_size) for each in options.listeners)
    return replace(options, limits=limits, listeners=listeners)


def patient(options: BrokerOptions) -> BrokerOptions:
    """Rollbacks are many, and none of them makes a message a dead letter, which nobody would look for."""
    settings = options.address_settings
    built_in = replace(settings.built_in, max_delivery_attempts=-1)
    return replace(options, address_settings=replace(settings, built_in=built_in))


def paging(options: BrokerOptions, rng: random.Random) -> BrokerOptions:
    """Addresses that are full after a few messages and page what is too much, some in pages of one message."""
    settings = options.address_settings
    built_in = replace(
        settings.built_in, address_full_policy="PAGE", max_size_messages=rng.choice((-1, 2, 10, 40)),
        max_size_bytes=rng.choice((-1, 400, 5_000)), page_size_bytes=rng.choice((1, 1_000, 10_000)),
    )  # fmt: skip
    return replace(options, address_settings=replace(settings, built_in=built_in))


class World:
    """Clock, heap, trace."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now_ns = NS_PER_MS
        self.wall_skew_ms = 1_700_000_000_000
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._hash = hashlib.sha256()
        self.steps = 0

    @property
    def at(self) -> At:
        """Now, for a step."""
        return At(self.now_ns, self.wall_skew_ms + self.now_ns // NS_PER_MS)

    def after(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Do something later."""
        self._count += 1
        heapq.heappush(self._heap, (self.now_ns + int(delay_ms * NS_PER_MS), self._count, action))

    def run(self, until_ms: int, done: Callable[[], bool] = lambda: False) -> None:
        """Let time pass, at most until then."""
        while self._heap and self._heap[0][0] <= until_ms * NS_PER_MS and not done():
            self.now_ns, _, action = heapq.heappop(self._heap)
            action()
        if not done():
            self.now_ns = max(self.now_ns, until_ms * NS_PER_MS)

    def note(self, *parts: object) -> None:
        """Add to the trace."""
        self._hash.update(repr(parts).encode())

    @property
    def trace(self) -> str:
        """A digest of the history so far."""
        return self._hash.hexdigest()


@dataclass(slots=True)
class Pipe:
    """One connection: what is under way in both directions, and who reads at the client's end."""

    conn: int
    to_client: Callable[[bytes], None]
    closed: Callable[[], None]
    is_open: bool = True
    is_paused: bool = False
    backlog: int = 0
    is_blocked: bool = False
    inbound_ns: int = 0
    outbound_ns: int = 0
    unread: list[bytes] | None = None
    not_read: list[bytes] = field(default_factory=list)  # what the node has not read yet


class SimNode:
    """A node with its simulated world. `epoch` counts its crashes."""

    BLOCK_AT = 256 * 1024

    def __init__(self, world: World, name: str, options: BrokerOptions, faults: Faults) -> None:
        self.world = world
        self.name = name
        self.options = options
        self.epoch = 0
        self.skew_ms = 0  # of its wall clock
        self.is_up = self.is_frozen = False
        self.slowness = 1.0  # how much longer than usual its steps and its disk take
        self.disk = SimDisk(world.rng, name.encode().ljust(16, b"\0"), options.journal.journal_file_size_bytes, faults)
        self.large_files = SimLargeFiles(world.rng)
        self.large_sizes: tuple[int, ...] = ()  # bytes of messages that clients send; none: as they do otherwise
        self.large_gathered_max = 0
        self._large_effects: list[LargeEffect] = []
        self._is_working = False
        self.pipes: dict[int, Pipe] = {}
        self.observers: list[Callable[[int, bytes], None]] = []  # of what is sent to each connection
        self.batch_observers: list[Callable[[Batch], None]] = []  # of what a step has decided, before any of it is done
        self.ledgers: list[Ledger] = []  # one for each process, where it is observed
        self._new_ledger: Callable[[], Ledger] | None = None
        self._answers: dict[int, Callable[[AdminReply], None]] = {}  # by request
        self.readers: dict[int, Any] = {}  # by connection: the client there, if it takes messages
        self.identity: dict[str, Any] = {}  # changes of Setup
        self.network: Network | None = None
        self.wires: dict[int, Wire] = {}  # connections with other nodes
        self.given_up: set[int] = set()  # of attempts to connect
        self._conn = 0
        self._inputs: list[given.Input] = []
        self._is_step_due = False
        self._appends: list[Append] = []
        self._is_committing = False
        self._life = 0
        self.pages_read = 0
        self.positions: dict[str, int] = {}  # message id in its body -> position of the append that stored it first
        self.published: dict[tuple[int, int], str] = {}  # (connection, delivery id) -> id of a durable message
        self.low_since_ns: int | None = None  # since then its disk is said to have little room
        self.told: set[str] = set()  # events of all notices, whatever process gave them
        self.together: dict[str, list[str]] = {}  # message of a transaction -> all durable ones of the transaction

    @property
    def unsynced(self) -> bool:
        """Whether something is on its way to the disk."""
        return bool(self._appends) or self._is_committing

    @property
    def at(self) -> At:
        """Now, as its clocks have it."""
        return At(self.world.now_ns, self.world.at.wall_ms + self.skew_ms)

    def observed(self, deaf_to: str = "") -> SimNode:
        """All processes of it that start from now on are observed."""
        self._new_ledger = partial(Ledger, deaf_to)
        return self

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Boot from whatever the disk holds, if it has the room that takes."""
        assert not self.is_up
        leave = leave_of(Settings(self.options.address_settings), self.options.limits.global_max_size_bytes)
        try:
            recovered = self.disk.load(leave)
        except DiskFailed:
            return
        self.positions = {marker: at for marker, at in self.positions.items() if at <= recovered.last_position}
        setup = Setup(self.name, USERS, perform, b"simulated", self.large_files.sizes)
        if self.identity:
            setup = replace(setup, boot_id=f"{self._life:020d}{self.identity['node_id'][-12:]}", **self.identity)
        if self._new_ledger is not None:
            self.ledgers.append(self._new_ledger())
            setup = replace(setup, observers=(self.ledgers[-1],))
        self.broker = Broker(self.options, recovered, setup, self.at)
        self.broker.large.gathered_bytes_max = self.large_gathered_max
        self.is_up = True
        self.is_frozen = False
        self.given_up.clear()
        self._life += 1
        if self.low_since_ns is not None:
            self.give(given.JournalSpace(True, 0))
        self._wake(0)

    def crash(self, *, power_cut: bool) -> None:
        """The process is gone at once, and its connections with it."""
        if not self.is_up:
            return
        self.is_up = False
        self.epoch += 1
        self.disk.crash(self._appends, power_cut=power_cut)
        while self._large_effects and self.world.rng.random() < 0.5:
            self.large_files.carry_out(self._large_effects.pop(0))
        self._large_effects.clear()
        self._is_working = False
        self.large_files.crash(power_cut=power_cut)
        self._appends.clear()
        self._inputs.clear()
        self._is_step_due = self._is_committing = False
        self._life += 1
        for pipe in list(self.pipes.values()):
            self._drop(pipe)
        for wire in list(self.wires.values()):
            wire.down(self)
        self.world.note(self.name, "crash", power_cut)

    def stop(self) -> None:
        """Ask for a graceful stop."""
        self.give(given.Stop())

    def _halt(self) -> None:
        self.is_up = False
        self._life += 1
        for pipe in list(self.pipes.values()):
            self._drop(pipe)
        for wire in list(self.wires.values()):
            wire.down(self)
        for effect in self._large_effects:
            self.large_files.carry_out(effect)
        self._large_effects.clear()
        self._is_working = False
        self._inputs.clear()
        assert not self._appends, "something comes behind the end of the journal"
        self._is_step_due = self._is_committing = False
        self.world.note(self.name, "halt")

    def slow_down(self, factor: float, duration_ms: float) -> None:
        """Its steps and its disk take so many times longer for a while."""
        self.slowness = factor
        self.world.after(duration_ms, lambda: setattr(self, "slowness", 1.0))

    def freeze(self, duration_ms: float) -> None:
        """A stalled process: nothing moves, then everything at once."""
        if not self.is_up or self.is_frozen:
            return
        self.is_frozen = True
        life = self._life
        self.world.after(duration_ms, lambda: self._thaw(life))

    def _thaw(self, life: int) -> None:
        if life == self._life:
            self.is_frozen = False
            self._wake(0)

    # -- connections ---------------------------------------------------------------------------------------------------

    def connect(self, to_client: Callable[[bytes], None], closed: Callable[[], None]) -> Pipe | None:
        """A client connects; None where nobody listens."""
        if not self.is_up:
            return None
        conn = self.next_conn()
        pipe = self.pipes[conn] = Pipe(conn, to_client, closed)
        listener = self.options.listeners[0].name
        entropy = self.world.rng.randbytes(32)
        self.give(given.ConnectionAccepted(self._conn, listener, f"client-{self._conn}", entropy))
        return pipe

    def next_conn(self) -> int:
        """An id for a connection that somebody else makes."""
        self._conn += 1
        return self._conn

    @property
    def life(self) -> int:
        """Which life of the process this is."""
        return self._life

    def write(self, pipe: Pipe, data: bytes) -> None:
        """A client sends: it arrives in pieces, in order, a little later."""
        rng = self.world.rng
        start = 0
        while start < len(data):
            size = len(data) - start if rng.random() < 0.7 else rng.randrange(1, len(data) - start + 1)
            piece = data[start : start + size]
            pipe.inbound_ns = max(pipe.inbound_ns, self.world.now_ns) + int(rng.random() * 2 * NS_PER_MS)
            self.world.after((pipe.inbound_ns - self.world.now_ns) / NS_PER_MS, partial(self._arrive, pipe, piece))
            start += size

    def _arrive(self, pipe: Pipe, data: bytes) -> None:
        if not pipe.is_open or not self.is_up:
            return
        if pipe.is_paused:
            pipe.not_read.append(data)
            return
        self.give(given.BytesReceived(pipe.conn, data))

    def _pause(self, pipe: Pipe, is_paused: bool) -> None:
        pipe.is_paused = is_paused
        if not is_paused:
            pieces, pipe.not_read = pipe.not_read, []
            for piece in pieces:
                self.give(given.BytesReceived(pipe.conn, piece))

    def reset(self, pipe: Pipe) -> None:
        """The connection breaks: whatever is under way is gone."""
        if pipe.is_open:
            self._drop(pipe)
            self.give(given.Closed(pipe.conn, "reset"))

    def stop_reading(self, pipe: Pipe) -> None:
        """The client does not read any more: what it is sent piles up at the node."""
        pipe.unread = []

    def resume_reading(self, pipe: Pipe) -> None:
        """The client reads again."""
        pieces, pipe.unread = pipe.unread or [], None
        for piece in pieces:
            self._send_on(pipe, piece)

    def _drop(self, pipe: Pipe) -> None:
        pipe.is_open = False
        self.pipes.pop(pipe.conn, None)
        pipe.closed()

    # -- administrators ------------------------------------------------------------------------------------------------

    def ask(
        self, operation: str, arguments: dict[str, Any], answered: Callable[[AdminReply], None], session: int = 1
    ) -> None:
        """A request of the admin socket; no answer comes if the node is not up, or goes down before."""
        number = len(self._answers) + 1
        self._answers[number] = answered
        self.give(given.AdminRequest(number, session, operation, arguments))

    # -- steps ---------------------------------------------------------------------------------------------------------

    def give(self, item: given.Input) -> None:
        """An input for the next step."""
        if self.is_up:
            self._inputs.append(item)
            self._wake(self.world.rng.random() * 0.2)

    def _wake(self, delay_ms: float) -> None:
        if not self._is_step_due:
            self._is_step_due = True
            life = self._life
            if self.slowness > 1:
                delay_ms = max(delay_ms, SLOW_STEP_MS)
            self.world.after(delay_ms * self.slowness, lambda: self._step(life))

    def _step(self, life: int) -> None:
        if life != self._life or not self.is_up:
            return
        self._is_step_due = False
        if self.is_frozen:
            return
        inputs, self._inputs = self._inputs, []
        batch = self.broker.step(inputs, self.at)
        self.world.steps += 1
        if self.ledgers and not self.world.steps % COMPARED_EVERY:
            self.ledgers[-1].compare(self.broker.store)
        self.told.update(notice.event for notice in batch.notices)
        if batch.append is not None:
            self.world.note(self.name, batch.append.position, [bytes(chunk) for chunk in batch.append.chunks])
            for marker in MARKER.findall(b"".join(map(bytes, batch.append.chunks))):
                self.positions.setdefault(marker.decode(), batch.append.position)
            self._appends.append(batch.append)
            self._commit_soon()
        for each in self.batch_observers:
            each(batch)
        for effect in batch.effects:
            self._carry_out(effect)
            if not self.is_up:
                return
        if batch.more:
            self._wake(0.01)
        elif batch.wake_at_ns is not None:
            life = self._life
            delay_ms = max(batch.wake_at_ns - self.world.now_ns, 0) / NS_PER_MS
            self.world.after(delay_ms, lambda: self._on_timer(life))

    def _on_timer(self, life: int) -> None:
        if life == self._life and self.is_up:
            self._wake(0)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Send(conn, chunks):
                data = b"".join(bytes(chunk) for chunk in chunks)
                self.world.note(self.name, conn, data)
                for observer in self.observers:
                    observer(conn, data)
                pipe = self.pipes.get(conn)
                if pipe is not None:
                    self._to_client(pipe, data)
                elif conn in self.wires:
                    self.wires[conn].send(self, data)
            case Connect():
                assert self.network is not None
                self.network.connect(self, effect)
            case CloseConnection(conn, _):
                pipe = self.pipes.get(conn)
                if pipe is not None:
                    self.world.after(1, lambda: self.reset(pipe))
                elif self.network is not None:
                    self.network.close(self, effect)
            case PauseReading(conn, is_paused):
                if conn in self.pipes:
                    self._pause(self.pipes[conn], is_paused)
                elif conn in self.wires:
                    self.wires[conn].pause(self, is_paused)
            case Derive(effect_id):
                self.give(given.Done(effect_id, key_of(effect)))
            case AdminReply(number):
                self._answers[number](effect)
            case DeleteJournalSegment(effect_id, segment):
                is_done = self.disk.delete(segment)
                self.give(given.Done(effect_id) if is_done else given.Failed(effect_id, "EIO on unlink"))
            case ReadPage(effect_id, slices):
                life = self._life
                self.pages_read += 1
                delay_ms = self.world.rng.random() * 3 * self.slowness
                self.world.after(delay_ms, lambda: self._read(life, effect_id, slices))
            case WriteLarge() | FinishLarge() | ReadLarge() | DeleteLarge():
                self._large_effects.append(effect)
                self._work_soon()
            case Halt():
                self._halt()
            case JoinGroup() | SendDatagram() | RelayRecord() | Probe() | LoadConfiguration() | DelayStop():
                raise AssertionError(f"no history has a world for {effect!r}")
            case _:
                assert_never(effect)

    def _read(self, life: int, effect_id: int, slices: tuple[Slice, ...]) -> None:
        if life == self._life and self.is_up:
            if self.disk.fails_to_read():
                self.crash(power_cut=False)  # what was acknowledged cannot be read, so the node ends
                return
            try:
                found = self.disk.read(slices)
            except DiskFailed:
                self.crash(power_cut=False)
                return
            self.give(given.Done(effect_id, found))

    def _to_client(self, pipe: Pipe, data: bytes) -> None:
        pipe.backlog += len(data)
        if pipe.backlog > self.BLOCK_AT and not pipe.is_blocked:
            pipe.is_blocked = True
            self.give(given.WriteBlocked(pipe.conn, True))
        if pipe.unread is not None:
            pipe.unread.append(data)
        else:
            self._send_on(pipe, data)

    def _send_on(self, pipe: Pipe, data: bytes) -> None:
        delay_ns = int(self.world.rng.random() * 2 * NS_PER_MS)
        pipe.outbound_ns = max(pipe.outbound_ns, self.world.now_ns) + delay_ns
        self.world.after((pipe.outbound_ns - self.world.now_ns) / NS_PER_MS, lambda: self._deliver(pipe, data))

    def _deliver(self, pipe: Pipe, data: bytes) -> None:
        pipe.backlog -= len(data)
        if pipe.is_blocked and pipe.backlog < self.BLOCK_AT // 4 and pipe.is_open:
            pipe.is_blocked = False
            self.give(given.WriteBlocked(pipe.conn, False))
        if pipe.is_open:
            pipe.to_client(data)

    # -- large messages ------------------------------------------------------------------------------------------------

    def _work_soon(self) -> None:
        if not self._is_working and self._large_effects:
            self._is_working = True
            life = self._life
            self.world.after(self.world.rng.choice((0.1, 0.5, 3.0)) * self.slowness, lambda: self._work(life))

    def _work(self, life: int) -> None:
        if life != self._life or not self.is_up:
            return
        self._is_working = False
        for _ in range(self.world.rng.choice((1, 3, 50))):
            if self._large_effects:
                effect = self._large_effects.pop(0)
                result, why = self.large_files.carry_out(effect)
                self.give(given.Failed(effect.id, why) if why else given.Done(effect.id, result))
        self._work_soon()

    # -- disk ----------------------------------------------------------------------------------------------------------

    def _commit_soon(self) -> None:
        if not self._is_committing and self._appends:
            self._is_committing = True
            life = self._life
            delay_ms = self.world.rng.choice((0.1, 0.2, 0.5, 3.0)) * self.slowness
            self.world.after(delay_ms, lambda: self._commit(life))

    def _commit(self, life: int) -> None:
        if life != self._life or not self.is_up:
            return
        self._is_committing = False
        group = [append for append in self._appends if append.segment == self._appends[0].segment]
        del self._appends[: len(group)]
        try:
            position = self.disk.commit(group)
        except DiskFailed:
            self.crash(power_cut=self.world.rng.random() < 0.5)
            return
        self.give(given.Synced(position))
        self._commit_soon()
