# Made by `make gen` from plugins/module_utils/operation.py; changes belong there.
# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Which operation may change a host: one at a time in a cluster, by a number that only grows, noted on the host itself.

    {"number": 7, "is_held": true, "token": "5f0c…", "user": "ann", "machine": "laptop", "what": "mqctl rollout",
     "since": "2026-11-27 10:15:00 UTC"}

A rollout or an upgrade also notes its `goal`, the release that it goes to, and a rollback the one that it takes back,
and in `goal_by` what it is itself; operations after it keep both. A `wish` of "pause" says that nothing more of it may
begin.

Invariant: the number of a host never falls. Whoever has a lower one than is noted is refused, whatever became of who
noted it; nothing ends by itself, neither by time nor by a boot. Source: docs/adr/0028-one-operation-at-a-time.md.

| noted is | who comes has | then |
|---|---|---|
| nobody | a higher number | it is noted |
| who comes | that number | nothing changes |
| another one, in whose place who comes is to be | a higher number | it is noted |
| anything else | | it is refused |

Sent to hosts by mqctl and run by the playbooks: standard library of Python 3.9 only.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

PLACE = "/var/lib/mq-operation.json"
LOCK = "/run/mq-operation.lock"
PAUSE = "pause"
# Commands that raise the number and hold nothing.
GIVEN_UP = ("mqctl operation release", "mqctl upgrade stop")
# It gives up as well, and what still runs on the hosts is nobody's of the cluster.
UNAWAITED = "mqctl operation release --no-wait"
KINDS = {"number": int, "is_held": bool, "token": str, "user": str, "machine": str, "what": str, "since": str}
# The release that it, or the last one before it, brings or takes back; and what somebody wishes of it meanwhile.
# `after`: the command that it came after and of which tasks may be under way.
MORE = {"goal": str, "goal_by": str, "wish": str, "after": str}
NUMBER_MAX = 2**53  # what JSON has as a whole number everywhere

Note = dict[str, Any]


def look(place: str = PLACE) -> Note | None:
    """What is noted; what is not whole is nothing."""
    try:
        with open(place, encoding="utf-8", errors="replace") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or not all(_is_a(found.get(name), kind) for name, kind in KINDS.items()):
        return None
    if not all(_is_a(found.get(name, ""), kind) for name, kind in MORE.items()):
        return None
    return found if 0 < found["number"] < NUMBER_MAX else None


def _is_a(value: object, kind: type) -> bool:
    """Whether it is of this kind; that something is so is no number."""
    return isinstance(value, kind) and isinstance(value, bool) == (kind is bool)


def take(wanted: Mapping[str, Any], instead_of: str = "", place: str = PLACE, lock: str = LOCK) -> Note | None:
    """Note `wanted`; what is noted and stands in its way, None where it is noted now.

    `instead_of`: the token of the operation in whose place it is to be, if it is still that one.
    """
    if not 0 < wanted["number"] < NUMBER_MAX:  # it could not be read again
        raise ValueError(f"no operation has the number {wanted['number']}: it would be noted and not be known again")
    with locked(lock):
        found = look(place)
        if found is not None and is_own(found, wanted):
            return None
        if found is not None and not may_follow(found, wanted, instead_of):
            return found
        _put(place, wanted)
    return None


def may_follow(found: Mapping[str, Any], wanted: Mapping[str, Any], instead_of: str) -> bool:
    """Whether the operation that is noted may be followed by another one."""
    is_free = not found["is_held"] or found["token"] == instead_of
    return is_free and bool(wanted["number"] > found["number"])


def give_back(own: Mapping[str, Any], place: str = PLACE, lock: str = LOCK) -> bool:
    """Note that this operation has ended, where it is the one that is noted; whether it was. Its number stays."""
    with locked(lock):
        found = look(place)
        if found is None or not is_own(found, own):
            return False
        _put(place, {**found, "is_held": False})
    return True


def wish(noted: Mapping[str, Any], what: str, place: str = PLACE, lock: str = LOCK) -> bool:
    """Note what somebody wishes of the operation that is noted and held, where it is still that one; whether it was."""
    with locked(lock):
        found = look(place)
        if found is None or not is_own(found, noted):
            return False
        _put(place, {**found, "wish": what})
    return True


