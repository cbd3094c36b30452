"""Faults while a cluster is changed, under traffic, on real hosts: what is done, at which step, and how it has to end.

    for cell in CELLS: stage.play(cell)

A cell is a fault and a step of a command; a step is known by a line that the command says. At that line the fault
comes to the host on which the step works. It is undone, the command is said again as it advises itself, and then all is
as if there had been no fault: nothing is left to do, every node is well, nothing that was accepted is lost or comes
twice unannounced, and the receipt of a host that left balances. Another command is a row in COMMANDS and one for each
of its steps in STEPS (tests/support/chaos_commands.py).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from tests.support.chaos_commands import BACKLOG, COMMANDS, HEIR, LEAVER, STEPS, Command, Step
from tests.support.chaos_hosts import DATA, ENDED, HOSTS, MOUNT, UNIT, Stage
from tests.support.patience import PATIENCE_S, wait_until
from tests.support.rack_traffic import Traffic, uris

PAUSE_S = 0.1  # between two messages of a producer: faults are met at any rate, and hosts share this machine
HOLD_S = 15.0  # for so long a fault lasts, unless the command ends before
STEP_S_MAX = 1200.0  # for what hangs
TRIES_MAX = 4  # of a command that advises to say it again
FILLER = f"{DATA}/lost+found/filler"  # where nobody looks for brokers
MAIN_PID = f"systemctl show --value --property=MainPID {UNIT}"
# Says the process that was killed, and nothing where there was none.
KILL = f"pid=$({MAIN_PID}); if test $pid != 0 && systemctl kill --signal=KILL {UNIT}; then echo $pid; fi"
SSH_CUT = "table inet chaos {{ chain in {{ type filter hook input priority -200; tcp dport 22 {0}; }}; }}"


# -- faults -----------------------------------------------------------------------------------------------------------

Undo = Callable[[], None]


def _nothing() -> None:
    """What needs no undoing."""


@dataclass(frozen=True)
class Fault:
    """What happens to a host, or to the control node; `strike` gives what undoes it. `ends_broker`: that of the host
    may end without a word, so its clients do not know of all that they sent whether it has come. `ends_command`: with
    a failure, whatever it was at. `is_of_day`: as of steps. Each one fails where it does not come about."""

    name: str
    strike: Callable[[Stage, str], Undo]
    ends_broker: bool = False
    ends_command: bool = False
    is_of_day: bool = False


def _kill_controller(stage: Stage, _: str) -> Undo:
    stage.site.kill_everything()
    return _nothing


def _ssh_cut(verdict: str) -> Callable[[Stage, str], Undo]:
    def strike(stage: Stage, host: str) -> Undo:
        stage.rack("exec", host, "--", "nft", SSH_CUT.format(verdict))
        return lambda: void(stage.rack("exec", host, "--", "nft", "delete table inet chaos"))

    return strike


def void(_: object) -> None:
    """For what is done for its effect."""


def _break_disk(stage: Stage, host: str) -> Undo:
    """As the kernel does where it finds a file system broken."""
    was_serving = stage.is_serving(host)
    device = stage.in_host(host, f"findmnt -no SOURCE {DATA}").strip()
    Path("/sys/fs/ext4", Path(device).name, "trigger_fs_error").write_text("1")

    def undo() -> None:
        stage.in_host(host, f"systemctl stop {UNIT} 2>/dev/null; cd /; umount {DATA} && e2fsck -pf /disk.img; {MOUNT}")
        _serve_again(stage, host, was_serving=was_serving)

    return undo


def _fill_disk(stage: Stage, host: str) -> Undo:
    was_serving = stage.is_serving(host)
    stage.in_host(
        host, f"fallocate -l $(df -B1 --output=avail {DATA} | tail -1) {FILLER}; cat /dev/zero >> {FILLER}; true"
    )

    def undo() -> None:
        stage.in_host(host, f"rm -f {FILLER}")
        _serve_again(stage, host, was_serving=was_serving)

    return undo


def _serve_again(stage: Stage, host: str, *, was_serving: bool) -> None:
    """Nobody starts a broker that had been stopped for good."""
    if was_serving and stage.in_host(host, f"systemctl cat {UNIT} >/dev/null 2>&1 && echo there; true").strip():
        stage.in_host(host, f"systemctl reset-failed {UNIT}; systemctl start {UNIT}; true")


def _cut_power(stage: Stage, host: str) -> Undo:
    life = _life_of(stage, host)
    stage.rack("kill", host)

    def undo() -> None:
        stage.rack("boot", host)
        assert _life_of(stage, host) != life, f"{host} has not lost its power"

    return undo


def _life_of(stage: Stage, host: str) -> str:
    """When it was booted: hosts have no boot id of their own."""
    return stage.in_host(host, "systemctl show --value --property=UserspaceTimestampMonotonic").strip()


def _kill_broker(stage: Stage, host: str) -> Undo:
    """As soon as it runs, if it is just being restarted."""
    killed: list[str] = []

    def has_killed() -> bool:
        killed[:] = stage.in_host(host, KILL).split()
        return bool(killed)

    wait_until(has_killed, f"the broker of {host} runs and is killed")
    wait_until(lambda: stage.in_host(host, MAIN_PID).split() != killed, f"the broker of {host} is not what it was")
    return _nothing


BROKER_KILLED = "broker killed"
FAULTS = (
    Fault("controller killed", _kill_controller, ends_command=True, is_of_day=True),
    Fault("ssh silent", _ssh_cut("drop")),
    Fault("ssh refused", _ssh_cut("reject with tcp reset")),
    Fault("disk read-only", _break_disk, ends_broker=True),
    Fault("disk full", _fill_disk, ends_broker=True),
    Fault("power cut", _cut_power, ends_broker=True, is_of_day=True),
    Fault(BROKER_KILLED, _kill_broker, ends_broker=True, is_of_day=True),
)

# -- cells ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """A fault at a step."""

    step: Step
    fault: Fault

    def __str__(self) -> str:
        return f"{self.step.command} {self.step.name}: {self.fault.name}"


CELLS = tuple(
    Cell(step, fault) for step, fault in product(STEPS, FAULTS) if step.has_broker or fault.name != BROKER_KILLED
)


# Played in a few minutes: nobody waits until a silent host is given up, and all goes on in the same release.
CELLS_OF_DAY = tuple(cell for cell in CELLS if cell.step.is_of_day and cell.fault.is_of_day)


def of_day(day: int) -> Cell:
    """One of them, with another fault each day."""
    count = len(CELLS_OF_DAY)
    faults = len({cell.fault for cell in CELLS_OF_DAY})
    stride = next(number for number in range(faults + 1, 2 * count) if _are_coprime(number, count))
    return CELLS_OF_DAY[day * stride % count]


def _are_coprime(one: int, other: int) -> bool:
    while other:
        one, other = other, one % other
    return one == 1


# -- a cell -----------------------------------------------------------------------------------------------------------


def play(stage: Stage, cell: Cell) -> dict[str, Any]:
    """A cell from its beginning until all is as before; what traffic came to."""
    command = COMMANDS[cell.step.command]
    stage.cells += 1
    stage.said.clear()
    stage.bring_to(is_last_release=command.begins_at_last)
    command.before(stage)
    traffic = Traffic(stage.site, told(stage, cell))
    try:
        code = _struck(stage, cell)
        assert code or not cell.fault.ends_command, "it was done before the fault came: " + "".join(stage.said)
        _until_done(stage, command, code)
        command.is_followed_by(stage)
        stage.is_of_last_release = command.ends_at_last
        stage.converged()
        command.has_done(stage)
        verdict = traffic.verdict()
    finally:
        traffic.end()
    assert verdict["violations"] == [], verdict
    assert sum(verdict["counts"]["accepted"].values()) > 0
    command.after(stage)
    stage.site.was_killed = False
    return verdict


def told(stage: Stage, cell: Cell) -> dict[str, Any]:
    """What is sent and read meanwhile. Producers go on at other nodes too, as brokers tell of each other; where one
    ends without a word the load knows what may come twice for that. The leaver has no producer then.

    Nobody reads the backlog until all is over. It is at the host that the fault comes to, or leaves with the leaver, so
    that what a journal loses is missed there. Where no broker runs the load has no part.
    """
    uri, command = uris(stage.site), COMMANDS[cell.step.command]
    place = HEIR if command.is_away else command.leaver or cell.step.host
    reader = next(host for host in (HEIR, *HOSTS) if host not in (place, command.leaver))
    producers = {host: uri(host) for host in HOSTS if host != command.leaver}
    if command.leaver and not (command.is_away or cell.fault.ends_broker):
        producers[command.leaver] = uri(command.leaver, HEIR)
    other = HEIR if command.is_away else LEAVER
    return {
        "queue": f"orders-{stage.cells}",
        "pause_s": PAUSE_S,
        "producers": producers,
        "consumers": {"mq2": uri("mq2", HEIR), other: uri(other, "mq2", HEIR)},
        "backlog": {"queue": f"old-{stage.cells}", "uri": uri(place), "count": BACKLOG, "read_from": uri(reader)},
        "answers_at_stop": not command.begins_at_last,
    }


def _struck(stage: Stage, cell: Cell) -> int:
    """The command, to which the fault comes at the step; the exit code."""
    site, step = stage.site, cell.step
    words = COMMANDS[step.command].words_at(stage)
    site.was_killed = True
    began_s = time.monotonic()
    reached, found = threading.Event(), []
    with subprocess.Popen(
        site.command(*words), cwd=site.folder, env=site.environment,
        stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip

        def listen() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                stage.said.append(line)
                if step.line in line and not reached.is_set():
                    found.append(line)
                    reached.set()
            reached.set()

        ears = threading.Thread(target=listen, daemon=True)
        ears.start()
        try:
            assert reached.wait(STEP_S_MAX), f"it never came to {step.line!r}"
            assert found, "it ended before that: " + "".join(stage.said)
            undo = cell.fault.strike(stage, step.host)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(HOLD_S)
            undo()
            code = process.wait(STEP_S_MAX)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        ears.join(PATIENCE_S)
    stage.note(words, code, began_s)
    return code


def _until_done(stage: Stage, command: Command, code: int) -> None:
    """As an operator does, who looks that hosts answer, says it again, and with --resume where he is told to; or only
    gives hosts back where that is all that is left."""
    words = command.words_at(stage)
    # A host that has nothing to start a broker with tries that again and again.
    hosts = [host for host in HOSTS if not (command.is_away and host == command.leaver)]
    for _ in range(TRIES_MAX):
        if code == 0 or _is_over(stage, command):
            return
        wait_until(lambda: all(_answers(stage, host) for host in hosts), "each host answers")
        if _is_only_held(stage):
            stage.site.run("operation", "release", "--yes")
            return
        is_told = any(" --resume" in line for line in stage.said[-7:-1])
        again = [*words, "--resume"] if is_told or code < 0 else [*words]
        began_s = time.monotonic()
        done = subprocess.run(
            stage.site.command(*again), cwd=stage.site.folder, env=stage.site.environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=STEP_S_MAX, check=False,
        )  # fmt: skip
        code = done.returncode
        stage.said += done.stdout.splitlines(keepends=True)
        stage.note(again, code, began_s)
    assert code == 0 or _is_over(stage, command), f"exit code {code} after {TRIES_MAX} tries:\n" + "".join(
        stage.said[-80:]
    )


def _is_only_held(stage: Stage) -> bool:
    """The last command has done all that it was to do, and says how hosts are given back that it could not reach."""
    return _has_said(stage, "all of it is done, so mqctl operation release gives it back")


def _is_over(stage: Stage, command: Command) -> bool:
    """It has done all of it, though it failed: a leaver is gone also where it said so with exit code 3, because a node
    that stays was not well at that moment."""
    if command.over:
        return _has_said(stage, command.over)
    return bool(command.leaver) and command.leaver not in (stage.site.folder / "inventory.yml").read_text()


def _has_said(stage: Stage, text: str) -> bool:
    """The last command, in a line."""
    ends = [number for number, line in enumerate(stage.said) if line.startswith(ENDED)]
    own = stage.said[ends[-2] + 1 if len(ends) > 1 else 0 :]
    return any(text in line for line in own)


def _answers(stage: Stage, host: str) -> bool:
    """Its broker runs for good, or does not run for good: none is about to be started."""
    state = stage.in_host(host, f"systemctl show --value --property=ActiveState {UNIT}; true").strip()
    return state in ("active", "inactive", "failed")
