# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What is true of this host, as far as a broker cares: read only, nothing is judged here (see findings.py)."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import pwd
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.mqops.cluster.plugins.module_utils.network import Card, cards_of
from ansible_collections.mqops.cluster.plugins.module_utils.sockets import Listening, listening

TIME_ERROR = 5  # adjtimex(2): the clock is not synchronised
MACHINE_FILE = "/etc/machine-id"
TIMEX_BYTES = 512  # more than the kernel's struct timex has on any architecture
PYTHON_FACTS = """
import importlib.util, json, platform, sys
print(json.dumps({
    "version": "%d.%d" % sys.version_info[:2],
    "implementation": platform.python_implementation(),
    "glibc": platform.libc_ver()[1],
    "has_venv": importlib.util.find_spec("ensurepip") is not None and importlib.util.find_spec("venv") is not None,
    "has_packaging": importlib.util.find_spec("packaging") is not None,
}))
"""

# argv -> (exit code, standard output)
Run = Callable[[Sequence[str]], tuple[int, str]]


@dataclass(frozen=True)
class Python:
    """The interpreter that the release is installed with."""

    path: str
    version: str
    implementation: str
    glibc: str
    has_venv: bool
    has_packaging: bool


@dataclass(frozen=True)
class Facts:
    """One host. `None` stands for what could not be found out; `python` is None where there is none."""

    os_id: str
    os_version: str
    os_name: str
    machine: str
    has_systemd: bool
    python: Python | None
    cards: dict[str, Card] | None
    sockets: list[Listening]
    is_clock_synchronised: bool | None
    disk_free_bytes: dict[str, int] = field(default_factory=dict)
    users: dict[str, int] = field(default_factory=dict)
    has_nft: bool = True
    machine_id: str = ""


def gather(run: Run, python: str, places: Sequence[str], machine_file: str = MACHINE_FILE) -> Facts:
    """Look at everything. `places`: directories, made or not, that need space."""
    release = os_release("/etc/os-release")
    return Facts(
        os_id=release.get("ID", ""),
        os_version=release.get("VERSION_ID", ""),
        os_name=release.get("PRETTY_NAME", platform.system()),
        machine=platform.machine(),
        has_systemd=os.path.isdir("/run/systemd/system"),
        has_nft=os.access("/usr/sbin/nft", os.X_OK),
        python=python_of(run, python),
        cards=cards(run),
        sockets=listening(),
        is_clock_synchronised=is_clock_synchronised(),
        disk_free_bytes={place: free_bytes(place) for place in places},
        users={one.pw_name: one.pw_uid for one in pwd.getpwall()},
        machine_id=machine_id_in(machine_file),
    )


def machine_id_in(path: str) -> str:
    """Of machine-id(5); empty where there is none that tells machines apart."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            text = file.read().strip()
    except OSError:
        return ""
    return text if re.fullmatch("[0-9a-f]{32}", text) and text.strip("0") else ""


def os_release(path: str) -> dict[str, str]:
    """The file of os-release(5)."""
    try:
        with open(path, encoding="utf-8") as file:
            rows = [line.strip().split("=", 1) for line in file if "=" in line and not line.startswith("#")]
    except OSError:
        return {}
    return {name: value.strip("\"'") for name, value in rows}


def python_of(run: Run, path: str) -> Python | None:
    """Ask the interpreter itself, which need not be the one that runs this."""
    code, out = run([path, "-c", PYTHON_FACTS])
    return Python(path=path, **json.loads(out)) if code == 0 else None


def cards(run: Run) -> dict[str, Card] | None:
    """Network cards, or None where `ip` cannot be asked."""
    code, out = run(["ip", "-json", "address"])
    if code != 0:
        return None
    rows: list[Any] = json.loads(out or "[]")
    return cards_of(rows)


def free_bytes(place: str) -> int:
    """Free bytes of the file system that `place` is on, or will be on."""
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize


def is_clock_synchronised() -> bool | None:
    """What the kernel says of its clock, whichever daemon keeps it."""
    buffer = ctypes.create_string_buffer(TIMEX_BYTES)  # modes = 0: only read
    try:
        state = ctypes.CDLL(None).adjtimex(buffer)
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != TIME_ERROR
