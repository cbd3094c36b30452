"""The figures of a sample, in the order of the columns of the report."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a sample."""

    name: str
    title: str
    unit: str
    more_is_better: bool
    compared: bool = True  # with peers


METRICS = (
    Metric("rate", "msg/s", "messages per second", True),
    Metric("fill_rate", "filled msg/s", "messages per second into a queue that nobody reads", True),
    Metric("cpu_us", "CPU µs", "microseconds of broker CPU per message", False),
    Metric("cpu_percent", "CPU %", "broker CPU in percent of one core", False),
    Metric("p50_us", "p50 µs", "microseconds", False),
    Metric("p99_us", "p99 µs", "microseconds", False),
    Metric("p999_us", "p99.9 µs", "microseconds", False),
    Metric("cpu_share", "CPU among ÷ alone", "CPU per message among many in that alone", False, compared=False),
    Metric("alone_cpu_us", "alone CPU µs", "microseconds of broker CPU per message", False, compared=False),
    Metric("alone_p50_us", "alone p50 µs", "microseconds", False, compared=False),
    Metric("alone_p99_us", "alone p99 µs", "microseconds", False, compared=False),
    Metric("beside_p50_us", "beside p50 µs", "microseconds", False, compared=False),
    Metric("beside_p99_us", "beside p99 µs", "microseconds", False, compared=False),
    Metric("p99_share", "p99 beside ÷ alone", "p99 beside others in those alone", False, compared=False),
    Metric("bad_rate", "bad inputs/s", "bad inputs per second, each on a connection of its own", True, compared=False),
    Metric(
        "move_s", "moved s", "seconds until messages of another node are here, from the attach or the command", False
    ),
    Metric("recover_s", "recovered s", "seconds from a kill to the first message accepted after it", False),
    Metric("start_s", "start s", "seconds from start to the first accepted message", False),
    Metric(
        "tail_share", "last ÷ first", "rate of the last tenth of a drain in rates of the first", True, compared=False
    ),
    Metric("attach_s", "attached s", "seconds until every connection has its receiver attached", False),
    Metric("create_s", "created s", "seconds until every queue has accepted a message", False),
    Metric("added_mb", "added MB", "resident megabytes more than before the queues were made", False),
    Metric("idle_percent", "idle CPU %", "CPU of all idle nodes in percent of one core", False),
    Metric("peak_mb", "peak MB", "resident megabytes of the node that had most at any time", False),
    Metric("rss_mb", "RSS MB", "resident megabytes: idle after start, all attached, or the queue full", False),
)
