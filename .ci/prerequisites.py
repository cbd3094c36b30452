"""What the system must offer before anything starts: looked for first, everything that is missing named at once.

    .ci/prerequisites.py check|test|demo|bench

Missing packages are installed here only by root on Debian, where the names are known to be right; everybody else is
told the names and decides. Runs under the system's Python before there is any environment: standard library only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT), str(ROOT / "molecule" / "rack")]

from mqrack.prerequisites import PROGRAMS  # noqa: E402

from bench.prerequisites import JMS, LOAD, PEERS, Need, missing  # noqa: E402

INSTALL_TIME_S_MAX = 900
SYSTEM_PYTHON = "/usr/bin/python3"
SBIN = "/usr/local/sbin:/usr/sbin:/sbin"


def _program(name: str) -> Callable[[], bool]:
    path = f"{os.environ.get('PATH', os.defpath)}:{SBIN}"
    return lambda: shutil.which(name, path=path) is not None


def _imports(modules: str) -> Callable[[], bool]:
    """Whether the system's own Python, which Debian's Python packages are for, can import them."""
    return lambda: Path(SYSTEM_PYTHON).exists() and _succeeds([SYSTEM_PYTHON, "-c", f"import {modules}"])


def _succeeds(command: Sequence[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0


def _has_venv() -> bool:
    return _succeeds([sys.executable, "-c", "import ensurepip, venv"])


def _has_headers() -> bool:
    return Path(sysconfig.get_path("include"), "Python.h").is_file()


def _has_sasl() -> bool:
    return any(Path("/usr/lib").glob("*/sasl2/libplain.so*")) or any(Path("/usr/lib/sasl2").glob("libplain.so*"))


SETUP = (Need("Python's venv module", "python3-venv", _has_venv), Need("git", "git", _program("git")))
RACK = tuple(Need(program, package, _program(program)) for program, package in PROGRAMS.items())
PROTON = (
    Need("qpid-proton for the system's Python", "python3-qpid-proton", _imports("proton")),
    Need("SASL mechanisms with passwords", "libsasl2-modules", _has_sasl),
)
# What the foreign clients that are no Python are built with. Debian 12's versions are enough for all of them.
CLIENTS = (
    *JMS,
    Need("Node.js, 18 or later", "nodejs", _program("node")),
    Need("npm, which fetches rhea", "npm", _program("npm")),
    Need("a Go compiler, 1.18 or later, which fetches go-amqp", "golang-go", _program("go")),
)
SERVERS = (
    Need("an ssh server, which tests start on loopback", "openssh-server", _program("sshd")),
    Need("FUSE", "fuse3", _program("fusermount3")),
)
# Beside a C compiler, which the load generator needs as well.
NATIVE = (Need("Python's headers, for the native build", "python3-dev", _has_headers),)
GROUPS: dict[str, tuple[Need, ...]] = {
    "check": SETUP,
    "demo": (*SETUP, *RACK, *PROTON),
    "test": (*SETUP, *RACK, *PROTON, *CLIENTS, *SERVERS, *LOAD, *NATIVE),
    "bench": (*SETUP, *LOAD, *JMS, *dict.fromkeys(need for needs in PEERS.values() for need in needs)),
}
# What there must be where the rest may be missing: without hosts the demo tells a shorter story and says so, and the
# benchmark leaves out the peers that it cannot run.
NEEDED = {"demo": SETUP, "bench": (*SETUP, *LOAD)}


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in GROUPS:
        return _refuse(f"usage: .ci/prerequisites.py {'|'.join(GROUPS)}", 2)
    group = arguments[0]
    if sys.version_info < (3, 11):  # noqa: UP036 - not yet our own Python
        return _refuse(f"Python 3.11 or newer is needed; this is {sys.version.split()[0]}. Name one: make PYTHON=…")
    if group == "test" and os.geteuid() != 0:
        return _refuse("make test boots hosts and mounts file systems, which needs root. make check does not.")
    lacking = missing(GROUPS[group])
    if lacking and _may_install():
        lacking = _install(lacking)
    if not lacking:
        return 0
    _say(f"this system lacks, for make {group}:")
    for need in lacking:
        _say(f"  {need.what}: package {need.package}")
    if group in NEEDED and not missing(NEEDED[group]):
        return 0
    return _refuse(f"install them as root: apt-get install {' '.join(_packages(lacking))} (Debian's names)")


def _may_install() -> bool:
    release = Path("/etc/os-release")
    is_debian = release.exists() and "ID=debian" in release.read_text().splitlines()
    return is_debian and os.geteuid() == 0 and shutil.which("apt-get") is not None


def _install(lacking: Sequence[Need]) -> list[Need]:
    """Install, then look again; what is still missing."""
    packages = _packages(lacking)
    _say(f"installing Debian packages: {' '.join(packages)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-q"], ["apt-get", "install", "-qy", "--no-install-recommends", *packages]):
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIME_S_MAX,
            check=False,
        )
        if done.returncode != 0:
            _say(f"{' '.join(command[:2])} failed: {' / '.join(done.stderr.strip().splitlines()[-3:])}")
            break
    return missing(lacking)


def _packages(needs: Iterable[Need]) -> list[str]:
    return sorted({need.package for need in needs})


def _refuse(text: str, code: int = 1) -> int:
    _say(text)
    return code


def _say(text: str) -> None:
    print(f"prerequisites: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
