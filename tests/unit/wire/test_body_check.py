"""Bodies in pieces against the same bodies as a whole: what is found does not depend on where they are cut."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.base.errors import PeerFault
from mqbroker.wire.body_check import FOOTER_BYTES_MAX, BodyCheck
from mqbroker.wire.codes import DEPTH_MAX
from mqbroker.wire.large import body_offset
from mqbroker.wire.run import single
from mqbroker.wire.sections import encode_section
from mqbroker.wire.walk import VALUES_MAX
from mqbroker.wire.wellformed import Forms

from tests.support.malformed import FOOTER, MALFORMED, MESSAGES, listed, mapped, section
from tests.unit.wire.strategies import steady, values


def why_in_pieces(body: bytes, sizes: list[int]) -> str:
    check = BodyCheck(0)
    try:
        at = 0
        for size in sizes:
            check.feed(body[at : at + size])
            at += size
        check.feed(body[at:])
        check.finish()
    except PeerFault as fault:
        return fault.description
    return ""


def why_as_a_whole(body: bytes) -> str:
    found = Forms().malformed(single(body))
    return "" if found is None else found.why


def is_same(body: bytes, sizes: list[int]) -> bool:
    return bool(why_in_pieces(body, sizes)) == bool(why_as_a_whole(body))


BODIES = {
    name: payload[body_offset(payload) or 0 :] for name, payload in {**MALFORMED, **MESSAGES}.items()
    if body_offset(payload) is not None
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_each_at_once_and_byte_by_byte(name: str) -> None:
    body = BODIES[name]
    assert bool(why_in_pieces(body, [])) == bool(why_as_a_whole(body))
    for size in (1, 2, 7):
        assert bool(why_in_pieces(body, [size] * (len(body) // size))) == bool(why_as_a_whole(body))


@pytest.mark.slow
@steady
@given(values, st.binary(max_size=40), st.integers(0, 1 << 30))
def test_any_body_cut_anywhere_and_spoilt(value: object, blob: bytes, seed: int) -> None:
    rng = random.Random(seed)
    kind = rng.randrange(4)
    body = {
        0: lambda: encode_section(0x77, value), 1: lambda: encode_section(0x75, blob) * 3,
        2: lambda: encode_section(0x76, [value, value]) * 2, 3: lambda: encode_section(0x77, value) + FOOTER,
    }[kind]()  # fmt: skip
    spoilt = bytearray(body)
    for _ in range(rng.randrange(3)):
        spoilt[rng.randrange(3, len(spoilt))] = rng.choice((rng.randrange(256), 0x40, 0xA1, 0xC0, 0xE0, 0x00))
    if rng.random() < 0.2:
        del spoilt[rng.randrange(4, len(spoilt)) :]
    data = bytes(spoilt)
    assert is_same(data, [])
    assert is_same(data, [1] * len(data))
    assert is_same(data, [rng.randrange(1, 9) for _ in range(len(data) // 4)])


def test_a_character_may_be_cut_between_pieces_and_not_by_the_end() -> None:
    text = "ä€😀".encode() * 3
    good = section(0x77, b"\xb1" + len(text).to_bytes(4, "big") + text)
    for cut in range(len(good)):
        assert why_in_pieces(good, [cut]) == ""
    bad = section(0x77, listed(b"\xa1\x02a\xc3", b"\xa1\x02\xa4b"))
    assert why_in_pieces(bad, [len(bad) - 4])


def test_where_it_is_wrong_is_counted_from_the_beginning_of_the_message() -> None:
    check = BodyCheck(1000)
    check.feed(b"\x00\x53\x75\xa0\x04bo")
    with pytest.raises(PeerFault, match="unknown section 121 at byte 1009"):
        check.feed(b"dy" + b"\x00\x53\x79\xa0\x01x" * 20)


def test_a_footer_in_pieces_is_bounded() -> None:
    check = BodyCheck(0)
    check.feed(b"\x00\x53\x75\xa0\x00" + section(0x78, mapped(b"\xa3\x01k", b"\xb0\x00\x10\x00\x00"))[:-4])
    with pytest.raises(PeerFault, match="footer"):
        check.feed(bytes(FOOTER_BYTES_MAX))


@pytest.mark.parametrize("body", [
    section(0x77, listed(*[b"\xa1\x00"] * (VALUES_MAX + 5))), section(0x77, listed(*[b"\x40"] * (VALUES_MAX + 5))),
    section(0x77, listed(*[b"\x56\x01"] * (VALUES_MAX + 5))),
])  # fmt: skip
def test_more_values_than_are_looked_into_are_a_message(body: bytes) -> None:
    assert why_as_a_whole(body) == ""
    assert why_in_pieces(body, [1000]) == ""
    assert why_as_a_whole(body[:-1])
    assert why_in_pieces(body[:-1], [1000])


def described(count: int, value: bytes) -> bytes:
    return b"\x00\x53\x01" * count + value


def array_of(constructor: bytes) -> bytes:
    """One value of two bytes."""
    return b"\xe0" + bytes((len(constructor) + 2, 1)) + constructor + b"\x01"


NESTED = {
    "descriptors of a value": lambda count: described(count, b"\x40"),
    "descriptors of an array's values": lambda count: array_of(described(count, b"\x50")),
    "lists": lambda count: listed(NESTED["lists"](count - 1)) if count else b"\x40",
    "lists in descriptors": lambda count: described(count // 2, NESTED["lists"](count - count // 2)),
    "an array in lists": lambda count: (
        listed(NESTED["an array in lists"](count - 1)) if count > 3 else array_of(described(count, b"\x50"))
    ),
}


@pytest.mark.parametrize("name", NESTED)
def test_what_is_too_deep_is_so_in_pieces_as_well(name: str) -> None:
    found = []
    for count in range(DEPTH_MAX + 5):
        body = section(0x77, NESTED[name](count))
        whole = why_as_a_whole(body)
        found.append(bool(whole))
        for size in (1, 3, len(body)):
            assert bool(why_in_pieces(body, [size] * (len(body) // size))) == bool(whole), (count, size)
    assert found == sorted(found)
    assert {False, True} == set(found)
