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
CLOCKS = {"monotonic", "perf_counter", "time"}
# Calls that wait: the name, and where the seconds are beside `timeout` and `timeout_s`.
WAITS = {
    "communicate": None, "create_connection": 1, "settimeout": 0, "wait_for": 1, "run": None, "check_output": None,
    "check_call": None, "connect": None, "until": 1, "_until": 1, "wait_until": None, "end_of": 1,
    "receive": 0, "receive_many": 1, "request": None,
}  # fmt: skip
# What waits without an argument's name, by what it is called on.
WAITING = {
    "_pages", "_process", "_thread", "changed", "entered", "gate", "process", "sender", "thread", "victim", "writer",
}  # fmt: skip
OWNED = {"wait", "join", "close"}


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


def by_the_clock(tree: ast.AST) -> list[ast.expr]:
    """What fails because so many seconds went by, and ends of waits that come too soon."""
    bounds = numbers_of(tree)
    found: dict[ast.expr, None] = {}
    for scope in [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))]:
        timed = Timed(scope, bounds)
        asserts = [node.test for node in ast.walk(scope) if isinstance(node, ast.Assert)]
        compares = [node for test in asserts for node in ast.walk(test) if isinstance(node, ast.Compare)]
        found |= dict.fromkeys(each for each in compares if timed.is_upper(each))
        found |= dict.fromkeys(timed.ends())
    return list(found)


def numbers_of(tree: ast.AST) -> dict[str, float]:
    """Names that are numbers for all of a file."""
    body = tree.body if isinstance(tree, ast.Module) else []
    pairs = [(node.targets[0], node.value) for node in body if isinstance(node, ast.Assign)]
    return {
        name.id: float(value.value) for name, value in pairs
        if isinstance(name, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, int | float)
    }  # fmt: skip


class Timed:
    """Names in a function that hold what a clock said, or what was computed from it."""

    def __init__(self, scope: ast.AST, bounds: dict[str, float]) -> None:
        self._scope = scope
        self._bounds = bounds
        self._names: set[str] = set()
        before = -1
        while before < len(self._names):
            before = len(self._names)
            for node in ast.walk(scope):
                self._names |= set(self._taken(node))

    def _taken(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Assign):
            for target, value in pairs_of(node):
                if self.is_timed(value):
                    yield from names_in(target)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return
        if node.func.attr == "append" and any(self.is_timed(each) for each in node.args):
            yield from names_in(node.func.value)

    def is_timed(self, node: ast.expr) -> bool:
        """A clock, a name of what one said, sums and differences of such, and the least, most or one of several."""
        if isinstance(node, ast.Name):
            return node.id in self._names
        if isinstance(node, ast.BinOp):
            is_ratio = isinstance(node.op, ast.Div) and self._seconds(node.right) is None
            return not is_ratio and (self.is_timed(node.left) or self.is_timed(node.right))
        if isinstance(node, ast.Subscript):
            return self.is_timed(node.value)
        if isinstance(node, ast.List | ast.Tuple):
            return any(self.is_timed(each) for each in node.elts)
        if not isinstance(node, ast.Call):
            return False
        name = last_name(node.func)
        if name in ("min", "max", "sum", "median"):
            return any(self.is_timed(each) for each in node.args)
        return not node.args and not node.keywords and name in CLOCKS

    def is_upper(self, compare: ast.Compare) -> bool:
        left: ast.expr = compare.left
        for operator, right in zip(compare.ops, compare.comparators, strict=True):
            if isinstance(operator, ast.Lt | ast.LtE) and self.is_timed(left) and self._is_short(right):
                return True
            if isinstance(operator, ast.Gt | ast.GtE) and self.is_timed(right) and self._is_short(left):
                return True
            left = right
        return False

    def _is_short(self, node: ast.expr) -> bool:
        """A number of seconds that is no guard; who is compared with another measured time is not judged here."""
        seconds = self._seconds(node)
        return seconds is not None and seconds < GUARD_S_MIN

    def _seconds(self, node: ast.expr) -> float | None:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return float(node.value)
        return self._bounds.get(node.id) if isinstance(node, ast.Name) else None

    def ends(self) -> Iterator[ast.expr]:
        """Of a wait: a clock and so many seconds, which something is compared with or waits for."""
        compared = {
            name for node in ast.walk(self._scope) if isinstance(node, ast.Compare) for name in names_in(node)
        }  # fmt: skip
        for node in ast.walk(self._scope):
            if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.BinOp):
                continue
            sum_, names = node.value, {name for target in node.targets for name in names_in(target)}
            if isinstance(sum_.op, ast.Add) and self.is_timed(sum_.left) and names & compared:
                seconds = self._seconds(sum_.right)
                if seconds is not None and NOT_TO_HAPPEN_S_MAX < seconds < GUARD_S_MIN:
                    yield sum_


def pairs_of(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What is assigned to, and what; of several at once each with its own."""
    for target in node.targets:
        value = node.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            yield from zip(target.elts, value.elts, strict=True)
        else:
            yield target, value


def names_in(node: ast.AST) -> list[str]:
    return [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]


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
receiver.receive(10)
receiver.receive_many(2, timeout=20)
connection.request("rpc", "q", timeout=30)
entered.wait(timeout=30)
reader._pages.close(10)
assert 0.1 < time.monotonic() - started_s < 5
"""
WRONG_BY_THE_CLOCK = """
TOOK_S_MAX = 10.0
def test_by_a_name():
    started_s = loop.time()
    took_s = asyncio.get_running_loop().time() - started_s
    assert took_s < 2
def test_by_the_least():
    times = []
    for _ in range(3):
        start_s = time.perf_counter()
        times.append(time.perf_counter() - start_s)
    assert TOOK_S_MAX >= min(times)
def test_by_an_end():
    deadline_s = time.monotonic() + 10
    while not done():
        assert time.monotonic() < deadline_s
"""
RIGHT = """
peer.wait_for(Flow, 2)
thread.join(0.3)
sock.settimeout(0.01)
sock.settimeout(PATIENCE_S)
stage.wait(10)
stage.close(10)
client.receive("orders", 10)
receiver.receive_many(10)
subprocess.run(["x"], timeout=60)
assert time.monotonic() < deadline_s
assert seconds() < 5
def test_of_enough_patience():
    started_s = time.monotonic()
    deadline_s = started_s + PATIENCE_S
    took_s = time.monotonic() - started_s
    assert 0.2 < took_s
    assert took_s < 60
    assert piece_s <= took_s
    assert took_s / least_s < 2
    started_s, before_s = time.monotonic(), seconds()
    assert seconds() - before_s < 5
    way.give(time.monotonic() + 10)
"""


def test_what_is_wrong_is_found() -> None:
    assert [each.value for each in impatient(ast.parse(WRONG))] == [10, 5, 30, 5, 10, 20, 30, 30, 10]
    assert len(by_the_clock(ast.parse(WRONG))) == 1
    assert [each.lineno for each in by_the_clock(ast.parse(WRONG_BY_THE_CLOCK))] == [6, 12, 14]
    assert (impatient(ast.parse(RIGHT)), by_the_clock(ast.parse(RIGHT))) == ([], [])
