# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Who changes a host: one run at a time, noted on the host itself.

Invariant: whoever is noted and lives is the only one that changes the host. A run is known by its process, so it takes
what it has once more without a word; the note of a process that is gone stands in nobody's way, as far as whoever looks
can know that: from the same machine. From elsewhere a person has to say so. What is noted ends with a boot of the host.
Source: docs/adr/0018-one-run-at-a-time.md.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
from collections.abc import Mapping
from typing import Any

PLACE = "/run/mq-change.json"
FIELDS = ("user", "machine", "space", "pid", "began", "what", "since")
SAME = ("machine", "space", "pid", "began")
# States of a process that has ended and is still listed.
ENDED = ("Z", "X", "x")

Holder = dict[str, Any]


def take(holder: Mapping[str, Any], instead_of: Mapping[str, Any] | None = None, place: str = PLACE) -> Holder | None:
    """Note `holder`; who is noted and stands in its way, None where it holds the host now.

    `instead_of`: whose note is replaced, if it is still that one.
    """
    descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "r+", encoding="utf-8", errors="replace") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        found = _holder_in(file.read())
        if found is not None and not _is_same(found, holder) and found != instead_of:
            return found
        _write(file, json.dumps(dict(holder)))
    return None


def give_back(holder: Mapping[str, Any], place: str = PLACE) -> bool:
    """Note nobody, where this one is noted; whether it was."""
    try:
        descriptor = os.open(place, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    with os.fdopen(descriptor, "r+", encoding="utf-8", errors="replace") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        found = _holder_in(file.read())
        if found is None or not _is_same(found, holder):
            return False
        _write(file, "")
    return True


def lost_to(holder: Mapping[str, Any], place: str = PLACE) -> str:
    """In words, who has taken the place of this one; empty where it still holds the host."""
    try:
        with os.fdopen(
            os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), encoding="utf-8", errors="replace"
        ) as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            found = _holder_in(file.read())
    except FileNotFoundError:
        found = None
    if found is None:
        return "it is held for nobody any more: it was booted, or another run took the place of this one and has ended"
    return "" if _is_same(found, holder) else sentence(found)


def is_gone(holder: Mapping[str, Any], own_space: str, proc: str = "/proc") -> bool:
    """Whether the process of a note is known to be gone: it was of this machine, since its boot, and is no more."""
    return bool(own_space) and holder["space"] == own_space and began(int(holder["pid"]), proc) != holder["began"]


def began(pid: int, proc: str = "/proc") -> str:
    """When a process began, as the kernel counts; empty where there is none. Numbers are used again, this is not.

    One that has ended is none, also where nobody has asked how it ended: containers often have nobody who does.
    """
    try:
        with open(f"{proc}/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return "" if fields[0] in ENDED else fields[19]
    except (OSError, IndexError):
        return ""


def user(uid: int, environ: Mapping[str, str]) -> str:
    """The name of who runs this, or the number: containers often run with one that belongs to no account."""
    for variable in ("LOGNAME", "USER"):
        if environ.get(variable):
            return environ[variable]
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def space(proc: str = "/proc") -> str:
    """In which the number of a process means one process: this boot, and its namespace. Empty where nobody says so."""
    try:
        with open(f"{proc}/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink(f'{proc}/self/ns/pid')}"
    except OSError:
        return ""


def sentence(holder: Mapping[str, Any]) -> str:
    """Who is in the way, and what to do."""
    return (
        f"it is being changed by {holder['user']} from {holder['machine']} ({holder['what']}, process {holder['pid']}) "
        f"since {holder['since']}; wait for the end of that, or where it is gone for certain take its place: "
        "mqctl … --take-over, or mq_take_over: true"
    )


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one[name] == other[name] for name in SAME)


def _holder_in(text: str) -> Holder | None:
    """Who is noted; what is not whole notes nobody."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    if not isinstance(found, dict) or not isinstance(found.get("pid"), int):
        return None
    return found if all(isinstance(found.get(name), str) for name in FIELDS if name != "pid") else None


def _write(file: Any, text: str) -> None:
    file.seek(0)
    file.truncate()
    file.write(text)
    file.flush()
