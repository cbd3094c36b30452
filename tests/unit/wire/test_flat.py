"""Flat decoders agree with the general one wherever they answer; prebuilt frames say what was asked for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.base.errors import PeerFault
from mqbroker.wire import flat, frames
from mqbroker.wire import performatives as p

from tests.unit.wire import strategies

u32 = st.integers(0, 2**32 - 1) | st.integers(0, 300)

# Encodings of one field as any client might choose them, right and wrong ones.
_uints = st.sampled_from(["40", "43", "5207", "52ff", "70000000ff", "70ffffffff", "7000000000", "5007", "41", "a10161"])
_flags = st.sampled_from(["40", "41", "42", "5600", "5601", "5602", "43"])
_states = st.sampled_from(
    ["40", "00532445", "005324c00100", "005324d00000000400000000", "00532645", "00532545", "00532745", "005327c0020141",
     "005325c00100", "00533445", "005323c003024343", "005334c00401a00101", "005334c00802a0010100532445",
     "005334c00802a0010100532545", "005334c00402a00101", "005334d00000000700000001a00101", "0080000000000000002445",
     "00a312616d71703a61636365707465643a6c69737445"]
)  # fmt: skip


def _as_list(code: int, fields: list[str], wide: bool, count_off: int) -> bytes:
    body = bytes.fromhex("".join(fields))
    count = max(0, len(fields) + count_off)
    if wide:
        return bytes((0, 0x53, code, 0xD0)) + (len(body) + 4).to_bytes(4) + count.to_bytes(4) + body
    return bytes((0, 0x53, code, 0xC0, len(body) + 1, count)) + body


@st.composite
def dispositions(draw: st.DrawFn) -> bytes:
    fields = [draw(_flags), draw(_uints), draw(_uints), draw(_flags), draw(_states), draw(_flags), "40"]
    kept = draw(st.integers(0, 7))
    return _as_list(0x15, fields[:kept], draw(st.booleans()), draw(st.sampled_from([0, 0, 0, 1, -1])))


@st.composite
def flows(draw: st.DrawFn) -> bytes:
    fields = [draw(_uints) for _ in range(8)] + [draw(_flags), draw(_flags), draw(st.sampled_from(["40", "c10100"]))]
    kept = draw(st.integers(0, 11))
    return _as_list(0x13, fields[:kept], draw(st.booleans()), draw(st.sampled_from([0, 0, 0, 1, -1])))


def _fields_of(performative: Any) -> tuple[Any, ...]:
    return tuple(getattr(performative, name) for name in performative.__slots__)


def _check_agreement(decode: Any, made: type, raw: bytes, end: int) -> bool:
    answer = decode(raw, 0, end)
    if answer is None:
        return False
    general, after = p.decode_performative(raw, 0, end)
    assert type(general) is made
    assert strategies.typed([*_fields_of(general)]) == strategies.typed([*answer])
    assert after == end
    return True


@strategies.steady
@given(dispositions(), st.binary(max_size=3))
def test_disposition_agrees_with_the_general_decoder(raw: bytes, behind: bytes) -> None:
    _check_agreement(flat.decode_disposition_flat, p.Disposition, raw + behind, len(raw))
    _check_agreement(flat.decode_disposition_flat, p.Disposition, memoryview(raw), len(raw))  # type: ignore[arg-type]
    for cut in range(len(raw)):
        assert flat.decode_disposition_flat(raw, 0, cut) is None


@strategies.steady
@given(flows(), st.binary(max_size=3))
def test_flow_agrees_with_the_general_decoder(raw: bytes, behind: bytes) -> None:
    _check_agreement(flat.decode_flow_flat, p.Flow, raw + behind, len(raw))
    _check_agreement(flat.decode_flow_flat, p.Flow, memoryview(raw), len(raw))  # type: ignore[arg-type]
    for cut in range(len(raw)):
        assert flat.decode_flow_flat(raw, 0, cut) is None


@strategies.steady
@given(st.binary(max_size=40), st.sampled_from(["13", "15"]))
def test_noise_agrees_with_the_general_decoder(noise: bytes, code: str) -> None:
    raw = bytes.fromhex("0053" + code) + noise
    decode, made = (flat.decode_flow_flat, p.Flow) if code == "13" else (flat.decode_disposition_flat, p.Disposition)
    _check_agreement(decode, made, raw, len(raw))


@strategies.steady
@given(strategies.composite(p.Flow))
def test_every_flow_of_ours_without_properties_is_taken(flow: Any) -> None:
    raw = p.encode(flow)
    assert _check_agreement(flat.decode_flow_flat, p.Flow, raw, len(raw)) == (
        not flow.properties and flow.properties is None
    )


@strategies.steady
@given(u32, u32, st.booleans(), st.booleans(), st.sampled_from([None, p.Accepted(), p.Released(), p.Rejected()]))
def test_every_plain_disposition_of_ours_is_taken(first: int, last: int, role: bool, settled: bool, state: Any) -> None:
    raw = p.encode(p.Disposition(role, first, last, settled, state))
    assert _check_agreement(flat.decode_disposition_flat, p.Disposition, raw, len(raw))


@strategies.steady
@given(u32, u32, st.booleans(), st.binary(min_size=1, max_size=32), st.sampled_from([None, p.Accepted(), p.Rejected()]))
def test_every_one_of_ours_in_a_transaction_is_taken(
    first: int, last: int, settled: bool, txn_id: bytes, outcome: Any
) -> None:
    raw = p.encode(p.Disposition(True, first, last, settled, p.TransactionalState(txn_id=txn_id, outcome=outcome)))
    assert _check_agreement(flat.decode_disposition_flat, p.Disposition, raw, len(raw))


def test_what_peers_say_of_transactions_does_not_fill_the_memory() -> None:
    for number in range(3 * flat.CACHE_SIZE_MAX):
        state = p.TransactionalState(txn_id=number.to_bytes(8, "big"), outcome=p.Accepted())
        raw = p.encode(p.Disposition(True, number, None, True, state))
        assert _check_agreement(flat.decode_disposition_flat, p.Disposition, raw, len(raw))
    long = p.encode(p.Disposition(True, 1, None, True, p.TransactionalState(txn_id=b"t" * 64)))
    assert flat.decode_disposition_flat(long, 0, len(long)) is None
    assert len(flat._transactional_tails) <= flat.CACHE_SIZE_MAX
    assert max(len(tail) for _, tail in flat._transactional_tails) <= flat.CACHED_BYTES_MAX


def test_other_performatives_are_left_to_the_general_decoder() -> None:
    for other in (p.Close(), p.Begin(None, 0, 1, 2), p.Flow(0, 1, 2, 3), p.Disposition(True, 1)):
        raw = p.encode(other)
        assert (flat.decode_flow_flat(raw, 0, len(raw)) is not None) == isinstance(other, p.Flow)
        assert (flat.decode_disposition_flat(raw, 0, len(raw)) is not None) == isinstance(other, p.Disposition)


def _decoded(raw: bytes) -> tuple[int, Any]:
    frame = frames.frame_at(raw, 0, len(raw), 512, frames.AMQP_FRAME)
    assert frame is not None
    assert frame.end == len(raw)
    performative, after = p.decode_frame(raw, frame)
    assert after == frame.end
    return frame.channel, performative


channels = st.integers(0, 2**16 - 1)


@strategies.steady
@given(channels, st.booleans(), u32, u32, st.booleans())
def test_accepting_frame(channel: int, role: bool, first: int, last: int, settled: bool) -> None:
    got, performative = _decoded(flat.encode_disposition_accepted(channel, role, first, last, settled))
    last_sent = None if first == last else last
    assert (got, performative) == (channel, p.Disposition(role, first, last_sent, settled, p.Accepted()))


@strategies.steady
@given(channels, st.tuples(u32, u32, u32, u32), st.booleans())
def test_flow_frame_of_a_session(channel: int, session: tuple[int, int, int, int], echo: bool) -> None:
    got, performative = _decoded(flat.encode_flow_frame(channel, flat.SessionFlow(*session), None, echo))
    assert (got, performative) == (channel, p.Flow(*session, None, None, None, None, False, echo))


@strategies.steady
@given(channels, st.tuples(u32, u32, u32, u32), st.tuples(u32, u32, u32, st.none() | u32, st.booleans()), st.booleans())
def test_flow_frame_of_a_link(channel: int, session: Any, link: Any, echo: bool) -> None:
    got, performative = _decoded(
        flat.encode_flow_frame(channel, flat.SessionFlow(*session), flat.LinkFlow(*link), echo)
    )
    assert (got, performative) == (channel, p.Flow(*(*session, *link, echo)))


@pytest.mark.parametrize("fields", [["42", "43", "40", "41", "005323 45"], ["41", "40"], ["41"]])
def test_malformed_ones_reach_the_general_decoder(fields: list[str]) -> None:
    raw = _as_list(0x15, fields, False, 0)
    assert flat.decode_disposition_flat(raw, 0, len(raw)) is None
    with pytest.raises(PeerFault):
        p.decode_performative(raw, 0, len(raw))


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_flow_without_a_mandatory_counter_reaches_the_general_decoder(missing: int) -> None:
    fields = ["43", "43", "43", "43"]
    fields[missing] = "40"
    raw = _as_list(0x13, fields, False, 0)
    assert flat.decode_flow_flat(raw, 0, len(raw)) is None
    with pytest.raises(PeerFault, match="amqp:invalid-field"):
        p.decode_performative(raw, 0, len(raw))
