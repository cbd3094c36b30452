"""Literals of selectors: numbers as Java writes them, texts and names in quotes.

Source: Jakarta Messaging 3.1, 3.8.1.1; The Java Language Specification, 3.10.1 and 3.10.2.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import isinf
from typing import Final

from mqbroker.core.selector.terms import refusal

# A property may be an AMQP ulong, so literals reach further than Java's long.
EXACT_MAX: Final = 2**64 - 1

_DIGITS = r"[0-9](?:_*[0-9])*"
_FORMS: Final[tuple[tuple[re.Pattern[str], Callable[[str], int | float]], ...]] = (
    (re.compile(r"0[xX][0-9a-fA-F](?:_*[0-9a-fA-F])*[lL]?"), lambda text: int(text.rstrip("lL"), 16)),
    (re.compile(r"0[bB][01](?:_*[01])*[lL]?"), lambda text: int(text.rstrip("lL"), 2)),
    (re.compile(r"0_*[0-7](?:_*[0-7])*[lL]?"), lambda text: int(text.rstrip("lL"), 8)),
    (re.compile(r"(?:0|[1-9](?:_*[0-9])*)[lL]?"), lambda text: int(text.rstrip("lL"))),
    (
        re.compile(rf"(?:{_DIGITS}\.?(?:{_DIGITS})?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?[fFdD]?"),
        lambda text: float(text.rstrip("fFdD")),
    ),
    (
        re.compile(r"0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?"),
        lambda text: _hexadecimal(text.rstrip("fFdD")),
    ),
)
_OCTAL_LIKE: Final = re.compile(r"0[0-9_]+[lL]?")


def number(text: str, column: int) -> int | float:
    """The value of a numeric literal. Raises Refused."""
    if _OCTAL_LIKE.fullmatch(text) and ("8" in text or "9" in text):
        raise refusal(column, f"{text[:40]} is octal, which has digits 0 to 7; leave out the leading zero")
    for form, value_of in _FORMS:
        if form.fullmatch(text):
            value = value_of(text)
            if value > EXACT_MAX if isinstance(value, int) else isinf(value):
                bounds = "exact numbers have 64 bits, approximate ones are doubles"
                raise refusal(column, f"{text[:40]} is too large; {bounds}")
            return value
    raise refusal(column, f"{text[:40]!r} is no number; numbers look like 57, 0x39, 95.7 or 7E3")


def _hexadecimal(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return float("inf")


def unquoted(text: str) -> str:
    """What stands in quotes; a quote within is written twice."""
    return text[1:-1].replace(text[0] * 2, text[0])
