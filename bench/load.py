"""Runs `mqload`, the load generator in C, and reads what it prints. Wrong counts surface here as WrongCounts."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.faults import BenchFault, WrongCounts
from bench.peers.cluster import Cluster
from bench.peers.peer import Peer
from bench.rows import CREDIT, Beside, Flooded, Many, Row

SOURCE = Path(__file__).parent / "load"
ROOT = Path(__file__).resolve().parents[1]
BINARY = SOURCE / "build" / "mqload"
BUILD_TIMEOUT_S = 120
READY_TIMEOUT_S = 30
MANY_READY_TIMEOUT_S = 300
RUN_TIMEOUT_S = 600
STALL_S = 20
COUNTED = {"send": "sent", "receive": "received", "scatter": "accepted", "attach": "received", "attack": "refused"}
# A link of the many is nearly idle; as many connections as a pool of clients opens at once.
MANY_CREDIT = 10
CONNECTIONS_AT_ONCE = 50
Target = Peer | Cluster
# A node knows of a consumer elsewhere soon after that is attached; links between nodes stand soon after their start.
HEARD_S = 0.5


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the two ends of one load printed; `received` is there when something consumed."""

    sent: dict[str, Any]
    received: dict[str, Any] | None


def build() -> None:
    """Compile the load generator and check its counting; quick when nothing changed."""
    done = subprocess.run(
        ["make", "-C", str(SOURCE), "build/mqload", "check"],
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise BenchFault(f"the load generator does not build:\n{done.stdout}{done.stderr}")


def send_arguments(row: Row, address: str) -> list[str]:
    """Options of the producer process. Pure."""
    options = ["send", "--address", address, "--count", str(row.count), "--size", _sizes(row)]
    options += ["--connections", str(row.producers), "--in-flight", str(row.in_flight)]
    options += ["--settled"] if row.settled else []
    options += ["--durable"] if row.durable else []
    options += ["--rate", str(row.rate)] if row.rate else []
    return options + (["--stamp"] if row.times == "delivery" else [])


def receive_arguments(row: Row, address: str) -> list[str]:
    """Options of the consumer process. Pure."""
    options = ["receive", "--address", address, "--count", str(row.count), "--size", _sizes(row)]
    options += ["--producers", str(row.producers), "--credit", str(CREDIT)]
    options += ["--connections", str(len(row.receive_at))]
    options += ["--settled"] if row.settled else []
    options += [] if row.is_ordered else ["--any-order"]
    return options + (["--stamp"] if row.times == "delivery" else [])


def many_arguments(row: Many, mode: str, address: str) -> list[str]:
    """Options of the process that makes the queues (`scatter`) or attaches the receivers (`attach`). Pure."""
    options = [mode, "--address", address, "--connections", str(row.connections), "--links", str(row.links)]
    return [*options, "--at-once", str(CONNECTIONS_AT_ONCE), "--credit", str(MANY_CREDIT)]


def _sizes(row: Row) -> str:
    return ",".join(str(size) for size in row.sizes)


def run(peer: Target, row: Row, address: str) -> Outcome:
    """One load: the consumer is attached, and other nodes have heard of it, before the producer starts."""
    if not row.consumer:
        return Outcome(_result(_producer(peer, row, address), row, peer), None)
    with _consumer(peer, row, address) as consumer:
        time.sleep(HEARD_S if row.nodes > 1 else 0)
        producer = _producer(peer, row, address)
        try:
            sent = _result(producer, row, peer)
        finally:
            _end(producer)
        return Outcome(sent, _result(consumer, row, peer))


def drain(peer: Target, row: Row, address: str) -> dict[str, Any]:
    """Consume what a row without a consumer left behind; `attached_ns` is when the consumer was there."""
    with _consumer(peer, row, address) as consumer:
        attached_ns = time.monotonic_ns()
        return _result(consumer, row, peer) | {"attached_ns": attached_ns}


@contextmanager
def _consumer(peer: Target, row: Row, address: str) -> Iterator[subprocess.Popen[str]]:
    process = _spawn(peer, receive_arguments(row, peer.address(address)), row.receive_at)
    try:
        _await_ready(process, row, peer)
        yield process
    finally:
        _end(process)


def _producer(peer: Target, row: Row, address: str) -> subprocess.Popen[str]:
    return _spawn(peer, send_arguments(row, peer.address(address)), (row.send_at,))


def scatter(peer: Target, row: Many, address: str) -> float:
    """Make the queues by a message to each; seconds until all are accepted."""
    process = _spawn(peer, many_arguments(row, "scatter", peer.address(address)))
    try:
        return float(_result(process, row, peer)["seconds"])
    finally:
        _end(process)


@contextmanager
def attached(peer: Target, row: Many, address: str) -> Iterator[float]:
    """A receiver on each queue; seconds until all were there. At the end each queue must have given one message."""
    process = _spawn(peer, many_arguments(row, "attach", peer.address(address)))
    try:
        yield float(_await_ready(process, row, peer, MANY_READY_TIMEOUT_S)["seconds"])
        _result(process, row, peer)
    finally:
        _end(process)


@contextmanager
def crowd(peer: Target, row: Many, address: str) -> Iterator[float]:
    """What `row` asks for, there while the body runs; seconds until it was. After it each queue gives its message."""
    if row.attached:
        with attached(peer, row, address) as seconds:
            yield seconds
            scatter(peer, row, address)
    else:
        yield scatter(peer, row, address)
        with attached(peer, row, address):
            pass


def run_beside(peer: Target, row: Beside, address: str) -> tuple[Outcome, dict[str, Any]]:
    """The load while an attacker is at work, and what that has done: each case once before, and on until the end."""
    command = [sys.executable, "-m", "bench.attacker", "--port", str(peer.nodes[0].port), "--user", peer.user]
    attacker = _popen([*command, "--rate", str(row.bad_per_s)], peer, subprocess.PIPE)
    try:
        _await_ready(attacker, row, peer, who="the attacker")
        outcome = run(peer, row.load, address)
        return outcome, _result(attacker, row, peer)
    finally:
        _end(attacker)


@contextmanager
def flooding(peer: Target, row: Flooded) -> Iterator[Callable[[str], None]]:
    """A process that floods while the body runs. It turns to a flood, or where none is named it is busy and says
    nothing; a flood that said nothing, or that the broker did not put up with, was none.
    """
    command = [sys.executable, "-m", "tests.support.flooder", "--port", str(peer.nodes[0].port), "--user", peer.user]
    process = _popen([*command, *(["--eager"] if row.is_eager else [])], peer, subprocess.PIPE)
    before = ""

    def turn_to(flood: str) -> None:
        nonlocal before
        assert process.stdin is not None
        process.stdin.write(f"{flood}\n")
        process.stdin.flush()
        said = _await_ready(process, row, peer, who=f"the flooder ({flood or 'busy'})")
        if before and (said["lost"] or not said["sent_bytes"]):
            raise BenchFault(f"{row.name} on {peer.name}: {before}: this was no flood: {said}\n{peer.log_end()}")
        before = flood

    try:
        yield turn_to
        turn_to("")
    finally:
        _end(process)


def _spawn(peer: Target, arguments: list[str], places: tuple[int, ...] = (0,)) -> subprocess.Popen[str]:
    ports = ",".join(str(peer.nodes[place].port) for place in places)
    command = [str(BINARY), *arguments, "--port", ports, "--user", peer.user, "--stall", str(STALL_S)]
    return _popen([*command, *peer.load_options], peer)


def _popen(command: list[str], peer: Target, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    environment = {**os.environ, "MQLOAD_PASSWORD": peer.password}
    return subprocess.Popen(
        command, env=environment, cwd=ROOT, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _await_ready(
    process: subprocess.Popen[str],
    row: Row | Many | Beside | Flooded,
    peer: Target,
    timeout_s: int = READY_TIMEOUT_S,
    who: str = "the consumer",
) -> dict[str, Any]:
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], timeout_s)
    line = process.stdout.readline() if readable else ""
    if not line:
        raise BenchFault(f"{row.name} on {peer.name}: {who} is not ready after {timeout_s} s")
    found: dict[str, Any] = json.loads(line)
    if not found.get("ready"):
        raise BenchFault(f"{row.name} on {peer.name}: {who} failed: {found.get('failure')}\n{peer.log_end()}")
    return found


def _result(process: subprocess.Popen[str], row: Row | Many | Beside, peer: Target) -> dict[str, Any]:
    try:
        output, errors = process.communicate(timeout=RUN_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        _end(process)
        raise BenchFault(f"{row.name} on {peer.name}: the load did not end within {RUN_TIMEOUT_S} s") from None
    lines = output.strip().splitlines()
    if process.returncode not in (0, 1) or not lines:
        raise BenchFault(
            f"{row.name} on {peer.name}: the load ended with status {process.returncode}: {errors.strip()}"
        )
    found: dict[str, Any] = json.loads(lines[-1])
    if process.returncode != 0:
        settled = isinstance(row, Row) and row.settled
        done = "accepted" if found["mode"] == "send" and not settled else COUNTED[found["mode"]]
        where = f"{row.name} on {peer.name}: {found['mode']}: {found[done]} of {found['count']} {done}"
        raise WrongCounts(f"{where}: {found['failure']}\n{peer.log_end()}")
    return found


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
        process.communicate()
