"""Frames and protocol headers, whole and byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.base.errors import PeerFault, Scope
from mqbroker.wire import frames

from tests.unit.wire import strategies

framed = st.builds(
    lambda channel, body, payload, kind: (frames.encode_frame(channel, body, payload, kind), body + payload, channel),
    st.integers(0, 2**16 - 1),
    st.binary(max_size=200),
    st.binary(max_size=200),
    st.sampled_from([frames.AMQP_FRAME, frames.SASL_FRAME]),
)


@strategies.steady
@given(st.lists(framed, max_size=5))
def test_one_byte_at_a_time_equals_all_at_once(sent: list[tuple[bytes, bytes, int]]) -> None:
    stream = b"".join(raw for raw, _, _ in sent)
    at_once, bytewise = [], []
    offset = 0
    while frame := frames.frame_at(stream, offset, len(stream), 512):
        at_once.append(frame)
        offset = frame.end
    offset = 0
    for limit in range(len(stream) + 1):
        if frame := frames.frame_at(stream, offset, limit, 512):
            bytewise.append(frame)
            offset = frame.end
    assert at_once == bytewise
    assert [(stream[f.body_offset : f.end], f.channel) for f in at_once] == [
        (body, channel) for _, body, channel in sent
    ]


def test_extended_header_is_left_out() -> None:
    raw = bytes.fromhex("00000010 03 00 0007 deadbeef 00531845")
    assert frames.frame_at(raw, 0, len(raw), 512) == frames.Frame(0, 7, 12, 16)


def test_empty_frame() -> None:
    assert frames.encode_frame(0, b"") == frames.EMPTY_FRAME
    assert frames.frame_at(frames.EMPTY_FRAME, 0, 8, 512) == frames.Frame(0, 0, 8, 8)


def test_payload_may_be_a_view() -> None:
    assert frames.encode_frame(1, b"ab", memoryview(b"xcdx")[1:3]) == bytes.fromhex("0000000c 02 00 0001") + b"abcd"


@pytest.mark.parametrize("header", [frames.AMQP_HEADER, frames.SASL_HEADER, frames.TLS_HEADER, b"AMQP\x00\x01\x01\x00"])
def test_headers_arrive_in_pieces(header: bytes) -> None:
    stream = b"xx" + header + b"behind"
    for limit in range(2, 10):
        assert frames.header_at(stream, 2, limit) is None
    assert frames.header_at(stream, 2, 10) == frames.header_at(stream, 2, len(stream)) == header


@pytest.mark.parametrize("stream", [b"G", b"AMQX", b"\x16\x03\x01\x02\x00", b"HELO\x00\x01\x00\x00", b"ANY"])
def test_what_is_no_header_is_found_at_its_first_wrong_byte(stream: bytes) -> None:
    with pytest.raises(PeerFault, match="amqp:connection:framing-error") as caught:
        frames.header_at(stream, 0, len(stream))
    assert caught.value.scope is Scope.CONNECTION
