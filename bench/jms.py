"""Runs `bench/jms_load`, the load through Qpid JMS: one process for all brokers, which is asked for one load after the
other. Its jars are those of the tests with this client (tests/foreign/jms), held to their checksums."""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.applications import Application
from bench.faults import BenchFault, WrongCounts
from bench.load import RUN_TIMEOUT_S, Target
from tests.foreign import builds

SOURCES = Path(__file__).parent / "jms_load"
JARS = builds.BUILT / builds.JMS.name / "jars"
END_TIMEOUT_S = 10
# As an application's machine would be set: much of what a load makes dies young.
OPTIONS = ("-Xms1g", "-Xmx1g", "-Xmn700m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
PROOF = Application("jms-proof", "proof", "stream", 60)


def _make(sources: Path, folder: Path) -> None:
    builds.built(builds.JMS)  # which has the jars
    compiler = ["javac", "--release", "17", "-Xlint:all", "-Werror", "-cp", f"{JARS}/*", "-d", str(folder / "classes")]
    builds.run([*compiler, *map(str, sorted(sources.glob("*.java")))], folder)


def _command(folder: Path) -> list[str]:
    return ["java", *OPTIONS, "-cp", f"{folder / 'classes'}:{JARS}/*", "JmsLoad"]


LOAD = builds.Recipe("jms_load", builds.JAVA, _make, _command, (SOURCES, builds.SOURCES / builds.JMS.name))


def build() -> list[str]:
    """The command that starts the client; it is compiled when it has changed."""
    try:
        return builds.built(LOAD)
    except builds.BuildFailed as fault:
        raise BenchFault(f"the load through Qpid JMS does not build: {fault}") from fault


class Client:
    """The process, which starts with the first load, and again after one that never ended. `log` has what it says."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def run(
        self, peer: Target, row: Application, address: str, cpu_s: Callable[[], float], extra: int = 0
    ) -> tuple[dict[str, Any], float]:
        """One load; its figures, and the processor time of the broker meanwhile. `extra` messages come unexpected."""
        (node,) = peer.nodes
        whom = {"port": node.port, "user": peer.user, "password": peer.password, "address": peer.address(address)}
        self._ask(json.dumps({**row.order(), **whom, "extra": extra}), row, peer)
        before_s = cpu_s()
        figures = self._ask("go", row, peer)
        used_s = cpu_s() - before_s
        done = self._ask("check", row, peer)
        if done["count"] != row.count:
            raise WrongCounts(f"{row.name} on {peer.name}: {done['count']} of {row.count} messages were checked")
        return figures, used_s

    def prove(self, peer: Target) -> None:
        """A check that cannot fail proves nothing: the client must object to a message that nobody expects."""
        try:
            self.run(peer, PROOF, "bench.jms-proof", lambda: 0.0, extra=1)
        except WrongCounts:
            return
        raise BenchFault(f"{peer.name}: a message too many was not noticed by Qpid JMS: look at bench/jms_load")

    def end(self) -> None:
        """Harmless when there is none."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate(timeout=END_TIMEOUT_S)

    def _ask(self, line: str, row: Application, peer: Target) -> dict[str, Any]:
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
        # One answer to each line, so nothing is left in the buffer that `select` does not see.
        readable, _, _ = select.select([process.stdout], [], [], RUN_TIMEOUT_S)
        text = process.stdout.readline() if readable else ""
        where = f"{row.name} on {peer.name}"
        if not text:
            self.end()
            raise BenchFault(
                f"{where}: the client gave no answer within {RUN_TIMEOUT_S} s; {self._log} has what it said"
            )
        found: dict[str, Any] = json.loads(text)
        if "failure" in found:
            kind = WrongCounts if found.get("wrong") else BenchFault
            raise kind(f"{where}: {found['failure']}\n{peer.log_end()}")
        return found

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    build(),
                    env=dict(os.environ),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
        return self._process
