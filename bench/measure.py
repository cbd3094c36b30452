"""One sample: one row on one broker, or one start. Figures by the names of `metrics.METRICS`."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench import jms, load, usage
from bench.applications import Application
from bench.faults import BenchFault, WrongCounts
from bench.load import Target
from bench.peers.peer import START_TIMEOUT_S
from bench.rows import Among, Beside, Departure, Flooded, Many, Recovery, Row

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


def sample(peer: Target, row: Row, address: str) -> Sample:
    """Load the broker once and check every count."""
    row = row.on(peer.kind)
    found = _idle(peer, row.idle_s) if row.idle_s else {}
    before_s = cpu_s(peer)
    outcome = load.run(peer, row, address)
    full_mb = rss_mb(peer)
    between_s = cpu_s(peer)
    drained = load.drain(peer, row, address) if outcome.received is None else {}
    if row.moves:
        found |= move_figures(row, drained, cpu_s(peer) - between_s)
    elif row.depth:
        found |= depth_figures(row, outcome.sent, drained, cpu_s(peer) - before_s) | {"rss_mb": full_mb}
    else:
        found |= figures(row, outcome, between_s - before_s)
    return Sample(row.name, peer.name, found)


def application(peer: Target, row: Application, address: str, client: jms.Client) -> Sample:
    """Load the broker once through Qpid JMS, which checks every message."""
    found, used_s = client.run(peer, row, address, lambda: cpu_s(peer))
    return Sample(row.name, peer.name, application_figures(found, used_s))


def application_figures(found: Mapping[str, Any], used_s: float) -> Figures:
    """Of messages that came to consumers, or were looked at; processor time is for both directions. Pure."""
    figures: Figures = {"rate": found["per_second"], "cpu_us": used_s * 1e6 / found["messages"]}
    if "filled_per_second" in found:
        figures["fill_rate"] = found["filled_per_second"]
    figures |= {f"{name}_us": float(time_us) for name, time_us in found.get("round_trip_us", {}).items()}
    return figures


def cpu_s(peer: Target) -> float:
    """Of all nodes."""
    return sum(usage.cpu_s(node.pid) for node in peer.nodes)


def rss_mb(peer: Target) -> float:
    """Of all nodes."""
    return sum(usage.rss_mb(node.pid) for node in peer.nodes)


def _idle(peer: Target, seconds: float) -> Figures:
    """Nothing is asked of them; what they tell each other goes on."""
    before_s = cpu_s(peer)
    time.sleep(seconds)
    return {"idle_percent": 100 * (cpu_s(peer) - before_s) / seconds, "rss_mb": rss_mb(peer)}


def figures(row: Row, outcome: load.Outcome, used_s: float) -> Figures:
    """Durable rows count what the producer knows to be safe, the others and clusters what the consumer has. Pure."""
    is_safe = row.durable and row.nodes == 1  # what is safe at one node has still to reach the other
    headline = outcome.sent if is_safe or outcome.received is None else outcome.received
    found: Figures = {"rate": headline["per_second"], "cpu_us": used_s * 1e6 / row.count}
    if row.rate:
        found["cpu_percent"] = 100 * used_s / headline["seconds"]
    if row.times:
        found |= _percentiles(row, outcome)
    return found


def move_figures(row: Row, drained: dict[str, Any], used_s: float) -> Figures:
    """Of messages that lay at another node when the consumer came. Pure."""
    seconds = (drained["last_ns"] - drained["attached_ns"]) / 1e9
    return {"move_s": seconds, "rate": row.count / seconds, "cpu_us": used_s * 1e6 / row.count}


def depth_figures(row: Row, sent: dict[str, Any], drained: dict[str, Any], used_s: float) -> Figures:
    """Of a queue that was filled and then drained; CPU is for both directions, as in rows with a consumer. Pure."""
    return {
        "rate": drained["per_second"],
        "fill_rate": sent["per_second"],
        "cpu_us": used_s * 1e6 / row.count,
        "tail_share": drained["tail_per_second"] / drained["head_per_second"],
    }


def many(peer: Target, row: Many, idle_mb: float) -> Figures:
    """Connections or queues on an instance that has just been started and has `idle_mb` resident."""
    with load.crowd(peer, row, f"bench.{row.name}") as seconds:
        time.sleep(IDLE_S)
        found_mb = rss_mb(peer)
    if row.attached:
        return {"attach_s": seconds, "rss_mb": found_mb}
    return {"create_s": seconds, "added_mb": found_mb - idle_mb}


def recovery(peer: Target, row: Recovery) -> Figures:
    """Seconds from a kill of a broker that holds the load's messages to the next one that it accepts; it has all
    of them then."""
    address = f"bench.{row.name}"
    load.run(peer, row.load, address)
    (node,) = peer.nodes
    killed_ns = time.monotonic_ns()
    node.kill()
    node.launch()
    accepted_ns = _first_accepted_ns(peer)
    node.after_start()
    load.drain(peer, row.load, address)
    return {"recover_s": (accepted_ns - killed_ns) / 1e9}


def departure(peer: Target, row: Departure) -> Figures:
    """Seconds from the command that takes a node away until the other one has all of its messages, each once."""
    row = row.on(peer.kind)
    addresses = [f"bench.{row.name}.{number}" for number in range(row.queues)]
    for address in addresses:
        load.run(peer, row.load, address)
    leaver = peer.nodes[row.load.send_at]
    began_ns = time.monotonic_ns()
    leaver.leave()
    seconds = (time.monotonic_ns() - began_ns) / 1e9
    for address in addresses:
        load.drain(peer, row.load, address)
    peak_mb = max(usage.peak_mb(node.pid) for node in peer.nodes if node.is_running)
    return {"move_s": seconds, "rate": row.queues * row.load.count / seconds, "peak_mb": peak_mb}


def among(peer: Target, row: Among) -> Figures:
    """A load alone and then in a crowd, after one that does not count."""
    address = f"bench.{row.name}"
    load.run(peer, row.load, f"{address}.warm")
    alone_us = sample(peer, row.load, f"{address}.alone").figures["cpu_us"]
    with load.crowd(peer, row.many, f"{address}.crowd"):
        among_us = sample(peer, row.load, f"{address}.among").figures["cpu_us"]
    return among_figures(row.load.count, alone_us, among_us)


def among_figures(count: int, alone_us: float, among_us: float) -> Figures:
    """What `count` messages cost each. Less than a step of the clock is taken for one, as short loads may. Pure."""
    step_us = 1e6 / usage.TICKS_PER_S / count
    share = max(among_us, step_us) / max(alone_us, step_us)
    return {"cpu_share": share, "cpu_us": among_us, "alone_cpu_us": alone_us}


def beside(peer: Target, row: Beside) -> Figures:
    """A load alone and beside bad input, in turn, after one that does not count."""
    load.run(peer, row.load, f"bench.{row.name}.warm")
    alone, others, attacks = [], [], []
    for turn in range(row.turns):
        alone.append(_percentiles(row.load, load.run(peer, row.load, f"bench.{row.name}.{turn}.alone")))
        outcome, attack = load.run_beside(peer, row, f"bench.{row.name}.{turn}.beside")
        others.append(_percentiles(row.load, outcome))
        attacks.append(float(attack["per_second"]))
    return beside_figures(alone, others, attacks)


def beside_figures(alone: Sequence[Figures], others: Sequence[Figures], attacks: Sequence[float]) -> Figures:
    """Medians of the turns, because one bad moment of the machine is not what the attacker did. Pure."""
    found = {
        f"{what}_{name}": statistics.median(turn[name] for turn in turns)
        for what, turns in (("alone", alone), ("beside", others))
        for name in ("p50_us", "p99_us")
    }
    share = found["beside_p99_us"] / found["alone_p99_us"]
    return {"p99_share": share, **found, "bad_rate": statistics.median(attacks)}


def flooded(peer: Target, row: Flooded) -> dict[str, Figures]:
    """A load beside a busy process and beside floods, in turn, after one that does not count."""
    load.run(peer, row.load, f"bench.{row.name}.warm")
    alone: list[Figures] = []
    others: dict[str, list[Figures]] = {flood: [] for flood in row.floods}
    with load.flooding(peer, row) as turn_to:
        for turn in range(row.turns):
            for place, flood in enumerate(row.floods):
                if place % row.between == 0:
                    turn_to("")
                    alone.append(_percentiles(row.load, load.run(peer, row.load, f"bench.alone.{turn}.{place}")))
                turn_to(flood)
                others[flood].append(_percentiles(row.load, load.run(peer, row.load, f"bench.beside.{turn}.{place}")))
    return dict(zip(row.titles(), flooded_figures(alone, others), strict=True))


def flooded_figures(alone: Sequence[Figures], others: Mapping[str, Sequence[Figures]]) -> list[Figures]:
    """Of each flood in turn: medians of its turns, in those of all turns alone. Pure."""
    return [
        {
            "p99_share": _median(found, "p99_us") / _median(alone, "p99_us"),
            "alone_p50_us": _median(alone, "p50_us"),
            "alone_p99_us": _median(alone, "p99_us"),
            "beside_p50_us": _median(found, "p50_us"),
            "beside_p99_us": _median(found, "p99_us"),
        }
        for found in others.values()
    ]


def _median(found: Sequence[Figures], name: str) -> float:
    return statistics.median(each[name] for each in found)


def _percentiles(row: Row, outcome: load.Outcome) -> Figures:
    if row.times == "acknowledgement":
        histogram: dict[str, Any] = outcome.sent["acknowledgement_us"]
    else:
        assert outcome.received is not None
        histogram = outcome.received["latency_us"]
    return {f"{name}_us": float(histogram[name]) for name in ("p50", "p99", "p999")}


def prove(peer: Target) -> None:
    """A check that cannot fail proves nothing: a consumer that expects one message less than there is must object."""
    row = Row("proof", "proof", PROOF_COUNT, 100, consumer=False)
    load.run(peer, row, "bench.proof")
    try:
        load.drain(peer, dataclasses.replace(row, count=PROOF_COUNT - 1), "bench.proof")
    except WrongCounts:
        return
    raise BenchFault(f"{peer.name}: a message too many was not noticed, so counts mean nothing: look at bench/load")


def link(peer: Target) -> None:
    """Return when a message has reached each node from the one before it: links stand."""
    nodes = len(peer.nodes)
    for place in range(nodes if nodes > 1 else 0):
        ahead = (place + 1) % nodes
        row = dataclasses.replace(FIRST, name="link", consumer=True, nodes=nodes, send_at=place, receive_at=(ahead,))
        load.run(peer, row, f"bench.link.{place}")


def start(peer: Target) -> Figures:
    """Seconds from the start of a prepared broker to its first accepted durable message; memory when idle then."""
    began_ns = time.monotonic_ns()
    peer.launch()
    accepted_ns = _first_accepted_ns(peer)
    peer.after_start()
    time.sleep(IDLE_S)
    return {"start_s": (accepted_ns - began_ns) / 1e9, "rss_mb": rss_mb(peer)}


def _first_accepted_ns(peer: Target) -> int:
    """A port that accepts may still refuse logins, so try until one message is accepted."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            return int(load.run(peer, FIRST, "bench.start").sent["last_ns"])
        except BenchFault:
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_S)
