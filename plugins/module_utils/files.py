# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Folders and small files of a host, brought to what is wanted of them.

Invariant: a file is replaced by a rename and has its owner and mode before its name, so whoever reads it finds the old
one or the new one, whole, and nobody reads what only others may. Nothing is written before everything that can be
tried has been tried. What is right already is left alone.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

TRY_TIME_S_MAX = 60
NEW = ".new"


class FileFault(Exception):
    """What is wanted cannot be made; the text says of which path and why."""


@dataclass(frozen=True)
class Wanted:
    """One path. Without `content` it is a folder. `try_by`: a command that gets the new content as last argument.

    `is_kept`: a file that something else writes; only owner and mode are ours, and where there is none, none is made.
    """

    path: str
    owner: str
    group: str
    mode: int
    content: bytes | None = None
    try_by: tuple[str, ...] = ()
    is_kept: bool = False


def differences(wanted: Wanted) -> list[str]:
    """What is not as wanted: absent, content, owner, group, mode. Raises FileFault where something else is there."""
    try:
        found = os.lstat(wanted.path)
    except FileNotFoundError:
        return [] if wanted.is_kept else ["absent"]
    except OSError as fault:
        raise FileFault(f"{wanted.path}: {fault.strerror}") from None
    is_folder = wanted.content is None and not wanted.is_kept
    if not (stat.S_ISDIR(found.st_mode) if is_folder else stat.S_ISREG(found.st_mode)):
        raise FileFault(f"{wanted.path} is no {'folder' if is_folder else 'file'}; move it away")
    pairs = {
        "content": wanted.content is not None and read(wanted.path) != wanted.content,
        "owner": found.st_uid != _number(_uid, wanted.owner),
        "group": found.st_gid != _number(_gid, wanted.group),
        "mode": stat.S_IMODE(found.st_mode) != wanted.mode,
    }
    return [name for name, is_different in pairs.items() if is_different]


def _number(of: Callable[[str], int], name: str) -> int | None:
    """None where a check looks for a user that is not made yet."""
    try:
        return of(name)
    except FileFault:
        return None


def read(path: str) -> bytes:
    """Content of a file; empty where there is none. Raises FileFault."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""
    except OSError as fault:
        raise FileFault(f"{path}: {fault.strerror}") from None


def make(wanted: Sequence[Wanted]) -> None:
    """Make all of them, in their order. Raises FileFault."""
    for one in wanted:
        if one.is_kept:
            _own(one)
        elif one.content is None:
            _make_folder(one)
    new = [(one, _write_beside(one)) for one in wanted if one.content is not None]
    try:
        for one, place in new:
            _try(one, place)
        for one, place in new:
            os.rename(place, one.path)
    except OSError as fault:
        raise FileFault(f"{fault.filename}: {fault.strerror}") from None
    finally:
        for place in [place for one, place in new if os.path.lexists(place)]:
            os.unlink(place)


def _make_folder(wanted: Wanted) -> None:
    try:
        if not os.path.isdir(wanted.path):
            # Nobody else looks into it before it is theirs.
            os.mkdir(wanted.path, 0o700)
        os.chown(wanted.path, _uid(wanted.owner), _gid(wanted.group))
        os.chmod(wanted.path, wanted.mode)
    except OSError as fault:
        raise FileFault(f"{wanted.path}: {fault.strerror}") from None


def _own(wanted: Wanted) -> None:
    """Give a file its owner and mode. Whoever may write beside it cannot lead this to another file."""
    try:
        descriptor = os.open(wanted.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
                raise FileFault(f"{wanted.path} is no file of its own; move it away")
            os.fchown(descriptor, _uid(wanted.owner), _gid(wanted.group))
            os.fchmod(descriptor, wanted.mode)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return
    except OSError as fault:
        raise FileFault(f"{wanted.path}: {fault.strerror}") from None


def _write_beside(wanted: Wanted) -> str:
    place = os.path.join(os.path.dirname(wanted.path), f".{os.path.basename(wanted.path)}{NEW}")
    try:
        if os.path.lexists(place):  # of a run that was cut off
            os.unlink(place)
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(wanted.content or b"")
            file.flush()
            os.fchown(descriptor, _uid(wanted.owner), _gid(wanted.group))
            os.fchmod(descriptor, wanted.mode)
            os.fsync(descriptor)
    except OSError as fault:
        raise FileFault(f"{wanted.path}: {fault.strerror}") from None
    return place


def _try(wanted: Wanted, place: str) -> None:
    if not wanted.try_by:
        return
    try:
        done = subprocess.run(
            [*wanted.try_by, place], capture_output=True, text=True, timeout=TRY_TIME_S_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise FileFault(f"{wanted.path}: {' '.join(wanted.try_by)}: {fault}") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).replace(place, wanted.path).strip()
        raise FileFault(f"{wanted.path} is refused by {' '.join(wanted.try_by)}: {said}")


def _uid(name: str) -> int:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise FileFault(f"there is no user {name}") from None


def _gid(name: str) -> int:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise FileFault(f"there is no group {name}") from None


def diff_of(wanted: Wanted, differs: Sequence[str], is_secret: bool) -> dict[str, Any]:
    """Before and after, in the form that Ansible shows. The content of a secret file is never in it."""
    header = {"before_header": wanted.path, "after_header": wanted.path}
    if "content" not in differs and "absent" not in differs:
        return {**header, "before": "", "after": f"{', '.join(differs)} changed\n"}
    if wanted.content is None:
        return {**header, "before": "", "after": "folder\n"}
    if is_secret:
        return {**header, "before": "", "after": "content that is not shown\n"}
    return {
        **header,
        "before": read(wanted.path).decode(errors="replace"),
        "after": wanted.content.decode(errors="replace"),
    }
