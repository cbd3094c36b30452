"""A rack of two hosts for the tests of this folder, and the means to look for what a rack leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ENTRY = Path(__file__).resolve().parents[3] / "molecule" / "rack" / "rack"


class Rack:
    """One rack, driven by its command line as a person would."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *words: str, check: bool = True, timeout_s: float = 100) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [ENTRY, *words], env=self.environment, capture_output=True, text=True, timeout=timeout_s, cwd="/"
        )
        if check and done.returncode != 0:
            raise AssertionError(f"rack {' '.join(words)}: {done.stdout}{done.stderr}\n{self.logs()}")
        return done

    def logs(self) -> str:
        """The end of every host's console, for the report of a failure."""
        found = sorted((Path("/run/mqops-rack") / self.name / "log").glob("*.log"))
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-1500:]}" for path in found)

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "RACK_NAME": self.name}

    def inside(self, host: str, *argv: str, check: bool = True) -> str:
        return self("exec", host, "--", *argv, check=check).stdout

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [ENTRY, *words], env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/"
        )

    def status(self) -> dict[str, Any]:
        hosts = json.loads(self("status", "--json").stdout)["hosts"]
        return {host["name"]: host for host in hosts}

    def ping(self, source: str, address: str, count: int = 10, interval_s: float = 0.01) -> str:
        """ping's own summary; it exits with 1 when nothing came back, which some tests want to see."""
        words = ("ping", "-q", "-n", "-c", str(count), "-i", str(interval_s), "-W", "1", address)
        return self.inside(source, *words, check=False)

    def restore(self) -> None:
        for host, facts in self.status().items():
            if facts["state"] == "paused":
                self("resume", host)
            if facts["state"] == "off":
                self("boot", host)
            for card, fault in facts["cards"].items():
                if fault["cut"] or fault["loss_percent"] or fault["delay_ms"]:
                    self("heal", host, card)

    def leftovers(self) -> list[str]:
        """Everything on this machine that bears the rack's name. Dead processes that nobody has waited for are not
        counted: they hold nothing."""
        paths = [Path("/run/mqops-rack") / self.name, Path("/var/lib/mqops-rack/racks") / self.name]
        paths += list(Path("/run/netns").glob(f"mqrack.{self.name}.*"))
        paths += list(Path("/sys/fs/cgroup").glob(f"mqops-rack/{self.name}"))
        paths += list(Path("/sys/fs/cgroup").glob(f"*/mqops-rack/{self.name}"))
        mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if f"/{self.name}/" in line]
        return [str(path) for path in paths if path.exists()] + mounts + self._processes()

    def _processes(self) -> list[str]:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                groups = (folder / "cgroup").read_text()
                words = (folder / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
            except OSError:
                continue
            ours = f"/mqops-rack/{self.name}" in groups or f"/mqops-rack/{self.name}/" in words
            if ours and state != "Z":
                found.append(f"process {folder.name}: {words}")
        return found


@pytest.fixture(scope="session")
def unique() -> str:
    """A beginning for names of racks that no other run on this machine uses."""
    return f"t{os.getpid()}"


@pytest.fixture(scope="session")
def standing(unique: str) -> Iterator[Rack]:
    made = Rack(f"{unique}-a")
    try:
        made("up", "2", timeout_s=600)
        yield made
    finally:
        made("destroy")


@pytest.fixture
def rack(standing: Rack) -> Rack:
    """Two healthy hosts, whatever the test before did to them."""
    standing.restore()
    return standing
