"""All rounds. Every broker is started and warmed once; then each row goes over all of them before the next row, so
that what the machine does to one it does to the others within seconds. The order turns round by round. Starts are
measured on fresh instances, beside the warm ones, in each round."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bench import measure, peers, usage
from bench.peers.peer import Peer
from bench.rows import START, START_TITLE, WARM_UP, Row
from bench.stats import Spread, spread

WARM_UPS_MAX = 12
STEADY = 0.95  # a warm-up that costs more than this share of the best before has gained nothing
STEADY_WARM_UPS = 2

Say = Callable[[str], None]
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run. `warm` is off only where figures do not matter."""

    names: tuple[str, ...]
    rows: tuple[Row, ...]
    rounds: int
    starts: bool
    warm: bool


@dataclass(frozen=True, slots=True)
class Result:
    """All figures of one row on one broker: metric → spread over the rounds."""

    row: str
    title: str
    peer: str
    figures: dict[str, Spread]


def run(plan: Plan, directory: Path, say: Say) -> list[Result]:
    """Run the plan in `directory`, which holds one folder for each instance."""
    samples: list[measure.Sample] = []
    with ExitStack() as stack:
        running = [stack.enter_context(_running(name, directory / name)) for name in plan.names] if plan.rows else []
        for peer in running if plan.warm else ():
            warm(peer, say)
        for number in range(plan.rounds):
            samples += _round(plan, number, running, say)
            if plan.starts:
                samples += _starts(plan, number, directory, say)
    return _results(plan, samples)


def warm(peer: Peer, say: Say) -> None:
    """Repeat the warm-up until the CPU that a message costs falls no more: a JVM compiles for millions of messages."""
    best_us, idle = float("inf"), 0
    for number in range(WARM_UPS_MAX):
        before_s = usage.cpu_s(peer.pid)
        for row in WARM_UP:
            measure.sample(peer, row, f"bench.warm.{row.name}.{number}")
        cost_us = (usage.cpu_s(peer.pid) - before_s) * 1e6 / sum(row.count for row in WARM_UP)
        say(f"warming {peer.name}: {cost_us:.1f} µs of CPU per message")
        idle = idle + 1 if cost_us > best_us * STEADY else 0
        best_us = min(best_us, cost_us)
        if idle == STEADY_WARM_UPS:
            return


def turned(items: list[Item], number: int) -> list[Item]:
    """Who goes first changes with the round: nobody always gets the machine that the other has just heated."""
    shift = number % len(items) if items else 0
    return items[shift:] + items[:shift]


def _round(plan: Plan, number: int, running: list[Peer], say: Say) -> Iterator[measure.Sample]:
    for row in plan.rows:
        for peer in turned(running, number):
            found = measure.sample(peer, row, f"bench.{row.name}.{number}")
            say(f"round {number + 1} of {plan.rounds}: {row.title}: {peer.name} {found.figures['rate']:,.0f} msg/s")
            yield found


def _starts(plan: Plan, number: int, directory: Path, say: Say) -> Iterator[measure.Sample]:
    for name in plan.names:
        place = directory / f"{name}-start-{number}"
        peer = peers.make(name, place)
        try:
            peer.prepare()
            figures = measure.start(peer)
        finally:
            peer.stop()
        shutil.rmtree(place)
        say(f"round {number + 1} of {plan.rounds}: {START_TITLE}: {name} {figures['start_s']:.2f} s")
        yield measure.Sample(START, name, figures)


@contextmanager
def _running(name: str, directory: Path) -> Iterator[Peer]:
    peer = peers.make(name, directory)
    try:
        peer.prepare()
        measure.start(peer)
        measure.prove(peer)
        yield peer
    finally:
        peer.stop()


def _results(plan: Plan, samples: list[measure.Sample]) -> list[Result]:
    titles = {row.name: row.title for row in plan.rows} | ({START: START_TITLE} if plan.starts else {})
    found = []
    for row, title in titles.items():
        for name in plan.names:
            mine = [one.figures for one in samples if one.row == row and one.peer == name]
            figures = {metric: spread([one[metric] for one in mine]) for metric in mine[0]}
            found.append(Result(row, title, name, figures))
    return found
