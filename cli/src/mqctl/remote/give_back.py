"""Gives this host back after a run that has ended: sent to it by mqctl, run as root, with the run's note as argument.

Nothing is given back that another run has noted meanwhile. With `--idle SECONDS` tasks of Ansible that are under way
are waited for, and where they do not end in that time, it stays noted. Says which of these came about, as one JSON
document. The note is that of plugins/module_utils/change_lock.py. Standard library of Python 3.9 only.
"""

from __future__ import annotations

import argparse
import fcntl
import glob
import json
import os
import re
import time
from typing import Any

PLACE = "/run/mq-change.json"
SAME = ("machine", "space", "pid", "began")
# What Ansible has its commands say where it takes on rights, the file of a module, and Python that reads one.
TASK = re.compile(rb"BECOME-SUCCESS-|AnsiballZ_|\A[^\0]*/python[0-9.]*\0\Z")
LOOK_S = 0.2


def has_task(proc: str = "/proc") -> bool:
    """Whether Ansible does anything here."""
    for path in glob.glob(f"{proc}/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                if TASK.search(file.read()):
                    return True
        except OSError:
            continue
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
        text = file.read()
        try:
            found = json.loads(text or "{}")
            is_other = bool(found) and any(found[name] != holder[name] for name in SAME)
        except (ValueError, LookupError, TypeError):
            # What is not whole notes nobody.
            return "free"
        if is_other:
            return "other"
        file.truncate(0)
    return "free"


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
