"""Paths of the HTTP server over a node that answers, does not answer, or has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mqbroker.base.histogram import Histogram
from mqbroker.config.declarations.options import defaults
from mqbroker.io.requests import endpoints
from mqbroker.io.requests.admin_socket import AdminServer
from mqbroker.io.requests.endpoints import Endpoints, Sources
from mqbroker.io.requests.http_head import Head, Response
from mqbroker.node.values.batch import Batch
from mqbroker.node.values.effects import AdminReply
from mqbroker.node.values.inputs import AdminRequest, Input

from tests.support.patience import PATIENCE_S
from tests.support.stage import Stage
from tests.unit.io.conftest import CountingDisk, ScriptedCore, bench

Runner = Callable[[Any], Any]


class Disk(CountingDisk):
    """A disk thread as endpoints see it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_well = True
        self.appends_total = 3
        self.written_bytes_total = 1000
        self.syncs = Histogram((0.1,))

    def is_alive(self) -> bool:
        return self.is_well


class Asked:
    """Endpoints over a scripted node; `ask` is one GET."""

    def __init__(self, made: Endpoints, core: ScriptedCore, disk: Disk, node: Any) -> None:
        self.made = made
        self.core = core
        self.disk = disk
        self.node = node

    async def ask(self, path: str, accept: str = "") -> Response:
        return await self.made.answer(Head("GET", path, False, accept))


def answering(inputs: list[Input]) -> Batch:
    """As a real node answers."""
    stage = Stage()
    asked = [item for item in inputs if isinstance(item, AdminRequest)]
    return Batch(effects=[AdminReply(item.id, stage.admin(item.operation, **item.arguments)) for item in asked])


@asynccontextmanager
async def asked(core: ScriptedCore, directory: Path) -> AsyncIterator[Asked]:
    base = defaults()
    options = replace(base, node=replace(base.node, data_directory=str(directory)))
    async with bench(core) as it:
        disk = Disk()
        admin = AdminServer(str(directory / "admin.sock"), it.node, it.log)
        it.node.start(core, disk, {AdminReply: admin.reply})
        made = Endpoints(Sources(options, it.node, admin, disk, [it.acceptor]), it.log)
        try:
            yield Asked(made, core, disk, it.node)
        finally:
            made.close()


def test_paths_of_a_node_that_is_well(run: Runner, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with asked(ScriptedCore(answering), tmp_path) as it:
            paths = ("/livez", "/readyz", "/primary", "/backup", "/checks/journal", "/metrics", "/metrics/per-object")
            found = {path: (await it.ask(path)).status for path in paths}
            assert found == dict.fromkeys(paths, 200) | {"/backup": 503}

    run(scenario())


def test_a_dead_disk_shows_everywhere_but_where_it_does_not_matter(run: Runner, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with asked(ScriptedCore(answering), tmp_path) as it:
            it.disk.is_well = False
            paths = ("/livez", "/readyz", "/primary", "/checks/journal", "/checks/memory")
            found = [(await it.ask(path)).status for path in paths]
            assert found == [503, 503, 200, 503, 200]

    run(scenario())


def test_a_node_that_ended_is_not_waited_for(run: Runner, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with asked(ScriptedCore(), tmp_path) as it:
            waiting = asyncio.create_task(it.ask("/metrics"))
            await asyncio.sleep(0.05)
            it.node.end(0)
            assert (await asyncio.wait_for(waiting, PATIENCE_S)).status == 503
            for path in ("/readyz", "/primary", "/checks/memory", "/metrics"):
                found = await asyncio.wait_for(it.ask(path), PATIENCE_S)
                assert (found.status, found.body) == (503, b"the broker stops\n"), path

    run(scenario())


def test_a_node_that_hangs_is_given_up(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "HEALTH_S_MAX", 0.1)

    async def scenario() -> None:
        async with asked(ScriptedCore(), tmp_path) as it:
            assert b"hangs" in (await it.ask("/readyz")).body
            assert (await it.ask("/livez")).status == 200

    run(scenario())


def test_who_scrapes_at_the_same_time_gets_the_same(run: Runner, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with asked(ScriptedCore(answering), tmp_path) as it:
            found = await asyncio.gather(*(it.ask("/metrics", f"text/plain;q=0.{n}") for n in range(1, 9)))
            assert len({each.body for each in found}) == 1
            assert len(it.core.of(AdminRequest)) == 1
            await it.ask("/metrics")
            assert len(it.core.of(AdminRequest)) == 2
            wide = await it.ask("/metrics", "application/openmetrics-text; version=1.0.0; q=0.7, text/plain; q=0.3")
            assert wide.content_type.startswith("application/openmetrics-text")

    run(scenario())


def test_trouble_of_a_scrape_is_its_own(run: Runner, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with asked(ScriptedCore(answering), tmp_path / "gone") as it:
            assert (await it.ask("/metrics")).status == 500
            assert (await it.ask("/checks/disk-space")).status == 500
            assert (await it.ask("/readyz")).status == 200
            assert not it.node.ended.done()

    run(scenario())
