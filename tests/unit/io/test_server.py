"""Start, reload and end of a node with its world around it, by real signals to this process."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import socket
import struct
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mqbroker.base.errors import ConfigFault
from mqbroker.base.histogram import Histogram
from mqbroker.config.declarations.options import default_listener, defaults
from mqbroker.config.slices import BrokerOptions
from mqbroker.io import service_manager
from mqbroker.io.loop.log import Log, LogShape
from mqbroker.io.server import Reloaded, Server
from mqbroker.io.service_manager import Notifier
from mqbroker.io.sockets.listeners import open_listener
from mqbroker.node.values.batch import Batch
from mqbroker.node.values.effects import (
    AdminReply,
    CloseConnection,
    DelayStop,
    DeleteJournalSegment,
    Derive,
    Halt,
    LoadConfiguration,
    ReadPage,
    Send,
)
from mqbroker.node.values.inputs import (
    AdminRequest,
    ClusterKeyChanged,
    Configuration,
    ConnectionAccepted,
    Done,
    Failed,
    Input,
    OptionsChanged,
    Stop,
    UsersChanged,
)

from tests.support.broker_process import NotifySocket, free_port
from tests.support.patience import PATIENCE_S
from tests.unit.io.conftest import CountingDisk, ScriptedCore, until

EXTENDED = f"EXTEND_TIMEOUT_USEC={service_manager.EXTEND_US}"
Runner = Callable[[Any], Any]


class CountingDiskThread(CountingDisk):
    """Adds what a server needs."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted: list[DeleteJournalSegment] = []
        self.read_pages: list[ReadPage] = []
        self.appends_total = 0
        self.written_bytes_total = 0
        self.syncs = Histogram(())

    def is_alive(self) -> bool:
        return True

    def delete(self, effect: DeleteJournalSegment) -> None:
        self.deleted.append(effect)

    def read(self, effect: ReadPage) -> None:
        self.read_pages.append(effect)


class Running:
    """A server with a scripted core, its log and what it told the service manager."""

    def __init__(self, core: ScriptedCore, options: BrokerOptions, directory: Path) -> None:
        self.core = core
        self.options = options
        self.told = NotifySocket(directory / "notify")
        self.log_text = io.StringIO()
        self.reloaded = Reloaded(None, None)
        self.looked_closely: list[bool] = []
        self.kept: list[Mapping[str, str]] = []
        self.disk = CountingDiskThread()
        log = Log(self.log_text, LogShape.PLAIN)
        notifier = Notifier({"NOTIFY_SOCKET": str(self.told.path), "WATCHDOG_USEC": "60000"})
        self.server = Server(options, log, notifier)

    async def open(self) -> asyncio.Task[int]:
        await self.server.open()
        reload = self.server.run(self.core, self.disk, lambda is_whole: self.reload(is_whole), self.kept.append)
        return asyncio.create_task(reload)

    @property
    def log(self) -> str:
        return self.log_text.getvalue()

    def reload(self, is_whole: bool) -> Reloaded:
        self.looked_closely.append(is_whole)
        return self.reloaded

    async def client(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.options.listeners[0].port)


@asynccontextmanager
async def running(
    core: ScriptedCore, tables: Mapping[str, Any] | None = None, **node: Any
) -> AsyncIterator[tuple[Running, asyncio.Task[int]]]:
    with tempfile.TemporaryDirectory(prefix="mq-") as name:
        base = defaults()
        options = replace(
            base,
            node=replace(base.node, admin_socket=f"{name}/admin.sock", **node),
            listeners=(default_listener("clients", free_port()), default_listener("others", free_port())),
            **(tables or {}),
        )
        it = Running(core, options, Path(name))
        task = await it.open()
        try:
            yield it, task
        finally:
            it.server.node.end(1)
            await task
            it.server.close()
            it.told.close()


def halting(inputs: list[Input]) -> Batch:
    return Batch(effects=[Halt()] if Stop() in inputs else [])


def test_ready_is_told_when_everything_is_bound_and_the_watchdog_is_fed(run: Runner) -> None:
    async def scenario() -> None:
        async with running(ScriptedCore()) as (it, _):
            await until(lambda: "READY=1" in it.told.drain())
            for listener in it.options.listeners:
                socket.create_connection(("127.0.0.1", listener.port)).close()
            socket.socket(socket.AF_UNIX).connect(it.options.node.admin_socket)
            await until(lambda: it.told.drain().count("WATCHDOG=1") >= 3)
            await until(lambda: len(it.core.of(ConnectionAccepted)) == 2)
            assert [item.listener for item in it.core.of(ConnectionAccepted)] == ["clients", "others"]

    run(scenario())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_gracefully(run: Runner, number: signal.Signals) -> None:
    async def scenario() -> None:
        def react(inputs: list[Input]) -> Batch:
            if Stop() not in inputs:
                return Batch()
            # As the core does: the halt is decided first, the last frames follow in the same batch.
            return Batch(effects=[Halt(), Send(1, [b"goodbye"]), CloseConnection(1)])

        async with running(ScriptedCore(react)) as (it, task):
            reader, writer = await it.client()
            await until(lambda: it.core.of(ConnectionAccepted))
            os.kill(os.getpid(), number)
            assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b"goodbye"
            writer.close()
            assert await asyncio.wait_for(task, PATIENCE_S) == 0
            assert "STOPPING=1" in it.told.drain()
            assert not os.path.exists(it.options.node.admin_socket)

    run(scenario())


