"""LIKE: compared with its definition, and the work that it takes at worst."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.core.selector.like import compile_like

from tests.unit.core.selector.selector_reference import like

letters = st.text(alphabet="ab", max_size=12)
patterns = st.text(alphabet="ab_%!", max_size=8)


@given(letters, patterns, st.sampled_from((None, "!")))
def test_matches_are_those_of_the_definition(text: str, pattern: str, escape: str | None) -> None:
    matches = compile_like(pattern, escape)
    if matches is None:
        assert escape is not None
        assert (len(pattern) - len(pattern.rstrip(escape))) % 2 == 1
    else:
        assert matches(text) == like(text, pattern, escape)


@given(st.lists(letters, min_size=1, max_size=4), st.lists(letters, min_size=3, max_size=3))
def test_what_is_made_to_match_does(kept: list[str], between: list[str]) -> None:
    text = "".join(each + filling for each, filling in zip(kept, [*between, ""], strict=False))
    matches = compile_like("%".join((*kept, "")), None)
    assert matches is not None
    assert matches(text)


@pytest.mark.parametrize(
    ("pattern", "escape", "yes", "no"),
    [
        ("12%3", None, ["123", "12993"], ["1234", "13"]), ("l_se", None, ["lose"], ["loose"]),
        (r"\_%", "\\", ["_foo", "_"], ["bar", ""]), ("", None, [""], ["a"]), ("%", None, ["", "a\nb"], []),
        ("%%", None, ["", "a"], []), ("_%_", None, ["ab", "a\nb"], ["", "a"]), ("%ab%ab", None, ["abab"], ["ab"]),
        ("a%%b", "%", ["a%b"], ["aab", "ab"]), ("a__", "_", ["a_"], ["abc"]), ("a!b", "!", ["ab"], ["a!b"]),
        ("[a-z]*.", None, ["[a-z]*."], ["abc."]), ("%_b_%", None, ["abc", "xxabc"], ["ab", "bc"]),
        ("_", None, ["ä", "😀"], []),
    ],
)  # fmt: skip
def test_examples(pattern: str, escape: str | None, yes: list[str], no: list[str]) -> None:
    matches = compile_like(pattern, escape)
    assert matches is not None
    assert [text for text in yes if not matches(text)] == []
    assert [text for text in no if matches(text)] == []


class Counted(str):
    """A text that counts how many of its characters were looked at."""

    looked = 0

    def find(self, *asked: Any) -> int:
        piece, start, end = asked
        found = super().find(piece, start, end)
        type(self).looked += (found + len(piece) if found >= 0 else end) - start
        return found

    def startswith(self, *asked: Any) -> bool:
        type(self).looked += len(asked[0])
        return super().startswith(*asked)

    def __getitem__(self, index: Any) -> str:
        type(self).looked += 1
        return super().__getitem__(index)


@pytest.mark.parametrize(
    "pattern",
    ["%a" * 2000, "%a" * 2000 + "b", "%aaab" * 500, "%a_" * 1000 + "%b", "%" + "a_" * 1000 + "b%", "%_" * 2000 + "b",
     "a" * 1000 + "%b%" + "_" * 1000, "%ab" * 1300 + "%"],
)  # fmt: skip
@pytest.mark.parametrize("text", ["a" * 20_000, "ab" * 10_000, "a" * 19_999 + "b"])
def test_the_work_is_bounded_by_the_sizes(pattern: str, text: str) -> None:
    matches = compile_like(pattern, None)
    assert matches is not None
    Counted.looked = 0
    matches(Counted(text))
    assert Counted.looked <= len(text) + 2 * len(pattern)
