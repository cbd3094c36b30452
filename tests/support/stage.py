"""One node, its disk and its clients in memory: nothing moves unless the test moves it, and nothing is random.

    stage = Stage(options_with(limits={"link_credit": 2}))
    talker = stage.connect("c1")
    stage.run()

The node is the real one below `io/`; the disk's bytes are those of the journal, so a crash and a start go through
recovery. What was appended and not synced is lost in a crash.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, assert_never

from mqbroker.admin.operations import perform
from mqbroker.amqp import events as told
from mqbroker.amqp import sasl
from mqbroker.amqp.certificate import Certificate
from mqbroker.amqp.connection import Connection
from mqbroker.amqp.limits import ConnectionLimits
from mqbroker.amqp.session import Session
from mqbroker.base.notice import Notice
from mqbroker.base.time import NS_PER_MS, At
from mqbroker.config.declarations.options import default_listener, defaults
from mqbroker.config.slices import AddressMatch, AddressSettingsOptions, BrokerOptions, SecuritySettings
from mqbroker.config.users import UserVerifier
from mqbroker.core.address.settings import Settings
from mqbroker.core.paging.paging import leave_of
from mqbroker.journal.append import Append
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
from mqbroker.wire.performatives import Open

from tests.sim.disk import Faults, SimDisk
from tests.sim.large_files import LargeEffect, SimLargeFiles
from tests.support.derived import key_of

CLIENT_LIMITS = ConnectionLimits(65536, 65536, 60_000, 64, 1024, 1 << 30)
ROUNDS_MAX = 10_000
JOURNAL_FILE_BYTES = 1 << 20  # a tenth of the default: the simulated disk has each file in memory, with its zeros
PERMISSIONS = tuple(each.name for each in fields(SecuritySettings) if each.name != "match")


def options_with(listener: Mapping[str, Any] | None = None, **tables: Mapping[str, Any]) -> BrokerOptions:
    """Defaults with changes by table; one listener that lets everybody in.

    `address_settings` maps patterns to what they say, `security_settings` to the roles of each permission.
    """
    base = defaults()
    base = replace(base, journal=replace(base.journal, journal_file_size_bytes=JOURNAL_FILE_BYTES))
    matches = tables.pop("address_settings", {})
    granted = tables.pop("security_settings", {})
    changed: dict[str, Any] = {name: replace(getattr(base, name), **values) for name, values in tables.items()}
    said = tuple(AddressMatch(pattern, values) for pattern, values in matches.items())
    changed["address_settings"] = AddressSettingsOptions(base.address_settings.built_in, said)
    changed["security_settings"] = tuple(
        SecuritySettings(match, **{name: tuple(roles.get(name, ())) for name in PERMISSIONS})
        for match, roles in granted.items()
    )
    entry = replace(default_listener(), **{"sasl_mechanisms": ("ANONYMOUS",), **(listener or {})})
    return replace(base, listeners=(entry,), **changed)


class Talker:
    """A client: the other half of our AMQP machine. `lines` is what happened to it, for people."""

    def __init__(self, stage: Stage, name: str, conn: int, login: sasl.SaslClient, open_: Open) -> None:
        self.stage = stage
        self.name = name
        self.conn = conn
        self.connection = Connection(CLIENT_LIMITS, client=login)
        self.session: Session | None = None
        self.events: list[Any] = []
        self.is_closed = False
        self.is_reading = True
        self._unread: list[bytes] = []
        self._open = open_

    def receive(self, data: bytes) -> None:
        """Bytes from the node; kept for later where this client does not read."""
        if not self.is_reading:
            self._unread.append(data)
            return
        self.connection.receive(data, self._handle)
        self._handle()

    def read_again(self) -> None:
        """Take in what came while it did not read."""
        self.is_reading = True
        pieces, self._unread = self._unread, []
        for piece in pieces:
            self.receive(piece)

    def _handle(self) -> None:
        while self.connection.events:
            events, self.connection.events = self.connection.events, []
            for event in events:
                self._on(event)

    def _on(self, event: Any) -> None:
        self.events.append(event)
        if isinstance(event, told.SaslDerive):
            self.connection.derived(key_of(event), self._handle)
        elif isinstance(event, told.LoggedIn):
            self.connection.open(self._open)
        elif isinstance(event, told.Opened):
            self.session = self.connection.begin()
        elif isinstance(event, told.Dead):
            self.is_closed = True
        self.stage.heard(self, event)

    def take_out(self) -> bytes:
        """What it wants to send."""
        for session in self.connection.sessions:
            session.flush()
        out = b"".join(bytes(chunk) for chunk in self.connection.out)
        self.connection.out = []
        return out


class Stage:
    """See the module's docstring."""

    def __init__(
        self,
        options: BrokerOptions | None = None,
        users: dict[str, UserVerifier] | None = None,
        identity: Mapping[str, Any] | None = None,
    ) -> None:
        self.options = options or options_with()
        self.users = users or {}
        self.file_faults: list[str] = []  # what is wrong with the files of options and users
        self.identity = dict(identity or {})  # changes of Setup
        self.network_trouble = ""  # why nothing can be joined or sent, where that is so
        self.places_there: set[str] = set()  # where probes of connection routers find somebody
        self.delays: list[DelayStop] = []
        self.network_effects: list[JoinGroup | SendDatagram | RelayRecord] = []
        rng = random.Random(0)
        faults = Faults(write_error=0.0, sync_error=0.0)
        self.disk = SimDisk(rng, b"stage".ljust(16, b"\0"), self.options.journal.journal_file_size_bytes, faults)
        self.large_files = SimLargeFiles(rng)
        self.is_large_held = False  # the files of large messages are slow
        self.large_gathered_max = 0  # what a read brings of them is written at once
        self.large_effects: list[LargeEffect] = []
        self.now_ns = NS_PER_MS
        self.clock_ms = 1_700_000_000_000  # what its clock said when that was 0
        self.is_disk_held = False
        self.is_up = False
        self.halted: int | None = None
        self.pages_read = 0
        self.are_pages_held = False  # the disk is slow to read
        self.page_reads: list[ReadPage] = []
        self.pending: list[Append] = []
        self.appends: list[Append] = []
        self.notices: list[Notice] = []
        self.batches: list[Batch] = []
        self.talkers: dict[int, Talker] = {}
        self.sent: dict[int, bytearray] = {}  # bytes to connections that have no Talker
        self.closed: dict[int, CloseConnection] = {}
        self.paused: dict[int, bool] = {}
        self.derives: list[Derive] = []
        self.replies: dict[int, AdminReply] = {}
        self._inputs: list[given.Input] = []
        self._ids = 0
        self.start()

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Boot from the disk."""
        self.page_reads.clear()
        recovered = self.disk.load(
            leave_of(Settings(self.options.address_settings), self.options.limits.global_max_size_bytes),
            self.options.journal.journal_on_damage,
        )
        setup = Setup("stage", self.users, perform, b"secret", self.large_files.sizes)
        setup = replace(setup, **self.identity)
        self.broker = Broker(self.options, recovered, setup, self.at)
        self.broker.large.gathered_bytes_max = self.large_gathered_max
        self.is_up, self.halted = True, None
        self.step()
        self.run()

    def crash(self) -> None:
        """The process is gone; what was not synced is lost, all connections are cut."""
        self.is_up = False
        self.pending.clear()
        self.large_effects.clear()
        self.large_files.crash(power_cut=True)
        self._inputs.clear()
        for talker in list(self.talkers.values()):
            self._cut(talker)

    def stop(self) -> None:
        """A graceful stop, to its end where the disk is not held."""
        self.give(given.Stop())
        self.run()

    def _cut(self, talker: Talker) -> None:
        self.talkers.pop(talker.conn, None)
        talker.connection.lost()
        talker._handle()

    # -- time and disk -------------------------------------------------------------------------------------------------

    @property
    def at(self) -> At:
        """Now."""
        return At(self.now_ns, self.clock_ms + self.now_ns // NS_PER_MS)

    def wait(self, duration_ms: int) -> None:
        """Time passes, stopping wherever the node asked to be woken."""
        end_ns = self.now_ns + duration_ms * NS_PER_MS
        for _ in range(ROUNDS_MAX):
            wake_ns = self.broker.timers.wake_at_ns
            if wake_ns is None or wake_ns > end_ns:
                break
            self.now_ns = max(self.now_ns, wake_ns)
            self.step()
            self.run()
        self.now_ns = end_ns
        self.step()
        self.run()

    def sync(self) -> None:
        """The disk catches up."""
        while self.pending:
            group = [append for append in self.pending if append.segment == self.pending[0].segment]
            del self.pending[: len(group)]
            self.give(given.Synced(self.disk.commit(group)))

    def read_pages(self, count: int = 1 << 30) -> None:
        """So many of the reads that were asked for are done."""
        while self.page_reads and count:
            count -= 1
            effect = self.page_reads.pop(0)
            self.give(given.Done(effect.id, self.disk.read(effect.slices)))

    def work_on_files(self, count: int = 1 << 30) -> None:
        """The thread for large messages does so many things."""
        while self.large_effects and count:
            count -= 1
            effect = self.large_effects.pop(0)
            result, why = self.large_files.carry_out(effect)
            self.give(given.Failed(effect.id, why) if why else given.Done(effect.id, result))

    # -- connections ---------------------------------------------------------------------------------------------------

    def connect(self, name: str, login: sasl.SaslClient | None = None, open_: Open | None = None) -> Talker:
        """A client connects, logs in, opens and begins a session."""
        conn = self.accept()
        login = login or sasl.SaslClient(None, "", b"n" * 32)
        talker = Talker(self, name, conn, login, open_ or Open(container_id=name, max_frame_size=65536))
        self.talkers[conn] = talker
        del self.sent[conn]
        self.run()
        return talker

    def accept(self, *, is_loopback: bool = True, certificate: Certificate | None = None, peer: str = "") -> int:
        """A bare connection: its bytes go by `talk`, what comes is in `sent`."""
        self._ids += 1
        self.sent[self._ids] = bytearray()
        name = self.options.listeners[0].name
        is_tls, peer = certificate is not None, peer or f"peer-{self._ids}"
        self.give(given.ConnectionAccepted(self._ids, name, peer, b"e" * 32, is_loopback, is_tls, certificate))
        return self._ids

    def talk(self, conn: int, data: bytes) -> bytes:
        """Bytes of a bare connection; what the node says to them."""
        before = len(self.sent[conn])
        self.give(given.BytesReceived(conn, data))
        self.run()
        return bytes(self.sent[conn][before:])

    def drop(self, talker: Talker) -> None:
        """The connection breaks."""
        self.give(given.Closed(talker.conn, "reset"))
        self._cut(talker)
        self.run()

    def drop_bare(self, conn: int) -> None:
        """A bare connection breaks."""
        self.give(given.Closed(conn, "reset"))
        self.run()

    def heard(self, talker: Talker, event: Any) -> None:
        """Something happened to a client; for those who write it down."""

    # -- admin ---------------------------------------------------------------------------------------------------------

    def admin(self, operation: str, /, session: int = 1, **arguments: Any) -> Any:
        """The result of an operation, its error as a dictionary, None where the answer is still due."""
        request = self.ask(operation, session, **arguments)
        reply = self.replies.get(request)
        if reply is None:
            return None
        return reply.error if reply.error is not None else reply.result

    def ask(self, operation: str, session: int = 1, **arguments: Any) -> int:
        """Give a request; its id, under which `replies` has the answer once it is there."""
        self._ids += 1
        self.give(given.AdminRequest(self._ids, session, operation, arguments))
        self.run()
        return self._ids

    def configuration(self, effect_id: int) -> given.Done | given.Failed:
        """What a reload finds in the files."""
        if self.file_faults:
            return given.Failed(effect_id, "\n".join(self.file_faults))
        return given.Done(effect_id, given.Configuration(self.options, self.users))

    # -- steps ---------------------------------------------------------------------------------------------------------

    def give(self, item: given.Input) -> None:
        """One input for the next step."""
        self._inputs.append(item)

    def run(self) -> None:
        """Until nobody has anything to say (the disk answers at once unless it is held)."""
        for _ in range(ROUNDS_MAX):
            for talker in list(self.talkers.values()):
                out = talker.take_out()
                if out and self.is_up:
                    self.give(given.BytesReceived(talker.conn, out))
            if not self.is_disk_held:
                self.sync()
            if not self.is_large_held:
                self.work_on_files()
            if not self._inputs or not self.is_up:
                return
            self.step()
        raise AssertionError("the conversation does not end")

    def step(self) -> Batch:
        """One step of the node and all that it asks for, and more steps as long as it wants them."""
        for _ in range(ROUNDS_MAX):
            batch = self.turn()
            if not batch.more or not self.is_up:
                return batch
        raise AssertionError("the node always wants one step more")

    def turn(self) -> Batch:
        """One step of the node and all that it asks for."""
        inputs, self._inputs = self._inputs, []
        batch = self.broker.step(inputs, self.at)
        self.batches.append(batch)
        self.notices += batch.notices
        if batch.append is not None:
            self.pending.append(batch.append)
            self.appends.append(batch.append)
        for effect in batch.effects:
            self._carry_out(effect)
        return batch

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Send(conn, chunks):
                data = b"".join(bytes(chunk) for chunk in chunks)
                if conn in self.talkers:
                    self.talkers[conn].receive(data)
                elif conn in self.sent:
                    self.sent[conn] += data
            case CloseConnection(conn, _):
                self.closed[conn] = effect
                self.give(given.Closed(conn, "closed here"))
                if conn in self.talkers:
                    self._cut(self.talkers[conn])
            case PauseReading(conn, is_paused):
                self.paused[conn] = is_paused
            case Derive():
                self.derives.append(effect)
            case AdminReply(request_id, _, _):
                assert request_id not in self.replies, "answered twice"
                self.replies[request_id] = effect
            case DeleteJournalSegment(effect_id, segment):
                self.disk.delete(segment)
                self.give(given.Done(effect_id))
            case ReadPage():
                self.pages_read += 1
                self.page_reads.append(effect)
                if not self.are_pages_held:
                    self.read_pages()
            case WriteLarge() | FinishLarge() | ReadLarge() | DeleteLarge():
                self.large_effects.append(effect)
            case LoadConfiguration(effect_id):
                self.give(self.configuration(effect_id))
            case JoinGroup(effect_id) | SendDatagram(effect_id):
                self.network_effects.append(effect)
                trouble = self.network_trouble
                self.give(given.Failed(effect_id, trouble) if trouble else given.Done(effect_id))
            case RelayRecord():
                self.network_effects.append(effect)
            case Probe(effect_id, host, port):
                is_there = f"{host}:{port}" in self.places_there
                self.give(given.Done(effect_id) if is_there else given.Failed(effect_id, "nobody is there"))
            case DelayStop():
                self.delays.append(effect)
            case Halt(code):
                self.is_up, self.halted = False, code
            case Connect():
                raise AssertionError("a stage is one node; with several it is a ClusterStage")
            case _:
                assert_never(effect)
