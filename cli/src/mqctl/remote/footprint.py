"""Says as one JSON document whether this host is as the last rollout left it: sent to it by mqctl, run as root.

A rollout that ended well leaves a mark: a digest of all that went into it, and a digest of what it left here, contents,
modes and owners of everything that it manages. With the argument `--mark DIGEST` it is written. Where anything differs
by one bit, the host is not settled, and the next rollout goes all the way. Standard library of Python 3.9 only.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import stat
import sys
from typing import Any

MARK = "/opt/mq/rollout.json"
# What roles write. Messages and logs are none of it.
TREES = ("/etc/mq", "/etc/systemd/system/mqbroker@*.service.d", "/etc/systemd/system/mq-firewall*")
FILES = (
    "/etc/systemd/system/mqbroker@.service",
    "/etc/systemd/system/*.wants/mqbroker@*",
    "/opt/mq",
    "/opt/mq/current",
    "/opt/mq/releases",
    "/opt/mq/releases/*",
    "/opt/mq/releases/*/complete",
    "/var/lib/mq",
    "/var/lib/mq/*",
    "/var/lib/mq/*/identity.json",
    "/var/lib/mq/*/users.json",
    "/var/lib/mq/*/cluster-secret",
)


def paths_of(root: str) -> list[str]:
    """Every file and folder that a rollout manages, below another root where that is said."""
    paths = set()
    for pattern in FILES:
        paths.update(glob.glob(root + pattern))
    for pattern in TREES:
        for top in glob.glob(root + pattern):
            paths.add(top)
            for folder, folders, files in os.walk(top):
                paths.update(os.path.join(folder, name) for name in folders + files)
    return sorted(paths)


def entry_of(path: str) -> list[Any]:
    """What one of them is: mode, owner, group, and content, or where it points to."""
    seen = os.lstat(path)
    content = ""
    if stat.S_ISLNK(seen.st_mode):
        content = os.readlink(path)
    elif stat.S_ISREG(seen.st_mode):
        with open(path, "rb") as file:
            content = hashlib.sha256(file.read()).hexdigest()
    return [path, seen.st_mode, seen.st_uid, seen.st_gid, content]


def footprint(root: str = "") -> str:
    """A digest of all of them."""
    entries = [entry_of(path) for path in paths_of(root) if path != root + MARK]
    return hashlib.sha256(json.dumps(entries).encode()).hexdigest()


def settled(root: str = "") -> str:
    """The digest of what went into the rollout that left this host as it is; empty where there is none."""
    try:
        with open(root + MARK) as file:
            mark = json.load(file)
        return str(mark["inputs"]) if mark["footprint"] == footprint(root) else ""
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def leave(inputs: str, root: str = "") -> None:
    """Write the mark, whole or not at all."""
    place = root + MARK
    handle = os.open(place + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        json.dump({"inputs": inputs, "footprint": footprint(root)}, file)
    os.replace(place + ".new", place)


def main() -> None:
    if sys.argv[1:2] == ["--mark"]:
        leave(sys.argv[2])
    json.dump({"settled": settled()}, sys.stdout)


if __name__ == "__main__":
    main()
