"""Floors fail on the better quartile only, and on a figure that was not measured; ratios are to Artemis alone."""

from bench.floors import FLOORS, Floor, missed
from bench.metrics import METRICS
from bench.rounds import Result
from bench.rows import EVERYTHING
from bench.stats import spread

RATE = Floor("plain", "rate", 2.0)
CPU = Floor("plain", "cpu_us", 0.5)
MEMORY = Floor("plain", "rss_mb", 60.0, absolute=True)
SHARE = Floor("plain", "tail_share", 0.8, absolute=True)


def _result(peer: str, **figures: list[float]) -> Result:
    return Result("plain", "plain", peer, {name: spread(samples) for name, samples in figures.items()})


def _artemis(**figures: float) -> Result:
    return _result("artemis-1", **{name: [value] * 5 for name, value in figures.items()})


def _missed(*results: Result, floors: tuple[Floor, ...]) -> list[str]:
    return missed(results, "mqops", "artemis", floors)


def test_floors_name_rows_and_metrics_that_exist() -> None:
    assert {floor.row for floor in FLOORS} <= set(EVERYTHING.lines())
    assert {floor.metric for floor in FLOORS} <= {metric.name for metric in METRICS}
    assert len({(floor.row, floor.metric) for floor in FLOORS}) == len(FLOORS)


def test_ratios_are_on_the_right_side_of_one() -> None:
    more = {metric.name: metric.more_is_better for metric in METRICS}
    # Of rows that may cost as much as Artemis's the floor asks for no more than that.
    par = {("jms-browse", "cpu_us"), ("jms-look", "cpu_us")}
    ahead = [floor for floor in FLOORS if not floor.absolute and (floor.row, floor.metric) not in par]
    assert all((floor.bound >= 1) == more[floor.metric] for floor in ahead)
    assert par <= {(floor.row, floor.metric) for floor in FLOORS}


def test_two_good_rounds_of_five_hold_a_floor() -> None:
    ours = _result("mqops", rate=[1.0, 1.0, 1.5, 2.0, 2.1], cpu_us=[0.5, 0.4, 0.9, 0.9, 0.9])
    assert _missed(ours, _artemis(rate=1.0, cpu_us=1.0), floors=(RATE, CPU)) == []


def test_one_good_round_of_five_does_not() -> None:
    ours = _result("mqops", rate=[1.0, 1.0, 1.0, 1.9, 9.0])
    wanted = "plain: rate is 1.90× at the better quartile; the floor is 2.00×"
    assert _missed(ours, _artemis(rate=1.0), floors=(RATE,)) == [wanted]


def test_less_is_better_for_time() -> None:
    ours = _result("mqops", cpu_us=[0.1, 0.6, 0.7, 0.8, 0.9])
    wanted = "plain: cpu_us is 0.60× at the better quartile; the floor is 0.50×"
    assert _missed(ours, _artemis(cpu_us=1.0), floors=(CPU,)) == [wanted]


def test_the_faster_artemis_counts_and_no_other_peer() -> None:
    ours, fast = _result("mqops", rate=[4.0]), _result("artemis-2", rate=[3.0])
    slow, other = _result("artemis-1", rate=[1.0]), _result("rabbitmq-3", rate=[9.0])
    assert "1.33×" in _missed(ours, slow, fast, other, floors=(RATE,))[0]
    assert _missed(ours, slow, other, floors=(RATE,)) == []


def test_absolute_floors_need_no_peer() -> None:
    ours = _result("mqops", rss_mb=[61.0, 62.0, 60.0, 59.0, 70.0], tail_share=[0.7, 0.75, 0.7, 0.79, 0.9])
    wanted = "plain: tail_share is 0.79 at the better quartile; the floor is 0.80"
    assert _missed(ours, floors=(MEMORY, SHARE)) == [wanted]


def test_what_was_not_measured_does_not_hold() -> None:
    assert _missed(floors=(RATE, MEMORY)) == [
        "plain: rate was not measured against artemis, so its floor of 2.00× is unknown",
        "plain: rss_mb was not measured, so its floor of 60.00 is unknown",
    ]
