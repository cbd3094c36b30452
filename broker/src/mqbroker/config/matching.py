"""Patterns of addresses: words between dots, `*` for one of them, `#` for any number.

More specific is the pattern that has a literal word where the other has `*`, or `*` where the other has `#`, at the
first place where they differ. Source: Artemis's manual, "Wildcard syntax".
"""

from __future__ import annotations

from typing import Any

from mqbroker.config.slices import AddressSettingsOptions

DELIMITER, ANY_WORD, ANY_WORDS = ".", "*", "#"


def matches(pattern: list[str], words: list[str]) -> bool:
    """Whether a pattern's words match an address's. Linear: only the last `#` is ever tried again."""
    at = place = 0
    retry = retry_place = -1
    while place < len(words):
        if at < len(pattern) and pattern[at] == ANY_WORDS:
            retry, retry_place = at, place
            at += 1
        elif at < len(pattern) and pattern[at] in (ANY_WORD, words[place]):
            at, place = at + 1, place + 1
        elif retry >= 0:
            retry_place += 1
            at, place = retry + 1, retry_place
        else:
            return False
    return all(word == ANY_WORDS for word in pattern[at:])


def generality(pattern: list[str]) -> tuple[list[int], int]:
    """A sort key: sorts from specific to general; among equals the longer pattern is more specific."""
    return [{ANY_WORD: 1, ANY_WORDS: 2}.get(word, 0) for word in pattern], -len(pattern)


def setting_at(options: AddressSettingsOptions, address: str, name: str) -> Any:
    """What one setting is at an address."""
    words = address.split(DELIMITER)
    said = [
        (generality(pattern), match.values[name])
        for match in options.matches
        if name in match.values and matches(pattern := match.match.split(DELIMITER), words)
    ]
    return min(said, key=lambda pair: pair[0])[1] if said else getattr(options.built_in, name)
