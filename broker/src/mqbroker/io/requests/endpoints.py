"""What each path of the HTTP server answers: metrics and health.

Owns no state of the broker: the node is asked as any administrator asks it, the rest is looked at. Invariants: every
request is answered in bounded time, also when the node has ended or the file system hangs; whatever goes wrong here
is a status code and never the end of the broker; metrics are written out in threads, once for all who ask meanwhile.
Source: docs/METRICS.md.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from mqbroker.admin import health, metrics
from mqbroker.admin.health import CHECKS, DiskSpace, HealthFacts, HealthVerdict, Surroundings
from mqbroker.admin.metrics import Measured
from mqbroker.base.histogram import Histogram
from mqbroker.config.slices import BrokerOptions
from mqbroker.io.loop.log import Log
from mqbroker.io.loop.loop import NodeLoop
from mqbroker.io.loop.worker import Worker
from mqbroker.io.requests.admin_socket import AdminServer
from mqbroker.io.requests.http_head import Head, Response, refusal
from mqbroker.io.sockets.listeners import Acceptor

HEALTH_S_MAX = 5.0
METRICS_S_MAX = 30.0
METRICS, PER_OBJECT = "/metrics", "/metrics/per-object"
OPEN_METRICS = "application/openmetrics-text"
JSON = "application/json"
CHECK_PREFIX = "/checks/"


class Vital(Protocol):
    """What is asked of the disk thread."""

    appends_total: int
    written_bytes_total: int
    syncs: Histogram

    @property
    def pending_bytes(self) -> int: ...

    def is_alive(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Sources:
    """The parts of the process from which the HTTP endpoints make their answers."""

    options: BrokerOptions
    node: NodeLoop
    admin: AdminServer
    disk: Vital
    acceptors: list[Acceptor]


class Silent(Exception):
    """The node does not answer (any more)."""


class Endpoints:
    """`answer` is the one entry. Made in the loop's thread."""

    id = 0  # of no admin session: those count from 1
    uid: int | None = None

    def __init__(self, sources: Sources, log: Log) -> None:
        self._sources = sources
        self._log = log
        self._worker = Worker()
        # One for each, so that neither many series nor a file system that hangs keeps the others waiting.
        self._writers = {METRICS: Worker(), PER_OBJECT: Worker()}
        self._scrapes: dict[tuple[str, str], asyncio.Task[Response]] = {}
        self._paths: dict[str, Callable[[Head], Awaitable[Response]]] = {
            METRICS: self._metrics,
            PER_OBJECT: self._metrics,
            "/livez": self._livez,
            "/readyz": self._readyz,
            "/primary": self._primary,
            "/backup": self._backup,
        }

    def close(self) -> None:
        for worker in (self._worker, *self._writers.values()):
            worker.close()

    async def answer(self, head: Head) -> Response:
        """The answer to a request. Does not raise."""
        handler = self._paths.get(head.path)
        if handler is None and head.path.startswith(CHECK_PREFIX):
            handler = self._check
        if handler is None:
            there_are = ", ".join([*self._paths, f"{CHECK_PREFIX}<name>"])
            return refusal(404, f"there is nothing at this path; there are {there_are}")
        time_s_max = METRICS_S_MAX if head.path in self._writers else HEALTH_S_MAX
        try:
            async with asyncio.timeout(time_s_max):
                return await handler(head)
        except TimeoutError:
            return refusal(503, f"no answer within {time_s_max:g} s; the node or its file system hangs")
        except Silent as why:
            return refusal(503, str(why))
        except Exception as error:
            # The edge: a scrape that fails must never end a broker that works.
            self._log.error("http-failed", path=head.path[:200], why=repr(error))
            return refusal(500, "the answer could not be made; the log of the broker says why")

    # -- metrics -------------------------------------------------------------------------------------------------------

    async def _metrics(self, head: Head) -> Response:
        """Who asks while the same is being written out gets the same: no number of scrapers makes more work."""
        form = OPEN_METRICS if OPEN_METRICS in head.accept.lower() else ""
        key = (head.path, form)
        scrape = self._scrapes.get(key)
        if scrape is None:
            scrape = self._scrapes[key] = asyncio.get_running_loop().create_task(self._scrape(head.path, form))
            scrape.add_done_callback(lambda _: self._scrapes.pop(key))
        return await asyncio.shield(scrape)

    async def _scrape(self, path: str, form: str) -> Response:
        values = await self._ask("metrics", per_object=path == PER_OBJECT)
        measured = self._measured()
        name = self._sources.options.node.name

        def write() -> tuple[bytes, str]:
            # Not before: most brokers are never scraped, and no start should pay for it.
            from mqbroker.io.requests.exposition import render

            around = metrics.of_world(name, replace(measured, space=self._space()))
            return render(values | around, form)

        body, content_type = await self._writers[path].run(write)
        return Response(200, body, content_type)

    def _measured(self) -> Measured:
        node, disk = self._sources.node, self._sources.disk
        return Measured(
            disk_pending_bytes=disk.pending_bytes,
            appends_total=disk.appends_total,
            written_bytes_total=disk.written_bytes_total,
            syncs=disk.syncs,
            steps_total=node.steps_total,
            steps_ns_total=node.steps_ns_total,
            received_bytes_total=node.received_bytes_total,
            sent_bytes_total=node.sent_bytes_total,
            endings=tuple(ending for acceptor in self._sources.acceptors for ending in acceptor.endings),
        )

    # -- health --------------------------------------------------------------------------------------------------------

    async def _livez(self, head: Head) -> Response:
        """The loop turns, or this would not be answered."""
        is_alive = self._sources.disk.is_alive()
        return _plain(HealthVerdict(is_alive, "alive" if is_alive else "the disk thread has failed, or hangs"))

    async def _readyz(self, head: Head) -> Response:
        return _plain(health.readiness(await self._node_or_none(), self._sources.disk.is_alive()))

    async def _primary(self, head: Head) -> Response:
        node = await self._node_or_none()
        state = health.STOPPING if node is None else node["state"]
        is_active = state != health.STOPPING  # one that is cordoned has its messages as before
        return _plain(HealthVerdict(is_active, "this node is active" if is_active else "the broker stops"))

    async def _backup(self, head: Head) -> Response:
        return _plain(HealthVerdict(False, "this node is no backup"))

    async def _check(self, head: Head) -> Response:
        name = head.path.removeprefix(CHECK_PREFIX)
        check = CHECKS.get(name)
        if check is None:
            return refusal(404, f"there is no such check; there are {', '.join(CHECKS)}")
        space = await self._worker.run(self._space)
        verdict = check(await self._ask("health"), self._around(space))
        row = {"check": name, "ok": verdict.is_good, "why": verdict.why, **verdict.facts}
        return Response(200 if verdict.is_good else 503, json.dumps(row).encode() + b"\n", JSON)

    # -- sources -------------------------------------------------------------------------------------------------------

    def reply(self, client_id: asyncio.Future[dict[str, Any]], row: dict[str, Any]) -> None:
        """The node's answer to `_ask`."""
        if not client_id.done():
            client_id.set_result(row)

    async def _ask(self, operation: str, **arguments: Any) -> Any:
        """The result of an admin operation. Raises Silent where there will be none."""
        ended = self._sources.node.ended
        if not ended.done():
            replied: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
            self._sources.admin.request(self, replied, operation, arguments)
            await asyncio.wait((replied, ended), return_when=asyncio.FIRST_COMPLETED)
            if replied.done():
                row = replied.result()
                if "error" in row:
                    raise Silent(row["error"]["description"])
                return row["result"]
        raise Silent("the broker stops")

    async def _node_or_none(self) -> HealthFacts | None:
        try:
            facts: HealthFacts = await self._ask("health")
        except Silent:
            return None
        return facts

    def _space(self) -> DiskSpace:
        """Of the file system below the journal. May hang with it, so it runs in the worker."""
        space = os.statvfs(self._sources.options.node.data_directory)
        return DiskSpace(space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize)

    def _around(self, space: DiskSpace) -> Surroundings:
        sources = self._sources
        return Surroundings(
            is_disk_alive=sources.disk.is_alive(),
            disk_pending_bytes=sources.disk.pending_bytes,
            space=space,
            space_free_bytes_min=health.space_free_bytes_min(sources.options.journal),
            listeners={acceptor.name: acceptor.trouble for acceptor in sources.acceptors},
        )


def _plain(verdict: HealthVerdict) -> Response:
    return Response(200 if verdict.is_good else 503, f"{verdict.why}\n".encode())
