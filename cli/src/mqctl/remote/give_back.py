"""Gives this host back after a run that has ended: sent to it by mqctl, run as root, with the run's note as argument.

Nothing is given back that another run has noted meanwhile. With `--idle SECONDS` tasks of Ansible that are under way
are waited for, and where they do not end in that time, it stays noted. Says which of these came about, as one JSON
document. The note is that of plugins/module_utils/change_lock.py, of which no file can be imported here; that both
judge it alike is checked (tests/contract/test_rules_that_stand_twice.py). Standard library of Python 3.9 only.
"""

from __future__ import annotations

import argparse
import fcntl
import glob
import json
import os
import re
import stat
import time
from typing import Any

PLACE = "/run/mq-change.json"
FIELDS = ("user", "machine", "space", "pid", "began", "what", "since")
SAME = ("machine", "space", "pid", "began")
# What Ansible has its commands say where it takes on rights, and the file of a module.
TASK = re.compile(rb"BECOME-SUCCESS-|AnsiballZ_")
# Python that reads a module, or that somebody has at a terminal.
READER = re.compile(rb"\A(?:[^\0]*/)?python[0-9.]*\0\Z")
LOOK_S = 0.2


def has_task(proc: str = "/proc") -> bool:
    """Whether Ansible does anything here."""
    return any(_is_task(path) for path in glob.glob(f"{proc}/[0-9]*"))


def _is_task(process: str) -> bool:
    try:
        with open(f"{process}/cmdline", "rb") as file:
            words = file.read()
        return bool(TASK.search(words) or (READER.search(words) and not _is_at_terminal(process)))
    except OSError:
        return False


def _is_at_terminal(process: str) -> bool:
    """Whether somebody types what it reads: Ansible sends modules through pipes and sockets."""
    try:
        return stat.S_ISCHR(os.stat(f"{process}/fd/0").st_mode)
    except PermissionError:
        return False


def is_idle(wait_s: float, proc: str = "/proc") -> bool:
    """Whether nothing of Ansible's is under way, or ends in this time."""
    deadline_s = time.monotonic() + wait_s
    while has_task(proc):
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(LOOK_S)
    return True


def give_back(holder: dict[str, Any], place: str = PLACE) -> str:
    """Note nobody, where this one is noted: `free`, or `other` where somebody else is."""
    try:
        descriptor = os.open(place, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return "free"
    with os.fdopen(descriptor, "r+", encoding="utf-8", errors="replace") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        found = _holder_in(file.read())
        if found is None:
            return "free"
        if any(found[name] != holder[name] for name in SAME):
            return "other"
        file.truncate(0)
    return "free"


def _holder_in(text: str) -> dict[str, Any] | None:
    """Who is noted; what is not whole notes nobody."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    if not isinstance(found, dict) or not isinstance(found.get("pid"), int):
        return None
    return found if all(isinstance(found.get(name), str) for name in FIELDS if name != "pid") else None


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("holder", type=json.loads)
    parser.add_argument("--idle", type=float)
    args = parser.parse_args()
    is_done = args.idle is None or is_idle(args.idle)
    print(json.dumps({"state": give_back(args.holder) if is_done else "busy"}))


if __name__ == "__main__":
    main()
