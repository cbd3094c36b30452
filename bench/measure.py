"""One sample: one row on one broker, or one start. Figures by the names of `rows.METRICS`."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import Any

from bench import load, usage
from bench.faults import BenchFault, WrongCounts
from bench.peers.peer import START_TIMEOUT_S, Peer
from bench.rows import Row

IDLE_S = 1.0
RETRY_S = 0.01
PROOF_COUNT = 60
FIRST = Row("start", "first message", 1, 100, durable=True, in_flight=1, consumer=False)

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Sample:
    """What one row gave on one broker in one round."""

    row: str
    peer: str
    figures: Figures


def sample(peer: Peer, row: Row, address: str) -> Sample:
    """Load the broker once and check every count."""
    before_s = usage.cpu_s(peer.pid)
    outcome = load.run(peer, row, address)
    used_s = usage.cpu_s(peer.pid) - before_s
    if outcome.received is None:
        load.drain(peer, row, address)
    return Sample(row.name, peer.name, figures(row, outcome, used_s))


def figures(row: Row, outcome: load.Outcome, used_s: float) -> Figures:
    """Durable rows count what the producer knows to be safe, the others what the consumer has. Pure."""
    headline = outcome.sent if row.durable or outcome.received is None else outcome.received
    found: Figures = {"rate": headline["per_second"], "cpu_us": used_s * 1e6 / row.count}
    if row.rate:
        found["cpu_percent"] = 100 * used_s / headline["seconds"]
    if row.times:
        found |= _percentiles(row, outcome)
    return found


def _percentiles(row: Row, outcome: load.Outcome) -> Figures:
    if row.times == "acknowledgement":
        histogram: dict[str, Any] = outcome.sent["acknowledgement_us"]
    else:
        assert outcome.received is not None
        histogram = outcome.received["latency_us"]
    return {f"{name}_us": float(histogram[name]) for name in ("p50", "p99", "p999")}


def prove(peer: Peer) -> None:
    """A check that cannot fail proves nothing: a consumer that expects one message less than there is must object."""
    row = Row("proof", "proof", PROOF_COUNT, 100, consumer=False)
    load.run(peer, row, "bench.proof")
    try:
        load.drain(peer, dataclasses.replace(row, count=PROOF_COUNT - 1), "bench.proof")
    except WrongCounts:
        return
    raise BenchFault(f"{peer.name}: a message too many was not noticed, so counts mean nothing: look at bench/load")


def start(peer: Peer) -> Figures:
    """Seconds from the start of a prepared broker to its first accepted durable message; memory when idle then."""
    began_ns = time.monotonic_ns()
    peer.launch()
    accepted_ns = _first_accepted_ns(peer)
    peer.after_start()
    time.sleep(IDLE_S)
    return {"start_s": (accepted_ns - began_ns) / 1e9, "rss_mb": usage.rss_mb(peer.pid)}


def _first_accepted_ns(peer: Peer) -> int:
    """A port that accepts may still refuse logins, so try until one message is accepted."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            return int(load.run(peer, FIRST, "bench.start").sent["last_ns"])
        except BenchFault:
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_S)
