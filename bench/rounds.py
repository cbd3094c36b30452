"""All rounds. Every broker is started and warmed once; then each row goes over all of them before the next row, so
that what the machine does to one it does to the others within seconds. The order turns round by round. Starts, many
connections, many queues, bystanders and crowds are measured on fresh instances, beside the warm ones, in each round.

A peer that cannot run, or that fails at a row, is left out with its reason and the others go on. Ours may not fail."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from bench import jms, measure, peers
from bench.applications import Application
from bench.faults import BenchFault
from bench.load import Target
from bench.metrics import METRICS
from bench.rows import (
    CLUSTER_WARM_UP,
    START,
    WARM_UP,
    Among,
    Beside,
    Choice,
    Departure,
    Flooded,
    Fresh,
    Recovery,
    Row,
)
from bench.stats import Spread, spread

WARM_UPS_MAX = 12
STEADY = 0.95  # a warm-up that costs more than this share of the best before has gained nothing
STEADY_WARM_UPS = 2
APPLICATION_WARM_UPS = 2  # what these rows alone go through in a broker, and all of it in the client
EVERY_ROW = ""

Say = Callable[[str], None]
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run. `warm` is off only where figures do not matter. `absent`: peers that cannot run here, and why."""

    names: tuple[str, ...]
    choice: Choice
    rounds: int
    warm: bool
    absent: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """All figures of one row on one broker: metric → spread over the rounds."""

    row: str
    title: str
    peer: str
    figures: dict[str, Spread]


@dataclass(slots=True)
class Record:
    """What was measured, and what was not: (row, peer) → reason, with EVERY_ROW for a peer that did not run at all."""

    samples: list[measure.Sample] = field(default_factory=list)
    omitted: dict[tuple[str, str], str] = field(default_factory=dict)

    def lacks(self, row: str, peer: str) -> bool:
        """Whether this row is no longer tried on this peer."""
        return (row, peer) in self.omitted or (EVERY_ROW, peer) in self.omitted

    @contextmanager
    def tolerant(self, rows: Sequence[str], peer: str, say: Say) -> Iterator[None]:
        """A peer's fault becomes the reason why it has no figures in these rows; ours ends the run."""
        try:
            yield
        except BenchFault as fault:
            if peer == peers.OURS:
                raise
            self.omitted |= {(row, peer): str(fault).strip().splitlines()[0] for row in rows}
            where = ", ".join(row for row in rows if row != EVERY_ROW)
            say(f"bench: {peer} is left out{f' of {where}' if where else ''}: {fault}")

    def results(self, plan: Plan) -> list[Result]:
        """In the order of the table; a peer that missed a round of a row is not in that row."""
        found = []
        for row, title in plan.choice.lines().items():
            for name in plan.names:
                mine = [one.figures for one in self.samples if one.row == row and one.peer == name]
                if len(mine) == plan.rounds:
                    figures = {metric: spread([one[metric] for one in mine]) for metric in mine[0]}
                    found.append(Result(row, title, name, figures))
        return found


@dataclass(frozen=True, slots=True)
class Phase:
    """Rows that want as many nodes as each other: single brokers, or clusters."""

    nodes: int
    rows: list[Row]
    applications: list[Application]
    client: jms.Client

    @property
    def lost(self) -> list[str]:
        """What a peer lacks that cannot be started for it."""
        return [EVERY_ROW] if self.nodes == 1 else [row.name for row in self.rows]

    def all(self) -> list[Row | Application]:
        """In the order of the table."""
        return [*self.rows, *self.applications]

    def sample(self, peer: Target, row: Row | Application, address: str) -> measure.Sample:
        """Load the broker once."""
        if isinstance(row, Application):
            return measure.application(peer, row, address, self.client)
        return measure.sample(peer, row, address)


