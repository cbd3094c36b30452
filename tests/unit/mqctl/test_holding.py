"""Hosts that a run has held to its end, and who is given back. Each is a folder in the place of /run and /proc."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mqctl.errors import CommandError
from mqctl.inventory import Host, InventoryCluster
from mqctl.output import data_console
from mqctl.playbook import holding
from mqctl.playbook.events import RunState
from mqctl.remote import give_back
from mqctl.ssh.local import LocalShell
from mqctl.ssh.shell import CommandResult
from mqctl.world import World
from rich.console import Console

from plugins.module_utils import change_lock
from tests.support.local_hosts import LocalHosts

HOLDER: dict[str, Any] = {
    "user": "ann", "machine": "control", "space": "boot pid:[1]", "pid": 7, "began": "100", "what": "a rollout",
    "since": "2026-01-05 10:12:00 UTC",
}  # fmt: skip
OTHER = {**HOLDER, "machine": "laptop"}
TASKS = (
    b"sudo\0/bin/sh\0-c\0echo BECOME-SUCCESS-x ; python3\0",
    b"python3\0/root/AnsiballZ_ping.py\0",
    b"/usr/bin/python3.11\0",
    b"python3\0",
)


class HostShell(LocalShell):
    """Programs that are sent to it find a folder in the place of the host's own."""

    folder = Path()

    def run_plain(self, command: str, stdin: bytes, timeout_s: float) -> CommandResult:
        if not (self.folder / self.name).exists():
            raise CommandError(f"{self.name} is not reached")
        for own, place in (("/run/", self.folder / self.name / "run"), ("/proc", self.folder / self.name / "proc")):
            stdin = stdin.replace(f'"{own}'.encode(), f'"{place}{"/" if own.endswith("/") else ""}'.encode())
        return super().run_plain(command, stdin, timeout_s)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(HostShell, "folder", tmp_path)
    monkeypatch.setattr(holding, "IDLE_S", 1)
    out = io.StringIO()
    return World(
        {},
        tmp_path,
        io.BytesIO(),
        out,
        data_console(out, has_colour=False),
        Console(file=out),
        connector=LocalHosts(HostShell),
    )


def made(tmp_path: Path, name: str, note: dict[str, Any] | None, *commands: bytes) -> Host:
    """A host with this note, where these commands run."""
    (tmp_path / name / "run").mkdir(parents=True)
    for number, line in enumerate((b"systemd\0", *commands), 1):
        process = tmp_path / name / "proc" / str(number)
        (process / "fd").mkdir(parents=True)
        (process / "cmdline").write_bytes(line)
        os.mkfifo(process / "fd" / "0")
    if note is not None:
        place_of(tmp_path, name).write_text(json.dumps(note))
    variables = {
        "ansible_connection": "local", "ansible_become": False, "ansible_python_interpreter": sys.executable,
    }  # fmt: skip
    return Host(name, "main", variables, {})


def place_of(tmp_path: Path, name: str) -> Path:
    return tmp_path / name / "run" / Path(change_lock.PLACE).name


def event(kind: str, host: str, **result: Any) -> dict[str, Any]:
    return {"event": kind, "event_data": {"host": host, "task": "x", "res": result}}


def told(world: World) -> list[str]:
    assert isinstance(world.err.file, io.StringIO)
    return world.err.file.getvalue().splitlines()


@pytest.mark.slow
def test_what_a_run_has_held_to_its_end_is_given_back(tmp_path: Path, world: World) -> None:
    names = ("own", "failed", "given", "other", "away", "early", "busy")
    notes = dict.fromkeys(names, HOLDER) | {"other": OTHER}
    hosts = [made(tmp_path, name, notes[name], *(TASKS[:1] if name == "busy" else ())) for name in names]
    state = RunState()
    for name in names:
        if name != "early":
            state.apply(event("runner_on_ok", name, held_as=HOLDER, refusal=""))
    state.apply(event("runner_on_failed", "failed", msg="no"))
    state.apply(event("runner_on_ok", "given", held_as=None))
    # It may have been taken, and nobody was told.
    for name in ("early", "busy"):
        state.apply(event("runner_on_start", name))
    (tmp_path / "away").rename(tmp_path / "cut")
    holding.let_go(world, InventoryCluster("main", tuple(hosts), ()), state)
    assert [place_of(tmp_path, name).read_text() for name in ("own", "failed", "early")] == [""] * 3
    assert json.loads(place_of(tmp_path, "other").read_text()) == OTHER
    assert json.loads(place_of(tmp_path, "busy").read_text()) == HOLDER
    assert json.loads(place_of(tmp_path, "given").read_text()) == HOLDER
    away, busy = told(world)
    assert (
        away
        == f"away: it stays held for this run, as it could not be given back: away is not reached; {holding.REMEDY}"
    )
    assert busy == f"busy: a task is still under way there, so it stays held for this run; {holding.REMEDY}"


def test_who_has_taken_nothing_gives_nothing_back(tmp_path: Path, world: World) -> None:
    host = made(tmp_path, "mq1", HOLDER)
    state = RunState()
    state.apply(event("runner_on_ok", "mq1", held_as=None, refusal="somebody"))
    state.apply(event("runner_on_failed", "mq1", msg="somebody"))
    holding.let_go(world, InventoryCluster("main", (host,), ()), state)
    assert json.loads(place_of(tmp_path, "mq1").read_text()) == HOLDER
    assert told(world) == []


@pytest.mark.parametrize("text", ["", "{}", "[]", "{", '{"pid": 1', '{"pid": 7}', "7"])
def test_what_is_not_whole_notes_nobody(tmp_path: Path, text: str) -> None:
    place = tmp_path / "note"
    assert give_back.give_back(HOLDER, str(place)) == "free"
    place.write_text(text)
    assert give_back.give_back(HOLDER, str(place)) == "free"


@pytest.mark.parametrize("line", TASKS)
def test_what_ansible_does_on_a_host_is_seen(tmp_path: Path, line: bytes) -> None:
    made(tmp_path, "mq1", None, b"python3\0-\0{}\0", b"")
    assert not give_back.has_task(str(tmp_path / "mq1/proc"))
    made(tmp_path, "mq2", None, line)
    assert give_back.has_task(str(tmp_path / "mq2/proc"))
    assert not give_back.is_idle(0.01, str(tmp_path / "mq2/proc"))


@pytest.mark.parametrize("program", ["python3", sys.executable])
def test_python_that_somebody_types_into_is_no_task(tmp_path: Path, program: str) -> None:
    controller, terminal = os.openpty()
    found = {}
    for name, stdin in (("terminal", terminal), ("pipe", subprocess.PIPE)):
        with subprocess.Popen([program], stdin=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
            (tmp_path / name).mkdir()
            (tmp_path / name / str(child.pid)).symlink_to(f"/proc/{child.pid}")
            while not Path(f"/proc/{child.pid}/cmdline").read_bytes():
                pass  # before it runs, the system may not show its arguments
            found[name] = give_back.has_task(str(tmp_path / name))
            child.kill()
    os.close(controller)
    os.close(terminal)
    assert found == {"terminal": False, "pipe": True}


def test_a_task_that_ends_is_waited_for() -> None:
    task = [sys.executable, "-c", "print(flush=True); input()  # BECOME-SUCCESS-x"]
    with subprocess.Popen(task, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        child.stdout.readline()  # before it runs, the system may not show its arguments
        assert give_back.has_task()
        child.communicate()
