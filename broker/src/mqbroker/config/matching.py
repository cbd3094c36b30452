"""Patterns of addresses: words between dots, `*` for one of them, `#` for any number.

Where several patterns match an address, the narrowest goes first: where all that one matches is matched by another too,
and not the other way round, the one goes before the other. Where two only overlap, the order is Artemis's: what has no
`#` before what has; without it, a literal word before `*` at the first place where they differ; with it, the longer one
first, but counted in literal words, then in `*`, where Artemis counts letters (there `a.#` is as long as `*.#`); then
again the first place. Source: Artemis's manual, "Wildcard syntax" and "Address settings".
"""

from __future__ import annotations

from typing import Any, Final

from mqbroker.config.slices import AddressSettingsOptions

EXCLUDED: Final = "!"  # in front of an item of an option `address`
DELIMITER, ANY_WORD, ANY_WORDS = ".", "*", "#"


def matches(pattern: list[str], words: list[str], apart: str | None = None) -> bool:
    """Whether a pattern's words match an address's. Linear: only the last `#` is ever tried again.

    `apart`: a word that only `#` takes.
    """
    at = place = 0
    retry = retry_place = -1
    while place < len(words):
        if at < len(pattern) and pattern[at] == ANY_WORDS:
            retry, retry_place = at, place
            at += 1
        elif at < len(pattern) and words[place] != apart and pattern[at] in (ANY_WORD, words[place]):
            at, place = at + 1, place + 1
        elif retry >= 0:
            retry_place += 1
            at, place = retry + 1, retry_place
        else:
            return False
    return all(word == ANY_WORDS for word in pattern[at:])


def includes(wide: list[str], narrow: list[str]) -> bool:
    """Whether all that one pattern matches is matched by the other too.

    True is always right. False may be too careful where the wider one has `*`, as `*.#` does of `#.a`.
    """
    return matches(same_for_all(wide), same_for_all(narrow), apart=ANY_WORDS)


def overlap(one: list[str], other: list[str]) -> bool:
    """Whether some address is matched by both patterns."""
    # Places in `other` that are reached when so much of `one` is read.
    places = _open_from(other, {0})
    for word in one:
        if word == ANY_WORDS:
            places = set(range(min(places), len(other) + 1)) if places else places
        else:
            stays = {place for place in places if place < len(other) and other[place] == ANY_WORDS}
            goes = {place + 1 for place in places if place < len(other) and _may_agree(word, other[place])}
            places = _open_from(other, stays | goes)
    return len(other) in places


def _may_agree(word: str, other: str) -> bool:
    return ANY_WORD in (word, other) or other == ANY_WORDS or word == other


def _open_from(pattern: list[str], places: set[int]) -> set[int]:
    """These, and what lies behind each `#` that they stand before."""
    opened = set(places)
    for place in sorted(places):
        while place < len(pattern) and pattern[place] == ANY_WORDS:
            place += 1
            opened.add(place)
    return opened


def same_for_all(pattern: list[str]) -> list[str]:
    """One spelling for all patterns that match the same: beside each other, first each `*`, then one `#` for all."""
    words: list[str] = []
    is_open = False
    for word in (*pattern, None):
        if word == ANY_WORDS:
            is_open = True
        elif word == ANY_WORD:
            words.append(word)
        else:
            words += [ANY_WORDS] * is_open + ([] if word is None else [word])
            is_open = False
    return words


def generality(pattern: list[str]) -> tuple[bool, int, int, int, list[int], list[str]]:
    """A sort key: sorts from specific to general, and no two patterns are equal.

    A narrower pattern has no `#` where the wider one has none. It has as many literal words or more; if as many, then
    as many `*` or more; if as many too, then `#` at fewer places.
    """
    ranks = [{ANY_WORD: 1, ANY_WORDS: 2}.get(word, 0) for word in same_for_all(pattern)]
    literal, single, open_ = ranks.count(0), ranks.count(1), ranks.count(2)
    said = (-literal, -single) if open_ else (0, 0)
    return open_ > 0, *said, open_, ranks, pattern


def setting_at(options: AddressSettingsOptions, address: str, name: str) -> Any:
    """What one setting is at an address."""
    words = address.split(DELIMITER)
    said = [
        (generality(pattern), match.values[name])
        for match in options.matches
        if name in match.values and matches(pattern := match.match.split(DELIMITER), words)
    ]
    return min(said, key=lambda pair: pair[0])[1] if said else getattr(options.built_in, name)


def address_items(address: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The beginnings of names that an option `address` includes, and those that it excludes."""
    items = [item.strip() for item in address.split(",")]
    included = tuple(item for item in items if item and not item.startswith(EXCLUDED))
    excluded = (item[len(EXCLUDED) :].strip() for item in items if item.startswith(EXCLUDED))
    return included, tuple(item for item in excluded if item)
