"""`mqctl perf` against a real broker: what it counts, what it leaves behind, what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.mqctl.test_dev import Dev

THERE = ("--dev", "--host", "dev-1")


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    one = Dev(tmp_path_factory.mktemp("perf") / "d")
    one.run("dev", "up", "--port", str(one.port))
    yield one
    one.run("dev", "down", "--discard")


def test_a_temporary_queue_leaves_nothing_behind(dev: Dev) -> None:
    before = [row["queue"] for row in dev.rows("queue", "list", *THERE)]
    found = json.loads(dev.run("perf", "--count", "300", *THERE, "--json").stdout)
    assert found["schema"] == "mqctl.perf/1"
    assert [(row["what"], row["messages"]) for row in found["rows"]] == [("accepted", 300), ("received", 300)]
    for row in found["rows"]:
        times = [row[name] for name in ("p50_ms", "p90_ms", "p99_ms", "p99.9_ms", "max_ms")]
        assert times == sorted(times)
        assert row["per_s"] > 0
    assert sum(one["count"] for one in found["histograms"]["received_ms"]) == 300
    assert [row["queue"] for row in dev.rows("queue", "list", *THERE)] == before


def test_the_rate_and_the_duration_bound_it(dev: Dev) -> None:
    words = ("--count", "100000", "--rate", "50", "--duration", "1", "--no-durable", "--queue", "paced")
    accepted, received = dev.rows("perf", *words, *THERE)
    assert 0 < accepted["messages"] == received["messages"] <= 51
    said = dev.run("perf", "--count", "20", *THERE).stdout.decode()
    assert "received after at most" in said
    assert " ms " in said.splitlines()[-1]


def test_a_queue_in_use_is_refused_and_its_messages_stay(dev: Dev) -> None:
    dev.run("send", "orders", "order {n}", "--count", "5", *THERE)
    refused = dev.run("perf", "--queue", "orders", "--count", "10", *THERE, code=2).stderr.decode()
    assert "queue orders has 5 messages and 0 consumers; nothing was sent" in refused
    rows = dev.rows("perf", "--queue", "orders", "--count", "10", "--yes", *THERE)
    assert [row["messages"] for row in rows] == [10, 10]
    left = dev.run("receive", "orders", "--count", "5", *THERE).stdout.decode().split("\n")
    assert left == [f"order {number}" for number in range(1, 6)] + [""]
    assert dev.run("receive", "orders", "--timeout", "0.2", *THERE).stdout == b""


def test_a_login_that_fails_is_told_without_the_password(dev: Dev) -> None:
    file: Path = dev.folder / "password"
    right = file.read_text()
    file.write_text("canary-of-a-password\n")
    try:
        said = dev.run("perf", "--count", "10", *THERE, code=1).stderr.decode()
    finally:
        file.write_text(right)
    assert "the measurement failed: LoginRefused" in said
    assert "canary" not in said
