"""Recorded clients: every frame decodes, and the flat decoders take what clients send often."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.wire import flat, frames
from mqbroker.wire import performatives as p
from mqbroker.wire.sections import describe_message
from mqbroker.wire.types import Symbol, UInt, ULong

from tests.unit.wire import captures


def _conversation(stream: bytes) -> list[tuple[Any, bytes]]:
    """(protocol header or performative, payload) of everything in a recorded stream."""
    found: list[tuple[Any, bytes]] = []
    offset = 0
    while offset < len(stream):
        if stream.startswith(b"AMQP", offset):
            found.append((frames.header_at(stream, offset, len(stream)), b""))
            offset += frames.HEADER_SIZE
            continue
        frame = frames.frame_at(stream, offset, len(stream), 512)
        assert frame is not None
        performative, payload = p.decode_frame(stream, frame)
        found.append((performative, stream[payload : frame.end]))
        offset = frame.end
    return found


def _names(stream: bytes) -> list[str]:
    return [each.hex() if isinstance(each, bytes) else type(each).__name__ for each, _ in _conversation(stream)]


SASL, AMQP = "414d515003010000", "414d515000010000"


def test_proton_sender() -> None:
    assert _names(captures.PROTON_SENDER) == [
        SASL, "SaslInit", AMQP, "Open", "Begin", "Attach", "Transfer", "Transfer", "Transfer", "Close",
    ]  # fmt: skip
    conversation = _conversation(captures.PROTON_SENDER)
    init = conversation[1][0]
    assert (init.mechanism, init.initial_response) == ("ANONYMOUS", b"anonymous")
    attach = conversation[5][0]
    assert (attach.role, attach.target, attach.initial_delivery_count) == (p.SENDER, p.Target("q"), 0)
    transfer, payload = conversation[7]
    assert transfer == p.Transfer(0, 1, b"2", 0)
    assert describe_message(payload) == {
        "header": {"durable": True, "priority": 4, "first_acquirer": False, "delivery_count": 0},
        "properties": {"message_id": ULong(2)},
        "application_properties": {"k": 1},
        "body_kind": "value",
        "body_encoding": "text",
        "body": "x",
    }


def test_proton_receiver() -> None:
    conversation = [each for each, _ in _conversation(captures.PROTON_RECEIVER)]
    assert conversation[1] == p.SaslMechanisms((Symbol("ANONYMOUS"),))
    assert conversation[2] == p.SaslOutcome(0)
    assert conversation[4] == p.Open("", channel_max=32767)
    assert conversation[7:9] == [
        p.Flow(0, 2**31 - 1, 0, 2**31 - 1, 0, 0, 10),
        p.Flow(3, 2**31 - 1, 0, 2**31 - 1, 0, 3, 9),
    ]
    assert conversation[9:] == [p.Disposition(p.RECEIVER, 0, 2, True, p.Accepted()), p.Close()]


def test_rhea_receiver() -> None:
    conversation = [each for each, _ in _conversation(captures.RHEA_RECEIVER)]
    assert conversation[3].source == p.Source("q")
    assert [each for each in conversation if isinstance(each, p.Disposition)] == [
        p.Disposition(p.RECEIVER, 0, 0, True, p.Accepted()),
        p.Disposition(p.RECEIVER, 1, 2, True, p.Accepted()),
    ]


def test_go_receiver() -> None:
    conversation = [each for each, _ in _conversation(captures.GO_RECEIVER)]
    assert conversation[1].max_frame_size == UInt(65536)
    assert conversation[1].idle_time_out == 30000
    assert conversation[5:] == [p.Disposition(p.RECEIVER, n, None, True, p.Accepted()) for n in range(3)]


@pytest.mark.parametrize("name", ["PROTON_SENDER", "PROTON_RECEIVER", "RHEA_RECEIVER", "GO_RECEIVER"])
def test_flat_decoders_take_what_clients_send(name: str) -> None:
    """None would be correct and slow."""
    stream = getattr(captures, name)
    offset = stream.rindex(frames.AMQP_HEADER) + frames.HEADER_SIZE
    while offset < len(stream):
        frame = frames.frame_at(stream, offset, len(stream), 512)
        assert frame is not None
        general = p.decode_frame(stream, frame)[0]
        fields = tuple(getattr(general, each) for each in general.__slots__)  # type: ignore[union-attr]
        if isinstance(general, p.Flow):
            assert flat.decode_flow_flat(stream, frame.body_offset, frame.end) == fields
        if isinstance(general, p.Disposition):
            assert flat.decode_disposition_flat(stream, frame.body_offset, frame.end) == fields
        offset = frame.end


@pytest.mark.parametrize("name", ["PROTON_SENDER", "PROTON_RECEIVER", "RHEA_RECEIVER", "GO_RECEIVER"])
def test_recorded_performatives_survive_our_encoding(name: str) -> None:
    for each, _ in _conversation(getattr(captures, name)):
        if not isinstance(each, bytes):
            raw = p.encode(each)
            assert p.decode_performative(raw, 0, len(raw)) == (each, len(raw))
