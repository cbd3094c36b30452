"""A node with its world around it: assembles the loop, the sockets and the threads, runs until the node is done.

Owns the order of start and end. Invariants: READY goes out only after recovery, with every listener bound; a stop is
graceful once and hard the second time or when its time is over; whatever ends the node, no transport is flushed after
a failure. Source: docs/ARCHITECTURE.md, daemon(7), sd_notify(3).
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from mqbroker.base.errors import ConfigFault
from mqbroker.config.slices import BrokerOptions, ListenerOptions
from mqbroker.core.queue.large import DIRECTORY
from mqbroker.core.selector import grammar
from mqbroker.io.discovery.discovery import DiscoveryEndpoints
from mqbroker.io.disk.large_directory import LargeDirectory
from mqbroker.io.disk.large_messages import LargeMessageFiles
from mqbroker.io.disk.space_watch import SpaceWatch
from mqbroker.io.loop.collector import Collector
from mqbroker.io.loop.log import Log
from mqbroker.io.loop.loop import EXIT_HARD_STOP, AppendQueue, Core, Handlers, NodeLoop
from mqbroker.io.loop.pool import DerivePool
from mqbroker.io.requests.admin_socket import AdminServer
from mqbroker.io.requests.endpoints import Endpoints, Sources, Vital
from mqbroker.io.requests.http import HttpConnection, HttpServer
from mqbroker.io.service_manager import Notifier, StopDelay, Watchdog
from mqbroker.io.sockets.certificate_watch import CertificateWatch
from mqbroker.io.sockets.connections import Connections
from mqbroker.io.sockets.connectors import Connectors
from mqbroker.io.sockets.listeners import Acceptor, ListeningPlace, open_listener
from mqbroker.io.sockets.probes import Probes
from mqbroker.node.amqp.peers.containment import place_of
from mqbroker.node.values.effects import (
    AdminReply,
    CloseConnection,
    Connect,
    DelayStop,
    DeleteJournalSegment,
    DeleteLarge,
    Derive,
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
from mqbroker.node.values.inputs import (
    CertificateExpiry,
    ClusterKeyChanged,
    Configuration,
    Done,
    Failed,
    OptionsChanged,
    Slipped,
    Stop,
    UsersChanged,
)

# After Halt: what is still in the buffers of sockets (last frames, the answer to an admin's stop) has this long to
# leave.
FAREWELL_MS = 1000


class DiskThread(Vital, AppendQueue, Protocol):
    """What a server needs of the disk thread beyond appends."""

    def delete(self, effect: DeleteJournalSegment) -> None: ...

    def read(self, effect: ReadPage) -> None: ...


@dataclass(slots=True)
class Reloaded:
    """What a reload read again. None: that part is faulty. `faults` are of both, and have been logged."""

    users: dict[str, Any] | None
    options: BrokerOptions | None
    faults: tuple[str, ...] = ()
    cluster_key: bytes | None = None


# Called with whether the files that options name are looked into as well.
Reload = Callable[[bool], Reloaded]
# Called after each reload with digests of the files that listeners have in force.
Keep = Callable[[Mapping[str, str]], None]


class Server:
    """One node. Call `open` first, then `run`; both inside the running loop."""

    def __init__(self, options: BrokerOptions, log: Log, notifier: Notifier) -> None:
        self._loop = asyncio.get_running_loop()
        self._options = options
        self._log = log
        self._notifier = notifier
        self.node = NodeLoop(self._loop, log, options.journal.disk_pending_bytes_max, options.node.busy_poll_us)
        self._connections = Connections(self.node)
        self._connectors = Connectors(self.node, self._connections, options.listeners)
        self._admin = AdminServer(options.node.admin_socket, self.node, log)
        self._pool = DerivePool(self.node.post_from_thread)
        directory = LargeDirectory(Path(options.node.data_directory) / DIRECTORY)
        self.large = LargeMessageFiles(directory, self.node.post_from_thread, self.node.storage_failed)
        self._discovery = DiscoveryEndpoints(options, self.node, self._loop)
        self._probes = Probes(self.node)
        self._acceptors: list[Acceptor] = []
        self._space = SpaceWatch(self.node.post, options.node.data_directory, options.journal.min_disk_free_bytes)
        self._collector = Collector(log, lambda: self.node.steps_ns_total)
        self._certificates = CertificateWatch(self._endings, self.node.post, log)
        self._http: HttpServer | None = None
        self._endpoints: Endpoints | None = None
        self._is_stopping = self._is_ending = False  # it was asked to, and only the end is left
        self._delay = StopDelay(self._loop, notifier)
        self._may_wait = options.scale_down.enabled  # as the core has it: no reload changes that
        self._reload: Reload | None = None
        self._keep: Keep = lambda files: None

    async def open(self) -> None:
        """Bind everything. Raises ConfigFault for the first that fails; nothing is accepted before `run`."""
        for number, listener in enumerate(self._options.listeners):
            sock = open_listener(listener, f"listeners.{number}")
            self._acceptors.append(Acceptor(sock, listener, self._connections, self._log))
        await self._admin.start()
        metrics = self._options.metrics
        if metrics.port:
            place = ListeningPlace("metrics", metrics.local_bind_address, metrics.port, metrics.connections_max)
            self._http = HttpServer(open_listener(place, "metrics"), metrics.connections_max)

    async def run(self, core: Core, disk: DiskThread, reload: Reload, keep: Keep) -> int:
        """Run until the node halts. The result is the exit code of the process."""
        self._reload, self._keep = reload, keep
        self._loop.set_exception_handler(self._on_exception)
        self.node.start(core, disk, self._handlers(disk))
        watchdog = Watchdog(self._loop, self._notifier, disk.is_alive)
        self._take_signals()
        for acceptor in self._acceptors:
            acceptor.start()
        if self._http is not None:
            sources = Sources(self._options, self.node, self._admin, disk, self._acceptors)
            self._endpoints = Endpoints(sources, self._log)
            await self._http.start(self._endpoints.answer)
        self._collector.start()
        watchdog.start()
        self._space.start()
        self._log_start()
        self._certificates.look()
        # In between, by turns of the interpreter: else everybody would wait for the first selector that somebody has.
        threading.Thread(target=grammar.prepare, name="selectors", daemon=True).start()
        self._notifier.ready(f"running, {len(self._acceptors)} listeners")
        code = await self.node.ended
        await self._farewell(code)
        watchdog.stop()
        return code

    def close(self) -> None:
        """Give back what `open` took. Safe to call twice and after a failed `open`."""
        for acceptor in self._acceptors:
            acceptor.stop()
        self._admin.stop()
        if self._http is not None:
            self._http.stop()
        if self._endpoints is not None:
            self._endpoints.close()
        self._discovery.close()
        self._probes.close()
        self._space.stop()
        self._collector.stop()
        self._certificates.stop()
        self._delay.stop()
        self._pool.close()
        self.large.close()

    def stop(self, why: str) -> None:
        """Graceful the first time, hard the second time; where messages go to another node first, without the rest of
        them the second time, and hard the third time."""
        if self._is_ending:
            self._hard_stop(f"{why} during the stop")
            return
        self._log.info("stopping", why=why)
        self.node.post(Stop())
        if self._is_stopping or not self._may_wait:
            self._end()
        self._is_stopping = True

    def _delay_stop(self, effect: DelayStop) -> None:
        """The core says whether the stop waits. Clients that come meanwhile are told where to go."""
        if effect.is_over:
            self._end()
        elif not self._is_ending:
            self._is_stopping = True
            self._delay.start()

    def _end(self) -> None:
        if self._is_ending:
            return
        self._is_stopping = self._is_ending = True
        self._delay.stop(self._options.node.stop_timeout_ms)
        self._notifier.stopping("stopping")
        for acceptor in self._acceptors:
            acceptor.stop()
        timeout_ms = self._options.node.stop_timeout_ms
        self._loop.call_later(timeout_ms / 1000, self._hard_stop, f"not done after {timeout_ms} ms")

    def reload(self) -> None:
        """By a signal: nobody waits for an answer, so what is good is taken, and the rest stays as it is."""
        if self._reload is None or self._is_stopping:
            return
        self._notifier.reloading(time.monotonic_ns())
        reloaded = self._reload(False)
        if reloaded.cluster_key:
            self.node.post(ClusterKeyChanged(reloaded.cluster_key))
        if reloaded.options is not None:
            self.node.post(OptionsChanged(reloaded.options, reloaded.users))
        elif reloaded.users is not None:
            self.node.post(UsersChanged(reloaded.users))
        self._take_options(reloaded.options or self._options)  # certificates are read again even so
        self._notifier.ready(f"running, {len(self._acceptors)} listeners")
        self._log.info("reloaded", users=int(reloaded.users is not None), options=int(reloaded.options is not None))

    def load_configuration(self, effect: LoadConfiguration) -> None:
        """By an administrator: all or nothing, and the answer says which."""
        assert self._reload is not None
        read = self._reload(True)
        if read.options is None or read.users is None or read.faults:
            self.node.post(Failed(effect.id, "\n".join(read.faults)))
            return
        self._take_options(read.options)
        if read.cluster_key:
            self.node.post(ClusterKeyChanged(read.cluster_key))
        self.node.post(Done(effect.id, Configuration(read.options, read.users)))
        self._log.info("reloaded", users=1, options=1)

    def _take_options(self, options: BrokerOptions) -> None:
        """Only what is declared reloadable; the rest waits for a restart, as `mqbroker config diff` says."""
        self._options = options
        self._log.change(options.node.log_format)
        self._connectors.change(options.listeners)
        by_name = {listener.name: listener for listener in options.listeners}
        for acceptor in self._acceptors:
            listener: ListenerOptions | None = by_name.get(acceptor.name)
            if listener is None:
                continue
            try:
                acceptor.change(listener)
            except ConfigFault as fault:
                self._log.error("reload-refused", listener=acceptor.name, why=str(fault))
        if self._http is not None:
            self._http.change(options.metrics.connections_max)
        self._certificates.look()
        self._keep({file: digest for acceptor in self._acceptors for file, digest in acceptor.files.items()})

    def _endings(self) -> list[CertificateExpiry]:
        return [ending for acceptor in self._acceptors for ending in acceptor.endings]

    def _handlers(self, disk: DiskThread) -> Handlers:
        return {
            Send: self._connections.send,
            CloseConnection: self._connectors.close,
            PauseReading: self._connections.pause_reading,
            Connect: self._connectors.connect,
            Derive: self._pool.submit,
            DeleteJournalSegment: disk.delete,
            ReadPage: disk.read,
            WriteLarge: self.large.write,
            FinishLarge: self.large.finish,
            ReadLarge: self.large.read,
            DeleteLarge: self.large.delete,
            LoadConfiguration: self.load_configuration,
            JoinGroup: self._discovery.join,
            SendDatagram: self._discovery.send,
            RelayRecord: self._discovery.relay,
            Probe: self._probes.probe,
            AdminReply: self._admin.reply,
            DelayStop: self._delay_stop,
        }

    def _take_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self.stop, signal.Signals(number).name)
        self._loop.add_signal_handler(signal.SIGHUP, self.reload)

    def _hard_stop(self, why: str) -> None:
        if not self.node.ended.done():
            self._log.error("hard-stop", why=why, exit_code=EXIT_HARD_STOP)
            self.node.end(EXIT_HARD_STOP)

    async def _farewell(self, code: int) -> None:
        """After a graceful halt let the last frames leave; after a failure nothing may leave any more."""
        for acceptor in self._acceptors:
            acceptor.stop()
        self._connectors.abort_all()
        if not self._is_stopping:
            self._notifier.stopping("stopping")
        if code != 0:
            self._connections.abort_all("the node failed")
            return
        self._connections.close_all(FAREWELL_MS)
        self._admin.stop()
        deadline_s = self._loop.time() + FAREWELL_MS / 1000
        # At least one turn of the loop: uvloop writes at the end of a turn.
        await asyncio.sleep(0.01)
        while len(self._connections) and self._loop.time() < deadline_s:
            await asyncio.sleep(0.01)

    def _log_start(self) -> None:
        for acceptor in self._acceptors:
            address, port = acceptor.address
            self._log.info("listener-started", listener=acceptor.name, address=address, port=port)
        if self._http is not None:
            address, port = self._http.address
            self._log.info("metrics-started", address=address, port=port)
        self._log.info("ready", node=self._options.node.name, loop=type(self._loop).__module__.partition(".")[0])

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What escapes a callback. Trouble of the system's with one socket is the peer's; anything else is our bug, and
        ends the node but where it served a stranger to whom nothing belongs but that connection."""
        error = context.get("exception")
        if error is None or isinstance(error, OSError):
            self._log.warning("loop-trouble", what=str(context.get("message")), why=str(error))
            return
        transport: Any = context.get("transport")
        what = served_by(transport)
        if not what:
            self.node.bug(error)
            return
        transport.abort()
        peer = transport.get_extra_info("peername") or ("gone",)
        source = ":".join(map(str, peer[:2]))
        self.node.post(Slipped(what, source, type(error).__name__, place_of(error)))


def served_by(transport: Any) -> str:
    """What whoever is at the other end asks for; empty where more than that connection may be broken."""
    protocol = None if transport is None else transport.get_protocol()
    if isinstance(protocol, HttpConnection):
        return "monitoring"
    return "gossip" if isinstance(protocol, asyncio.StreamReaderProtocol) else ""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop where it is installed (7-28 % more messages), else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
