"""Owns a rack as a whole: putting it up, taking it down, and the lock that keeps two commands apart.

Invariant: taking down needs the rack's name and nothing else, neither its files nor a clean end of the command that
put it up. Order: ssh's shared connections, then every process (one control group), then wires, namespaces, groups,
disks, and the run folder last.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from mqrack import cgroup, host, image, network, ssh
from mqrack.command import attempt
from mqrack.errors import RackError
from mqrack.layout import LOCKS, NETNS, RUN, STATE, Layout
from mqrack.plan import Host, Plan, check_name, make_plan

LOCK_WAIT_S = 60.0
GOODBYE_WAIT_S = 1.0


@contextmanager
def locked(layout: Layout) -> Iterator[None]:
    """One command at a time changes a rack. A killed command loses the lock with its life."""
    LOCKS.mkdir(mode=0o755, parents=True, exist_ok=True)
    deadline = time.monotonic() + LOCK_WAIT_S
    while not (held := _try_lock(LOCKS / layout.name)):
        if time.monotonic() > deadline:
            raise RackError(
                f"rack {layout.name} has been busy for {LOCK_WAIT_S:g} s with the command of process "
                f"{(LOCKS / layout.name).read_text().strip()}; wait for it or end it, then try again."
            )
        time.sleep(0.05)
    with held:
        yield


def _try_lock(path: Path) -> IO[str] | None:
    held = path.open("a+")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A destroy may have removed the file that we waited for: a lock on it would keep nobody out.
        if path.stat().st_ino == os.fstat(held.fileno()).st_ino:
            held.truncate(0)
            held.write(f"{os.getpid()}\n")
            held.flush()
            return held
    except (BlockingIOError, FileNotFoundError):
        pass
    held.close()
    return None


def load(layout: Layout) -> Plan:
    try:
        noted = json.loads(layout.plan.read_text())
    except FileNotFoundError:
        raise RackError(f"there is no rack {layout.name!r} here; `rack up N --name {layout.name}` makes one.") from None
    return make_plan(layout.name, noted["hosts"], noted["lights"], noted["behind"])


def image_of(layout: Layout) -> Path:
    return Path(json.loads(layout.plan.read_text())["image"])


def up(plan: Plan, root: Path) -> Plan:
    """Makes the rack, or switches on what is off in it, and returns when every host is ready."""
    layout = Layout(plan.name)
    with locked(layout):
        plan = _note(layout, plan, root)
        ssh.make_keys(layout, plan)
        layout.shared.mkdir(parents=True, exist_ok=True)
        layout.shared.chmod(0o1777)
        network.ensure_switch(layout)
        network.ensure_controller(layout)
        for member in plan.hosts:
            host.boot(layout, member)
    host.wait_ready(layout, plan.hosts)
    return plan


def _note(layout: Layout, plan: Plan, root: Path) -> Plan:
    """Writes down what the rack is; light hosts may join a rack, full ones are there from its beginning."""
    if layout.plan.exists():
        there = load(layout)
        if plan.hosts_count not in (0, there.hosts_count) or (plan.behind and plan.behind != there.behind):
            raise RackError(
                f"rack {layout.name} is there already, with {there.hosts_count} hosts; "
                f"run `rack destroy --name {layout.name}` first, or choose another --name."
            )
        lights = max(plan.lights_count, there.lights_count)
        plan, root = Plan(plan.name, there.hosts_count, lights, there.behind), image_of(layout)
    layout.run.mkdir(mode=0o700, parents=True, exist_ok=True)
    noted = {"hosts": plan.hosts_count, "lights": plan.lights_count, "behind": dict(plan.behind), "image": str(root)}
    scratch = layout.plan.with_suffix(".new")
    scratch.write_text(json.dumps(noted) + "\n")
    os.replace(scratch, layout.plan)
    return plan


def boot(layout: Layout, members: Sequence[Host]) -> None:
    with locked(layout):
        for member in members:
            host.boot(layout, member)
    host.wait_ready(layout, members)


def destroy(layout: Layout) -> None:
    """Takes a rack down, whatever is left of it. Keeps the controller namespace while commands live in it."""
    with locked(layout):
        ssh.end_masters(layout)
        group = cgroup.rack_group(layout.name)
        group.kill()
        network.remove_all(layout)
        group.remove()
        _unmount(layout)
        for folder in (layout.disks, layout.run):
            if folder.exists():
                shutil.rmtree(folder)
        _drop_controller(layout)
        (LOCKS / layout.name).unlink(missing_ok=True)
    image.remove_partial_if_idle()


def _unmount(layout: Layout) -> None:
    """Disks are mounted out of sight; this is for mounts that somebody made below the rack's folders."""
    prefixes = (f"{layout.disks}/", f"{layout.run}/")
    points = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for point in reversed([point for point in points if point.startswith(prefixes)]):
        attempt(["umount", "--lazy", point])


def _drop_controller(layout: Layout) -> None:
    """A namespace that a command like molecule runs in is needed by its next `rack up`: `enter` drops it later."""
    if not network.exists(layout, network.CONTROLLER):
        return
    deadline = time.monotonic() + GOODBYE_WAIT_S
    # Shared connections of ssh that were told to end take a moment.
    while (living := network.processes_in(layout, network.CONTROLLER)) and os.getpid() not in living:
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    if living:
        print(f"rack: the controller namespace stays while processes {living} live in it", file=sys.stderr)
    else:
        network.delete_namespace(layout, network.CONTROLLER)


def enter(layout: Layout, argv: Sequence[str]) -> int:
    """Runs a command in the controller namespace, making that first if need be (molecule runs `up` inside)."""
    with locked(layout):
        network.ensure_controller(layout)
    environment = {**os.environ, "RACK_NAME": layout.name}
    inside = [] if network.is_inside(layout, network.CONTROLLER) else [
        "nsenter", f"--net={layout.netns_path(network.CONTROLLER)}", "--"
    ]  # fmt: skip
    code = _see_through([*inside, *argv], environment)
    if not layout.plan.exists():
        with locked(layout):
            _drop_controller(layout)
            (LOCKS / layout.name).unlink(missing_ok=True)
    return code


def _see_through(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Waits for a command however often it is interrupted: what follows tidies up after it."""
    # Told to end, we pass it on; noted until the command is there to be told.
    ending = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: ending.set())
    try:
        with subprocess.Popen(argv, env=environment) as process:
            signal.signal(signal.SIGTERM, lambda *_: process.terminate())
            if ending.is_set():
                process.terminate()
            code = _wait_patiently(process)
    except FileNotFoundError:
        raise RackError(f"cannot run {argv[0]!r}: there is no such program.") from None
    finally:
        signal.signal(signal.SIGTERM, before)
    # As a shell reports a command that a signal ended.
    return code if code >= 0 else 128 - code


def _wait_patiently(process: subprocess.Popen[bytes]) -> int:
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            # The terminal has told the command too; it decides when to end.
            continue


def names() -> list[str]:
    """Every rack of which anything is left: files, control groups or namespaces."""
    found = {path.name for folder in (RUN, STATE / "racks") for path in _folders(folder)}
    found |= {path.name for path in _folders(cgroup.unified_root() / "mqops-rack")}
    if NETNS.is_dir():
        parts = (path.name.split(".") for path in NETNS.iterdir())
        found |= {part[1] for part in parts if part[0] == "mqrack" and len(part) == 3}
    return sorted(check_name(name) for name in found if not name.startswith("."))


def _folders(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
