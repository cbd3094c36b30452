"""What `mqctl perf` makes of its measurements."""

from __future__ import annotations

import random

import pytest
from mqctl.commands.messages import perf
from mqctl.nodes import Node
from mqctl.remote import perf as program


@pytest.mark.parametrize(
    ("share", "value"), [(0.5, 50), (0.9, 90), (0.99, 99), (0.999, 100), (1.0, 100), (0.001, 1), (0.505, 51)]
)
def test_percentiles_are_values_that_occurred(share: float, value: int) -> None:
    assert program.percentile(list(range(1, 101)), share) == value
    assert program.percentile([7], share) == 7


def test_a_summary_counts_everything_once() -> None:
    times = [number / 1000 for number in (0.01, 0.0625, 0.1, 1, 1, 1.5, 30)]
    random.Random(1).shuffle(times)
    found = program.summary(times)
    assert (found["count"], found["p50"], found["p99.9"], found["max"]) == (7, 1, 30, 30)
    assert [(one["ms_max"], one["count"]) for one in found["histogram"]] == [
        (0.0625, 2), (0.125, 1), (0.25, 0), (0.5, 0), (1, 2), (2, 1), (4, 0), (8, 0), (16, 0), (32, 1),
    ]  # fmt: skip
    assert program.summary([]) == {"count": 0, "histogram": []}


def test_where_the_broker_listens() -> None:
    assert program.place_of({"port": 5672}) == ("amqp://127.0.0.1:5672", {})
    assert program.place_of({"port": 5672, "local-bind-address": "::"})[0] == "amqp://[::1]:5672"
    uri, more = program.place_of(
        {"port": 5671, "local-bind-address": "198.51.100.11", "tls-certificate-file": "/etc/c"}
    )
    assert uri == "amqps://198.51.100.11:5671"
    assert more["tls"].check_hostname is False


def test_rows_and_the_drawing() -> None:
    histogram = [{"ms_max": 0.5, "count": 1}, {"ms_max": 1.0, "count": 0}, {"ms_max": 2.0, "count": 50}]
    assert perf.drawn(histogram) == [
        "        0.5 ms        1 #",
        "          1 ms        0",
        "          2 ms       50 " + "#" * 50,
    ]
    assert perf.drawn([]) == []
    row = perf.row_of(Node("mq1", "default"), "received", 10.5, {"count": 3, "p50": 1.0, "max": 2.0})
    assert (row["messages"], row["per_s"], row["p50_ms"], row["p99.9_ms"], row["max_ms"]) == (3, 10.5, 1.0, None, 2.0)