def is_own(found: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    """Whether this operation holds what it is noted on."""
    return bool(found["is_held"] and found["token"] == own["token"] and found["number"] == own["number"])


def lost_to(own: Mapping[str, Any], place: str = PLACE) -> str:
    """In words, what has come in the place of this operation; empty where it still holds the host."""
    found = look(place)
    if found is None:
        return f"no operation is noted there any more, and {own['number']} was: somebody has removed {place}"
    if not is_own(found, own):
        return sentence(found)
    return f"somebody paused {told(found)}" if found.get("wish") == PAUSE else ""


def is_followed(own: Mapping[str, Any], place: str = PLACE) -> bool:
    """Whether another operation has the host, or has had it since: over or not, it has left the host as it is to be.

    Where this one was given up, and nobody has come after that, what has begun may come to its end. The number of who
    gives up is the next one, so a later one says that somebody came in between.
    """
    found = look(place)
    if found is None or is_own(found, own):
        return False
    own_last = own["number"] + (1 if found["what"] in GIVEN_UP else 0)
    return bool(found["is_held"] or found["number"] > own_last)


def is_paused(own: Mapping[str, Any], place: str = PLACE) -> bool:
    """Whether this operation has the host, and somebody wishes that nothing more of it begins."""
    found = look(place)
    return found is not None and is_own(found, own) and found.get("wish") == PAUSE


def told(found: Mapping[str, Any]) -> str:
    """An operation in words."""
    who = f"{found['user']} from {found['machine']}, since {found['since']}"
    return f"operation {found['number']} ({found['what']}, {who})"


def sentence(found: Mapping[str, Any]) -> str:
    """Which operation is in the way, and what to do."""
    who = told(found)
    if not found["is_held"]:
        return f"{who} has been there since and is over; begin anew"
    if found.get("wish") == PAUSE:
        return f"{who} is paused; go on with {again(found['what'])}, or give it up with mqctl operation release"
    back = back_from(found["what"])
    return (
        f"{who} is under way; wait for its end, or where it is gone for certain go on in its "
        f"place with {again(found['what'])},{f' take it back with {back},' if back else ''} or give it up with "
        "mqctl operation release"
    )


def again(what: str) -> str:
    """What goes on in the place of this command. What takes back goes on by itself: said once more."""
    if not what.startswith("mqctl "):
        return "-e mq_resume=true"
    return what if is_taking_back(what) else f"{what} --resume"


def back_from(what: str) -> str:
    """The command that takes back what this one does; empty where there is none."""
    if what.startswith("mqctl scale-down ") and not is_taking_back(what):
        return f"{what} --cancel"
    drained = what.removeprefix("mqctl drain ")
    return "" if drained == what else f"mqctl undrain {drained}"


def is_taking_back(what: str) -> bool:
    """Whether this command takes back what another one does."""
    return what.startswith("mqctl undrain ") or (what.startswith("mqctl scale-down ") and what.endswith(" --cancel"))


def may_have_tasks(found: Mapping[str, Any]) -> bool:
    """Whether tasks of a playbook may be under way of what is noted, for another one that comes: of what is held or was
    given up. Drains and what takes back run none themselves; what they came after may have."""
    if not found["is_held"]:
        return found["what"] in GIVEN_UP
    has_none = found["what"].startswith("mqctl drain ") or is_taking_back(found["what"])
    return not has_none or bool(found.get("after"))


@contextlib.contextmanager
def locked(place: str = LOCK) -> Iterator[None]:
    """Nobody else changes the note meanwhile."""
    descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _put(place: str, note: Mapping[str, Any]) -> None:
    more = {name: note[name] for name in MORE if note.get(name)}
    put(place, json.dumps({**{name: note[name] for name in KINDS}, **more}), 0o644)


def put(place: str, text: str, mode: int = 0o600) -> None:
    """A note in the place of what was there: whole or not at all, also after a power cut. Nobody could find it out
    later. Raises OSError."""
    beside = f"{place}.new"
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, place)
    folder = os.open(os.path.dirname(place), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def main() -> None:
    """Run the program: what is noted there, as it was found, as one JSON document."""
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=["look", "take", "give-back", "wish"])
    parser.add_argument("--note", type=json.loads, default={})
    parser.add_argument("--instead-of", default="")
    parser.add_argument("--wish", default="")
    args = parser.parse_args()
    found = None
    if args.action == "take":
        found = take(args.note, args.instead_of)
    elif args.action == "give-back":
        give_back(args.note)
    elif args.action == "wish":
        found = args.note if wish(args.note, args.wish) else None
    else:
        found = look()
    sys.stdout.write(json.dumps({"found": found}) + "\n")


if __name__ == "__main__":
    main()
