"""The table and the JSON document."""

import json

import pytest

from bench import report
from bench.rounds import Result
from bench.stats import spread


def _result(peer: str, rate: list[float], cpu_us: list[float], row: str = "plain") -> Result:
    return Result(row, f"load {row}", peer, {"rate": spread(rate), "cpu_us": spread(cpu_us)})


THREE = [
    _result("mqops", [300.0, 200.0, 310.0], [1.0, 1.0, 2.0]),
    _result("artemis-1", [90.0, 100.0, 110.0], [4.0, 4.0, 4.0]),
    _result("artemis-2", [120.0, 100.0, 100.0], [5.0, 5.0, 5.0]),
]


def test_ratio_is_to_the_best_peer_of_each_figure() -> None:
    found = report.ratios(THREE, "mqops")["plain"]
    # Both peers have a median rate of 100, so the first is taken; CPU is best where it is least.
    assert found["rate"].samples == pytest.approx((300 / 90, 2.0, 310 / 110))
    assert found["cpu_us"].samples == (0.25, 0.25, 0.5)


def test_best_peer_by_rate_is_the_faster() -> None:
    faster = _result("artemis-3", [200.0, 200.0, 200.0], [9.0, 9.0, 9.0])
    assert report.ratios([*THREE, faster], "mqops")["plain"]["rate"].samples == (1.5, 1.0, 1.55)


def test_no_peer_no_ratio() -> None:
    assert report.ratios(THREE[:1], "mqops") == {}
    assert report.ratios(THREE[1:], "mqops") == {}


MSG_CPU = ["msg/s", "|", "CPU", "µs", "|"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0.00"), (0.304, "0.30"), (9.99, "9.99"), (12.345, "12.3"), (237123.4, "237,123"), (100.4, "100")],
)
def test_numbers_have_three_digits(value: float, shown: str) -> None:
    assert report.number(value) == shown


def test_table() -> None:
    assert report.table(THREE[:2], "mqops").splitlines() == [
        "| load       | broker       | msg/s             | CPU µs            | mqops ÷ it, msg/s |",
        "|------------|--------------|-------------------|-------------------|-------------------|",
        "| load plain | mqops        | 300 (200–310)     | 1.00 (1.00–2.00)  |                   |",
        "|            | mqops ÷ best | 2.82 (2.00–3.33)× | 0.25 (0.25–0.50)× |                   |",
        "|            | artemis-1    | 100 (90.0–110)    | 4.00 (4.00–4.00)  | 2.82 (2.00–3.33)× |",
    ]


def test_without_peers_there_is_no_ratio_column() -> None:
    assert report.table(THREE[:1], "mqops").splitlines()[0].split() == ["|", "load", "|", "broker", "|", *MSG_CPU]
    assert "÷" not in report.table(THREE[1:], "mqops")


def test_each_peer_has_its_own_ratio() -> None:
    found = report.headline(THREE, "mqops")
    assert found["plain", "artemis-1"].samples == pytest.approx((300 / 90, 2.0, 310 / 110))
    assert found["plain", "artemis-2"].samples == pytest.approx((2.5, 2.0, 3.1))


def test_a_share_of_itself_is_compared_with_nobody() -> None:
    both = [Result("depth", "depth", peer, {"tail_share": spread([1.0])}) for peer in ("mqops", "artemis-1")]
    assert report.ratios(both, "mqops") == {}


def test_rows_with_other_figures_get_a_table_of_their_own() -> None:
    start = Result("start", "start", "mqops", {"start_s": spread([0.1]), "rss_mb": spread([30.0])})
    first, second = report.table([*THREE, start], "mqops").split("\n\n")
    assert "msg/s" in first
    assert "start s" not in first
    assert second.splitlines()[0].split() == ["|", "load", "|", "broker", "|", "start", "s", "|", "RSS", "MB", "|"]
    assert "0.10" in second


def test_what_was_not_measured_is_said_with_its_reason() -> None:
    omitted = {("", "artemis-1"): "no Java", ("plain", "artemis-2"): "it blocks"}
    assert report.omissions(omitted, {"plain": "load plain"}).splitlines() == [
        "",
        "not measured: artemis-1: all rows: no Java",
        "not measured: artemis-2: load plain: it blocks",
    ]
    assert report.omissions({}, {}) == ""


def test_json_holds_every_sample_medians_and_ratios() -> None:
    document = json.loads(report.as_json(THREE, "mqops", {"rounds": 3}))
    assert document["schema"] == report.SCHEMA
    assert document["facts"] == {"rounds": 3}
    ours = document["results"][0]
    assert (ours["row"], ours["broker"]) == ("plain", "mqops")
    assert ours["figures"]["rate"] == {"median": 300.0, "lowest": 200.0, "highest": 310.0, "samples": [300, 200, 310]}
    assert document["ratios"]["plain"]["cpu_us"]["median"] == 0.25
    assert document["headline_ratios"][1]["broker"] == "artemis-2"
    assert document["headline_ratios"][1]["ratio"]["median"] == 2.5
    assert document["units"]["cpu_us"] == "microseconds of broker CPU per message"
