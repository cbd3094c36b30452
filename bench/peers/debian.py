"""Debian's packages, unpacked into a directory and not installed: of the release that runs here, or of another one of
the same mirror, whose programs then run by its own loader and C library. apt verifies what it downloads against the
signed lists of the distribution."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from bench.faults import BenchFault

FETCH_TIMEOUT_S = 600
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
WRAPPER = """\
#!/bin/sh
exec {loader} --library-path {libraries} --argv0 "$0" {program} "$@"
"""


class Packages:
    """apt for one release; lists and archives of another one than this machine's are kept in `place`."""

    def __init__(self, place: Path, release: str = "") -> None:
        self._place = place
        self._options: list[str] = []
        if release:
            self._options = self._take(release)

    def _take(self, release: str) -> list[str]:
        state, sources = self._place / "apt", self._place / "sources.list"
        for folder in ("lists/partial", "cache/archives/partial"):
            (state / folder).mkdir(parents=True)
        (state / "status").touch()
        sources.write_text(f"deb [signed-by={KEYS}] {self._mirror()} {release} main\n")
        options = {
            "Dir::State": state,
            "Dir::State::lists": state / "lists",
            "Dir::State::status": state / "status",
            "Dir::Cache": state / "cache",
            "Dir::Etc::SourceList": sources,
            "Dir::Etc::SourceParts": "/dev/null",
            "APT::Sandbox::User": "root",
        }
        given = [f"-o{name}={value}" for name, value in options.items()]
        self._run(["apt-get", *given, "update", "-q"])
        return given

    def _mirror(self) -> str:
        """Where this machine has Debian from."""
        shown = self._run(["apt-get", "indextargets", "--format", "$(ORIGIN) $(COMPONENT) $(REPO_URI)"])
        found = [line.split()[2] for line in shown.splitlines() if line.startswith("Debian main ")]
        if not found:
            raise BenchFault("apt knows no mirror of Debian here, from which RabbitMQ is taken")
        return found[0]

    def needed(self, *packages: str) -> list[str]:
        """These and all that they depend on."""
        shown = self._run(["apt-cache", *self._options, "depends", "--recurse", "--important", *packages])
        return depended(shown)

    def unpack(self, packages: Iterable[str]) -> Path:
        """A folder with their files."""
        self._run(["apt-get", *self._options, "download", "-q", *packages])
        home = self._place / "home"
        for archive in sorted(self._place.glob("*.deb")):
            self._run(["dpkg-deb", "-x", str(archive), str(home)])
        return home

    def _run(self, command: list[str]) -> str:
        try:
            done = subprocess.run(
                command, cwd=self._place, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False
            )
        except FileNotFoundError:
            raise BenchFault(f"{command[0]} is missing: RabbitMQ is taken from Debian's packages") from None
        if done.returncode != 0:
            what = " ".join(word for word in command if not word.startswith("-o"))[:80]
            raise BenchFault(f"{what} for RabbitMQ failed: {done.stderr.strip()}\nis apt-get update done?")
        return done.stdout


def depended(shown: str) -> list[str]:
    """Packages in what `apt-cache depends --recurse` prints: names at the beginnings of lines. Pure."""
    return sorted({line.strip() for line in shown.splitlines() if line[:1].isalnum()})


def wrap(home: Path, programs: Path, folder: Path) -> None:
    """Scripts in `folder` that run each of these programs by the loader and the libraries of `home`."""
    loaders = sorted(home.glob("**/ld-linux-*.so.*"))
    if not loaders:
        raise BenchFault(f"there is no loader in {home}: remove that directory and run again")
    libraries = ":".join(str(library.parent) for library in sorted(home.glob("**/libc.so.6")))
    folder.mkdir(parents=True)
    for program in sorted(programs.iterdir()):
        script = folder / program.name
        script.write_text(WRAPPER.format(loader=loaders[0], libraries=libraries, program=program))
        script.chmod(0o755)
