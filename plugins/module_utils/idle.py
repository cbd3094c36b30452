# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Waits until nothing of Ansible's is under way on this host: sent to it by mqctl, a part of a module, and run as root.

Says whether that came about within `--wait` seconds, and what was under way last, as one JSON document. Where a run
goes on elsewhere there is nothing under way between two of its tasks either, so `--quiet` says for how many seconds on
end that has to be so; where that is more than `--wait`, it has to be so from the beginning on.
Who asks may be a task itself, and counts for nothing, nor does what it was started by. Nor do the clients by which a
control node reaches hosts: what they have done here has processes of its own here. Standard library of Python 3.9 only.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import re
import stat
import sys
import time
from collections.abc import Collection

# What Ansible has its commands say where it takes on rights, and the file of a module.
TASK = re.compile(rb"BECOME-SUCCESS-|AnsiballZ_")
MODULE = re.compile(rb"AnsiballZ_\w+\.py")
# Python that reads a module, or that somebody has at a terminal.
READER = re.compile(rb"\A(?:[^\0]*/)?python[0-9.]*\0\Z")
# Their arguments are what is to be done on the other side.
CLIENTS = (b"ssh", b"sshpass", b"scp", b"sftp")
LOOK_S = 0.2
NAME_MAX = 80  # characters of a name that are told


def has_task(proc: str = "/proc", but: Collection[int] = ()) -> bool:
    """Whether Ansible does anything here, in other processes than these."""
    return bool(task(proc, but))


def task(proc: str = "/proc", but: Collection[int] = ()) -> str:
    """Number and name of a process by which Ansible does something here, other than these; empty for none."""
    for path in glob.glob(f"{proc}/[0-9]*"):
        number = int(os.path.basename(path))
        words = _task_of(path) if number not in but else b""
        if words:
            return f"process {number}, {_told(words)}"
    return ""


def _told(words: bytes) -> str:
    """The module that a command line runs, else its program. No other word of it: Ansible puts there what `environment`
    of a play holds, secrets among it."""
    module = MODULE.search(words)
    program = words.partition(b"\0")[0].split()[:1]
    name = module[0] if module else program[0].rpartition(b"/")[2] if program else b""
    text = "".join(char if char.isprintable() else "?" for char in name.decode(errors="replace"))
    return text[:NAME_MAX] or "without a name"


def own_line(proc: str = "/proc") -> set[int]:
    """This process, the one that started it, and so on."""
    found: set[int] = set()
    number = os.getpid()
    while number and number not in found:
        found.add(number)
        number = _parent_of(f"{proc}/{number}")
    return found


def _parent_of(process: str) -> int:
    """Its number; 0 where there is none, or nobody can say."""
    try:
        with open(f"{process}/stat", "rb") as file:
            # The name of the program stands in brackets before it, and may hold some itself.
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _task_of(process: str) -> bytes:
    """Its arguments, where it is a task."""
    try:
        with open(f"{process}/cmdline", "rb") as file:
            words = file.read()
        if words.partition(b"\0")[0].rpartition(b"/")[2] in CLIENTS:
            return b""
        is_task = TASK.search(words) or (READER.search(words) and not _is_at_terminal(process))
        return words if is_task else b""
    except OSError:
        return b""


def _is_at_terminal(process: str) -> bool:
    """Whether somebody types what it reads: Ansible sends modules through pipes and sockets."""
    try:
        return stat.S_ISCHR(os.stat(f"{process}/fd/0").st_mode)
    except PermissionError:
        return False


def is_idle(wait_s: float, proc: str = "/proc", quiet_s: float = 0.0) -> bool:
    """Whether nothing of Ansible's is under way for `quiet_s` on end, or ends in this time."""
    return not under_way(wait_s, proc, quiet_s)


def under_way(wait_s: float, proc: str = "/proc", quiet_s: float = 0.0) -> str:
    """Empty where nothing of Ansible's runs for `quiet_s` on end, or ends in this time; else what was seen last.

    A `wait_s` below `quiet_s` asks whether it is so now, for `quiet_s` from here on.
    """
    own = own_line(proc)
    idle_since_s = time.monotonic()
    deadline_s, last = idle_since_s + max(wait_s, quiet_s), ""
    while True:
        found, now_s = task(proc, own), time.monotonic()
        if found:
            idle_since_s, last = now_s, found
        elif now_s - idle_since_s >= quiet_s:
            return ""
        if now_s >= deadline_s:
            return last
        time.sleep(LOOK_S)


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--wait", type=float, default=0.0)
    parser.add_argument("--quiet", type=float, default=0.0)
    args = parser.parse_args()
    found = under_way(args.wait, quiet_s=args.quiet)
    sys.stdout.write(json.dumps({"is_idle": not found, "task": found}) + "\n")


if __name__ == "__main__":
    main()
