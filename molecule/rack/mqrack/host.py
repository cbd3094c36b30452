"""Owns power: switching a host on and off, stalling it, and running commands in it.

Invariant: what state a host is in is read from the kernel each time (its control group), never from a note that a
killed command could have left wrong.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from mqrack import cgroup, faults, network, prerequisites, ssh
from mqrack.command import attempt
from mqrack.errors import RackError
from mqrack.layout import ENTRY, Layout
from mqrack.plan import Host

READY_WAIT_S = 60.0
HALT_WAIT_S = 60.0
LOG_BYTES_MAX = 1 << 20
# systemd(1): SIGRTMIN+4 powers the machine off, as its power button does.
POWER_OFF = signal.SIGRTMIN + 4


def state(layout: Layout, host: Host) -> str:
    group = cgroup.host_group(layout.name, host.name)
    if not group.event("populated"):
        return "off"
    return "paused" if group.event("frozen") else "running"


def boot(layout: Layout, host: Host) -> None:
    """Returns as soon as the power is on; wait_ready waits for the system."""
    current = state(layout, host)
    if current == "paused":
        raise RackError(f"{host.name} is on, but paused; run `rack resume {host.name}`.")
    if current == "running":
        return
    group = cgroup.host_group(layout.name, host.name)
    group.remove()
    ssh.end_masters(layout, host)
    network.wire(layout, host)
    faults.apply(layout, host)
    _launch(layout, host, group)


def _launch(layout: Layout, host: Host, group: cgroup.Group) -> None:
    log = layout.log(host.name)
    if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
        log.unlink()
    argv = [
        "nsenter", f"--net={layout.netns_path(host.name)}", "unshare", "--mount", "--propagation=slave",
        sys.executable, str(ENTRY), "_supervise", layout.name, host.name,
    ]  # fmt: skip
    with log.open("ab") as sink:
        subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, cwd="/",
            start_new_session=True, preexec_fn=group.joiner(),
        )  # fmt: skip


def wait_ready(layout: Layout, hosts: Iterable[Host]) -> None:
    """Until every host's system is up and its ssh server answers the controller."""
    deadline = time.monotonic() + READY_WAIT_S
    waiting = list(hosts)
    for host in waiting:
        if not host.light:
            _wait_system(layout, host, deadline)
    reachable = [host.address for host in waiting if not host.jump]
    if reachable:
        _wait_ssh(layout, reachable, deadline)


def _wait_system(layout: Layout, host: Host, deadline: float) -> None:
    said = ""
    while time.monotonic() < deadline:
        init = find_init(layout, host)
        if init is not None:
            left_s = max(0.1, deadline - time.monotonic())
            asked = entering(init, ["systemctl", "is-system-running", "--wait"])
            said = attempt(asked, timeout_s=left_s).stdout.strip()
        if said == "running":
            return
        if said == "degraded":
            failed = attempt(entering(init or 0, ["systemctl", "--failed", "--plain", "--no-legend"])).stdout
            raise RackError(
                f"{host.name} is up but units failed: {failed.strip()}. Its log: {layout.log(host.name)}."
                f"{prerequisites.too_few_watchers()}"
            )
        if state(layout, host) == "off":
            break
        time.sleep(0.02)
    raise RackError(f"{host.name} did not come up (last word: {said or 'none'}). Its log: {layout.log(host.name)}.")


def _wait_ssh(layout: Layout, addresses: Sequence[str], deadline: float) -> None:
    left_s = max(1.0, deadline - time.monotonic())
    inside = [] if network.is_inside(layout, network.CONTROLLER) else _into(layout, network.CONTROLLER)
    argv = [*inside, sys.executable, str(ENTRY), "_answering", f"{left_s:.1f}", *addresses]
    # It lives in the controller namespace and would keep it from a `destroy`, were this command killed.
    group = cgroup.rack_group(layout.name).child("asking")
    done = attempt(argv, timeout_s=left_s + 5, joiner=group.joiner())
    if done.returncode != 0:
        raise RackError(done.stderr.strip())


def _into(layout: Layout, member: str) -> list[str]:
    return ["nsenter", f"--net={layout.netns_path(member)}", "--"]


def kill(layout: Layout, host: Host) -> None:
    """Power cut. The cables go silent first, so no peer gets a goodbye from a dying kernel socket."""
    network.silence(layout, host)
    cgroup.host_group(layout.name, host.name).kill()
    unplug(layout, host)


def halt(layout: Layout, host: Host) -> None:
    """Power button: the system stops its services in order. Returns when it has."""
    current = state(layout, host)
    if current == "off":
        return
    if current == "paused":
        raise RackError(f"{host.name} is paused and cannot hear its power button; run `rack resume {host.name}`.")
    if host.light:
        raise RackError(f"{host.name} is a light host, which has no init to stop it; run `rack kill {host.name}`.")
    init = find_init(layout, host)
    if init is None:
        raise RackError(f"{host.name} has only just been switched on; try again, or run `rack kill {host.name}`.")
    os.kill(init, POWER_OFF)
    cgroup.host_group(layout.name, host.name).wait_empty(HALT_WAIT_S)


def unplug(layout: Layout, host: Host) -> None:
    """Takes away what a host that is off leaves in the switch; boot brings fresh cables."""
    cgroup.host_group(layout.name, host.name).remove()
    faults.stop(layout, host)
    network.unwire(layout, host)


def freeze(layout: Layout, host: Host, frozen: bool) -> None:
    """Stalls every process of the host; its kernel goes on, so it still answers ping."""
    if state(layout, host) == "off":
        raise RackError(f"{host.name} is off; run `rack boot {host.name}` first.")
    cgroup.host_group(layout.name, host.name).freeze(frozen)


def find_init(layout: Layout, host: Host) -> int | None:
    """The process that is number 1 inside the host."""
    for pid in sorted(cgroup.host_group(layout.name, host.name).pids()):
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        numbers = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
        if len(numbers) > 1 and numbers[-1] == "1":
            return pid
    return None


def entering(init: int, argv: Sequence[str]) -> list[str]:
    """A command line that runs another one inside the host, as root, with a clean environment.

    It is a shell that starts the command and waits for it. Left to itself, nsenter stops itself when its command is
    stopped, and goes on only when told: systemd stops every process of a host for a moment before it ends them, so a
    command of ours would stay behind as a corpse that nobody buries, and a host waits for those with its reboot.
    """
    clean = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", f"TERM={os.environ.get('TERM', 'dumb')}"]
    # A program of its own, never a word that the shell knows: the shell itself is not among the host's processes.
    waiting = ["sh", "-c", '(exec "$@"); exit "$?"', "sh"]
    return ["nsenter", f"--target={init}", "--all", "--no-fork", "--", *clean, *waiting, *argv]


def execute(layout: Layout, host: Host, argv: Sequence[str]) -> int:
    init = find_init(layout, host)
    if state(layout, host) == "paused":
        raise RackError(f"{host.name} is paused: nothing can run in it; run `rack resume {host.name}`.")
    if init is None:
        raise RackError(f"{host.name} is {state(layout, host)}: nothing can run in it; run `rack boot {host.name}`.")
    # In a group of its own below the host's: a power cut has to take what we started there too.
    group = cgroup.host_group(layout.name, host.name).child("exec")
    return subprocess.run(entering(init, argv), preexec_fn=group.joiner()).returncode
