"""What must hold: ratios to the better Artemis of the same run, or bounds. A floor fails only when even the better
quartile of the rounds misses it: a shared machine has bad minutes, and a check that fails by chance is soon ignored.
Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.applications import APPLICATIONS
from bench.metrics import METRICS
from bench.report import ratios
from bench.rounds import Result
from bench.rows import FLOODED
from bench.stats import Spread

QUARTILE = 0.25


@dataclass(frozen=True, slots=True)
class Floor:
    """What our figure must reach in this row, or stay under where less is better: a ratio, or the figure itself."""

    row: str
    metric: str
    bound: float
    absolute: bool = False

    def shown(self, value: float) -> str:
        """With its unit: × for a ratio."""
        return f"{value:.2f}" if self.absolute else f"{value:.2f}×"


FLOORS = (
    Floor("plain-100B-settled", "rate", 2.0),
    Floor("plain-100B-acknowledged", "rate", 2.0),
    Floor("plain-1KiB-settled", "rate", 1.7),
    Floor("plain-1KiB-settled", "cpu_us", 0.25),
    Floor("plain-1KiB-acknowledged", "rate", 1.7),
    Floor("plain-1KiB-acknowledged", "cpu_us", 0.25),
    Floor("durable-1", "rate", 1.0),
    Floor("durable-1", "cpu_us", 0.5),
    Floor("durable-16", "rate", 1.0),
    Floor("durable-16", "cpu_us", 0.5),
    Floor("durable-64", "rate", 1.0),
    Floor("durable-64", "cpu_us", 0.5),
    Floor("durable-1000", "rate", 1.4),
    Floor("durable-1000", "p99_us", 0.25),
    Floor("durable-1000-consumer", "rate", 1.4),
    # Not a quarter, as without a consumer: 1,000 in flight take 1,000 divided by the rate at the mean, and at the rate
    # that the line above asks for this is more than a quarter of Artemis's p99 (docs/PERFORMANCE.md).
    Floor("durable-1000-consumer", "p99_us", 0.5),
    Floor("latency", "p50_us", 0.8),
    Floor("latency", "p99_us", 0.8),
    # The end of a deep queue is as fast as its beginning, within noise.
    Floor("depth", "tail_share", 0.8, absolute=True),
    Floor("cluster-1KiB", "rate", 2.0),
    Floor("cluster-1KiB-durable", "rate", 1.5),
    Floor("redistribution", "rate", 2.0),
    Floor("connections", "attach_s", 0.25),
    Floor("connections", "rss_mb", 100.0, absolute=True),
    Floor("queues", "create_s", 0.25),
    Floor("queues", "added_mb", 0.25),
    # What somebody else says and must not makes a message wait for as long again at most.
    Floor("bystander", "p99_share", 2.0, absolute=True),
    Floor("bystander", "bad_rate", 150.0, absolute=True),
    # Each flood, against a process that keeps a processor busy. One of connections keeps the kernel busy as well, on
    # the processors that the bystander and the broker share with it (docs/PERFORMANCE.md).
    *(
        Floor(line, "p99_share", 3.0 if line.endswith("open, close") else 2.0, absolute=True)
        for row in FLOODED
        for line in row.titles()
    ),
    # Who is there and wants nothing costs next to nothing: were it looked at for each message, this would be tenfold.
    Floor("among-connections", "cpu_share", 1.5, absolute=True),
    Floor("among-connections-single", "cpu_share", 1.5, absolute=True),
    Floor("among-queues", "cpu_share", 1.5, absolute=True),
    Floor("among-queues-single", "cpu_share", 1.5, absolute=True),
    # What applications see of the broker through Qpid JMS; a round trip is what a request waits for. How fast a whole
    # queue is browsed, the client says (bench/jms_load/Browse.java), so there the floor is of what the broker computes:
    # as much as Artemis does, 0.95 to 1.10 of it in three rounds, and not more than that but for noise. A look at the
    # head of a queue is six turns of few bytes: the client and the scheduler say how long its median is.
    *(
        Floor(row.name, "rate", 1.2)
        for row in APPLICATIONS
        if row.name not in ("jms-browse", "jms-look", "jms-request-reply", "jms-selector-backlog")
    ),
    Floor("jms-browse", "cpu_us", 1.4),
    Floor("jms-look", "cpu_us", 1.0),
    Floor("jms-look", "p99_us", 0.9),
    Floor("jms-request-reply", "p50_us", 0.8),
    Floor("jms-selector-backlog", "rate", 1.5),
    Floor("recovery", "recover_s", 0.5),
    Floor("scale-down", "rate", 20.0),
    Floor("scale-down-paged", "rate", 20.0),
    Floor("scale-down-paged", "peak_mb", 200.0, absolute=True),
    Floor("start", "start_s", 1.0, absolute=True),
    Floor("start", "rss_mb", 60.0, absolute=True),
)

_MORE_IS_BETTER = {metric.name: metric.more_is_better for metric in METRICS}


def missed(results: Sequence[Result], ours: str, kind: str, floors: tuple[Floor, ...] = FLOORS) -> list[str]:
    """A sentence for each floor that does not hold or was not measured; ratios are to the best peer of this kind."""
    rivals = [result for result in results if result.peer == ours or result.peer.startswith(f"{kind}-")]
    against = ratios(rivals, ours)
    figures = {result.row: result.figures for result in results if result.peer == ours}
    sentences = []
    for floor in floors:
        source = figures if floor.absolute else against
        sentences.append(_judge(floor, source.get(floor.row, {}).get(floor.metric), kind))
    return [sentence for sentence in sentences if sentence]


def _judge(floor: Floor, found: Spread | None, kind: str) -> str:
    what = f"{floor.row}: {floor.metric}"
    if found is None:
        against = "" if floor.absolute else f" against {kind}"
        return f"{what} was not measured{against}, so its floor of {floor.shown(floor.bound)} is unknown"
    more = _MORE_IS_BETTER[floor.metric]
    better = found.quantile(1 - QUARTILE if more else QUARTILE)
    if better >= floor.bound if more else better <= floor.bound:
        return ""
    return f"{what} is {floor.shown(better)} at the better quartile; the floor is {floor.shown(floor.bound)}"
