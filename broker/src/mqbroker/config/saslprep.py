"""SASLprep (RFC 4013) of names and passwords: one spelling of what looks the same, nothing that cannot be seen."""

from __future__ import annotations

import stringprep
import unicodedata
from collections.abc import Callable

from mqbroker.base.errors import ConfigFault

TEXT_CHARACTERS_MAX = 1024

PROHIBITED: tuple[tuple[Callable[[str], bool], str], ...] = (
    (stringprep.in_table_c12, "a space other than the ordinary one"),
    (stringprep.in_table_c21_c22, "a control character"),
    (stringprep.in_table_c3, "a private-use character"),
    (stringprep.in_table_c4, "a non-character"),
    (stringprep.in_table_c5, "a surrogate"),
    (stringprep.in_table_c6, "a character unfit for plain text"),
    (stringprep.in_table_c7, "an ideographic description character"),
    (stringprep.in_table_c8, "a character that changes display"),
    (stringprep.in_table_c9, "a tagging character"),
    (stringprep.in_table_a1, "a character that Unicode 3.2 does not assign"),
)


def saslprep(what: str, text: str) -> str:
    """The prepared form of `text`. Raises ConfigFault that names `what`, never the text: it may be a password."""
    if len(text) > TEXT_CHARACTERS_MAX:
        raise ConfigFault(what, f"is longer than {TEXT_CHARACTERS_MAX} characters")
    if text and text.isascii() and text.isprintable():
        return text  # nothing below applies to these, and logins should not cost a look at each character
    mapped = "".join(
        " " if stringprep.in_table_c12(character) else character
        for character in text
        if not stringprep.in_table_b1(character)
    )
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    if not prepared:
        raise ConfigFault(what, "is empty")
    for is_prohibited, name in PROHIBITED:
        if any(is_prohibited(character) for character in prepared):
            raise ConfigFault(what, f"holds {name}")
    _check_direction(what, prepared)
    return prepared


def _check_direction(what: str, text: str) -> None:
    """RFC 3454 section 6: text that runs right to left does so wholly, from its first to its last character."""
    if not any(stringprep.in_table_d1(character) for character in text):
        return
    if any(stringprep.in_table_d2(character) for character in text):
        raise ConfigFault(what, "mixes characters that run left to right with such that run right to left")
    if not (stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1])):
        raise ConfigFault(what, "runs right to left and so must begin and end with such a character")
