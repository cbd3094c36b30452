"""Patterns of addresses: what matches, and which of several that match goes first."""

from __future__ import annotations

from functools import cache
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mqbroker.config.declarations.options import defaults
from mqbroker.config.matching import ANY_WORD, ANY_WORDS, generality, includes, matches, overlap, same_for_all
from mqbroker.config.slices import AddressMatch, AddressSettingsOptions
from mqbroker.core.address.settings import Settings

OTHER = "a word that no pattern names"
WORDS = st.sampled_from(["a", "b", "", ANY_WORD, ANY_WORDS])
PATTERNS = st.lists(WORDS, min_size=1, max_size=6)
SHORT = [list(words) for size in (1, 2, 3) for words in product(["a", "b", ANY_WORD, ANY_WORDS], repeat=size)]

Places = frozenset[int]


def start(pattern: tuple[str, ...]) -> Places:
    return _through_empty(pattern, {0})


def step(pattern: tuple[str, ...], places: Places, word: str) -> Places:
    """One word further in the automaton that a pattern is: place n is before its word n."""
    found = set()
    for place in places:
        if place < len(pattern) and pattern[place] == ANY_WORDS:
            found.add(place)
        elif place < len(pattern) and pattern[place] in (ANY_WORD, word):
            found.add(place + 1)
    return _through_empty(pattern, found)


def _through_empty(pattern: tuple[str, ...], places: set[int]) -> Places:
    todo = list(places)
    while todo:
        place = todo.pop()
        if place < len(pattern) and pattern[place] == ANY_WORDS and place + 1 not in places:
            places.add(place + 1)
            todo.append(place + 1)
    return frozenset(places)


@cache
def is_within(inner: tuple[str, ...], outer: tuple[str, ...]) -> bool:
    """Whether every address, of any length and any words, that matches `inner` matches `outer`.

    Decided by walking both automata at once through all pairs of sets of places; words that neither names are alike.
    """
    alphabet = {*inner, *outer, OTHER} - {ANY_WORD, ANY_WORDS}
    todo = [(start(inner), start(outer))]
    seen = set(todo)
    while todo:
        here, there = todo.pop()
        if len(inner) in here and len(outer) not in there:
            return False
        for word in alphabet:
            pair = step(inner, here, word), step(outer, there, word)
            if pair[0] and pair not in seen:
                seen.add(pair)
                todo.append(pair)
    return True


@pytest.mark.slow
@given(PATTERNS, st.lists(st.sampled_from(["a", "b", "", "c"]), min_size=1, max_size=6))
@settings(max_examples=1000)
def test_a_pattern_matches_what_its_automaton_takes(pattern: list[str], words: list[str]) -> None:
    places = start(tuple(pattern))
    for word in words:
        places = step(tuple(pattern), places, word)
    assert matches(pattern, words) is (len(pattern) in places)


