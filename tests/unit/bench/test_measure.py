"""From what the load generator prints and the broker's CPU to the figures of a sample."""

from typing import Any

from bench.load import Outcome
from bench.measure import among_figures, depth_figures, figures
from bench.rows import Row

TIMES = {"count": 9, "p50": 1.5, "p99": 2.5, "p999": 3.5, "max": 4.0}


def _sent(rate: float) -> dict[str, Any]:
    return {"per_second": rate, "seconds": 2.0, "acknowledgement_us": TIMES}


def _received(rate: float) -> dict[str, Any]:
    return {"per_second": rate, "seconds": 4.0, "latency_us": {**TIMES, "p50": 7.0}}


def test_a_plain_row_counts_what_the_consumer_has() -> None:
    found = figures(Row("r", "r", 1000, 100), Outcome(_sent(900.0), _received(800.0)), used_s=0.5)
    assert found == {"rate": 800.0, "cpu_us": 500.0}


def test_a_durable_row_counts_what_is_acknowledged() -> None:
    row = Row("r", "r", 1000, 1024, durable=True, times="acknowledgement")
    found = figures(row, Outcome(_sent(900.0), _received(800.0)), used_s=0.1)
    assert found == {"rate": 900.0, "cpu_us": 100.0, "p50_us": 1.5, "p99_us": 2.5, "p999_us": 3.5}


def test_a_row_without_consumer_needs_none() -> None:
    row = Row("r", "r", 1000, 1024, durable=True, consumer=False, times="acknowledgement")
    assert figures(row, Outcome(_sent(900.0), None), used_s=0.1)["rate"] == 900.0


def test_latency_comes_from_the_consumer_with_cpu_in_percent_of_a_core() -> None:
    row = Row("r", "r", 20000, 100, rate=5000, times="delivery")
    found = figures(row, Outcome(_sent(5000.0), _received(5000.0)), used_s=1.0)
    assert (found["p50_us"], found["cpu_percent"], found["cpu_us"]) == (7.0, 25.0, 50.0)


def test_depth_compares_the_ends_of_the_drain_and_counts_cpu_of_both_directions() -> None:
    drained = {"per_second": 500.0, "head_per_second": 400.0, "tail_per_second": 600.0}
    found = depth_figures(Row("r", "r", 1000, 100, depth=True), {"per_second": 900.0}, drained, used_s=0.5)
    assert found == {"rate": 500.0, "fill_rate": 900.0, "cpu_us": 500.0, "tail_share": 1.5}


def test_a_crowd_is_compared_with_the_load_alone_in_steps_of_the_clock_at_least() -> None:
    found = among_figures(1000, alone_us=40.0, among_us=50.0)
    assert found == {"cpu_share": 1.25, "cpu_us": 50.0, "alone_cpu_us": 40.0}
    assert among_figures(1000, alone_us=0.0, among_us=0.0)["cpu_share"] == 1.0
    assert among_figures(1000, alone_us=0.0, among_us=30.0)["cpu_share"] == 3.0
