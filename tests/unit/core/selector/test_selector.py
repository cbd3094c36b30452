"""Selectors: tables of the logic, types, syntax and its faults, bounds; compared with a naive reference."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from mqbroker.base.errors import PeerFault, Refused
from mqbroker.core.selector import selector as s
from mqbroker.core.selector.selector import compile_selector

from tests.unit.core.selector.selector_reference import Held, Tree, Values, conditions, meant, values, written

# A name that is not there is UNKNOWN as a condition.
TRUTHS: dict[str, bool | None] = {"yes": True, "no": False, "missing": None}
MESSAGE = Held(
    {"yes": True, "no": False, "n": 5, "x": 2.5, "text": "blue", "blob": b"\x00", "empty": "", "big": 2**64 - 1}
)


def value_of(condition: str, message: Held = MESSAGE) -> bool | None:
    """TRUE, FALSE or UNKNOWN, by asking for the condition and for its negation."""
    found = compile_selector(condition).matches(message), compile_selector(f"NOT ({condition})").matches(message)
    return {(True, False): True, (False, True): False, (False, False): None}[found]


# -- the reference ----------------------------------------------------------------------------------------------------


@given(conditions, values)
def test_closures_say_what_the_reference_says(tree: Tree, held: Values) -> None:
    truth = meant(tree, held)
    assert value_of(written(tree), Held(held)) == (truth if isinstance(truth, bool) else None)


# -- logic ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("left", "right"), list(product(TRUTHS, repeat=2)))
def test_and_and_or_of_three_values(left: str, right: str) -> None:
    pair = [TRUTHS[left], TRUTHS[right]]
    both = False if False in pair else None if None in pair else True
    either = True if True in pair else None if None in pair else False
    assert value_of(f"{left} AND {right}") is both
    assert value_of(f"{left} OR {right}") is either


@pytest.mark.parametrize(("name", "negated"), [("yes", False), ("no", True), ("missing", None)])
def test_not_of_three_values(name: str, negated: bool | None) -> None:
    assert value_of(f"NOT {name}") is negated
    assert value_of(f"NOT NOT {name}") is TRUTHS[name]
    assert value_of(f"NOT NOT NOT {name}") is negated


@pytest.mark.parametrize("names", list(product(TRUTHS, repeat=3)))
def test_chains_of_three_values(names: tuple[str, str, str]) -> None:
    truths = [TRUTHS[name] for name in names]
    assert value_of(" AND ".join(names)) is (False if False in truths else None if None in truths else True)
    assert value_of(" OR ".join(names)) is (True if True in truths else None if None in truths else False)


def test_what_is_decided_asks_no_further() -> None:
    for text in ("no AND n = 5", "yes OR n = 5"):
        message = Held({"yes": True, "no": False})
        compile_selector(text).matches(message)
        assert "n" not in message.asked


# -- types ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "truth"),
    [
        ("n = 5", True), ("n = 5.0", True), ("n <> 5.5", True), ("x > 2", True), ("x >= 2.5", True), ("x < n", True),
        ("big = 18446744073709551615", True), ("big > 9223372036854775807", True),
        ("text = 'blue'", True), ("text <> 'blue'", False), ("text = 'Blue'", False), ("empty = ''", True),
        ("yes = TRUE", True), ("yes <> no", True), ("yes = (n = 5)", True),
        # Different types are FALSE, whatever is asked of them.
        ("text = 5", False), ("text <> 5", False), ("yes = 1", False), ("yes <> 1", False), ("n = '5'", False),
        ("text < 5", False), ("text > 5", False), ("yes > 0", False), ("text > empty", False),
        ("blob = blob", False), ("blob <> blob", False), ("blob > 1", False),
        ("text BETWEEN 1 AND 9", False), ("text NOT BETWEEN 1 AND 9", False),
        # NULL is UNKNOWN, except where it is asked for.
        ("missing = 1", None), ("missing <> 1", None), ("1 < missing", None), ("missing = missing", None),
        ("missing IN ('a')", None), ("missing NOT IN ('a')", None), ("missing LIKE '%'", None),
        ("missing BETWEEN 1 AND 2", None), ("n BETWEEN 6 AND missing", False), ("n BETWEEN 4 AND missing", None),
        ("missing IS NULL", True), ("missing IS NOT NULL", False), ("blob IS NULL", False), ("n IS NOT NULL", True),
        ("missing + 1 = 1", None), ("- missing = 1", None), ("+ missing = 1", None),
        # What is no boolean is no condition, and what is no number does not calculate.
        ("n AND TRUE", None), ("text OR FALSE", None), ("text + 1 = 1", None), ("yes + 1 = 2", None),
        ("- text = 1", None), ("+ text = 'blue'", None), ("blob", None),
        ("text IN ('red', 'blue')", True), ("text NOT IN ('red')", True), ("n IN ('5')", False),
        ("n NOT IN ('5')", True), ("text LIKE 'b%e'", True), ("text NOT LIKE 'b__'", True), ("n LIKE '5'", False),
        ("n NOT LIKE '5'", True),
    ],
)  # fmt: skip
def test_rules_of_types(condition: str, truth: bool | None) -> None:
    assert value_of(condition) is truth


@pytest.mark.parametrize(
    ("arithmetic", "result"),
    [
        ("1 + 2 * 3", "7"), ("(1 + 2) * 3", "9"), ("7 - 2 - 1", "4"), ("7 - (2 - 1)", "6"), ("5--1", "6"),
        ("8 / 2 / 2", "2"), ("7 / 2", "3"), ("-7 / 2", "-3"), ("7 / -2", "-3"), ("7 / 2.0", "3.5"), ("- - n", "5"),
        ("- + - + n", "5"), ("-n * -n", "25"), ("n * x", "12.5"), ("2 * 0.5", "1"),
        ("-9223372036854775808", "-9.223372036854775808E18"),
        ("9223372036854775807 + 1", "9223372036854775808.0"), ("9223372036854775807 + 0", "9223372036854775807"),
        ("1E308 * 10 - 1E308", "1E308 * 10"),
    ],
)  # fmt: skip
def test_arithmetic(arithmetic: str, result: str) -> None:
    assert value_of(f"{arithmetic} = {result}") is True


def test_exact_numbers_are_compared_exactly() -> None:
    assert value_of("9223372036854775807 = 9223372036854775806") is False
    assert value_of("9223372036854775807 = 9223372036854775806.0") is True


def test_numbers_stay_small() -> None:
    chain = " * ".join(["9223372036854775807"] * 180)
    assert value_of(f"{chain} > 0") is True


@pytest.mark.parametrize("quotient", ["1 / 0", "1 / 0.0", "x / (n - 5)", "0 / 0"])
def test_nothing_comes_of_division_by_zero(quotient: str) -> None:
    assert value_of(f"{quotient} = 1") is None


# -- syntax -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "truth"),
    [
        ("yes OR yes AND no", True), ("(yes OR yes) AND no", False), ("NOT no AND no", False),
        ("NOT (no AND no)", True), ("NOT n = 5", False), ("n = 2 + 3 AND x * 2 = n", True),
        ("n BETWEEN 1 AND 5 AND no", False),
        ("n NOT BETWEEN 1 AND 4 AND yes", True), ("n BETWEEN 2 + 3 AND 2 * 3", True),
        ("yes aNd nOt no", True), ("n between 5 and 5", True), ("text like 'B%' or text in ('blue')", True),
        ("missing is null", True), ("true", True), ("False", False), ("((((yes))))", True), ("yes", True),
        ("\tyes\r\n AND\fyes ", True), ("(n)IN('a')OR(text)LIKE'%u%'", True),
    ],
)  # fmt: skip
def test_precedence_and_form(condition: str, truth: bool) -> None:
    assert value_of(condition) is truth


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("57", 57), ("0", 0), ("0x1F", 31), ("0XfFL", 255), ("017", 15), ("0_7", 7), ("0b101", 5), ("1_000", 1000),
        ("12L", 12), ("7.", 7.0), ("95.7", 95.7), (".5", 0.5), ("7E3", 7000.0), ("5.79e-1", 0.579), ("1f", 1.0),
        ("2.5D", 2.5), ("1_0.0_1", 10.01), ("0x1.8p1", 3.0), ("0x.8P+1", 1.0), ("0x1e+1", 31), ("08.5", 8.5),
    ],
)  # fmt: skip
def test_numeric_literals(literal: str, value: float) -> None:
    assert value_of(f"v = {literal}", Held({"v": value})) is True
    is_exact = value_of(f"{literal} = 9007199254740993") is False and isinstance(value, int)
    assert is_exact == isinstance(value, int)


@pytest.mark.parametrize("name", ["a", "_a", "$", "a1", "ANDROID", "nothing", "INx", "Größe", "имя", "is_null", "a.b"])
def test_identifiers(name: str) -> None:
    selector = compile_selector(f"{name} = 1")
    assert selector.names == {name}
    assert selector.matches(Held({name: 1}))
    assert not selector.matches(Held({name.swapcase() + "?": 1}))


def test_identifiers_have_case_and_keywords_have_none() -> None:
    assert compile_selector("A is Null").matches(Held({"a": 1}))
    assert compile_selector("a IS NOT null").matches(Held({"a": 1}))


def test_names_in_double_quotes() -> None:
    message = Held({"m.x-opt-delay": 5, 'a"b': 1, "and": True})
    assert compile_selector('"m.x-opt-delay" = 5 AND "a""b" = 1 AND "and"').matches(message)
    assert compile_selector('"m.x-opt-delay" BETWEEN 1 AND 2').names == {"m.x-opt-delay"}


def test_quotes_in_texts_are_doubled() -> None:
    message = Held({"a": "it's (here"})
    assert compile_selector("a = 'it''s (here'").matches(message)
    assert compile_selector("a IN ('', 'it''s (here') AND a LIKE 'it''%'").matches(message)


def test_names_are_those_that_are_asked_for() -> None:
    text = "a = 1 AND (b LIKE 'x' OR NOT c) AND d + e BETWEEN f AND 'g' = h"
    with pytest.raises(Refused):
        compile_selector(text)
    text = "a = 1 AND (b LIKE 'x' OR NOT c) AND d + e BETWEEN f AND -g AND (h IS NULL OR i IN ('j'))"
    assert compile_selector(text).names == set("abcdefghi")
    assert compile_selector("TRUE").names == frozenset()


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        ("", 1, "empty"), ("  ", 1, "empty"),
        ("a =", 4, "ends where a name, a literal or an opening bracket is due"),
        ("a = 1 AND  ", 10, "ends where a name"), ("a b", 3, "'b' stands where a comparison, AND, OR or the end"),
        ("a = NULL", 5, "use IS NULL"), ("a == 1", 4, "equal is ="), ("a != 1", 3, "not equal is <>"),
        ("a => 1", 4, "at least is >="), ("a =< 1", 4, "at most is <="), ("a && b", 3, "and is AND"),
        ("a || b", 3, "or is OR"), ("!a", 1, "not is NOT"), ("a % 2 = 1", 3, "no remainder"),
        ("a = 5AND", 5, "'5AND' is no number"), ("a = 1 /* b */", 8, "comments"), ("a = 'x", 5, "not closed"),
        ("a = \"x", 5, "not closed"), ("a = \"\"", 5, "empty"), ("AND = 1", 1, "'AND' stands where"),
        ("(a = 1", 7, "a closing bracket is due"), ("a = 1)", 6, "the end is due"), ("()", 2, "')' stands where"),
        ("a IS 3", 6, "NULL is due"), ("a = b = c", 7, "AND, OR or the end"), ("1 < a < 3", 7, "AND, OR or the end"),
        ("a BETWEEN 1 2", 13, "AND is due"), ("a NOT = 1", 7, "BETWEEN, IN or LIKE"), ("a IN ()", 7, "a text in"),
        ("a IN (1)", 7, "a text in single quotes"), ("a IN ('b' 'c')", 11, "a comma or a closing bracket"),
        ("a IN 'b'", 6, "an opening bracket"), ("a LIKE b", 8, "a text in single quotes"),
        ("a LIKE 'b' ESCAPE", 18, "a text in single quotes"), ("a LIKE 'b' ESCAPE 'xy'", 19, "one character, not 2"),
        ("a LIKE 'b' ESCAPE ''", 19, "one character, not 0"), ("a LIKE 'b!' ESCAPE '!'", 8, "write !! to match !"),
        ("'a' LIKE 'a'", 1, "name of a property must stand before LIKE"), ("(a + 1) IS NULL", 2, "before IS NULL"),
        ("1 IN ('a')", 1, "before IN"), ("5", 1, "a number is none"), ("'a'", 1, "a text is none"),
        ("a + 1", 1, "a number is none"), ("a AND 5", 7, "a number is none"), ("'a' OR b", 1, "a text is none"),
        ("NOT 5", 5, "NOT negates"), ("a < 'b'", 5, "< compares numbers"), ("a >= TRUE", 6, ">= compares numbers"),
        ("a BETWEEN 'b' AND 'c'", 11, "BETWEEN compares numbers"), ("a NOT BETWEEN 1 AND 'c'", 21, "BETWEEN"),
        ("a + 'b' = 1", 5, "+ calculates with numbers"), ("-'b' = 1", 2, "- calculates"), ("+TRUE = 1", 2, "+ calc"),
        ("a * (b = 1) = 1", 6, "* calculates"), ("a = 089", 5, "octal"), ("a = 5x", 5, "'5x' is no number"),
        ("a = 0x", 5, "no number"), ("a = 1_", 5, "no number"), ("a = 18446744073709551616", 5, "too large"),
        ("a = 1E999", 5, "too large"), ("a = 0x1p99999", 5, "too large"), ("a = 1.2.3", 5, "no number"),
        ("a OR JMSRedelivered", 6, "JMSXDeliveryCount > 1"), ("JMSReplyTo IS NULL", 1, "property of your own"),
        ("JMSDestination = 'a'", 1, "AMQAddress is"),
        ("§ = 1", 1, "'§' stands where"), ("a; b", 2, "';' stands where"), ("a = 1,", 6, "',' stands where"),
    ],
)  # fmt: skip
def test_faults_are_named_with_their_column(text: str, column: int, says: str) -> None:
    with pytest.raises(Refused) as caught:
        compile_selector(text)
    assert caught.value.condition == "amqp:invalid-field"
    assert caught.value.description.startswith(f"selector, column {column}: ")
    assert says in caught.value.description


@pytest.mark.parametrize("text", ["(" * 65 + "a" + ")" * 65, "(" * 500, "NOT (" * 200, "a = (" * 160, "((a) " * 120])
def test_brackets_nest_only_so_deep(text: str) -> None:
    with pytest.raises(Refused, match="nested deeper than 64"):
        compile_selector(text)


def test_brackets_in_quotes_do_not_nest() -> None:
    assert compile_selector(f"text <> '{'(' * 1000}' AND \"{'(' * 1000}\" IS NULL").matches(MESSAGE)


def test_deepest_and_longest_selectors_work() -> None:
    deepest = "yes"
    for _ in range(s.DEPTH_MAX):
        deepest = f"(no OR NOT {deepest}=TRUE)"
    assert len(deepest) < s.SELECTOR_SIZE_MAX
    assert value_of(deepest[1:-1]) is True
    assert value_of("(" * 63 + "1" + "+1)" * 63 + " = 64") is True
    for text in (
        " OR ".join(["no"] * 255 + ["yes"]), " AND ".join(["yes"] * 256), "NOT " * 510 + "yes", "- " * 508 + "n = 5",
        "+".join(["n"] * 255) + "=1275", "text NOT IN (" + ",".join(["'a'"] * 254) + ")",
    ):  # fmt: skip
        assert compile_selector(text).matches(MESSAGE)


@pytest.mark.parametrize(
    "text", ["NOT " * 512 + "yes", "-" * 510 + "n=5", "text IN (" + ",".join(["'a b'"] * 255) + ")"]
)
def test_more_words_are_refused(text: str) -> None:
    with pytest.raises(Refused, match=f"here are more than {s.WORDS_MAX} words"):
        compile_selector(text)


def test_words_in_quotes_are_one() -> None:
    assert compile_selector(f"text <> '{'a ' * 1000}' AND \"{'a ' * 900}\" IS NULL").matches(MESSAGE)


def test_longer_selectors_are_refused() -> None:
    longest = "a" * (s.SELECTOR_SIZE_MAX - 4) + " = 1"
    assert compile_selector(longest).names
    with pytest.raises(Refused, match="column 4097: it has 4097 characters; 4096 are allowed"):
        compile_selector(longest + " ")


@pytest.mark.slow
@given(conditions)
def test_a_selector_that_is_cut_is_refused_or_another_selector(tree: Tree) -> None:
    text = written(tree)
    for end in range(len(text)):
        try:
            selector = compile_selector(text[:end])
        except Refused:
            continue
        assert selector.matches(MESSAGE) in (True, False)


# -- the selector itself ----------------------------------------------------------------------------------------------


def test_what_cannot_be_read_matches_nothing() -> None:
    class Malformed:
        def value_of(self, name: str) -> Any:
            raise PeerFault("amqp:decode-error", "broken")

    assert not compile_selector("a IS NULL").matches(Malformed())
    assert not compile_selector("a = 1 OR TRUE").matches(Malformed())
    assert compile_selector("TRUE").matches(Malformed())


def test_text_is_kept_as_it_came() -> None:
    assert compile_selector(" a  =  1 ").text == " a  =  1 "
    assert repr(compile_selector("a = 1")) == "Selector('a = 1')"


def test_compiled_selectors_are_shared_and_their_number_is_bounded() -> None:
    assert compile_selector("shared = 1") is compile_selector("shared = 1")
    for count in range(3 * s.CACHE_SIZE_MAX):
        compile_selector(f"a = {count}")
        assert len(s._compiled) <= s.CACHE_SIZE_MAX
    long = "a = 1 OR " * 100 + "b"
    assert compile_selector(long) is not compile_selector(long)


def test_the_parser_is_not_loaded_before_it_is_needed() -> None:
    begin = "import sys, mqbroker.core.selector.selector as s; assert 'lark' not in sys.modules; "
    program = begin + "s.compile_selector('a = 1')"
    done = subprocess.run([sys.executable, "-c", program + "; assert 'lark' in sys.modules"], timeout=60, check=False)
    assert done.returncode == 0
