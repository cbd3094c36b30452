"""The rows through Qpid JMS: what the client is asked for, what becomes of its answers, and who gets none."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bench import jms, measure, peers
from bench.applications import APPLICATIONS, Application
from bench.floors import FLOORS
from bench.metrics import METRICS

MODES = {"stream", "backlog", "browse", "look", "select", "request"}


def _application(name: str) -> Application:
    return next(row for row in APPLICATIONS if row.name == name)


def test_what_applications_do_is_there() -> None:
    assert [row.name.removeprefix("jms-") for row in APPLICATIONS] == [
        *("queue", "durable", "topic", "selectors", "groups", "backlog", "priorities", "transactions"),
        *("client-acknowledge", "browse", "look", "request-reply", "selector-backlog"),
    ]
    assert {row.mode for row in APPLICATIONS} == MODES
    assert _application("jms-topic").consumers == 20
    assert _application("jms-selector-backlog").count == 40_000


def test_every_mode_is_one_of_the_client() -> None:
    text = (jms.SOURCES / "JmsLoad.java").read_text()
    assert {mode for mode in MODES if f'"{mode}", ' in text} == MODES


def test_every_row_has_the_floor_of_its_kind() -> None:
    found = {row.name: {floor.metric: floor.bound for floor in FLOORS if floor.row == row.name} for row in APPLICATIONS}
    assert found.pop("jms-browse") == {"cpu_us": 1.4}
    assert found.pop("jms-look") == {"cpu_us": 1.0, "p99_us": 0.9}
    assert found.pop("jms-request-reply") == {"p50_us": 0.8}
    assert found.pop("jms-selector-backlog") == {"rate": 1.5}
    assert all(floors == {"rate": 1.2} for floors in found.values())


@pytest.mark.parametrize("row", APPLICATIONS, ids=lambda row: row.name)
def test_short_differs_in_count_only(row: Application) -> None:
    short = row.short()
    assert short == dataclasses.replace(row, count=short.count)
    assert max(100, row.producers) <= short.count <= 400
    assert short.count % row.batch == 0


@pytest.mark.parametrize("row", APPLICATIONS, ids=lambda row: row.name)
def test_rows_can_be_checked(row: Application) -> None:
    # Eight bytes of a body are its number, and a transaction of which a part is left over would never be committed.
    assert row.size > 8
    assert row.count % row.batch == 0
    assert row.acknowledge == "auto" or row.consumers == 1
    assert {kind for kind, _ in row.skips} <= set(peers.VERSIONED)


def test_an_order_is_what_the_client_reads() -> None:
    order = _application("jms-durable").order()
    assert (order["mode"], order["producers"], order["durable"], order["size"]) == ("stream", 16, True, 1024)
    read = "".join(file.read_text() for file in jms.SOURCES.glob("*.java"))
    assert [name for name in order if f'("{name}")' not in read] == []


@pytest.mark.parametrize(
    ("found", "figures"),
    [
        ({"messages": 1000, "per_second": 500.0}, {"rate": 500.0, "cpu_us": 20.0}),
        (
            {"messages": 1000, "per_second": 500.0, "filled_per_second": 9.0},
            {"rate": 500.0, "cpu_us": 20.0, "fill_rate": 9.0},
        ),
        (
            {"messages": 1000, "per_second": 500.0, "round_trip_us": {"p50": 1, "p99": 2, "p999": 3}},
            {"rate": 500.0, "cpu_us": 20.0, "p50_us": 1.0, "p99_us": 2.0, "p999_us": 3.0},
        ),
    ],
)
def test_figures(found: Mapping[str, Any], figures: dict[str, float]) -> None:
    assert measure.application_figures(found, used_s=0.02) == figures
    assert set(figures) <= {metric.name for metric in METRICS}


def test_a_client_that_never_ran_ends_quietly(tmp_path: Path) -> None:
    jms.Client(tmp_path / "log").end()
    assert list(tmp_path.iterdir()) == []
