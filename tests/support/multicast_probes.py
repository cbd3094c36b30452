"""The multicast probe run on hosts of `networks.py`, and the judgement of what they report.

with Probes() as probes:
    probes.start(host, pin)
    groups, findings = probes.judged()
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from mqctl.brokers.multicast_matrix import GroupMatrix, MulticastFinding, ProbeOrder, findings_of, groups_of

from tests.support.networks import NetworkHost

PROGRAM = Path(__file__).resolve().parents[2] / "plugins/module_utils/multicast_probe.py"
RUN = {"cluster": "main", "run": "run-1", "key": "ab" * 32, "life_s": 120.0}
PLACE = {"group": "lan", "address": "231.7.7.7", "port": 9876, "rank": 0}


class Probes:
    """Probes of one run, or with other `run` values of another."""

    def __init__(self, window_s: float = 5.0, **run: Any) -> None:
        self._run = RUN | run
        self._window_s = window_s
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._ready: dict[str, Any] = {}
        self.places: dict[str, list[dict[str, Any]]] = {}

    def start(self, host: NetworkHost, pin: dict[str, str], listen: dict[str, str] | None = None) -> None:
        """Begin on a host. `pin` is what sends and listens, where `listen` does not differ."""
        one = {**PLACE, "send": {"address": "", "interface": "", **pin}}
        one["listen"] = one["send"] if listen is None else {"address": "", "interface": "", **listen}
        self.places[host.name] = [one]
        process = subprocess.Popen(
            [*host.within, sys.executable, str(PROGRAM)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip
        self._processes[host.name] = process
        self._say(host.name, {"request": {**self._run, "host": host.name, "places": [one]}})
        self._ready[host.name] = self._answer(host.name, "ready")

    def _say(self, host: str, row: dict[str, Any]) -> None:
        stream = self._processes[host].stdin
        assert stream is not None
        stream.write(json.dumps(row) + "\n")
        stream.flush()

    def _answer(self, host: str, key: str) -> dict[str, Any]:
        stream = self._processes[host].stdout
        assert stream is not None
        found: dict[str, Any] = json.loads(stream.readline())[key]
        return found

    def reports(self) -> dict[str, Any]:
        """What all hosts heard; they probe until `close`."""
        peers = {host: ready["peer"] for host, ready in self._ready.items()}
        said = {"report": {"peers": peers, "window_s": self._window_s}}
        for host in self._processes:
            self._say(host, said)
        return {host: self._answer(host, "report") for host in self._processes}

    def judged(self) -> tuple[GroupMatrix, list[MulticastFinding]]:
        """The matrix and the findings."""
        wanted, reports = ProbeOrder(self.places), self.reports()
        groups = groups_of(wanted, reports)
        (group,) = groups
        return group, findings_of(wanted, reports, groups)

    def close(self) -> None:
        for process in self._processes.values():
            process.communicate(timeout=60)
            assert process.returncode == 0

    def __enter__(self) -> Probes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
