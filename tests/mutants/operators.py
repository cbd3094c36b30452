"""Small breaks of the code: cosmic-ray's operators that change what a line does, and one that leaves a statement out.

Its operators on `|`, names, decorators and exceptions are left out: they hit annotations, or end in what no type
checker lets through.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import parso
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator, operator_names

MEANT: Final = re.compile(
    "core/(ReplaceComparisonOperator_.*|ReplaceBinaryOperator_(Add_Sub|Sub_Add)|NumberReplacer|ReplaceAndWithOr"
    "|ReplaceOrWithAnd|ReplaceTrueWithFalse|ReplaceFalseWithTrue|ReplaceBreakWithContinue|ReplaceContinueWithBreak"
    "|AddNot|ReplaceUnaryOperator_Delete_Not|ZeroIterationForLoop)"
)
# What says nothing of what the line does: of notices' and errors' words, types, and the flag that tests/contract watch.
UNMEANT: Final = re.compile(r"LOOK\.has_touched|^\s*(assert|raise|from|import|class|def|@)\b|: Final = |__slots__")


class LeaveOut(Operator):  # type: ignore[misc]  # cosmic-ray has no types
    """A statement on a line of its own becomes `pass`."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """A call, or an assignment that is none to a local name."""
        is_statement = node.parent is not None and node.parent.type == "simple_stmt" and node is node.parent.children[0]
        if not is_statement or node.type == "string":
            return
        is_attribute = node.type == "expr_stmt" and node.children[0].type in ("atom_expr", "power")
        is_call = node.type in ("atom_expr", "power") and node.get_last_leaf().value == ")"
        if is_attribute or is_call:
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """The statement without what it did."""
        assert index == 0
        nothing = parso.parse("pass").children[0]
        nothing.get_first_leaf().prefix = node.get_first_leaf().prefix
        return nothing

    @classmethod
    def examples(cls) -> tuple[()]:
        """None: they are for cosmic-ray's own tests."""
        return ()


@dataclass(frozen=True, slots=True)
class Mutant:
    """One break of a module. `before` and `after`: the lines that differ, without their indentation."""

    module: str
    operator: str
    line: int
    before: str
    after: str
    code: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.before}  →  {self.after}"


@cache
def _operators() -> tuple[tuple[str, Any], ...]:
    named = [(name.removeprefix("core/"), get_operator(name)()) for name in operator_names() if MEANT.fullmatch(name)]
    return (*named, ("LeaveOut", LeaveOut()))


def places_in(source: str) -> dict[int, list[tuple[str, int]]]:
    """By line: which operators, and the how manieth time, change something there."""
    tree = get_ast(source)
    lines = source.splitlines()
    found: dict[int, list[tuple[str, int]]] = {}
    for name, operator in _operators():
        places = (place for node in ast_nodes(tree) for place in operator.mutation_positions(node))
        for occurrence, ((line, _), _) in enumerate(places):
            if not UNMEANT.search(lines[line - 1]):
                found.setdefault(line, []).append((name, occurrence))
    return found


def mutant_of(module: str, source: str, place: tuple[int, str, int]) -> Mutant | None:
    """None: the operator leaves the code as it is."""
    line, name, occurrence = place
    code = mutate_code(source, dict(_operators())[name], occurrence)
    if code is None or code == source:
        return None
    pairs = list(zip(source.splitlines(), code.splitlines(), strict=False))
    before, after = next((pair for pair in pairs if pair[0] != pair[1]), ("", ""))
    return Mutant(module, name, line, before.strip(), after.strip(), code)
