"""Tools that the benchmark needs from the system: looked for first, all that is missing named at once.

They are installed here only by root on Debian, where the names of the packages are known to be right.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.faults import BenchFault

INSTALL_TIMEOUT_S = 900


@dataclass(frozen=True, slots=True)
class Need:
    """A tool or library, the Debian package that has it, and how to see whether it is there."""

    what: str
    package: str
    present: Callable[[], bool]


def _command(name: str) -> Callable[[], bool]:
    return lambda: shutil.which(name) is not None


def _proton() -> bool:
    if shutil.which("pkg-config") is None:
        return False
    return subprocess.run(["pkg-config", "--exists", "libqpid-proton"], check=False).returncode == 0


def _libaio() -> bool:
    try:
        ctypes.CDLL("libaio.so.1")
    except OSError:
        return False
    return True


LOAD = (
    Need("a C compiler", "gcc", _command("cc")),
    Need("the C library's headers", "libc6-dev", lambda: Path("/usr/include/stdio.h").exists()),
    Need("make", "make", _command("make")),
    Need("pkg-config", "pkg-config", _command("pkg-config")),
    Need("qpid-proton's C library", "libqpid-proton11-dev", _proton),
)
PERF = Need("perf, which samples where time goes", "linux-perf", _command("perf"))

JAVA = (
    Need("a Java runtime, 17 or later", "openjdk-17-jre-headless", _command("java")),
    Need("Maven, which fetches Artemis and ActiveMQ Classic", "maven", _command("mvn")),
)
# For the rows through Qpid JMS.
JMS = (
    Need("a Java compiler, 17 or later", "default-jdk-headless", _command("javac")),
    Need("Maven, which fetches Qpid JMS", "maven", _command("mvn")),
)
# By kind of peer. Without them the peer is left out and the run goes on.
PEERS: dict[str, tuple[Need, ...]] = {
    "artemis": (*JAVA, Need("libaio, for Artemis's fastest journal", "libaio1", _libaio)),
    "classic": JAVA,
    # Its packages are unpacked, not installed.
    "rabbitmq": (
        Need("Debian's tools for packages", "apt", _command("apt-get")),
        Need("dpkg", "dpkg", _command("dpkg-deb")),
    ),
}


def missing(needs: Iterable[Need]) -> list[Need]:
    """Those that are not there."""
    return [need for need in needs if not need.present()]


def ensure(needs: Iterable[Need], say: Callable[[str], None]) -> None:
    """Return when all are there; refuses with the names of the packages otherwise."""
    lacking = missing(needs)
    if lacking and os.geteuid() == 0 and _is_debian():
        packages = [need.package for need in lacking]
        say(f"installing {' '.join(packages)}")
        _install(packages)
        lacking = missing(lacking)
    if lacking:
        lines = [f"  {need.what}: package {need.package}" for need in lacking]
        raise BenchFault("\n".join(["the benchmark needs, and this system lacks:", *lines]))


def _is_debian() -> bool:
    release = Path("/etc/os-release")
    return release.exists() and "ID=debian" in release.read_text().splitlines() and shutil.which("apt-get") is not None


def _install(packages: list[str]) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-q"], ["apt-get", "install", "-q", "-y", *packages]):
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
        )
        if done.returncode != 0:
            raise BenchFault(f"{' '.join(command)} failed:\n{done.stderr.strip()}")