def test_new_connections_are_refused_during_the_stop(run: Runner) -> None:
    async def scenario() -> None:
        async with running(ScriptedCore()) as (it, _):
            await until(lambda: "READY=1" in it.told.drain())
            os.kill(os.getpid(), signal.SIGTERM)
            await until(lambda: it.core.of(Stop))
            with pytest.raises(ConnectionRefusedError):
                await it.client()

    run(scenario())


def test_the_second_signal_stops_at_once(run: Runner) -> None:
    async def scenario() -> None:
        async with running(ScriptedCore()) as (it, task):
            await until(lambda: "READY=1" in it.told.drain())
            os.kill(os.getpid(), signal.SIGTERM)
            await until(lambda: it.core.of(Stop))
            assert not task.done()
            os.kill(os.getpid(), signal.SIGTERM)
            assert await asyncio.wait_for(task, PATIENCE_S) == 1
            assert "hard-stop" in it.log
            assert it.core.of(Stop) == [Stop()]

    run(scenario())


LEAVES = {"scale_down": replace(defaults().scale_down, enabled=True)}


class Leaver:
    """A core whose messages go to another node before it stops: until `is_moved`, or it is asked once more."""

    def __init__(self) -> None:
        self.is_moved = False
        self.asked = 0

    def react(self, inputs: list[Input]) -> Batch:
        self.asked += inputs.count(Stop())
        if not self.asked:
            return Batch()
        return Batch(effects=[DelayStop(is_over=self.is_moved or self.asked > 1)])


@pytest.mark.slow
def test_a_stop_that_waits_lets_clients_in_and_asks_the_manager_for_time(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_manager, "EXTEND_EVERY_S", 0.02)

    async def scenario() -> None:
        leaver = Leaver()
        async with running(ScriptedCore(leaver.react), LEAVES, stop_timeout_ms=100) as (it, task):
            await until(lambda: "READY=1" in it.told.drain())
            os.kill(os.getpid(), signal.SIGTERM)
            await until(lambda: it.told.drain().count(EXTENDED) >= 3)
            assert "STOPPING=1" in it.told.lines
            await asyncio.sleep(0.3)
            assert not task.done(), "its time to stop has not begun"
            _, writer = await it.client()
            await until(lambda: it.core.of(ConnectionAccepted))
            writer.close()
            leaver.is_moved = True
            it.server.node.post(UsersChanged({}))
            assert await asyncio.wait_for(task, PATIENCE_S) == 1
            assert "not done after 100 ms" in it.log
            count = it.told.drain().count(EXTENDED)
            await asyncio.sleep(0.1)
            assert it.told.drain().count(EXTENDED) == count

    run(scenario())


def test_the_second_signal_ends_a_stop_that_waits_and_the_third_one_stops_at_once(run: Runner) -> None:
    async def scenario() -> None:
        async with running(ScriptedCore(Leaver().react), LEAVES) as (it, task):
            await until(lambda: "READY=1" in it.told.drain())
            os.kill(os.getpid(), signal.SIGTERM)
            await until(lambda: EXTENDED in it.told.drain())
            os.kill(os.getpid(), signal.SIGTERM)
            await until(lambda: len(it.core.of(Stop)) == 2)
            with pytest.raises(ConnectionRefusedError):
                await it.client()
            assert not task.done()
            os.kill(os.getpid(), signal.SIGTERM)
            assert await asyncio.wait_for(task, PATIENCE_S) == 1
            assert "hard-stop" in it.log

    run(scenario())


def test_a_reload_does_not_have_a_stop_wait_that_the_core_does_not_know_of(run: Runner) -> None:
    async def scenario() -> None:
        async with running(ScriptedCore(), stop_timeout_ms=100) as (it, task):
            await until(lambda: "READY=1" in it.told.drain())
            it.reloaded = Reloaded(None, replace(it.options, **LEAVES))
            os.kill(os.getpid(), signal.SIGHUP)
            await until(lambda: it.core.of(OptionsChanged))
            os.kill(os.getpid(), signal.SIGTERM)
            assert await asyncio.wait_for(task, PATIENCE_S) == 1
            assert "not done after 100 ms" in it.log

    run(scenario())


