"""Which of two processes with one node id goes on: both say the same, whoever asks."""

from __future__ import annotations

import ast
import itertools
from pathlib import Path

import mqbroker
import pytest
from mqbroker.cluster.node_id_conflict import ProcessStart, yields

ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
STARTS = [
    ProcessStart(at_ms, boot_id, term)
    for at_ms in (0, 1, 2, 1_700_000_000_000) for boot_id in ("a" * 32, "b" * 32) for term in (0, 1, 5)
]  # fmt: skip


def test_of_two_starts_exactly_one_yields_and_none_to_itself() -> None:
    for one, other in itertools.product(STARTS, STARTS):
        assert yields(one, other) + yields(other, one) == (one != other)


def test_the_later_one_yields() -> None:
    early, late = ProcessStart(1000, "f" * 32), ProcessStart(1001, "0" * 32)
    assert (yields(early, late), yields(late, early)) == (False, True)


def test_who_does_not_say_when_it_was_started_stays() -> None:
    assert yields(ProcessStart(1, "0" * 32), ProcessStart(0, "f" * 32))


def test_the_higher_term_goes_on_whenever_it_was_started() -> None:
    """A backup that took over was started later than the primary that it deposed, or earlier, or does not say."""
    for deposed, at_ms in itertools.product((0, 1000, 2000), (0, 1000, 2000)):
        old, new = ProcessStart(deposed, "0" * 32, 4), ProcessStart(at_ms, "f" * 32, 5)
        assert (yields(old, new), yields(new, old)) == (True, False)


@pytest.mark.slow
def test_boot_ids_are_compared_for_order_nowhere_else() -> None:
    """They name processes; which of two is the newer one they do not say."""
    found = [
        f"{file.name}:{function.name}"
        for file in sorted(Path(mqbroker.__path__[0]).rglob("*.py"))
        for function in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef) and any(map(_orders_boot_ids, ast.walk(function)))
    ]
    assert found == ["node_id_conflict.py:yields"]


def _orders_boot_ids(node: ast.AST) -> bool:
    if not isinstance(node, ast.Compare) or not any(isinstance(each, ORDERS) for each in node.ops):
        return False
    names = {ast.unparse(each).rpartition(".")[2] for each in (node.left, *node.comparators)}
    return not names.isdisjoint(("boot_id", "_boot_id"))
