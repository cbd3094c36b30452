"""Hosts on which cells are played one after the other; after one that failed the next one has fresh hosts."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.chaos import Cell, play
from tests.support.chaos_hosts import DISK, ENDED, HOSTS, UNIT, Stage
from tests.support.rack_site import Rack, site_on
from tests.support.rack_traffic import OPTIONS

LINES_MAX = 300


class Stages:
    """See the module's docstring. Sites are made below `folder`."""

    def __init__(self, purpose: str, folder: Path) -> None:
        self._rack = Rack(purpose)
        self._folder = folder
        self._count = 0
        self._stage: Stage | None = None
        self._hosts = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self._hosts.close()

    def play(self, cell: Cell) -> None:
        """One cell; what its commands and brokers said goes to the output, which is shown where it fails."""
        stage = self._stage or self._made()
        self._stage = None  # until it has ended well
        began_s = time.monotonic()
        try:
            verdict = play(stage, cell)
        except BaseException:
            sys.stdout.writelines([*stage.said, *(_log_of(stage, host) for host in HOSTS)])
            self._hosts.close()
            raise
        self._stage = stage
        print(f"{cell}: {time.monotonic() - began_s:.0f} s, {json.dumps(verdict['counts'])}")
        sys.stdout.writelines(line for line in stage.said if line.startswith(ENDED))

    def _made(self) -> Stage:
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir()
        site = self._hosts.enter_context(site_on(self._rack, str(len(HOSTS)), folder=folder / "site"))
        for host in HOSTS:
            self._rack("exec", host, "--", "sh", "-ec", DISK)
        stage = Stage(site, self._rack, (site.folder / "inventory.yml").read_text(), OPTIONS)
        stage.change()
        site.run("rollout", "--yes")
        stage.well()
        return stage


def _log_of(stage: Stage, host: str) -> str:
    """The last lines of its broker, where the host can be asked."""
    try:
        return f"== {host}\n" + stage.in_host(host, f"journalctl -u {UNIT} -n {LINES_MAX} -o short-precise --no-pager")
    except (AssertionError, subprocess.TimeoutExpired) as fault:
        return f"== {host}: {fault}\n"