def test_a_stop_that_an_administrator_asked_for_waits_too(run: Runner) -> None:
    async def scenario() -> None:
        leaver = Leaver()
        leaver.asked = 1
        async with running(ScriptedCore(leaver.react), LEAVES, stop_timeout_ms=100) as (it, task):
            await until(lambda: EXTENDED in it.told.drain())
            leaver.is_moved = True
            it.server.node.post(UsersChanged({}))
            assert await asyncio.wait_for(task, PATIENCE_S) == 1

    run(scenario())


@pytest.mark.option("node.stop-timeout-ms")
def test_a_stop_that_takes_too_long_is_cut_off(run: Runner) -> None:
    async def scenario() -> None:
        async with running(ScriptedCore(), stop_timeout_ms=150) as (it, task):
            await until(lambda: "READY=1" in it.told.drain())
            os.kill(os.getpid(), signal.SIGTERM)
            assert await asyncio.wait_for(task, PATIENCE_S) == 1
            assert "not done after 150 ms" in it.log

    run(scenario())


@pytest.mark.option("listeners.connections-max")
def test_reload_takes_users_and_what_may_change(run: Runner) -> None:
    async def scenario() -> None:
        async with running(ScriptedCore()) as (it, _):
            await until(lambda: "READY=1" in it.told.drain())
            it.told.forget()
            first = replace(it.options.listeners[0], connections_max=1)
            options = replace(
                it.options,
                node=replace(it.options.node, log_format="json"),
                listeners=(first, it.options.listeners[1]),
            )
            it.reloaded = Reloaded({"app": "verifier"}, options, cluster_key=b"key")
            os.kill(os.getpid(), signal.SIGHUP)
            await until(lambda: it.core.of(OptionsChanged))
            assert it.core.of(UsersChanged) == []
            assert it.core.of(OptionsChanged) == [OptionsChanged(options, {"app": "verifier"})]
            assert it.core.of(ClusterKeyChanged) == [ClusterKeyChanged(b"key")]
            told = [each for each in it.told.drain() if each != "WATCHDOG=1"]  # which comes whenever its time is
            assert told[0] == "RELOADING=1"
            assert "READY=1" in it.told.lines
            assert json.loads(it.log.splitlines()[-1]) | {"time": ""} == {
                "time": "",
                "level": "info",
                "event": "reloaded",
                "users": 1,
                "options": 1,
            }
            kept = await it.client()
            await until(lambda: len(it.core.of(ConnectionAccepted)) == 1)
            reader, writer = await it.client()
            assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
            kept[1].close()
            writer.close()

    run(scenario())


def test_users_are_taken_where_the_options_cannot_be_used(run: Runner) -> None:
    async def scenario() -> None:
        async with running(ScriptedCore()) as (it, _):
            await until(lambda: "READY=1" in it.told.drain())
            it.reloaded = Reloaded({"app": "verifier"}, None)
            os.kill(os.getpid(), signal.SIGHUP)
            await until(lambda: "users=1 options=0" in it.log)
            await until(lambda: it.core.of(UsersChanged))
            assert it.core.of(UsersChanged) == [UsersChanged({"app": "verifier"})]
            assert it.core.of(OptionsChanged) == []

    run(scenario())


def test_a_faulty_reload_changes_nothing(run: Runner) -> None:
    async def scenario() -> None:
        async with running(ScriptedCore()) as (it, task):
            await until(lambda: "READY=1" in it.told.drain())
            os.kill(os.getpid(), signal.SIGHUP)
            await until(lambda: "reloaded" in it.log)
            assert "users=0 options=0" in it.log
            assert it.core.of(UsersChanged) == it.core.of(ClusterKeyChanged) == []
            assert not task.done()

    run(scenario())


def asking(inputs: list[Input]) -> Batch:
    return Batch(effects=[LoadConfiguration(item.id) for item in inputs if isinstance(item, AdminRequest)])


def test_an_administrator_has_it_read_whole(run: Runner) -> None:
    async def scenario() -> None:
        async with running(ScriptedCore(asking)) as (it, _):
            await until(lambda: "READY=1" in it.told.drain())
            options = replace(it.options, node=replace(it.options.node, log_format="json"))
            it.reloaded = Reloaded({"app": "verifier"}, options)
            it.server.node.post(AdminRequest(7, 1, "config-reload", {}))
            await until(lambda: it.core.of(Done))
            assert it.core.of(Done) == [Done(7, Configuration(options, {"app": "verifier"}))]
            assert it.looked_closely == [True]
            # The log has its new form from here on.
            await until(lambda: it.log.splitlines()[-1].startswith("{"))

    run(scenario())


