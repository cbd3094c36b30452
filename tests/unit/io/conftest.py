"""A node around a small core that each test shapes: real sockets on loopback, on asyncio's loop and on uvloop."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import uvloop
from mqbroker.base.time import At
from mqbroker.config.declarations.options import default_listener
from mqbroker.config.slices import ListenerOptions
from mqbroker.io.loop.log import Log, LogShape
from mqbroker.io.loop.loop import NodeLoop
from mqbroker.io.sockets.connections import Connections
from mqbroker.io.sockets.connectors import Connectors
from mqbroker.io.sockets.listeners import Acceptor, open_listener
from mqbroker.journal.append import Append
from mqbroker.node.values.batch import Batch
from mqbroker.node.values.effects import CloseConnection, Connect, PauseReading, Send
from mqbroker.node.values.inputs import Input

from tests.support.broker_process import free_port
from tests.support.patience import PATIENCE_S

PENDING_BYTES_MAX = 1000


class ScriptedCore:
    """A core that remembers every step and does what the test's `reaction` says."""

    def __init__(self, reaction: Callable[[list[Input]], Batch] | None = None) -> None:
        self.steps: list[list[Input]] = []
        self.times: list[At] = []
        self.reaction = reaction or (lambda inputs: Batch())

    def step(self, inputs: list[Input], at: At) -> Batch:
        self.steps.append(inputs)
        self.times.append(at)
        return self.reaction(inputs)

    @property
    def inputs(self) -> list[Input]:
        return [item for step in self.steps for item in step]

    def of(self, kind: type[Any]) -> list[Any]:
        return [item for item in self.inputs if isinstance(item, kind)]


class CountingDisk:
    """The loop's side of a disk thread: what was handed over, with a pending size that the test sets."""

    def __init__(self) -> None:
        self.pending_bytes = 0
        self.submitted: list[Append] = []
        self.inlined: list[Append] = []
        self.takes_inline = False

    def submit(self, append: Append) -> None:
        self.submitted.append(append)

    def try_inline(self, append: Append) -> bool:
        if self.takes_inline:
            self.inlined.append(append)
        return self.takes_inline


class Bench:
    """One NodeLoop with connections, and one listener on loopback."""

    def __init__(self, core: ScriptedCore, listener: ListenerOptions) -> None:
        self.core = core
        self.disk = CountingDisk()
        self.log_text = io.StringIO()
        self.log = Log(self.log_text, LogShape.PLAIN)
        self.node = NodeLoop(asyncio.get_running_loop(), self.log, PENDING_BYTES_MAX)
        self.connections = Connections(self.node)
        self.connectors = Connectors(self.node, self.connections, (listener,))
        self.listener = listener
        self.acceptor = Acceptor(open_listener(listener, "listeners.0"), listener, self.connections, self.log)

    def start(self) -> None:
        handlers: dict[type[Any], Callable[[Any], None]] = {
            Send: self.connections.send,
            CloseConnection: self.connectors.close,
            PauseReading: self.connections.pause_reading,
            Connect: self.connectors.connect,
        }
        self.node.start(self.core, self.disk, handlers)
        self.acceptor.start()

    async def client(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.listener.port)

    def close(self) -> None:
        self.acceptor.stop()
        self.connectors.abort_all()
        self.connections.abort_all("end of test")
        if not self.node.ended.done():
            self.node.end(0)


@asynccontextmanager
async def bench(core: ScriptedCore, **listener: Any) -> AsyncIterator[Bench]:
    made = Bench(core, replace(default_listener(port=free_port()), **listener))
    made.start()
    try:
        yield made
    finally:
        made.close()
        await asyncio.sleep(0.02)


async def until(condition: Callable[[], Any], timeout_s: float = PATIENCE_S) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Callable[[Any], Any]]:
    """Runs a coroutine on either event loop."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        yield runner.run
