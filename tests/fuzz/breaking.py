"""Bytes and JSON as a stranger, a bad disk or a hostile neighbour would have them: cut off, flipped, of other types.

The same input, or the same generator, gives the same things. Nothing here knows what the bytes mean; who does gives
them the checksum or the MAC that fits (rooms.py).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

# What JSON may say in place of anything: other types, bounds, texts that are no names.
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**32, 2**53, 2**63 - 1, 2**64, -(2**63), 1.5, 1e308, float("inf"), "", "x",
    "7", "\0", "a/b::c", "#", "\u00e9" * 40, "x" * 300, "\ud800", [], [None], [[]], ["x", 1], {}, {"x": None},
    {"": {"": []}},
)  # fmt: skip
# Texts in place of a whole document.
TEXTS: tuple[bytes, ...] = (
    b"", b"\0", b"\xff\xfe", b"{", b"{}", b"[]", b"null", b"7", b'"x"', b"{}{}", b'{"a":1,"a":2}', b"NaN",
    b'{"a":Infinity}', b"\xef\xbb\xbf{}", b"[" * 5000, b'{"a":' * 5000, b'"\\ud800"', b"9" * 5000,
)  # fmt: skip


def broken(raw: bytes, step: int = 1) -> Iterator[bytes]:
    """Cut at each byte, each byte as another one of those that mean most, something behind it, twice."""
    for place in range(0, len(raw), step):
        yield raw[:place]
        for value in {0, 0xFF, raw[place] ^ 1, raw[place] ^ 0x80} - {raw[place]}:
            yield raw[:place] + bytes([value]) + raw[place + 1 :]
    yield raw + b"\0"
    yield raw + raw


def broken_rows(row: Any) -> Iterator[Any]:
    """A JSON value with each of its parts, at any depth, as every other one, or missing; and with a key more."""
    yield from VALUES
    if isinstance(row, dict):
        yield row | {"something-new": 1}
        for key, value in row.items():
            yield {name: each for name, each in row.items() if name != key}
            for other in broken_rows(value):
                yield row | {key: other}
    elif isinstance(row, list):
        yield row + row
        for place, value in enumerate(row):
            yield row[:place] + row[place + 1 :]
            for other in broken_rows(value):
                yield [*row[:place], other, *row[place + 1 :]]


def broken_json(text: bytes) -> Iterator[bytes]:
    """A document with its values broken, and texts that are none."""
    yield from TEXTS
    for each in broken_rows(json.loads(text)):
        yield json.dumps(each, separators=(",", ":")).encode()


def mutated_json(rng: random.Random, text: bytes) -> bytes:
    """A document with one to three values as other ones, or gone."""
    row = json.loads(text)
    for _ in range(rng.choice((1, 1, 2, 3))):
        row = _mutated(rng, row)
    return json.dumps(row, separators=(",", ":")).encode()


def _mutated(rng: random.Random, row: Any) -> Any:
    if not row or not isinstance(row, dict | list) or rng.random() < 0.2:
        return rng.choice(VALUES)
    if isinstance(row, list):
        place = rng.randrange(len(row))
        rest = [] if rng.random() < 0.2 else [_mutated(rng, row[place])]
        return [*row[:place], *rest, *row[place + 1 :]]
    key = rng.choice(sorted(row))
    if rng.random() < 0.2:
        return {name: value for name, value in row.items() if name != key}
    return row | {key: _mutated(rng, row[key])}