def run(plan: Plan, directory: Path, say: Say) -> Record:
    """Run the plan in `directory`, which holds one folder for each instance."""
    record = Record(omitted={(EVERY_ROW, name): reason for name, reason in plan.absent.items()})
    for row in plan.choice.all():
        skips = dict(row.skips)
        record.omitted |= {(row.name, name): skips[kind] for name in plan.names if (kind := peers.kind(name)) in skips}
    loads: tuple[Row | Application, ...] = (*plan.choice.rows, *plan.choice.applications)
    sizes = sorted({row.nodes for row in loads}) or [1]
    for nodes in sizes:
        rows = [row for row in plan.choice.rows if row.nodes == nodes]
        applications = [row for row in plan.choice.applications if row.nodes == nodes]
        phase = Phase(nodes, rows, applications, jms.Client(directory / "jms.log"))
        with ExitStack() as stack:
            stack.callback(phase.client.end)
            running = _start_all(plan, phase, directory, (record, stack), say)
            for number in range(plan.rounds):
                _round((plan, phase, number), running, record, say)
                if nodes == sizes[0]:
                    _fresh_round(plan, number, directory, record, say)
    return record


def _start_all(plan: Plan, phase: Phase, directory: Path, kept: tuple[Record, ExitStack], say: Say) -> list[Target]:
    """All that can be started, and is not lacking in all rows of the phase; `kept` knows why not, and stops them."""
    record, stack = kept
    running = []
    for name in plan.names:
        if not all(record.lacks(row.name, name) for row in phase.all()):
            with record.tolerant(phase.lost, name, say):
                place = directory / f"{name}-{phase.nodes}"
                running.append(stack.enter_context(_running(name, place, phase.nodes)))
    for peer in running if plan.warm else ():
        with record.tolerant(phase.lost, peer.name, say):
            warm(peer, WARM_UP if phase.nodes == 1 else CLUSTER_WARM_UP, say)
    _ready_applications(plan, phase, running, record, say)
    return running


def _ready_applications(plan: Plan, phase: Phase, running: list[Target], record: Record, say: Say) -> None:
    """The client has shown that it counts, and each load has gone over all brokers before it is measured."""
    for peer in running:
        if not phase.applications or record.lacks(EVERY_ROW, peer.name):
            continue
        with record.tolerant([row.name for row in phase.applications], peer.name, say):
            phase.client.prove(peer)
    for number in range(APPLICATION_WARM_UPS if plan.warm else 0):
        for row in phase.applications:
            for peer in running:
                if not record.lacks(row.name, peer.name):
                    with record.tolerant([row.name], peer.name, say):
                        rate = phase.sample(peer, row, f"bench.warm.{row.name}.{number}").figures["rate"]
                        say(f"warming {peer.name}: {row.title}: {rate:,.0f} msg/s")


def warm(peer: Target, rows: tuple[Row, ...], say: Say) -> None:
    """Repeat the warm-up until the CPU that a message costs falls no more: a JVM compiles for millions of messages."""
    best_us, idle = float("inf"), 0
    for number in range(WARM_UPS_MAX):
        before_s = measure.cpu_s(peer)
        for row in rows:
            measure.sample(peer, asked_of(peer.name, row), f"bench.warm.{row.name}.{number}")
        cost_us = (measure.cpu_s(peer) - before_s) * 1e6 / sum(row.on(peer.kind).count for row in rows)
        say(f"warming {peer.name}: {cost_us:.1f} µs of CPU per message")
        idle = idle + 1 if cost_us > best_us * STEADY else 0
        best_us = min(best_us, cost_us)
        if idle == STEADY_WARM_UPS:
            return


def asked_of(name: str, row: Row) -> Row:
    """The row as a broker of this name is asked for it while a cluster is warmed, and for what a node that left handed
    over. In which order a peer's messages arrive then is not what is measured: out of it they are counted, and the
    peer stays. Ours has to keep it. Pure."""
    return row if name == peers.OURS or row.nodes == 1 else dataclasses.replace(row, is_ordered=False)


