"""What is measured: one Row for each kind of load, one Metric for each figure. Pure; the rows are a table."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

CREDIT = 2000
SHORT_DIVISOR = 200


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a sample."""

    name: str
    title: str
    unit: str
    more_is_better: bool


METRICS = (
    Metric("rate", "msg/s", "messages per second", True),
    Metric("cpu_us", "CPU µs", "microseconds of broker CPU per message", False),
    Metric("cpu_percent", "CPU %", "broker CPU in percent of one core", False),
    Metric("p50_us", "p50 µs", "microseconds", False),
    Metric("p99_us", "p99 µs", "microseconds", False),
    Metric("p999_us", "p99.9 µs", "microseconds", False),
    Metric("start_s", "start s", "seconds from start to the first accepted message", False),
    Metric("rss_mb", "RSS MB", "resident megabytes when idle after start", False),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of load. One producer process and, if `consumer`, one consumer process beside it.

    `times` says what p50 to p99.9 are about: "delivery" from send to receipt, "acknowledgement" of the send, or
    nothing. Without `consumer` the queue is drained afterwards, outside the measurement, to check what arrived.
    """

    name: str
    title: str
    count: int
    size: int
    settled: bool = False
    durable: bool = False
    producers: int = 1
    in_flight: int = CREDIT
    consumer: bool = True
    rate: int = 0
    times: str = ""

    def short(self) -> Row:
        """The same load with a few messages: enough to see wrong counts, not to measure."""
        count = max(self.count // SHORT_DIVISOR, self.producers * 4, 100)
        return dataclasses.replace(self, count=min(count, self.count))


def _plain(size: int, name: str, settled: bool, count: int) -> Row:
    how = "settled" if settled else "acknowledged"
    return Row(f"plain-{name}-{how}", f"non-durable {name}, {how}", count, size, settled=settled)


def _durable(name: str, title: str, count: int, producers: int, in_flight: int, consumer: bool = False) -> Row:
    return Row(
        f"durable-{name}",
        f"durable 1 KiB, {title}",
        count,
        1024,
        durable=True,
        producers=producers,
        in_flight=in_flight,
        consumer=consumer,
        times="acknowledgement",
    )


ROWS = (
    _plain(100, "100B", True, 1_000_000),
    _plain(100, "100B", False, 1_000_000),
    _plain(1024, "1KiB", True, 500_000),
    _plain(1024, "1KiB", False, 500_000),
    _durable("1", "1 producer, one in flight", 4_000, 1, 1),
    _durable("16", "16 producers, one in flight", 25_000, 16, 1),
    _durable("64", "64 producers, one in flight", 50_000, 64, 1),
    _durable("16-consumer", "16 producers, one in flight, a consumer", 25_000, 16, 1, True),
    _durable("1000", "1 producer, 1,000 in flight", 200_000, 1, 1_000),
    _durable("1000-consumer", "1 producer, 1,000 in flight, a consumer", 200_000, 1, 1_000, True),
    Row("latency", "latency at 5,000 msg/s, 100 B", 50_000, 100, rate=5_000, times="delivery"),
)

# Start of a fresh instance: not a load, so it is no Row, but it stands in the same table.
START = "start"
START_TITLE = "start to first accepted message; idle"

# What every broker gets before the first round, again and again until it is steady: 500,000 messages on the paths that
# the rows take.
WARM_UP = (
    _plain(100, "100B", True, 150_000),
    _plain(100, "100B", False, 150_000),
    _plain(1024, "1KiB", False, 100_000),
    _durable("warm", "warm-up", 100_000, 1, 1_000, True),
)


def chosen(names: list[str]) -> tuple[tuple[Row, ...], bool]:
    """The rows of these names (all of them when there are none), and whether starts are measured too."""
    known = {row.name for row in ROWS} | {START}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"no row is called {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    if not names:
        return ROWS, True
    return tuple(row for row in ROWS if row.name in names), START in names
