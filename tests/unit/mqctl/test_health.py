"""`mqctl health`: what counts as healthy, how long is waited, and which exit code says so. The nodes are real ones."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mqbroker.cluster.node_id_conflict import DEPOSED
from mqctl.commands.look import health
from mqctl.errors import Unreachable
from mqctl.exits import Exit
from mqctl.nodes import Node
from mqctl.output import Format, data_console
from mqctl.world import World, real_world

from tests.support.admin_stage import AdminStage

GOOD = {"state": "active", "grants_credit": True, "holds_back": False, "has_rival": False}


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self, then: Callable[[float], None] = lambda now_s: None) -> None:
        self.now_s = 0.0
        self._then = then

    def sleep(self, duration_s: float) -> None:
        self.now_s += duration_s
        self._then(self.now_s)


def ran(folder: Path, clock: Clock, **options: Any) -> tuple[int, list[list[dict[str, Any]]]]:
    """The exit code, and the rows of each document."""
    out = io.StringIO()
    world: World = replace(
        real_world(), out=out, data=data_console(out, has_colour=False), monotonic_s=lambda: clock.now_s,
        sleep_s=clock.sleep,
    )  # fmt: skip
    code = health.run(world, health.Options(dev=True, directory=folder, output=Format.JSON, **options))
    documents = out.getvalue().replace("\n}\n{\n", "\n}\n\0{\n").split("\0")
    return code, [json.loads(one)["rows"] for one in documents]


def declare(folder: Path, name: str) -> None:
    """A node that does not run."""
    (folder / name).mkdir(parents=True)
    (folder / name / "broker.toml").touch()


def test_all_are_healthy(tmp_path: Path) -> None:
    with AdminStage(tmp_path, "dev-1"), AdminStage(tmp_path, "dev-2"):
        code, ((one, two),) = ran(tmp_path, Clock())
    assert code == Exit.DONE
    assert one == {
        "host": "dev-1", "instance": "default", "health": "healthy", "state": "running", "failing": [], "why": "",
    }  # fmt: skip
    assert two["health"] == "healthy"


def test_one_that_does_not_run_is_degraded(tmp_path: Path) -> None:
    declare(tmp_path, "dev-2")
    with AdminStage(tmp_path, "dev-1"):
        code, (rows,) = ran(tmp_path, Clock())
    assert code == Exit.DEGRADED
    assert [(row["health"], row["state"], row["failing"]) for row in rows] == [
        ("healthy", "running", []), ("degraded", "stopped", ["running"]),
    ]  # fmt: skip
    assert "no broker answers" in rows[1]["why"]


def test_the_time_is_up_before_all_are_healthy(tmp_path: Path) -> None:
    declare(tmp_path, "dev-1")
    clock = Clock()
    code, documents = ran(tmp_path, clock, until_healthy=True, timeout=7, interval=3.0)
    assert (code, clock.now_s) == (Exit.RUNNING, 7.0)
    assert len(documents) == 1


def test_it_waits_until_all_are_healthy(tmp_path: Path) -> None:
    nodes: list[AdminStage] = []

    def start(now_s: float) -> None:
        if now_s == 4:
            (tmp_path / "dev-1" / "broker.toml").unlink()
            (tmp_path / "dev-1").rmdir()
            nodes.append(AdminStage(tmp_path, "dev-1"))

    declare(tmp_path, "dev-1")
    clock = Clock(start)
    code, documents = ran(tmp_path, clock, until_healthy=True, watch=True)
    nodes[0].__exit__(None, None, None)
    assert (code, clock.now_s) == (Exit.DONE, 4.0)
    # One document for each change, not one for each look.
    assert [[row["health"] for row in rows] for rows in documents] == [["degraded"], ["healthy"]]


def test_watching_ends_with_what_was_seen_last(tmp_path: Path) -> None:
    clock = Clock()
    with AdminStage(tmp_path, "dev-1"):
        code, documents = ran(tmp_path, clock, watch=True, timeout=10)
    assert (code, clock.now_s, len(documents)) == (Exit.DONE, 10.0, 1)


@pytest.mark.parametrize(
    ("facts", "failing"),
    [
        ({}, []),
        ({"state": "stopping", "grants_credit": False}, ["running"]),
        ({"state": "cordoned"}, []),
        ({"state": "cordoned", "grants_credit": False}, ["disk-space"]),
        ({"grants_credit": False}, ["disk-space"]),
        ({"grants_credit": False, "holds_back": True}, ["memory"]),
        ({"has_rival": True, "has_yielded": True}, ["node-id"]),
        ({"has_rival": True}, []),
    ],
)
def test_what_a_node_says_of_itself(facts: dict[str, Any], failing: list[str]) -> None:
    assert [name for name, _ in health.of_facts(GOOD | facts)] == failing


def test_a_node_that_yielded_says_why_and_one_of_an_older_release_that_it_has() -> None:
    yielded = GOOD | {"has_rival": True, "has_yielded": True}
    assert health.of_facts(yielded | {"yielded_why": DEPOSED}) == [("node-id", DEPOSED)]
    ((_, why),) = health.of_facts(yielded)
    assert why == "another broker with this node id goes on: no links to the cluster"


def test_that_a_node_is_cordoned_is_a_warning_beside_others() -> None:
    (cordoned,) = health.warnings_of(GOOD | {"state": "cordoned"})
    assert "mqctl undrain" in cordoned
    assert len(health.warnings_of(GOOD | {"state": "cordoned", "has_rival": True})) == 2


def test_a_rival_that_yields_is_a_warning_of_a_healthy_node() -> None:
    warnings = health.warnings_of(GOOD | {"has_rival": True})
    row = health.row_of(Node("mq1", "default"), {"state": "running", "checks": [], "warnings": warnings})
    assert (row["health"], row["why"]) == (
        "healthy", "warning: another broker, which yields, runs with this node id",
    )  # fmt: skip
    assert health.warnings_of(GOOD | {"has_rival": True, "has_yielded": True}) == health.warnings_of(GOOD) == []


def test_a_check_that_fails_twice_counts_once() -> None:
    node = Node("mq1", "default")
    row = health.row_of(
        node, {"state": "running", "checks": [("memory", "short"), ("journal", "j"), ("memory", "long")]}
    )
    assert (row["failing"], row["why"]) == (["journal", "memory"], "j; short")
    row = health.row_of(node, Unreachable("mq1", "no answer"))
    assert (row["health"], row["state"], row["why"]) == ("unknown", "unreachable", "no answer")