@pytest.mark.parametrize("part", ["users", "options"])
def test_an_administrator_gets_all_faults_and_nothing_changes(run: Runner, part: str) -> None:
    async def scenario() -> None:
        async with running(ScriptedCore(asking)) as (it, _):
            await until(lambda: "READY=1" in it.told.drain())
            options = replace(it.options, node=replace(it.options.node, log_format="json"))
            it.reloaded = Reloaded({"app": "verifier"}, options, ("one is wrong", "two is wrong"))
            setattr(it.reloaded, part, None)
            it.server.node.post(AdminRequest(7, 1, "config-reload", {}))
            await until(lambda: it.core.of(Failed))
            assert it.core.of(Failed) == [Failed(7, "one is wrong\ntwo is wrong")]
            it.server.node.post(AdminRequest(8, 1, "x", {}))
            await until(lambda: len(it.core.of(Failed)) == 2)
            assert not it.log.splitlines()[-1].startswith("{")
            assert it.core.of(UsersChanged) + it.core.of(OptionsChanged) == []

    run(scenario())


def test_effects_reach_the_disk_the_pool_and_the_admin_socket(run: Runner) -> None:
    async def scenario() -> None:
        def react(inputs: list[Input]) -> Batch:
            effects: list[Any] = []
            for item in inputs:
                if isinstance(item, AdminRequest):
                    effects += [
                        DeleteJournalSegment(1, 5),
                        Derive(2, "sha256", b"p", b"s", 1),
                        AdminReply(item.id, "yes"),
                    ]
                    effects.append(ReadPage(3, ()))
            return Batch(effects=effects)

        async with running(ScriptedCore(react)) as (it, _):
            reader, writer = await asyncio.open_unix_connection(it.options.node.admin_socket)
            writer.write(b'{"id": 9, "op": "x"}\n')
            assert json.loads(await asyncio.wait_for(reader.readline(), PATIENCE_S)) == {"id": 9, "result": "yes"}
            await until(lambda: it.core.of(Done))
            assert it.core.of(Done)[0].id == 2
            assert it.disk.deleted == [DeleteJournalSegment(1, 5)]
            assert it.disk.read_pages == [ReadPage(3, ())]
            writer.close()

    run(scenario())


def test_a_bug_aborts_connections_without_flushing(run: Runner) -> None:
    async def scenario() -> None:
        def react(inputs: list[Input]) -> Batch:
            if any(isinstance(item, ConnectionAccepted) for item in inputs):
                # More than the sockets hold, so a part is still in our buffer when the node fails.
                return Batch(effects=[Send(1, [bytes(64 << 20)])], more=True)
            if core.of(ConnectionAccepted):
                raise ZeroDivisionError
            return Batch()

        core = ScriptedCore(react)
        async with running(core) as (it, task):
            reader, writer = await it.client()
            assert await asyncio.wait_for(task, PATIENCE_S) == 70
            count = 0
            try:
                while data := await asyncio.wait_for(reader.read(1 << 20), PATIENCE_S):
                    count += len(data)
            except ConnectionResetError:
                pass
            assert count < 64 << 20
            writer.close()

    run(scenario())


def test_an_exception_in_a_callback_of_ours_is_a_bug_too(run: Runner) -> None:
    async def scenario() -> None:
        async with running(ScriptedCore()) as (it, task):
            await until(lambda: "READY=1" in it.told.drain())
            asyncio.get_running_loop().call_soon(lambda: [][0])
            assert await asyncio.wait_for(task, PATIENCE_S) == 70
            assert "IndexError" in it.log

    run(scenario())


def test_a_port_in_use_leaves_nothing_bound(run: Runner) -> None:
    async def scenario() -> None:
        with tempfile.TemporaryDirectory(prefix="mq-") as name, socket.create_server(("127.0.0.1", 0)) as taken:
            base = defaults()
            free, used = free_port(), taken.getsockname()[1]
            options = replace(
                base,
                node=replace(base.node, admin_socket=f"{name}/admin.sock"),
                listeners=(default_listener("one", free), default_listener("two", used)),
            )
            it = Running(ScriptedCore(), options, Path(name))
            with pytest.raises(ConfigFault) as fault:
                await it.open()
            assert fault.value.path == "listeners.1.port"
            it.server.close()
            socket.create_server(("127.0.0.1", free)).close()
            it.told.close()

    run(scenario())


@pytest.mark.option("listeners.backlog")
def test_the_kernel_gets_the_backlog() -> None:
    listener = replace(default_listener("clients", free_port()), backlog=37)
    with open_listener(listener, "listeners.0") as sock:
        # struct tcp_info: of a listening socket, tcpi_sacked is the backlog that listen was called with.
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        assert struct.unpack_from("6I", info, 8)[5] == 37
