"""LIKE: patterns of literal characters, `_` for one character and `%` for any number of them.

A pattern is cut at its `%` into pieces. Each piece has a fixed length, so taking its leftmost place is always right and
nothing is ever tried twice: the pieces together pass over the text once. Pieces with `_` run as a row of bits
(Shift-And), one step a character. No regular expressions: theirs would try all ways to share out a text among many `%`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

Matcher = Callable[[str], bool]

ANY_ONE: Final = None  # in a piece: `_`

LikePiece = tuple[str | None, ...]


def compile_like(pattern: str, escape: str | None) -> Matcher | None:
    """Whether a whole text has the form of `pattern`; None where its last character escapes nothing.

    `escape` is one character that takes the meaning from what follows it.
    """
    pieces = _pieces(pattern, escape)
    if pieces is None:
        return None
    first, *others = [_Piece(each) for each in pieces]
    if not others:
        return lambda text: len(text) == first.length and first.is_at(text, 0)
    last = others.pop()
    middle = [each for each in others if each.length]
    shortest = first.length + last.length + sum(each.length for each in middle)

    def matches(text: str) -> bool:
        end = len(text) - last.length
        if len(text) < shortest or not first.is_at(text, 0) or not last.is_at(text, end):
            return False
        at = first.length
        for piece in middle:
            at = piece.behind(text, at, end)
            if at < 0:
                return False
        return True

    return matches


def _pieces(pattern: str, escape: str | None) -> list[LikePiece] | None:
    pieces: list[list[str | None]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None:
                return None
            pieces[-1].append(escaped)
        elif character == "%":
            pieces.append([])
        else:
            pieces[-1].append(ANY_ONE if character == "_" else character)
    return [tuple(piece) for piece in pieces]


class _Piece:
    """What stands between two `%`."""

    __slots__ = ("_final", "_literal", "_masks", "_open", "length")

    def __init__(self, piece: LikePiece) -> None:
        self.length = len(piece)
        self._literal = None if ANY_ONE in piece else "".join(each or "" for each in piece)
        self._open = 0  # bits of the places that take any character
        self._masks: dict[str, int] = {}  # character: bits of the places that take it
        for place, character in enumerate(piece):
            if character is ANY_ONE:
                self._open |= 1 << place
            else:
                self._masks[character] = self._masks.get(character, 0) | 1 << place
        self._final = 1 << self.length >> 1

    def is_at(self, text: str, at: int) -> bool:
        if self._literal is not None:
            return text.startswith(self._literal, at)
        return self.behind(text, at, at + self.length) >= 0

    def behind(self, text: str, at: int, end: int) -> int:
        """The offset behind the leftmost place in `text[at:end]`, -1 if there is none."""
        if self._literal is not None:
            start = text.find(self._literal, at, end)
            return start + self.length if start >= 0 else -1
        begun = 0
        for index in range(at, end):
            begun = (begun << 1 | 1) & (self._masks.get(text[index], 0) | self._open)
            if begun & self._final:
                return index + 1
        return -1
