"""Where `mqctl dev` keeps its brokers: one folder, a folder in it for each node, nothing anywhere else.

    <folder>/password                  password of the user `dev`, readable by its owner only
    <folder>/<node>/broker.toml        options
    <folder>/<node>/data/              identity, users, journal
    <folder>/<node>/admin.sock         admin socket
    <folder>/<node>/log                what the broker said
    <folder>/<node>/process.json       pid and start time of the process

A process is ours only if pid and start time both match, so that a reused pid is never signalled.
"""

from __future__ import annotations

import json
import os
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mqctl.errors import CommandError

USER = "dev"
SOCKET_PATH_BYTES_MAX = 107


@dataclass(frozen=True, slots=True)
class DevNode:
    """One node, found by its folder."""

    name: str
    path: Path

    @property
    def socket(self) -> Path:
        """The path of its admin socket."""
        return self.path / "admin.sock"

    @property
    def options_file(self) -> Path:
        """The path of its broker.toml."""
        return self.path / "broker.toml"

    @property
    def log(self) -> Path:
        """The path of what it wrote to standard output and error."""
        return self.path / "log"

    @property
    def data(self) -> Path:
        """Identity, users and journal."""
        return self.path / "data"

    @property
    def process_file(self) -> Path:
        """The path of the file that holds its pid and start time."""
        return self.path / "process.json"

    @property
    def port(self) -> int:
        """The port for clients, as its options say."""
        try:
            return int(tomllib.loads(self.options_file.read_text())["listeners"][0]["port"])
        except (OSError, ValueError, LookupError):
            return 0


def folder(environ: Mapping[str, str], named: Path | None) -> Path:
    """The folder of the dev cluster."""
    if named is not None:
        return named.absolute()
    home = Path(environ.get("HOME", "/root"))
    return Path(environ.get("XDG_STATE_HOME") or home / ".local" / "state") / "mqctl" / "dev"


def nodes(place: Path) -> list[DevNode]:
    """All nodes there, by number."""
    brokers = [DevNode(one.parent.name, one.parent) for one in place.glob("dev-*/broker.toml")]
    return sorted(brokers, key=lambda one: int(one.name.removeprefix("dev-")))


def node(place: Path, number: int) -> DevNode:
    """The node with that number, which may not exist yet."""
    one = DevNode(f"dev-{number}", place / f"dev-{number}")
    if len(str(one.socket)) > SOCKET_PATH_BYTES_MAX:
        raise CommandError(f"{one.socket} is too long for a Unix socket", "mqctl dev up --directory /tmp/dev")
    return one


def start_ticks(pid: int) -> int | None:
    """When the process `pid` started, in ticks since boot (proc(5), field 22); None if it is gone or a zombie."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if after_name[0] == "Z" else int(after_name[19])


def running_pid(one: DevNode) -> int | None:
    """The pid of the node's process, if it runs."""
    try:
        noted = json.loads(one.process_file.read_text())
        pid, ticks = int(noted["pid"]), int(noted["start_ticks"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return pid if start_ticks(pid) == ticks else None


def remove(place: Path) -> None:
    """Delete everything of a stopped dev cluster, nothing else: only what we make is looked for."""
    for one in nodes(place):
        shutil.rmtree(one.path)
    (place / "password").unlink(missing_ok=True)
    if place.is_dir() and not os.listdir(place):
        place.rmdir()
