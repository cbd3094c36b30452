"""Selectors done a second time, naively: trees of tuples, one recursive function, LIKE by trying everything.

A tree is written out as the text of a selector and evaluated here, so that closures can be compared with it. Nothing is
shared with what is tested, and precedence is left to brackets.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Tree = tuple[Any, ...]
Values = dict[str, Any]


class Held:
    """A message that is nothing but its values."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self.asked: list[str] = []

    def value_of(self, name: str) -> Any:
        self.asked.append(name)
        return self.values.get(name)


def like(text: str, pattern: str, escape: str | None = None) -> bool:
    """By definition: what the first of the pattern may be, and the rest for the rest."""
    if not pattern:
        return not text
    head, rest = pattern[0], pattern[1:]
    if head == escape:
        return text[:1] == rest[:1] and like(text[1:], rest[1:], escape)
    if head == "%":
        return any(like(text[skipped:], rest, escape) for skipped in range(len(text) + 1))
    return bool(text) and (head == "_" or head == text[0]) and like(text[1:], rest, escape)


def written(tree: Tree) -> str:
    match tree:
        case ("literal", None | bool() as value):
            return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
        case ("literal", str(text)):
            return quoted(text)
        case ("literal", value):
            return repr(value) if value >= 0 else f"({value!r})"
        case ("name", name):
            return str(name)
        case ("NOT", inner):
            return f"(NOT {written(inner)})"
        case ("minus", inner):
            return f"(- {written(inner)})"
        case ("BETWEEN", word, *three):
            term, low, high = map(written, three)
            return f"({term} {word} {low} AND {high})"
        case ("IN", word, name, texts):
            return f"({name} {word} ({', '.join(map(quoted, texts))}))"
        case ("LIKE", word, name, pattern, escape):
            return f"({name} {word} {quoted(pattern)}" + (f" ESCAPE {quoted(escape)})" if escape else ")")
        case ("IS", word, name):
            return f"({name} {word})"
        case (sign, left, right):
            return f"({written(left)} {sign} {written(right)})"
    raise AssertionError(tree)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def meant(tree: Tree, values: Values) -> Any:
    """The value of a tree: None is NULL and UNKNOWN."""
    match tree:
        case ("literal", value):
            return value
        case ("name", name):
            return values.get(name)
        case ("NOT", inner):
            return {True: False, False: True, None: None}[_truth(meant(inner, values))]
        case ("minus", inner):
            value = meant(inner, values)
            return -value if _is_number(value) else None
        case ("AND" | "OR" as word, left, right):
            return _joined(word, _truth(meant(left, values)), _truth(meant(right, values)))
        case ("BETWEEN", word, term, low, high):
            signs, joint = ((">=", "<="), "AND") if word == "BETWEEN" else (("<", ">"), "OR")
            return meant((joint, (signs[0], term, low), (signs[1], term, high)), values)
        case ("IS", word, name):
            return (values.get(name) is None) == (word == "IS NULL")
        case ("IN" | "LIKE" as test, word, name, *rest):
            return _tested(test, word, values.get(name), rest)
        case (sign, left, right):
            return _related(sign, meant(left, values), meant(right, values))
    raise AssertionError(tree)


def _truth(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _joined(word: str, left: bool | None, right: bool | None) -> bool | None:
    """FALSE < UNKNOWN < TRUE: AND is the least, OR the greatest."""
    rank: dict[bool | None, int] = {False: 0, None: 1, True: 2}
    return (min if word == "AND" else max)(left, right, key=lambda each: rank[each])


def _tested(test: str, word: str, value: Any, rest: list[Any]) -> bool | None:
    if value is None:
        return None
    if not isinstance(value, str):
        found = False
    else:
        found = value in rest[0] if test == "IN" else like(value, *rest)
    return found != word.startswith("NOT")


def _related(sign: str, left: Any, right: Any) -> Any:
    if sign in "+-*/":
        if not (_is_number(left) and _is_number(right)) or (sign == "/" and right == 0):
            return None
        if sign == "/" and isinstance(left, int) and isinstance(right, int):
            return int(left / right)
        return {"+": lambda: left + right, "-": lambda: left - right, "*": lambda: left * right,
                "/": lambda: left / right}[sign]()  # fmt: skip
    if left is None or right is None:
        return None
    numbers = _is_number(left) and _is_number(right)
    alike = numbers or (type(left) is type(right) and isinstance(left, str | bool) and sign in ("=", "<>"))
    if not alike:
        return False
    return {"=": left == right, "<>": left != right, "<": numbers and left < right, "<=": numbers and left <= right,
            ">": numbers and left > right, ">=": numbers and left >= right}[sign]  # fmt: skip


# -- random trees -----------------------------------------------------------------------------------------------------

NAMES = ("a", "b", "c", "d")
texts = st.text(alphabet="ab%_'!", max_size=4)
numbers = st.integers(-9, 9) | st.sampled_from((0.5, -1.5, 2.0))
values = st.dictionaries(st.sampled_from(NAMES), st.booleans() | numbers | texts | st.just(b"opaque") | st.none())
names = st.sampled_from(NAMES)
named = st.tuples(st.just("name"), names)


def _sums(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    return st.tuples(st.sampled_from("+-*/"), inner, inner) | st.tuples(st.just("minus"), inner)


sums = st.recursive(named | st.tuples(st.just("literal"), numbers), _sums, max_leaves=4)
operands = sums | named | st.tuples(st.just("literal"), st.booleans() | texts)


def _patterns(pattern: str, escape: str | None) -> bool:
    """Not one whose last character escapes nothing."""
    return not escape or (len(pattern) - len(pattern.rstrip(escape))) % 2 == 0


tests = st.one_of(
    st.tuples(st.sampled_from(("=", "<>")), operands, operands),
    st.tuples(st.sampled_from(("<", "<=", ">", ">=")), sums, sums),
    st.tuples(st.just("BETWEEN"), st.sampled_from(("BETWEEN", "NOT BETWEEN")), sums, sums, sums),
    st.tuples(st.just("IN"), st.sampled_from(("IN", "NOT IN")), names, st.lists(texts, min_size=1, max_size=3)),
    st.tuples(
        st.just("LIKE"), st.sampled_from(("LIKE", "NOT LIKE")), names, texts, st.sampled_from((None, "!"))
    ).filter(lambda tree: _patterns(tree[3], tree[4])),
    st.tuples(st.just("IS"), st.sampled_from(("IS NULL", "IS NOT NULL")), names),
    st.tuples(st.just("literal"), st.booleans()),
    named,
)


def _conditions(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    return st.tuples(st.sampled_from(("AND", "OR")), inner, inner) | st.tuples(st.just("NOT"), inner)


conditions = st.recursive(tests, _conditions, max_leaves=8)
