"""Owns control groups: the one handle by which everything that belongs to a host can be stopped at once.

Invariant: every process of a rack is born inside the rack's group (joined between fork and exec), so
`cgroup.kill` on it reaches all of them, however the command that started them ended. Source: the kernel's
cgroup-v2 interface files. On machines with both hierarchies the version 2 one is mounted at a place of its own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mqrack.errors import RackError
from mqrack.layout import CGROUP_NAME

EMPTY_WAIT_S = 20.0


def unified_root(mounts: str | None = None) -> Path:
    """Where version 2 of the control groups is mounted."""
    for root in _mounted("cgroup2", mounts):
        return root
    raise RackError("no control groups of version 2 are mounted here; mount them with `mount -t cgroup2`.")


def _mounted(kind: str, mounts: str | None = None) -> list[Path]:
    text = Path("/proc/self/mounts").read_text() if mounts is None else mounts
    fields = (line.split() for line in text.splitlines())
    return [Path(field[1]) for field in fields if field[2] == kind]


@dataclass(frozen=True, slots=True)
class Group:
    """A control group, existing or not."""

    path: Path

    def child(self, name: str) -> Group:
        return Group(self.path / name)

    def make(self) -> Group:
        self.path.mkdir(parents=True, exist_ok=True)
        return self

    def exists(self) -> bool:
        return self.path.is_dir()

    def joiner(self) -> Callable[[], None]:
        """For `preexec_fn`: puts the child in before it runs any program."""
        procs = str(self.make().path / "cgroup.procs")

        def join() -> None:
            descriptor = os.open(procs, os.O_WRONLY)
            os.write(descriptor, b"0")
            os.close(descriptor)

        return join

    def event(self, key: str) -> bool:
        """`populated` and `frozen` of cgroup.events; a group that is not there has neither."""
        try:
            text = (self.path / "cgroup.events").read_text()
        except OSError:
            return False
        return f"{key} 1" in text.splitlines()

    def pids(self) -> list[int]:
        """Of the group and those below; groups come and go while we look."""
        found: list[int] = []
        for folder, _, _ in os.walk(self.path):
            with suppress(OSError):
                found += [int(line) for line in Path(folder, "cgroup.procs").read_text().split()]
        return found

    def freeze(self, frozen: bool) -> None:
        (self.path / "cgroup.freeze").write_text("1" if frozen else "0")
        self._wait("frozen", frozen)

    def kill(self) -> None:
        """SIGKILL to every process in here and below, and waits until they are gone."""
        if not self.exists():
            return
        (self.path / "cgroup.kill").write_text("1")
        self._wait("populated", False)

    def wait_empty(self, wait_s: float = EMPTY_WAIT_S) -> None:
        self._wait("populated", False, wait_s)

    def remove(self) -> None:
        """Removes the group and those below it; they must be empty of processes. On machines with both hierarchies
        systemd-nspawn makes groups of the same path in the old ones, which go too."""
        where = self.path.relative_to(unified_root())
        for root in (unified_root(), *_mounted("cgroup")):
            for folder, _, _ in os.walk(root / where, topdown=False):
                _remove_one(Path(folder))

    def _wait(self, key: str, wanted: bool, wait_s: float = EMPTY_WAIT_S) -> None:
        deadline = time.monotonic() + wait_s
        while self.event(key) is not wanted:
            if time.monotonic() > deadline:
                raise RackError(f"{self.path}: still not {key}={int(wanted)} after {wait_s:g} s; pids {self.pids()}.")
            time.sleep(0.005)


def _remove_one(folder: Path) -> None:
    # The kernel lets go of a killed process a moment after it calls the group empty.
    for _ in range(200):
        try:
            folder.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.01)
    raise RackError(f"the control group {folder} could not be removed; processes in it: {Group(folder).pids()}.")


def rack_group(name: str) -> Group:
    return Group(unified_root() / CGROUP_NAME / name)


def host_group(rack: str, host: str) -> Group:
    return rack_group(rack).child("hosts").child(host)
