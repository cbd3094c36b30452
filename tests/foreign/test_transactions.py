"""Transactions as Proton's own handler uses them: settled before the discharge and after it, and through a crash."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.foreign.client import FOLDER, PYTHON, ProtonClient
from tests.foreign.conftest import depth, wait_for_depth
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.foreign

BEFORE = pytest.mark.parametrize("is_before", [False, True], ids=["settled-after", "settled-before"])


def run(broker: BrokerProcess, source: str, target: str, steps: list[dict[str, Any]], *, is_before: bool) -> Any:
    """What became of each transaction: how it ended, and what it received."""
    given = {
        "port": broker.port, "user": broker.user, "password": broker.password, "from": source, "to": target,
        "settle_before_discharge": is_before, "steps": steps,
    }  # fmt: skip
    done = subprocess.run(
        [PYTHON, str(FOLDER / "proton_transactions.py"), json.dumps(given)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["faults"] == []
    return [(row["end"], row["received"]) for row in answer["rows"]]


@BEFORE
def test_what_is_consumed_and_produced_in_one_transaction(
    broker: BrokerProcess, client: ProtonClient, queue: str, is_before: bool
) -> None:
    out = f"{queue}-out"
    client.connect("c", broker)
    client.sender("c", "out", queue)
    client.send("out", ["a", "b", "c"])
    steps = [
        {"receive": 2, "send": ["x", "y"], "end": "abort"},
        {"receive": 2, "send": ["v", "w"], "end": "commit"},
    ]
    aborted, committed = run(broker, queue, out, steps, is_before=is_before)
    # Settled before the discharge, they come back counted; else Proton gives them back itself, as never delivered.
    count = int(is_before)
    assert aborted == ("aborted", [["a", 0], ["b", 0]])
    assert committed == ("committed", [["a", count], ["b", count]])
    assert (depth(broker, queue), depth(broker, out)) == (1, 2)
    client.receiver("c", "in", out, credit=5)
    assert [row["id"] for row in client.receive("in", 2)] == ["v", "w"]


@BEFORE
def test_many_transactions_of_one_connection(
    broker: BrokerProcess, client: ProtonClient, queue: str, is_before: bool
) -> None:
    out = f"{queue}-out"
    ids = [f"m{number}" for number in range(60)]
    client.connect("c", broker)
    client.sender("c", "out", queue)
    client.send("out", ids)
    steps = [{"receive": 3, "send": [f"x{number}", f"y{number}"], "end": "commit"} for number in range(20)]
    rows = run(broker, queue, out, steps, is_before=is_before)
    assert [row[0] for row in rows] == ["committed"] * 20
    assert [name for _, received in rows for name, _ in received] == ids
    client.receiver("c", "in", out, credit=50)
    found = [row["id"] for row in client.receive("in", 40)]
    assert found == [f"{letter}{number}" for number in range(20) for letter in "xy"]
    wait_for_depth(broker, queue, 0)


def test_a_commit_outlives_a_kill_and_what_was_open_does_not(
    make_broker: Callable[..., BrokerProcess], client: ProtonClient
) -> None:
    broker = make_broker()
    broker.start()
    client.connect("c", broker)
    client.sender("c", "out", "orders")
    client.send("out", ["a", "b"])
    rows = run(broker, "orders", "invoices", [{"receive": 1, "send": ["x"], "end": "commit"}], is_before=True)
    assert rows == [("committed", [["a", 0]])]
    broker.kill()
    broker.start()
    assert (depth(broker, "orders"), depth(broker, "invoices")) == (1, 1)


def test_a_transaction_that_is_too_large_fails_by_its_commit(make_broker: Callable[..., BrokerProcess]) -> None:
    broker = make_broker(options={"limits": {"transaction-max-size-bytes": 1024}})
    broker.start()
    steps = [{"send": [f"m{number}" for number in range(20)], "end": "commit"}, {"send": ["z"], "end": "commit"}]
    rows = run(broker, "orders", "invoices", steps, is_before=False)
    assert [row[0] for row in rows] == ["failed: amqp:resource-limit-exceeded", "committed"]
    wait_for_depth(broker, "invoices", 1)
    assert "transaction-max-size-bytes" in broker.log
