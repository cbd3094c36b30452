"""Floors fail on the better quartile only, and on a figure that was not measured."""

from bench.floors import FLOORS, Floor, missed
from bench.rows import METRICS, ROWS
from bench.stats import spread

RATE = Floor("plain", "rate", 2.0)
CPU = Floor("plain", "cpu_us", 0.5)


def test_floors_name_rows_and_metrics_that_exist() -> None:
    assert {floor.row for floor in FLOORS} <= {row.name for row in ROWS}
    assert {floor.metric for floor in FLOORS} <= {metric.name for metric in METRICS}


def test_two_good_rounds_of_five_hold_a_floor() -> None:
    ratios = {"plain": {"rate": spread([1.0, 1.0, 1.5, 2.0, 2.1]), "cpu_us": spread([0.5, 0.4, 0.9, 0.9, 0.9])}}
    assert missed(ratios, (RATE, CPU)) == []


def test_one_good_round_of_five_does_not() -> None:
    ratios = {"plain": {"rate": spread([1.0, 1.0, 1.0, 1.9, 9.0])}}
    assert missed(ratios, (RATE,)) == ["plain: rate is 1.90× at the better quartile; the floor is 2.0×"]


def test_less_is_better_for_time() -> None:
    ratios = {"plain": {"cpu_us": spread([0.1, 0.6, 0.7, 0.8, 0.9])}}
    assert missed(ratios, (CPU,)) == ["plain: cpu_us is 0.60× at the better quartile; the floor is 0.5×"]


def test_what_was_not_measured_does_not_hold() -> None:
    assert "not measured" in missed({}, (RATE,))[0]
