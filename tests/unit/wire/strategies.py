"""Hypothesis strategies for AMQP values and composites, and a comparison that sees types."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args, get_type_hints

from hypothesis import settings
from hypothesis import strategies as st
from mqbroker.wire import performatives as p
from mqbroker.wire import sections as s
from mqbroker.wire import types as t

# As tests/conftest.py says: the same examples in every run of the checks, fresh ones in a soak.
steady = settings(deadline=None)
steady_few = settings(steady, max_examples=40)


def _ints(kind: type, low: int, high: int) -> st.SearchStrategy[Any]:
    return st.integers(low, high).map(kind)


_RANGES: list[tuple[type, int, int]] = [
    (t.UByte, 0, 2**8 - 1), (t.UShort, 0, 2**16 - 1), (t.UInt, 0, 2**32 - 1), (t.ULong, 0, 2**64 - 1),
    (t.Byte, -(2**7), 2**7 - 1), (t.Short, -(2**15), 2**15 - 1), (t.Int, -(2**31), 2**31 - 1),
    (t.Long, -(2**63), 2**63 - 1), (t.Timestamp, -(2**63), 2**63 - 1),
]  # fmt: skip

symbols = st.text(st.characters(max_codepoint=127), max_size=300).map(t.Symbol)
texts = st.text(max_size=100)
blobs = st.binary(max_size=300)
characters = st.characters(exclude_categories=["Cs"])

scalars: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), symbols, texts, blobs, characters.map(t.Char),
    st.floats(allow_nan=False), st.floats(allow_nan=False, width=32).map(t.Float),
    *(_ints(*row) for row in _RANGES),
    st.binary(min_size=4, max_size=4).map(t.Decimal32), st.binary(min_size=8, max_size=8).map(t.Decimal64),
    st.binary(min_size=16, max_size=16).map(t.Decimal128), st.binary(min_size=16, max_size=16).map(t.Uuid),
)  # fmt: skip

# What an array of each constructor holds: plain values, for the constructor says the type.
_short = st.binary(max_size=40)
_elements: dict[int, st.SearchStrategy[Any]] = {
    0x40: st.none(), 0x41: st.just(True), 0x42: st.just(False), 0x43: st.just(0), 0x44: st.just(0),
    0x45: st.builds(list),
    0x50: st.integers(0, 255), 0x51: st.integers(-128, 127), 0x52: st.integers(0, 255), 0x53: st.integers(0, 255),
    0x54: st.integers(-128, 127), 0x55: st.integers(-128, 127), 0x56: st.booleans(),
    0x60: st.integers(0, 2**16 - 1), 0x61: st.integers(-(2**15), 2**15 - 1),
    0x70: st.integers(0, 2**32 - 1), 0x71: st.integers(-(2**31), 2**31 - 1),
    0x72: st.floats(allow_nan=False, width=32), 0x73: characters.map(t.Char),
    0x74: st.binary(min_size=4, max_size=4), 0x80: st.integers(0, 2**64 - 1),
    0x81: st.integers(-(2**63), 2**63 - 1), 0x82: st.floats(allow_nan=False), 0x83: st.integers(-(2**63), 2**63 - 1),
    0x84: st.binary(min_size=8, max_size=8), 0x94: st.binary(min_size=16, max_size=16),
    0x98: st.binary(min_size=16, max_size=16),
    0xA0: _short, 0xA1: st.text(max_size=20), 0xA3: symbols.filter(lambda value: len(value) < 256),
    0xB0: _short, 0xB1: st.text(max_size=20), 0xB3: symbols,
}  # fmt: skip


def _array_of(code: int, element: st.SearchStrategy[Any]) -> st.SearchStrategy[t.Array]:
    descriptors = st.lists(st.one_of(symbols, _ints(t.ULong, 0, 2**64 - 1)), max_size=2).map(tuple)
    return st.builds(t.Array, st.just(code), st.lists(element, max_size=8).map(tuple), descriptors)


arrays: st.SearchStrategy[t.Array] = st.sampled_from(sorted(_elements)).flatmap(
    lambda code: _array_of(code, _elements[code])
)


def _compound(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    maps = st.dictionaries(scalars, inner, max_size=4)
    return st.one_of(
        st.lists(inner, max_size=5),
        maps,
        st.builds(t.Described, inner, inner),
        _array_of(0xD0, st.lists(inner, max_size=3)),
        _array_of(0xD1, maps),
        _array_of(0xF0, arrays),
    )


values: st.SearchStrategy[Any] = st.recursive(st.one_of(scalars, arrays), _compound, max_leaves=12)
field_maps = st.dictionaries(symbols, values, max_size=3)


def typed(value: Any) -> Any:
    """`value` with the type of each part beside it, so that UInt(1), Long(1) and True differ, and -0.0 from 0.0."""
    if isinstance(value, list):
        return ["list", *map(typed, value)]
    if isinstance(value, dict):
        return ["dict", *((typed(key), typed(held)) for key, held in value.items())]
    if isinstance(value, t.Array):
        return ["array", value.constructor, typed(list(value.values)), typed(list(value.descriptors))]
    if isinstance(value, t.Described):
        return ["described", typed(value.descriptor), typed(value.value)]
    return type(value), repr(value)


# -- composites, from the annotations of their fields -----------------------------------------------------------------

_BOUNDED: dict[tuple[type, str], st.SearchStrategy[Any]] = {
    (p.Open, "max_frame_size"): st.integers(512, 2**32 - 1),
    (p.Open, "channel_max"): st.integers(0, 2**16 - 1),
    (p.Attach, "snd_settle_mode"): st.integers(0, 2),
    (p.Attach, "rcv_settle_mode"): st.integers(0, 1),
    (p.Transfer, "rcv_settle_mode"): st.integers(0, 1),
    (p.Transfer, "delivery_tag"): st.binary(max_size=32),
    (p.Attach, "unsettled"): st.dictionaries(blobs, values, max_size=3),
    (p.Source, "distribution_mode"): st.sampled_from(["move", "copy"]).map(t.Symbol),
    (p.SaslOutcome, "code"): st.integers(0, 4),
    (p.Declare, "global_id"): scalars,
    (s.Header, "priority"): st.integers(0, 255),
}
_policies = st.sampled_from(["link-detach", "session-end", "connection-close", "never"]).map(t.Symbol)
_ids = st.one_of(_ints(t.ULong, 0, 2**64 - 1), st.binary(min_size=16, max_size=16).map(t.Uuid), blobs, texts)
_BY_KIND: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(), "ubyte": st.integers(0, 255), "ushort": st.integers(0, 2**16 - 1),
    "uint": st.integers(0, 2**32 - 1), "ulong": st.integers(0, 2**64 - 1),
    "timestamp": st.integers(-(2**63), 2**63 - 1), "binary": blobs, "string": texts, "symbol": symbols,
    "symbols": st.lists(symbols, max_size=3).map(tuple), "fields": field_maps, "any": _ids,
}  # fmt: skip


def _field_strategy(made: type, name: str, hint: Any) -> st.SearchStrategy[Any]:
    held, kind = get_args(hint)
    optional = type(None) in get_args(held)
    if (made, name) in _BOUNDED:
        found = _BOUNDED[made, name]
    elif name == "durable" and made in (p.Source, p.Target):
        found = st.integers(0, 2)
    elif name == "expiry_policy":
        found = _policies
    elif kind.name in _BY_KIND:
        found = _BY_KIND[kind.name]
    else:
        nested = get_args(held) if optional else (held,)
        found = st.one_of(*(composite(each) for each in nested if each is not type(None)))
    return st.none() | found if optional else found


def composite(made: Any) -> st.SearchStrategy[Any]:
    hints = get_type_hints(made, include_extras=True)
    fields = {each.name: _field_strategy(made, each.name, hints[each.name]) for each in dataclasses.fields(made)}
    return st.builds(made, **fields)


PERFORMATIVES: tuple[type, ...] = (
    p.Open, p.Begin, p.Attach, p.Flow, p.Transfer, p.Disposition, p.Detach, p.End, p.Close,
    p.SaslMechanisms, p.SaslInit, p.SaslChallenge, p.SaslResponse, p.SaslOutcome,
)  # fmt: skip
OTHER_COMPOSITES: tuple[type, ...] = (
    p.Error, p.Received, p.Accepted, p.Rejected, p.Released, p.Modified, p.Declare, p.Discharge, p.Declared,
    p.TransactionalState, p.Source, p.Target, p.Coordinator, s.Header, s.Properties,
)  # fmt: skip
performatives: st.SearchStrategy[Any] = st.sampled_from(PERFORMATIVES).flatmap(composite)
composites: st.SearchStrategy[Any] = st.sampled_from(PERFORMATIVES + OTHER_COMPOSITES).flatmap(composite)
