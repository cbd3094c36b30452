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
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.forks import may_be_forked, run_mqctl
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
RACK = ROOT / "molecule/rack/rack"
MQCTL = [sys.executable, "-m", "mqctl.main"]
ENVIRONMENT_CANARY = "canary-in-the-environment"
# As another machine would be: with a hostname and processes of its own.
ELSEWHERE = ("unshare", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child")


@dataclass(frozen=True)
class Rack:
    """A rack by its command line. `purpose` tells those of one checkout apart."""

    purpose: str

    @property
    def name(self) -> str:
        """Racks belong to the machine: two checkouts must not take each other's hosts down."""
        return f"{self.purpose}-{hashlib.sha256(str(ROOT).encode()).hexdigest()[:4]}"

    @property
    def network(self) -> Path:
        """That in which the hosts can be reached; it is there as long as they are."""
        return Path("/run/netns", f"mqrack.{self.name}.controller")

    def __call__(self, *words: str | Path) -> str:
        command = [sys.executable, str(RACK), *map(str, words)]
        environ = {**os.environ, "RACK_NAME": self.name}
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


class Site:
    """A folder with an inventory, and mqctl run where the hosts can be reached.

    `was_killed`: the folder of a run that was killed lies there, until the next one that runs a playbook.
    """

    was_killed = False

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
        if not inside and may_be_forked(self.environment):
            done = run_mqctl(words, self.environment, self.folder, self.rack.network, timeout_s=timeout_s)
        else:
            done = subprocess.run(
                self.command(*words, inside=inside), cwd=self.folder, env=self.environment, capture_output=True,
                text=True, timeout=timeout_s, check=False,
            )  # fmt: skip
        assert done.returncode == code, (done.returncode, done.stdout[-3000:], done.stderr[-3000:])
        assert self.was_killed or os.listdir(self.run_folder) == []
        return done

    def rollout_until(
        self, line: str, then: Callable[[int], None], code: int, *words: str
    ) -> tuple[dict[str, dict[str, Any]], str]:
        """A rollout, and what is done to its processes when mqctl says this; how each host ended, and what was said."""
        out = self.folder / "rollout.json"
        with out.open("w") as stdout, subprocess.Popen(
            self.command("rollout", "--yes", "--json", *words), cwd=self.folder, env=self.environment, stdout=stdout,
            stderr=subprocess.PIPE, text=True, start_new_session=True,
        ) as process:  # fmt: skip
            assert process.stderr is not None
            said, is_waiting = [], True
            for one in process.stderr:
                said.append(one)
                if is_waiting and line in one:
                    then(process.pid)
                    is_waiting = False
            assert process.wait(120) == code, "".join(said)
        assert not is_waiting, "".join(said)
        text = out.read_text()
        return {row["host"]: row for row in json.loads(text)["rows"]} if text else {}, "".join(said)

    def kill_everything(self) -> None:
        """mqctl and all that it started; what is a zombie by then is gone as well."""
        deadline_s = time.monotonic() + PATIENCE_S
        while left := processes_of(self.folder):
            assert time.monotonic() < deadline_s, left
            for number in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            time.sleep(0.05)

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


def processes_of(folder: Path) -> list[int]:
    """All that work in the folder of a site, or have it on their command line; this process is none of them."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_ours = (
                os.readlink(entry / "cwd") == str(folder) or str(folder).encode() in (entry / "cmdline").read_bytes()
            )
            if is_ours and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found


def interrupt(group: int) -> None:
    """As a terminal does."""
    os.killpg(group, signal.SIGINT)


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
