"""The shorter story, where hosts cannot be booted: real brokers on loopback, and `kill -9` for the power cut."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Sequence

from demo.narrator import DoesNotHold, Narrator
from demo.stage import ROOT, Login, Stage

NODES = 3
USER = "dev"
# Beside the usual ports, which an application's own `mqctl dev` may be using, and beside another demo.
FIRST_PORTS = range(15672, 25672, 1000)
PORT_STEP = 10


class Loopback(Stage):
    """`mqctl dev` in a folder of the demo's own."""

    node = "dev-2"
    power_cut_is = "dev-2 is killed with kill -9, which gives it no time for anything"

    def __init__(self, narrator: Narrator) -> None:
        super().__init__(narrator)
        self.folder = narrator.place / "dev"
        self.port = next((port for port in FIRST_PORTS if all(map(is_free, block(port)))), FIRST_PORTS[0])

    def where(self, command: str) -> tuple[str, ...]:
        folder = ("--directory", str(self.folder))
        return folder if command == "dev" else ("--dev", *folder)

    def clear(self) -> None:
        self.mqctl("dev", "down", "--discard", quiet=True, hidden=True)

    def set_up(self) -> None:
        self.narrator.step(f"{NODES} brokers on loopback, with identities and journals of their own")
        self.up()
        self.narrator.say("Each of them works alone. What a cluster does is told on hosts.")

    def up(self, *, quiet: bool = False) -> None:
        self.mqctl("dev", "up", "--nodes", str(NODES), "--port", str(self.port), quiet=quiet)

    def enter(self, words: Sequence[str]) -> list[str]:
        return list(words)

    def login(self, node: str = "") -> Login:
        del node  # the others have no part in the story here
        return Login(str(self._row()["url"]), USER, (self.folder / "password").read_text().strip())

    def power_off(self) -> None:
        pid = int(str(self._row()["pid"]))
        self.narrator.say(f"kill -9 {pid}")
        os.kill(pid, signal.SIGKILL)

    def power_on(self) -> None:
        self.up()

    def again(self) -> None:
        self.narrator.step("Starting once more changes nothing")
        before = self._rows()
        self.up(quiet=True)
        if [row["pid"] for row in self._rows()] != [row["pid"] for row in before]:
            raise DoesNotHold("`mqctl dev up` restarted brokers that were running.")
        self.narrator.say("The same processes still run.")

    def how_to_reach(self) -> list[str]:
        folder = self.folder.relative_to(ROOT)
        return [
            f".venv/bin/mqctl status --dev --directory {folder}",
            f".venv/bin/mqctl dev down --discard --directory {folder}",
        ]

    def _row(self) -> dict[str, object]:
        return next(row for row in self._rows() if row["node"] == self.node)

    def _rows(self) -> list[dict[str, object]]:
        said = self.mqctl("dev", "status", "--json", codes=(0, 3), quiet=True, hidden=True)
        rows: list[dict[str, object]] = json.loads(said.out)["rows"]
        return rows


def block(first: int) -> range:
    """The ports of all nodes, where the first one has this."""
    return range(first, first + NODES * PORT_STEP, PORT_STEP)


def is_free(port: int) -> bool:
    """Whether a listener can have it."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
