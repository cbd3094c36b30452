"""Producers and consumers of `proton_load.py` as processes, and what they noted as a history for the checker.

load = ProtonLoad(folder, Login("load", "secret"))
load.start("produce", "p0", ["amqp://127.0.0.1:5672"], queue="orders", in_flight=10, …)
load.end("p0")
load.history().check_drained(0)
"""

from __future__ import annotations

import base64
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.foreign.client import FOLDER, PYTHON
from tests.support.checker import History, Sent
from tests.support.patience import PATIENCE_S

QUEUE = "orders"


@dataclass(frozen=True)
class Login:
    """Who the clients are."""

    user: str
    password: str


class ProtonLoad:
    """The processes of one test and their facts."""

    def __init__(self, folder: Path, login: Login) -> None:
        self._folder = folder
        self._login = login
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, role: str, name: str, urls: list[str], **options: Any) -> None:
        """A process that `produce`s or `consume`s; it tries the brokers at `urls` in turn."""
        given = {
            "role": role, "name": name, "queue": QUEUE, "urls": urls, "user": self._login.user,
            "password": self._login.password, "facts": str(self._folder / f"{name}.facts"), **options,
        }  # fmt: skip
        with (self._folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [PYTHON, str(FOLDER / "proton_load.py"), json.dumps(given)], stdin=subprocess.PIPE, stderr=log
            )

    def end(self, *names: str) -> None:
        """Have these end in order."""
        for name in names:
            stdin = self.processes[name].stdin
            assert stdin is not None
            stdin.close()
        for name in names:
            code = self.processes[name].wait(PATIENCE_S)
            assert code == 0, (self._folder / f"{name}.log").read_text()

    def close(self) -> None:
        """Whatever they are at."""
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()

    def facts(self) -> list[tuple[str, list[Any]]]:
        """(process, [time, kind, ...]) of all processes in the order of time."""
        rows = [
            (name, json.loads(line))
            for name in self.processes
            for line in (self._folder / f"{name}.facts").read_text().splitlines()
        ]
        return sorted(rows, key=lambda row: row[1][0])

    def history(self, *, is_several_nodes: bool = False) -> History:
        """What they know, in the order of time."""
        history = History(is_several_nodes=is_several_nodes)
        self.tell(history, self.facts())
        return history

    @staticmethod
    def tell(history: History, facts: list[tuple[str, list[Any]]]) -> None:
        """Add facts that may be of others, too."""
        for name, (_, kind, *values) in facts:
            if kind == "send":
                message_id, number, size = values
                history.send(message_id, Sent(name, number, QUEUE, True, size))
            elif kind == "outcome":
                history.outcome(*values)
            elif kind == "receive":
                history.receive(name, QUEUE, base64.b64decode(values[0]), values[1])
            elif kind == "tried":
                history.settle_tried.add(values[0])
            elif kind == "confirmed":
                history.settle_confirmed.add(values[0])

    def counts(self) -> dict[str, int]:
        kinds = [row[1] for _, row in self.facts()]
        return {kind: kinds.count(kind) for kind in sorted(set(kinds))}