def turned(items: list[Item], number: int) -> list[Item]:
    """Who goes first changes with the round: nobody always gets the machine that the other has just heated."""
    shift = number % len(items) if items else 0
    return items[shift:] + items[:shift]


def _round(turn: tuple[Plan, Phase, int], running: list[Target], record: Record, say: Say) -> None:
    """One turn: the round of this number, of a phase."""
    plan, phase, number = turn
    for row in phase.all():
        for peer in turned(running, number):
            if record.lacks(row.name, peer.name):
                continue
            with record.tolerant([row.name], peer.name, say):
                found = phase.sample(peer, row, f"bench.{row.name}.{number}")
                say(f"round {number + 1} of {plan.rounds}: {row.title}: {peer.name} {found.figures['rate']:,.0f} msg/s")
                record.samples.append(found)


def _fresh_round(plan: Plan, number: int, directory: Path, record: Record, say: Say) -> None:
    fresh: list[Fresh | None] = [*([None] if plan.choice.starts else []), *plan.choice.fresh]
    for row in fresh:
        name = row.name if row else START
        for peer in turned(list(plan.names), number):
            if record.lacks(name, peer):
                continue
            with record.tolerant([name], peer, say):
                place = directory / f"{peer}-{name}-{number}"
                for line, figures in _on_fresh(peer, row, place, is_warm=plan.warm).items():
                    title = plan.choice.lines()[line]
                    say(f"round {number + 1} of {plan.rounds}: {title}: {peer}: {_first(figures)}")
                    record.samples.append(measure.Sample(line, peer, figures))


def _first(figures: measure.Figures) -> str:
    name, value = next(iter(figures.items()))
    return f"{next(metric.title for metric in METRICS if metric.name == name)} {value:.2f}"


def _on_fresh(name: str, row: Fresh | None, place: Path, *, is_warm: bool) -> dict[str, measure.Figures]:
    """Start an instance for this alone; without a row the start itself is what is measured. By line of the table."""
    if isinstance(row, Departure):
        return {row.name: _departed(name, row, place, is_warm=is_warm)}
    peer = peers.make(name, place)
    for node in peer.nodes:
        node.is_narrow = isinstance(row, Beside)
    try:
        peer.prepare()
        figures = measure.start(peer)
        if isinstance(row, Flooded):
            found = measure.flooded(peer, row)
        elif isinstance(row, Beside):
            found = {row.name: measure.beside(peer, row)}
        elif isinstance(row, Among):
            found = {row.name: measure.among(peer, row)}
        elif isinstance(row, Recovery):
            found = {row.name: measure.recovery(peer, row)}
        elif row is not None:
            found = {row.name: measure.many(peer, row, figures["rss_mb"])}
        else:
            found = {START: figures}
    finally:
        peer.stop()
    shutil.rmtree(place)
    return found


def _departed(name: str, row: Departure, place: Path, *, is_warm: bool) -> measure.Figures:
    """On a cluster that has done what others are warmed by, once."""
    with _running(name, place, row.load.nodes, leaves=True, pages=row.pages) as peer:
        for one in CLUSTER_WARM_UP if is_warm else ():
            measure.sample(peer, asked_of(name, one), f"bench.{row.name}.{one.name}")
        figures = measure.departure(peer, dataclasses.replace(row, load=asked_of(name, row.load)))
    shutil.rmtree(place)
    return figures


@contextmanager
def _running(name: str, directory: Path, nodes: int, *, leaves: bool = False, pages: bool = False) -> Iterator[Target]:
    """With `leaves` the first of several nodes is to hand over what it has when it leaves, and no other."""
    peer = peers.make(name, directory, nodes)
    for node in peer.nodes:
        if node.member is not None:
            node.member = dataclasses.replace(node.member, leaves=leaves and node is peer.nodes[0], pages=pages)
    try:
        peer.prepare()
        measure.start(peer)
        measure.prove(peer)
        measure.link(peer)
        yield peer
    finally:
        peer.stop()