@cache
def do_overlap(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether any address matches both, by walking both automata."""
    todo = [(start(one), start(other))]
    seen = set(todo)
    while todo:
        here, there = todo.pop()
        for word in {*one, *other, OTHER} - {ANY_WORD, ANY_WORDS}:
            pair = step(one, here, word), step(other, there, word)
            if len(one) in pair[0] and len(other) in pair[1]:
                return True
            if pair[0] and pair[1] and pair not in seen:
                seen.add(pair)
                todo.append(pair)
    return False


@pytest.mark.slow
@given(PATTERNS, PATTERNS)
@settings(max_examples=1000)
def test_what_includes_and_what_overlaps_is_what_automata_say(one: list[str], other: list[str]) -> None:
    check_includes(one, other)
    assert overlap(one, other) is do_overlap(tuple(one), tuple(other))


def check_includes(wide: list[str], narrow: list[str]) -> None:
    if includes(wide, narrow) or ANY_WORD not in wide:
        assert includes(wide, narrow) is is_within(tuple(narrow), tuple(wide)), (wide, narrow)


@pytest.mark.slow
def test_what_includes_and_what_overlaps_among_all_short_patterns() -> None:
    for one, other in product(SHORT, repeat=2):
        check_includes(one, other)
        assert overlap(one, other) is do_overlap(tuple(one), tuple(other)), (one, other)


def check_narrower_first(one: list[str], other: list[str]) -> None:
    inside, outside = is_within(tuple(one), tuple(other)), is_within(tuple(other), tuple(one))
    if inside and not outside:
        assert generality(one) < generality(other), (one, other)
    if outside and not inside:
        assert generality(other) < generality(one), (one, other)


@pytest.mark.slow
@given(PATTERNS, PATTERNS)
@settings(max_examples=1000)
def test_the_narrower_pattern_goes_first(one: list[str], other: list[str]) -> None:
    check_narrower_first(one, other)


@pytest.mark.slow
@given(PATTERNS, st.data())
@settings(max_examples=1000)
def test_a_pattern_goes_before_what_is_made_of_it_by_widening(narrow: list[str], data: st.DataObject) -> None:
    """Pairs that are drawn freely are seldom within each other; these always are."""
    wide: list[str] = []
    for word in narrow:
        taken_in = [[]] if wide[-1:] == [ANY_WORDS] else []
        wide += data.draw(st.sampled_from([[word], [word], [word, ANY_WORDS], [ANY_WORDS], *taken_in]))
        if wide[-1:] == [word] and word != ANY_WORDS and data.draw(st.booleans()):
            wide[-1] = ANY_WORD
    assert is_within(tuple(narrow), tuple(wide))
    check_narrower_first(narrow, wide)


def test_the_narrower_goes_first_among_all_short_patterns() -> None:
    for one, other in product(SHORT, repeat=2):
        check_narrower_first(one, other)


def test_what_matches_the_same_has_one_spelling_and_nothing_else_has() -> None:
    for one, other in product(SHORT, repeat=2):
        is_same = is_within(tuple(one), tuple(other)) and is_within(tuple(other), tuple(one))
        assert is_same is (same_for_all(one) == same_for_all(other)), (one, other)


@given(st.lists(PATTERNS, unique_by=tuple, max_size=8), st.randoms())
def test_there_is_one_order_whatever_it_began_with(patterns: list[list[str]], chance: Random) -> None:
    ordered = sorted(patterns, key=generality)
    chance.shuffle(patterns)
    assert sorted(patterns, key=generality) == ordered


@pytest.mark.parametrize(
    ("address", "ordered"),
    [
        ("x.secret", ["#.secret", "#"]),
        ("shop.eu.cards", ["shop.#.cards", "shop.#", "#"]),
        ("a.b.z", ["#.z", "#"]),
        ("a", ["a", "*", "a.#", "*.#", "#"]),
        ("a", ["a", "a.#", "#.a.#"]),
        ("a.b", ["a.b", "a.*", "*.b", "*.*", "a.b.#", "a.*.#", "a.#", "#.b", "*.*.#", "*.#", "#"]),
        # Overlapping only: no `#` before `#`; without it the first place decides; with it what says more.
        ("a.b.c", ["*.*.*", "a.b.#"]),
        ("a.b.c", ["a.*.*", "*.b.c"]),
        ("a.b.c", ["#.b.c", "a.#"]),
        ("a.b.c", ["a.#", "#.c"]),
        ("a.b.c", ["a.#", "*.*.#"]),
        # Empty words are words.
        ("", ["", "*", "#"]),
        (".", [".", "*.*", ".#", "#.", "#"]),
        ("a..b", ["a..b", "a.*.b", "a.#.b", "#"]),
        ("a.", ["a.", "a.*", "*.", "a..#", "a.#", "#.", "#"]),
        # An address may be called as a pattern is.
        ("#", ["#.#"]),
        ("a.*", ["a.*", "a.#"]),
    ],
)
def test_the_order_at_an_address(address: str, ordered: list[str]) -> None:
    assert all(matches(pattern.split("."), address.split(".")) for pattern in ordered)
    assert sorted(ordered, key=lambda pattern: generality(pattern.split("."))) == ordered
    built_in = defaults().address_settings.built_in
    rows = tuple(AddressMatch(pattern, {"max_delivery_attempts": place}) for place, pattern in enumerate(ordered, 7))
    assert Settings(AddressSettingsOptions(built_in, rows[::-1])).of(address).max_delivery_attempts == 7
