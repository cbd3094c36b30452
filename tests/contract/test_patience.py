"""Limits of time in tests guard against what hangs: a machine that has much else to do breaks none of them.

A short wait is one for what must not happen. Whoever waits for something waits as long as it takes, and whoever judges
how long a thing took counts processor time, or leaves out what was waited for a processor (tests/support/processor.py).
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOT_TO_HAPPEN_S_MAX = 1.0  # up to here a wait is one for what must not happen
GUARD_S_MIN = 60.0
CLOCKS = {"monotonic", "perf_counter"}
# Calls that wait: the name, and where the seconds are beside `timeout` and `timeout_s`.
WAITS = {
    "communicate": None, "create_connection": 1, "settimeout": 0, "wait_for": 1, "run": None, "check_output": None,
    "check_call": None, "connect": None, "until": 1, "_until": 1, "wait_until": None, "end_of": 1,
}  # fmt: skip
# What waits without an argument's name, by what it is called on.
WAITING = {"_process", "_thread", "changed", "gate", "process", "sender", "thread", "victim", "writer"}
OWNED = {"wait", "join"}


def files() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "tests/*.py"], cwd=ROOT, capture_output=True,
        text=True, check=True, timeout=GUARD_S_MIN,
    ).stdout  # fmt: skip
    return [name for name in listed.splitlines() if (ROOT / name).exists()]


def seconds_of(call: ast.Call) -> Iterator[ast.Constant]:
    """Literal seconds that a call waits at most."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    found: list[ast.expr] = [each.value for each in call.keywords if each.arg in ("timeout", "timeout_s")]
    if name == "wait_for" and is_class(call.args[:1]):
        return  # so many performatives of a kind
    if name in WAITS:
        place = WAITS[name]
        found += call.args[place : place + 1] if place is not None else []
    elif name in OWNED and isinstance(call.func, ast.Attribute) and last_name(call.func.value) in WAITING:
        found += call.args[:1]
    else:
        return
    for each in found:
        if isinstance(each, ast.Constant) and isinstance(each.value, int | float):
            yield each


def is_class(values: list[ast.expr]) -> bool:
    return bool(values) and last_name(values[0])[:1].isupper()


def last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def impatient(tree: ast.AST) -> list[ast.Constant]:
    """Seconds that are too few for what waits, and too many for what must not happen."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        each for call in calls for each in seconds_of(call) if NOT_TO_HAPPEN_S_MAX < float(each.value) < GUARD_S_MIN
    ]  # fmt: skip


def by_the_clock(tree: ast.AST) -> list[ast.Compare]:
    """What fails because so many seconds went by."""
    asserts = [node.test for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    compares = [node for test in asserts for node in ast.walk(test) if isinstance(node, ast.Compare)]
    return [each for each in compares if is_upper(each)]


def is_upper(compare: ast.Compare) -> bool:
    left: ast.expr = compare.left
    for operator, right in zip(compare.ops, compare.comparators, strict=True):
        if isinstance(operator, ast.Lt | ast.LtE) and is_clock_span(left):
            bound = right.value if isinstance(right, ast.Constant) else None
            return bound is not None and float(bound) < GUARD_S_MIN  # type: ignore[arg-type]
        left = right
    return False


def is_clock_span(node: ast.expr) -> bool:
    """The clock, less when it began."""
    return isinstance(node, ast.BinOp) and any(
        isinstance(each, ast.Call) and last_name(each.func) in CLOCKS for each in ast.walk(node)
    )


@pytest.mark.slow
def test_waits_are_long_and_nothing_is_judged_by_the_clock() -> None:
    trees = {name: ast.parse((ROOT / name).read_text()) for name in files()}
    assert len(trees) > 400
    found = [(name, each) for name, tree in trees.items() for each in (*impatient(tree), *by_the_clock(tree))]
    assert [f"{name}:{each.lineno}: {ast.unparse(each)}" for name, each in found] == []


WRONG = """
process.wait(10)
sock.settimeout(5)
subprocess.run(["x"], timeout=30)
asyncio.wait_for(task, 5)
assert 0.1 < time.monotonic() - started_s < 5
"""
RIGHT = """
peer.wait_for(Flow, 2)
thread.join(0.3)
sock.settimeout(0.01)
sock.settimeout(PATIENCE_S)
stage.wait(10)
subprocess.run(["x"], timeout=60)
assert time.monotonic() < deadline_s
assert seconds() < 5
"""


def test_what_is_wrong_is_found() -> None:
    assert [each.value for each in impatient(ast.parse(WRONG))] == [10, 5, 30, 5]
    assert len(by_the_clock(ast.parse(WRONG))) == 1
    assert (impatient(ast.parse(RIGHT)), by_the_clock(ast.parse(RIGHT))) == ([], [])
