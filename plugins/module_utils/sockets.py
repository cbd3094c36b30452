# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Who listens on TCP ports of this host, from /proc. Source: proc(5), /proc/net/tcp."""

from __future__ import annotations

import ipaddress
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass

LISTENING = "0A"
OUR_UNIT = "mqbroker@"


@dataclass(frozen=True)
class Listening:
    """A listening socket. `owner` names a process; `is_ours` says that it is a broker of this project's unit."""

    address: str
    port: int
    owner: str = "another process"
    is_ours: bool = False


def address_of(text: str) -> str:
    """`0100007F` is 127.0.0.1: groups of four bytes, each in the byte order of the machine."""
    raw = bytes.fromhex(text)
    words = struct.unpack(f">{len(raw) // 4}I", raw)
    packed = struct.pack(f"={len(words)}I", *words)
    found = ipaddress.ip_address(packed)
    mapped = getattr(found, "ipv4_mapped", None)
    return str(mapped or found)


def parse(lines: Iterable[str]) -> list[tuple[str, int, str]]:
    """(address, port, inode) of each listening socket in the lines of /proc/net/tcp or tcp6."""
    found = []
    for line in lines:
        words = line.split()
        if len(words) > 9 and words[3] == LISTENING:
            address, port = words[1].split(":")
            found.append((address_of(address), int(port, 16), words[9]))
    return found


def overlap(one: str, other: str) -> bool:
    """Whether two sockets with these addresses would fight for the same port."""
    first, second = ipaddress.ip_address(one), ipaddress.ip_address(other)
    if first == second:
        return True
    # A socket on :: takes IPv4 as well unless it says otherwise.
    return any(
        wide.is_unspecified and (wide.version == narrow.version or wide.version == 6)
        for wide, narrow in ((first, second), (second, first))
    )


def listening(proc: str = "/proc") -> list[Listening]:
    """All listening sockets of this host with their owners."""
    rows: list[tuple[str, int, str]] = []
    for name in ("tcp", "tcp6"):
        try:
            with open(f"{proc}/net/{name}", encoding="ascii") as file:
                rows += parse(file)
        except FileNotFoundError:
            continue
    owners = _owners(proc, {row[2] for row in rows})
    return [Listening(address, port, *owners.get(inode, ())) for address, port, inode in rows]


def _owners(proc: str, inodes: set[str]) -> dict[str, tuple[str, bool]]:
    found: dict[str, tuple[str, bool]] = {}
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    for pid in os.listdir(proc):
        if not pid.isdigit():
            continue
        for link in _links(f"{proc}/{pid}/fd"):
            if link in wanted and wanted[link] not in found:
                found[wanted[link]] = _process(proc, pid)
    return found


def _links(folder: str) -> list[str]:
    """Processes end and files are closed while we look; what is gone owns nothing."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    links = (_link(f"{folder}/{name}") for name in names)
    return [link for link in links if link]


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _process(proc: str, pid: str) -> tuple[str, bool]:
    try:
        with open(f"{proc}/{pid}/comm", encoding="utf-8") as file:
            name = file.read().strip()
        with open(f"{proc}/{pid}/cgroup", encoding="utf-8") as file:
            is_ours = OUR_UNIT in file.read()
    except OSError:
        return f"process {pid}", False
    return f"{name} (process {pid})", is_ours
