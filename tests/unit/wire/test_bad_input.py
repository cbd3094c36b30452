"""Bad input from published advisories and the specification's limits: the right fault, in little time and memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from mqbroker.base.errors import PeerFault, Scope
from mqbroker.wire import codes, frames
from mqbroker.wire import performatives as p
from mqbroker.wire import sections as s
from mqbroker.wire.types import Described, Symbol, UInt, ULong, decode_value, encode_value

from tests.support.processor import processor_time, yardstick_s

FRAMING = "amqp:connection:framing-error"
DECODE = "amqp:decode-error"


@contextmanager
def refused(condition: str, scope: Scope = Scope.CONNECTION) -> Iterator[None]:
    """A fault of `condition`, found in little time and 256 KiB: a limit that holds only in the end is none."""
    tracemalloc.start()
    with processor_time() as seconds:
        with pytest.raises(PeerFault) as caught:
            yield
        took_s, peak = seconds(), tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (caught.value.condition, caught.value.scope) == (condition, scope)
    assert took_s < 8 * yardstick_s()
    assert peak < 256 * 1024


def test_case_1_frame_of_four_gigabytes_is_refused_by_its_size_alone() -> None:
    with refused(FRAMING):
        frames.frame_at(b"\xff\xff\xff\xff", 0, 4, 65536)


@pytest.mark.parametrize("size", range(8))
def test_case_2_frame_smaller_than_its_header(size: int) -> None:
    with refused(FRAMING):
        frames.frame_at(size.to_bytes(4), 0, 4, 65536)


@pytest.mark.parametrize("preamble", ["00000008 00 00 0000", "00000008 01 00 0000", "00000008 03 00 0000",
                                      "0000000b 03 00 0000", "00000200 ff 00 0000"])  # fmt: skip
def test_case_2_data_offset_below_two_or_past_the_end(preamble: str) -> None:
    """Found with the preamble: the rest of the frame is not there yet."""
    with refused(FRAMING):
        frames.frame_at(bytes.fromhex(preamble), 0, 8, 65536)


def test_case_2_amqp_frame_during_sasl() -> None:
    raw = frames.encode_frame(0, p.encode(p.Open("early")))
    with refused(FRAMING):
        frames.frame_at(raw, 0, len(raw), 512, frames.SASL_FRAME)


def test_case_2_amqp_performative_in_a_sasl_frame() -> None:
    raw = frames.encode_frame(0, p.encode(p.Open("early")), type=frames.SASL_FRAME)
    frame = frames.frame_at(raw, 0, len(raw), 512, frames.SASL_FRAME)
    assert frame is not None
    with refused("amqp:invalid-field"):
        p.decode_frame(raw, frame)


@pytest.mark.parametrize("maximum", [512, 4096, 65536])
def test_case_3_frame_above_the_maximum(maximum: int) -> None:
    fits = frames.encode_frame(0, b"x" * (maximum - 8))
    assert frames.frame_at(fits, 0, len(fits), maximum) is not None
    with refused(FRAMING):
        frames.frame_at((maximum + 1).to_bytes(4), 0, 4, maximum)


@pytest.mark.parametrize("size", [0, 1, 511])
def test_case_4_peer_maximum_below_512(size: int) -> None:
    raw = encode_value(Described(ULong(0x10), ["peer", None, UInt(size)]))
    with refused("amqp:invalid-field"):
        p.decode_performative(raw, 0, len(raw))


@pytest.mark.parametrize("code", sorted(codes.ZERO_WIDTH))
def test_case_5_array_of_four_billion_values_without_width(code: int) -> None:
    array = b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff" + bytes((code,))
    with refused(DECODE):
        decode_value(array, 0, len(array))
    raw = b"\x00\x53\x10\xc0" + bytes((1 + 3 + 8 + len(array), 10)) + b"\xa1\x01x" + b"\x40" * 8 + array
    with refused("amqp:invalid-field"):
        p.decode_performative(raw, 0, len(raw))
    named = b"\xd1\x00\x00\x00\x11\x00\x00\x00\x02\xa3\x01x" + array
    raw = b"\x00\x53\x10\xc0" + bytes((1 + 3 + 8 + len(named), 10)) + b"\xa1\x01x" + b"\x40" * 8 + named
    with refused(DECODE):
        p.decode_performative(raw, 0, len(raw))


@pytest.mark.slow
def test_case_5_many_arrays_of_values_without_width_stay_small() -> None:
    """As many arrays as a frame of 64 KiB holds, each with as many values as it may have."""
    array = b"\xe0\x02" + bytes((codes.ZERO_WIDTH_COUNT_MAX, codes.NULL))
    count = 65000 // len(array)
    raw = b"\xd0" + (count * len(array) + 4).to_bytes(4) + count.to_bytes(4) + array * count
    tracemalloc.start()
    decode_value(raw, 0, len(raw))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * 1024 * 1024


@pytest.mark.parametrize("count", ["ffffffff", "0000ffff", "00000005"])
@pytest.mark.parametrize("code", ["d0", "d1", "f0"])
def test_case_6_counts_above_the_bytes_that_are_there(code: str, count: str) -> None:
    raw = bytes.fromhex(code + "00000008" + count + "50404040")
    with refused(DECODE):
        decode_value(raw, 0, len(raw))


def _nested(opening: Any, depth: int) -> bytes:
    raw = b"\x40"
    for _ in range(depth):
        raw = opening(raw)
    return raw


NESTINGS: dict[str, Any] = {
    "list8": lambda inner: b"\xc0" + bytes((min(255, len(inner) + 1), 1)) + inner,
    "list32": lambda inner: b"\xd0" + (len(inner) + 4).to_bytes(4) + b"\0\0\0\x01" + inner,
    "map32": lambda inner: b"\xd1" + (len(inner) + 5).to_bytes(4) + b"\0\0\0\x02" + b"\x41" + inner,
    "array32": lambda inner: b"\xf0" + (len(inner) + 4).to_bytes(4) + b"\0\0\0\x01" + inner,
    "described value": lambda inner: b"\x00\x53\x01" + inner,
    "descriptor": lambda inner: b"\x00" + inner + b"\x40",
}


@pytest.mark.parametrize("depth", [33, 10_000])
@pytest.mark.parametrize("opening", NESTINGS.values(), ids=NESTINGS)
def test_case_7_values_nested_too_deep(opening: Any, depth: int) -> None:
    raw = _nested(opening, depth)
    with refused(DECODE):
        decode_value(raw, 0, len(raw))


@pytest.mark.parametrize("depth", [33, 10_000])
def test_case_7_descriptors_of_an_array_nested_too_deep(depth: int) -> None:
    body = b"\x00\x53\x01" * depth + b"\x50\x01"
    raw = b"\xf0" + (len(body) + 4).to_bytes(4) + b"\0\0\0\x01" + body
    with refused(DECODE):
        decode_value(raw, 0, len(raw))


@pytest.mark.parametrize("opening", ["list8", "list32", "map32", "described value", "descriptor"])
def test_case_7_depth_of_32_is_decoded(opening: str) -> None:
    raw = _nested(NESTINGS[opening], codes.DEPTH_MAX)
    assert decode_value(raw, 0, len(raw))[1] == len(raw)


def test_case_7_nesting_in_a_field_of_a_performative() -> None:
    deep = _nested(NESTINGS["list32"], 10_000)
    named = b"\xd1" + (len(deep) + 7).to_bytes(4) + b"\0\0\0\x02\xa3\x01x" + deep
    fields = b"\xa1\x01x" + b"\x40" * 8 + named
    raw = b"\x00\x53\x10\xd0" + (len(fields) + 4).to_bytes(4) + b"\0\0\0\x0a" + fields
    with refused(DECODE):
        p.decode_performative(raw, 0, len(raw))


def test_case_7_nesting_in_a_message() -> None:
    """The scan steps over it, whatever is inside; who looks inside gets the fault, on the link."""
    raw = b"\x00\x53\x77" + _nested(NESTINGS["list32"], 10_000)
    assert s.scan_sections(raw, 0, len(raw)).body == 0
    with refused(DECODE, Scope.LINK):
        s.describe_message(raw)


@pytest.mark.parametrize("code", ["b0", "b1", "b3", "d0", "d1", "f0"])
@pytest.mark.parametrize("size", ["00000009", "7fffffff", "80000000", "ffffffff"])
def test_case_8_sizes_longer_than_the_frame(code: str, size: str) -> None:
    raw = bytes.fromhex(code + size + "00000001" + "40404040")
    with refused(DECODE):
        decode_value(raw, 0, len(raw))


@pytest.mark.parametrize("code", ["a0", "a1", "a3", "c0", "c1", "e0"])
def test_case_8_short_sizes_longer_than_the_frame(code: str) -> None:
    raw = bytes.fromhex(code + "05" + "01404040")
    with refused(DECODE):
        decode_value(raw, 0, len(raw))


def test_case_8_size_longer_than_its_surroundings_inside_the_frame() -> None:
    """The bytes are there, but they belong to what follows the compound."""
    raw = bytes.fromhex("c0 04 01 a105 61") + b"bcdefgh"
    with refused(DECODE):
        decode_value(raw, 0, len(raw))


def test_maps_cannot_be_made_slow_by_keys_that_collide() -> None:
    """Numbers hash predictably, but no type has more than a few values of one hash; UUIDs hash with a secret seed."""
    modulus = 2**61 - 1
    keys = [(n * modulus).to_bytes(16) for n in range(1, 3000)]
    body = b"".join(b"\x98" + key + b"\x40" for key in keys)
    raw = b"\xd1" + (len(body) + 4).to_bytes(4) + (2 * len(keys)).to_bytes(4) + body
    with processor_time() as seconds:
        assert len(decode_value(raw, 0, len(raw))[0]) == len(keys)
        assert seconds() < 8 * yardstick_s()


def test_faults_do_not_repeat_much_of_what_was_sent() -> None:
    raw = encode_value(Described(Symbol("x" * 5000), []))
    with pytest.raises(PeerFault) as caught:
        p.decode_performative(raw, 0, len(raw))
    assert len(caught.value.description) < 200
