"""Hosts of a rack, and mqctl run in a folder with an inventory where they can be reached.

rack = Rack("mqctl")
with site_on(rack, "3", folder=folder) as site:
    site.run("rollout", "--yes")
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RACK = ROOT / "molecule/rack/rack"
MQCTL = [sys.executable, "-m", "mqctl.main"]
ENVIRONMENT_CANARY = "canary-in-the-environment"


@dataclass(frozen=True)
class Rack:
    """A rack by its command line. `purpose` tells those of one checkout apart."""

    purpose: str

    @property
    def name(self) -> str:
        """Racks belong to the machine: two checkouts must not take each other's hosts down."""
        return f"{self.purpose}-{hashlib.sha256(str(ROOT).encode()).hexdigest()[:4]}"

    def __call__(self, *words: str | Path) -> str:
        command = [sys.executable, str(RACK), *map(str, words)]
        environ = {**os.environ, "RACK_NAME": self.name}
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


class Site:
    """A folder with an inventory, and mqctl run where the hosts can be reached."""

    def __init__(self, folder: Path, rack: Rack) -> None:
        self.folder = folder
        self.rack = rack

    @property
    def environment(self) -> dict[str, str]:
        """What programs that are run in the folder find."""
        return {
            **os.environ,
            "RACK_NAME": self.rack.name,
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".dev"),
            "CANARY": ENVIRONMENT_CANARY,
            "XDG_RUNTIME_DIR": str(self.run_folder),
        }

    @staticmethod
    def command(*words: str, inside: Sequence[str] = ()) -> list[str]:
        """mqctl where the hosts can be reached; `inside`: what it is started by there."""
        return [sys.executable, str(RACK), "enter", "--", *inside, *MQCTL, *words]

    def run(
        self, *words: str, code: int = 0, timeout_s: float = 1500, inside: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*words, inside=inside), cwd=self.folder, env=self.environment, capture_output=True, text=True,
            timeout=timeout_s, check=False,
        )  # fmt: skip
        assert done.returncode == code, (done.returncode, done.stdout[-3000:], done.stderr[-3000:])
        assert os.listdir(self.run_folder) == []
        return done

    def take_bundle(self) -> None:
        """Put the bundle where mqctl looks for it. Whoever needs it first builds it, where there is an index to ask."""
        command = [str(ROOT / "molecule/shared/bundle")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr
        (self.folder / "dist").mkdir()
        (self.folder / "dist" / Path(done.stdout.strip()).name).symlink_to(done.stdout.strip())

    @property
    def run_folder(self) -> Path:
        folder = self.folder.parent / "run"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def document(self, *words: str, code: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run(*words, "--json", code=code).stdout)
        return found

    def rows(self, *words: str, code: int = 0) -> list[dict[str, Any]]:
        """The rows of a document."""
        rows: list[dict[str, Any]] = self.document(*words, code=code)["rows"]
        return rows

    def secrets(self) -> list[str]:
        text = (self.folder / "group_vars/brokers/secrets.yml").read_text()
        found = [line.split('"')[1] for line in text.splitlines() if '"' in line]
        assert len(found) == 2
        return found

    def set_options(self, text: str) -> None:
        (self.folder / "group_vars/brokers/options.yml").write_text(text)


PLAIN = ("--allow-plaintext",)


@contextlib.contextmanager
def site_on(rack: Rack, *up: str, folder: Path, init: Sequence[str] = PLAIN, has_bundle: bool = True) -> Iterator[Site]:
    """A site on fresh hosts, with an inventory of all of them; `folder` is made. The rack goes at the end."""
    rack("destroy")
    try:
        rack("up", *up)
        folder.mkdir()
        (folder / "inventory.yml").write_text(rack("inventory", "--group", "brokers"))
        one = Site(folder, rack)
        one.run("init", "--interface", "eth1", *init)
        if has_bundle:
            one.take_bundle()
        yield one
    finally:
        rack("destroy")
