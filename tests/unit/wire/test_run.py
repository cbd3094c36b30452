"""Runs against the general decoder and encoder, which are the reference: same ids, payloads, flags, sections."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.base.errors import PeerFault
from mqbroker.wire import header_section, run, transfer_tail
from mqbroker.wire.composites import encode_composite
from mqbroker.wire.frames import encode_frame, frame_at
from mqbroker.wire.performatives import Accepted, TransactionalState, Transfer, decode_frame, encode
from mqbroker.wire.run import (
    CANONICAL_SIZE,
    COLUMNS_MIN,
    Run,
    canonical,
    encode_payloads,
    encode_run,
    heading,
    id_columns,
    parse_run,
    payload_with_count,
    single,
)
from mqbroker.wire.scan import HEADER, section_at
from mqbroker.wire.sections import Header, build_message, decode_header
from mqbroker.wire.types import Symbol, encode_value

from tests.unit.wire.strategies import steady, steady_few

SIZE_MAX = 1 << 20
HEADERS = {
    "none": b"",
    "durable": b"\x00\x53\x70\xc0\x02\x01\x41",
    "not durable": b"\x00\x53\x70\xc0\x02\x01\x42",
    "ttl": b"\x00\x53\x70\xc0\x05\x03\x41\x40\x52\x05",
    "empty": b"\x00\x53\x70\x45",
    "wide": b"\x00\x53\x70\xd0\x00\x00\x00\x05\x00\x00\x00\x01\x41",
    "ulong": b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x70\xc0\x02\x01\x41",
    "symbol": b"\x00\xa3\x10amqp:header:list\xc0\x02\x01\x41",
}


def data(body: bytes) -> bytes:
    return b"\x00\x53\x75\xa0" + bytes([len(body)]) + body


@dataclass(frozen=True)
class Message:
    """One transfer as a peer may send it."""

    payload: bytes
    delivery_id: int
    tag: bytes = b"\x00\x00\x00\x01"
    handle: int = 0
    is_settled: bool | None = False
    channel: int = 0
    txn_id: bytes | None = None

    @property
    def frame(self) -> bytes:
        state = None if self.txn_id is None else TransactionalState(txn_id=self.txn_id)
        transfer = Transfer(handle=self.handle, delivery_id=self.delivery_id, delivery_tag=self.tag, message_format=0,
                            settled=self.is_settled, state=state)  # fmt: skip
        return encode_frame(self.channel, encode(transfer), self.payload)


@dataclass(frozen=True)
class Seen:
    """What one frame says, whoever read it."""

    handle: int
    delivery_id: int
    is_settled: bool
    payload: bytes
    is_durable: bool
    section_bytes: int
    delivery_count: int
    txn_id: bytes | None


def general(buffer: bytes, offset: int = 0) -> tuple[Seen, int]:
    """The frame at `offset` through the general decoders. Raises PeerFault."""
    frame = frame_at(buffer, offset, len(buffer), SIZE_MAX)
    assert frame is not None
    transfer, at = decode_frame(buffer, frame)
    assert isinstance(transfer, Transfer)
    assert transfer.delivery_id is not None
    payload = buffer[at : frame.end]
    header, size = Header(), 0
    if _has_header(payload):
        header, size = decode_header(payload, 0, len(payload))
    count = header.delivery_count or 0
    txn_id = transfer.state.txn_id if isinstance(transfer.state, TransactionalState) else None
    is_settled = bool(transfer.settled)
    seen = Seen(transfer.handle, transfer.delivery_id, is_settled, payload, header.durable, size, count, txn_id)
    return seen, frame.end


def _has_header(payload: bytes) -> bool:
    """Whatever stands behind a header section is for the consumer to judge."""
    try:
        return section_at(payload, 0, len(payload))[0] == HEADER
    except PeerFault:
        return payload[:3] == header_section.HEADER_LEAD


def fast(buffer: bytes, count_max: int = 1 << 16, size_max: int = SIZE_MAX) -> tuple[list[Seen], list[int]]:
    """All frames of the buffer through `parse_run`; also how many each run had. Stops at what is unusual."""
    seen: list[Seen] = []
    counts = []
    offset = 0
    while (parsed := parse_run(buffer, offset, len(buffer), count_max, size_max)) is not None:
        found, section = parsed.run, parsed.run.section
        counts.append(found.count)
        for index in range(found.count):
            delivery_id = (parsed.delivery_id + index) & 0xFFFFFFFF
            tail, payload = parsed.tail, bytes(found.payload(index))
            seen.append(Seen(parsed.handle, delivery_id, tail.is_settled, payload, section.is_durable,
                             section.size_bytes, section.delivery_count, tail.txn_id))  # fmt: skip
        assert parsed.next_offset > offset
        offset = parsed.next_offset
    return seen, counts


def parsed_run(buffer: bytes) -> Run:
    parsed = parse_run(buffer, 0, len(buffer), 1 << 16, SIZE_MAX)
    assert parsed is not None
    return parsed.run


# -- parsing ----------------------------------------------------------------------------------------------------------

bodies = st.binary(max_size=200).map(data)
ids = st.one_of(st.integers(0, 300), st.integers(0xFFFFFFF0, 0xFFFFFFFF), st.integers(0, 0xFFFFFFFF))


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """Stretches of transfers that mostly look alike, with changes of every kind between and within them."""
    delivery_id = draw(ids)
    messages: list[Message] = []
    for _ in range(draw(st.integers(1, 4))):
        is_even = draw(st.booleans())
        first = Message(
            draw(bodies), 0, draw(st.binary(max_size=32)), draw(st.sampled_from([0, 1, 255, 256, 1 << 31])),
            draw(st.sampled_from([None, False, True])), draw(st.sampled_from([0, 1, 300])),
            draw(st.sampled_from([None, None, b"\0" * 7 + b"\1", b"another"])),
        )  # fmt: skip
        headers = draw(st.sampled_from([[name] for name in HEADERS] + [["none", "durable"], ["durable", "ttl"]]))
        for _ in range(draw(st.sampled_from([1, 2, 15, 16, 40]))):
            payload = HEADERS[draw(st.sampled_from(headers))] + (first.payload if is_even else draw(bodies))
            messages.append(replace(first, payload=payload, delivery_id=delivery_id))
            delivery_id = (delivery_id + draw(st.sampled_from([1, 1, 1, 1, 1, 1, 1, 7]))) & 0xFFFFFFFF
    return messages


@steady_few
@given(conversations())
def test_runs_say_what_the_general_decoder_says(messages: list[Message]) -> None:
    buffer = b"".join(message.frame for message in messages)
    expected, offset = [], 0
    while offset < len(buffer):
        seen, offset = general(buffer, offset)
        expected.append(seen)
    got, _ = fast(buffer)
    assert got == expected


@pytest.mark.parametrize("count", [2, COLUMNS_MIN - 1, COLUMNS_MIN, 500])
@pytest.mark.parametrize("is_even", [True, False])
def test_what_looks_alike_is_one_run(count: int, is_even: bool) -> None:
    payloads = [data(b"x" * (10 if is_even else 10 + n % 7)) for n in range(count)]
    buffer = b"".join(Message(payload, 1000 + n, b"%04d" % n).frame for n, payload in enumerate(payloads))
    got, counts = fast(buffer)
    assert counts == [count]
    assert [seen.payload for seen in got] == payloads
    assert (parsed_run(buffer).stride > 0) == is_even


@pytest.mark.parametrize("size", [1, 10])
@pytest.mark.parametrize("is_even", [True, False])
def test_a_session_begins_with_runs_too(size: int, is_even: bool) -> None:
    """Ids below 256 are a byte long in the shortest encoding, which is what Proton writes; 0 has none."""
    payloads = [data(b"x" * (size if is_even else size + n % 7)) for n in range(700)]
    messages = [Message(payload, n, b"%04d" % n) for n, payload in enumerate(payloads)]
    buffer = b"".join(message.frame for message in messages)
    got, counts = fast(buffer)
    assert counts == [1, 255, 444]
    assert [(seen.delivery_id, seen.payload) for seen in got] == list(enumerate(payloads))
    later, counts = fast(b"".join(message.frame for message in messages[250:]))
    assert (later, counts) == (got[250:], [6, 444])
    found = parsed_run(b"".join(message.frame for message in messages[1:]))
    for index, count in ((0, 255), (0, 1), (3, 17), (250, 5)):
        raw = bytes(encode_run(found, index, count, heading(7, 0, False), 0xFFFFFFFA))
        check_encoded(raw, found, index, 0xFFFFFFFA, 0, False)


@pytest.mark.parametrize("before", [3, 20])
def test_short_ids_that_do_not_go_on_end_a_run(before: int) -> None:
    ids = [1 + n for n in range(before)] + [9 + before + n for n in range(before)] + [1 + n for n in range(before)]
    got, counts = fast(b"".join(Message(data(b"x"), each).frame for each in ids))
    assert [seen.delivery_id for seen in got] == ids
    assert counts == [before] * 3


def test_sizes_that_only_add_up_are_no_stride() -> None:
    sizes = [20, 21, 19, 20]
    buffer = b"".join(Message(data(b"x" * size), 1000 + n).frame for n, size in enumerate(sizes))
    assert parsed_run(buffer).stride == 0
    assert [len(seen.payload) - 5 for seen in fast(buffer)[0]] == sizes


@pytest.mark.parametrize("count", [4, 40])
def test_ids_wrap(count: int) -> None:
    buffer = b"".join(Message(data(b"x"), (0xFFFFFFFE + n) & 0xFFFFFFFF).frame for n in range(count))
    # The ids behind the wrap are short in AMQP's usual encoding, which ends the run: told apart by their shape.
    assert [seen.delivery_id for seen in fast(buffer)[0]] == [(0xFFFFFFFE + n) & 0xFFFFFFFF for n in range(count)]
    wide = b"".join(_wide_frame((0xFFFFFFFE + n) & 0xFFFFFFFF) for n in range(count))
    assert fast(wide)[1] == [count]


@given(st.one_of(st.integers(0, 0xFFFFFFFF), st.integers(0xFFFFFF00, 0xFFFFFFFF)), st.integers(1, 700))
def test_columns_of_ids(first: int, count: int) -> None:
    columns = id_columns(first, count)
    made = [int.from_bytes(bytes(column[n] for column in columns), "big") for n in range(count)]
    assert made == [(first + n) & 0xFFFFFFFF for n in range(count)]


def _wide_frame(delivery_id: int, payload: bytes = data(b"x")) -> bytes:
    fields = b"\x52\x00\x70" + delivery_id.to_bytes(4, "big") + b"\xa0\x04abcd\x43\x42"
    return encode_frame(0, b"\x00\x53\x14\xc0" + bytes([len(fields) + 1, 5]) + fields, payload)


@pytest.mark.parametrize("before", [2, 20])
@pytest.mark.parametrize(("first", "second"), [(a, b) for a in HEADERS for b in HEADERS if a != b])
def test_another_header_section_ends_a_run(before: int, first: str, second: str) -> None:
    """Equal in size or not: bodies are filled up so that frames of both kinds have one size."""
    width = 60
    payloads = [HEADERS[name] + data(b"x" * (width - len(HEADERS[name]))) for name in (first, second)]
    messages = [Message(payloads[n >= before], 1000 + n) for n in range(2 * before)]
    got, counts = fast(b"".join(message.frame for message in messages))
    assert len(got) == 2 * before
    assert sum(counts) == 2 * before
    for n, seen in enumerate(got):
        name = second if n >= before else first
        assert (seen.section_bytes, seen.is_durable) == (
            len(HEADERS[name]),
            name not in ("none", "not durable", "empty"),
        )


@pytest.mark.parametrize("change", ["handle", "channel", "is_settled", "tag", "gap"])
@pytest.mark.parametrize("before", [3, 20])
def test_a_run_ends_where_something_else_begins(change: str, before: int) -> None:
    changes: dict[str, Any] = {"handle": {"handle": 1}, "channel": {"channel": 1}, "is_settled": {"is_settled": True},
                               "tag": {"tag": b"a longer tag"}, "gap": {}}  # fmt: skip
    messages = [Message(data(b"x"), 1000 + n) for n in range(before)]
    gap = 5 if change == "gap" else 0
    messages += [replace(Message(data(b"x"), 1000 + before + gap + n), **changes[change]) for n in range(before)]
    got, counts = fast(b"".join(message.frame for message in messages))
    assert counts == [before, before]
    assert [(seen.handle, seen.is_settled) for seen in got] == [(m.handle, m.is_settled) for m in messages]


def test_messages_without_content() -> None:
    buffer = b"".join(Message(b"", 1000 + n).frame for n in range(40))
    got, _ = fast(buffer)
    assert [seen.payload for seen in got] == [b""] * 40


def test_limits_of_count_and_size() -> None:
    buffer = b"".join(Message(data(b"x" * 50), 1000 + n).frame for n in range(40))
    size = len(buffer) // 40
    assert fast(buffer, count_max=7)[1] == [7, 7, 7, 7, 7, 5]
    assert fast(buffer, size_max=size)[1] == [40]
    assert fast(buffer, size_max=size - 1)[1] == []
    assert parse_run(buffer, 0, len(buffer), 0, SIZE_MAX) is None
    larger = buffer + Message(data(b"x" * 51), 1040).frame
    assert fast(larger, size_max=size)[1] == [40]


@pytest.mark.parametrize("count", [5, 40])
def test_a_frame_that_is_not_whole_is_left(count: int) -> None:
    buffer = b"".join(Message(data(b"x" * 50), 1000 + n).frame for n in range(count))
    size = len(buffer) // count
    for cut in range(1, size + 1):
        assert sum(fast(buffer[: len(buffer) - cut])[1]) == count - 1
        parsed = parse_run(buffer, 0, len(buffer) - cut, 1 << 16, SIZE_MAX)
        assert parsed is not None
        assert parsed.run.count == count - 1


@pytest.mark.parametrize(
    "transfer",
    [
        Transfer(handle=0, delivery_id=1000, delivery_tag=b"t", message_format=0, more=True),
        Transfer(handle=0, delivery_id=1000, delivery_tag=b"t", message_format=0, aborted=True),
        Transfer(handle=0, delivery_id=1000, delivery_tag=b"t", message_format=0, resume=True),
        Transfer(handle=0, delivery_id=1000, delivery_tag=b"t", message_format=0, rcv_settle_mode=1),
        Transfer(handle=0, delivery_id=1000, delivery_tag=b"t", message_format=0, state=Accepted()),
        Transfer(handle=0, delivery_id=1000, delivery_tag=b"t", message_format=5),
        Transfer(handle=0, message_format=0),
        Transfer(handle=0, delivery_id=1000, message_format=0),
    ],
)
def test_unusual_transfers_take_the_general_path(transfer: Transfer) -> None:
    buffer = encode_frame(0, encode(transfer), data(b"x" * 30))
    assert parse_run(buffer, 0, len(buffer), 10, SIZE_MAX) is None


def test_other_frames_are_no_runs() -> None:
    good = bytearray(Message(data(b"x" * 30), 1000).frame)
    for place, value in ((4, 3), (5, 1), (8, 1), (9, 0x80), (10, 0x15), (11, 0xC1)):
        buffer = bytes(good[:place]) + bytes([value]) + bytes(good[place + 1 :])
        assert parse_run(buffer, 0, len(buffer), 10, SIZE_MAX) is None


# -- noise ------------------------------------------------------------------------------------------------------------


def _mutated(raw: bytes, rng: random.Random) -> bytes:
    changed = bytearray(raw)
    for _ in range(rng.choice((1, 1, 2, 4))):
        place = rng.randrange(min(len(changed), 90))
        dice = rng.random()
        if dice < 0.7:
            changed[place] = rng.choice(
                (*b"\0\1\5\x40\x41\x43\x45\x52\x53\x70\x80\xa0\xa3\xc0\xd0\xff", rng.randrange(256))
            )
        elif dice < 0.85:
            del changed[place]
        else:
            changed.insert(place, rng.randrange(256))
    return bytes(changed)


def _check_against_general(raw: bytes) -> int:
    """How many frames `parse_run` took; each of them must be one that the general path takes, and mean the same."""
    got, _ = fast(raw)
    offset = 0
    for seen in got:
        expected, offset = general(raw, offset)
        assert seen == expected, raw.hex()
    return len(got)


CORPUS = [
    b"".join(Message(HEADERS[name] + data(b"body %d" % n), first + n, handle=handle).frame for n in range(3))
    for name in HEADERS
    for first in (0, 1000)
    for handle in (0, 5, 500)
] + [
    b"".join(_wide_frame(1000 + n) for n in range(20)),
    b"".join(Message(data(b"body %d" % n), 1000 + n, txn_id=b"\0" * 7 + b"\1").frame for n in range(3)),
]


@pytest.mark.parametrize("seed", range(4))
def test_mutated_bytes_never_raise_and_never_pass_what_the_general_path_refuses(seed: int) -> None:
    rng = random.Random(seed)
    taken = sum(_check_against_general(_mutated(rng.choice(CORPUS), rng)) for _ in range(6000))
    assert 1000 < taken < 18000 * 0.95, "mutations must be neither all taken nor all refused"


@steady
@given(st.binary(max_size=120), st.sampled_from([b"", Message(b"", 1).frame[:12], Message(b"", 1000).frame[:20]]))
def test_noise_never_raises(noise: bytes, start: bytes) -> None:
    for raw in (start + noise, (len(start + noise)).to_bytes(4, "big") + (start + noise)[4:]):
        _check_against_general(raw)


@pytest.mark.parametrize("size", range(19, 27))
def test_a_frame_that_ends_within_its_first_field(size: int) -> None:
    fields = b"\x70\x00\x00\x00\x00\x00\x00"[: size - 20] if size > 20 else b""
    head = b"\x00\x53\x14\xd0" + (4 + len(fields)).to_bytes(4, "big") + b"\x00\x00\x00\x05"
    raw = (8 + len(head) + len(fields)).to_bytes(4, "big") + b"\x02\x00\x00\x00" + head + fields
    assert parse_run(raw, 0, len(raw), 10, SIZE_MAX) is None


@pytest.mark.parametrize("count", [0, 3, 4, 6, 255])
def test_a_list_that_says_another_number_of_fields_than_it_has_is_unusual(count: int) -> None:
    raw = bytearray(_wide_frame(1000))
    assert raw[13] == 5
    raw[13] = count
    assert parse_run(bytes(raw), 0, len(raw), 10, SIZE_MAX) is None


def test_what_peers_send_does_not_fill_the_caches() -> None:
    for n in range(3 * run.CACHE_SIZE_MAX):
        message = Message(encode_composite(Header(ttl=n + 256)) + data(b"x"), 1000)
        assert sum(fast(message.frame)[1]) == 1
        odd = Transfer(handle=0, delivery_id=1000, delivery_tag=b"t", message_format=n)
        fast(encode_frame(0, encode(odd), data(b"x" * 30)))
        assert sum(fast(Message(data(b"x" * 30), 1000, txn_id=n.to_bytes(8, "big")).frame)[1]) == 1
    assert sum(fast(Message(data(b"x" * 30), 1000, txn_id=b"t" * 64).frame)[1]) == 0, "and is not kept"
    assert len(transfer_tail._tails) <= run.CACHE_SIZE_MAX
    assert len(header_section._sections) <= run.CACHE_SIZE_MAX
    long = Message(b"\x00\x53\x70" + encode_value([Symbol("x" * 200)]) + data(b"x"), 1000)
    fast(long.frame)
    sizes = [len(key) for key in header_section._sections] + [len(tail) for _, tail in transfer_tail._tails]
    assert max(sizes) <= 64


@pytest.mark.parametrize("count", [2, 15, 16, 40])
@pytest.mark.parametrize("is_even", [True, False])
def test_of_two_transactions_none_has_what_is_posted_in_the_other(count: int, is_even: bool) -> None:
    payloads = [data(b"x" * (50 if is_even else 1 + n)) for n in range(2 * count)]
    buffer = b"".join(
        Message(each, 1000 + n, txn_id=b"one" if n < count else b"two").frame for n, each in enumerate(payloads)
    )
    seen, counts = fast(buffer)
    assert counts == [count, count]
    assert [each.txn_id for each in seen] == [b"one"] * count + [b"two"] * count


@steady_few
@given(conversations(), st.data())
def test_in_canonical_form_nothing_is_left_but_the_messages(messages: list[Message], choice: st.DataObject) -> None:
    buffer = b"".join(each.frame for each in messages)
    parsed = parse_run(buffer, 0, len(buffer), choice.draw(st.integers(1, 20)), SIZE_MAX)
    assert parsed is not None
    made = canonical(parsed.run)
    assert (made.count, made.head_size, made.section) == (parsed.run.count, CANONICAL_SIZE, parsed.run.section)
    assert [bytes(made.payload(index)) for index in range(made.count)] == [
        bytes(parsed.run.payload(index)) for index in range(made.count)
    ]
    assert made.end(made.count - 1) == len(made.buffer)
    again = parse_run(made.buffer, 0, len(made.buffer), made.count, SIZE_MAX)
    assert again is not None
    assert (again.run.count, again.run.stride, again.tail.txn_id) == (made.count, made.stride, None)
    assert (made.buffer == single(bytes(made.payload(0))).buffer) == (made.count == 1)


# -- encoding ---------------------------------------------------------------------------------------------------------


def check_encoded(raw: bytes, run_: Run, index: int, delivery_id: int, handle: int, is_settled: bool) -> None:
    """Every frame through the general decoder: payload untouched, ids ascending, tags unique, flags right."""
    offset, count, tags = 0, 0, set()
    while offset < len(raw):
        frame = frame_at(raw, offset, len(raw), SIZE_MAX)
        assert frame is not None
        transfer, at = decode_frame(raw, frame)
        assert isinstance(transfer, Transfer)
        assert frame.channel == 7
        assert transfer.handle == handle
        assert transfer.delivery_id == (delivery_id + count) & 0xFFFFFFFF
        assert transfer.settled is is_settled
        assert (transfer.message_format, transfer.more, transfer.state) == (0, False, None)
        assert raw[at : frame.end] == run_.payload(index + count)
        tags.add(transfer.delivery_tag)
        offset, count = frame.end, count + 1
    assert len(tags) == count


@pytest.mark.parametrize("handle", [0, 255, 256, 1 << 31])
@pytest.mark.parametrize("tag_size", range(33))
def test_encoded_runs_for_every_tag_size(tag_size: int, handle: int) -> None:
    for sizes in ([10] * 20, [10 + n % 3 for n in range(20)]):
        messages = [Message(HEADERS["durable"] + data(b"x" * size), 1000 + n, b"t" * tag_size)
                    for n, size in enumerate(sizes)]  # fmt: skip
        found = parsed_run(b"".join(message.frame for message in messages))
        assert found.count == 20
        for index, count in ((0, 20), (0, 1), (3, 17), (5, 4), (19, 1), (2, 16)):
            for is_settled in (False, True):
                raw = bytes(encode_run(found, index, count, heading(7, handle, is_settled), 0xFFFFFFFA))
                check_encoded(raw, found, index, 0xFFFFFFFA, handle, is_settled)
                assert raw.count(HEADERS["durable"]) == count


@pytest.mark.slow
@steady_few
@given(conversations(), st.data())
def test_any_slice_of_any_run_can_be_sent_on(messages: list[Message], choice: st.DataObject) -> None:
    buffer = b"".join(message.frame for message in messages)
    offset = 0
    while (parsed := parse_run(buffer, offset, len(buffer), 1 << 16, SIZE_MAX)) is not None:
        offset = parsed.next_offset
        index = choice.draw(st.integers(0, parsed.run.count - 1))
        count = choice.draw(st.integers(1, parsed.run.count - index))
        handle, is_settled = choice.draw(st.sampled_from([0, 256])), choice.draw(st.booleans())
        raw = encode_run(parsed.run, index, count, heading(7, handle, is_settled), 0xFFFFFFF0)
        check_encoded(bytes(raw), parsed.run, index, 0xFFFFFFF0, handle, is_settled)
    assert offset == len(buffer)


def test_columns_loop_and_joined_make_the_same_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    found = parsed_run(b"".join(_wide_frame(1000 + n, data(b"%05d" % n)) for n in range(64)))
    head = heading(7, 3, False)
    columns = bytes(encode_run(found, 0, 64, head, 77))
    monkeypatch.setattr(run, "COLUMNS_MIN", 1000)
    loop = bytes(encode_run(found, 0, 64, head, 77))
    joined = bytes(run._encode_joined(found, 0, 64, head, 77))
    assert columns == loop == joined


def test_parsing_by_columns_and_by_walking_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = b"".join(_wide_frame(1000 + n, data(b"%05d" % n)) for n in range(64))
    by_columns = fast(buffer)
    short = b"".join(Message(data(b"%05d" % n), 100 + n).frame for n in range(64))
    short_by_columns = fast(short)
    monkeypatch.setattr(run, "COLUMNS_MIN", 1000)
    assert (fast(buffer), fast(short)) == (by_columns, short_by_columns)
    assert by_columns[1] == short_by_columns[1] == [64]


def test_what_encode_run_made_is_a_run_again() -> None:
    """A message passes any number of brokers without leaving the fast path."""
    found = parsed_run(b"".join(_wide_frame(1000 + n, data(b"%05d" % n)) for n in range(64)))
    for hop in range(3):
        raw = bytes(encode_run(found, 0, 64, heading(hop, hop, False), 1 << 20))
        found = parsed_run(raw)
        assert found.count == 64
        assert [bytes(found.payload(n)) for n in range(64)] == [data(b"%05d" % n) for n in range(64)]


# -- single, compact, counts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HEADERS)
def test_a_single_message_in_canonical_form(name: str) -> None:
    payload = HEADERS[name] + data(b"x" * 200)
    found = single(payload)
    assert (found.count, bytes(found.payload(0))) == (1, payload)
    assert found.section.size_bytes == len(HEADERS[name])
    assert found.section.is_durable == (name not in ("none", "not durable", "empty"))
    again = parsed_run(bytes(found.buffer))
    assert bytes(again.payload(0)) == payload
    check_encoded(bytes(encode_run(found, 0, 1, heading(7, 1, True), 5)), found, 0, 5, 1, True)


MALFORMED = [b"", b"\xc0\x02\x01", b"\xc0\x03\x02\xa1\x00", b"\xd0\xff\xff\xff\xff\x00\x00\x00\x01\x41", b"\x41"]


@pytest.mark.parametrize("header", [header_section.HEADER_LEAD + rest for rest in MALFORMED])
def test_a_malformed_header_section_is_the_fault_of_its_link(header: bytes) -> None:
    with pytest.raises(PeerFault, match="decode-error") as caught:
        single(header)
    assert caught.value.scope.value == "link"
    raw = Message(header, 1000).frame
    assert parse_run(raw, 0, len(raw), 10, SIZE_MAX) is None


@steady_few
@given(st.integers(2, 60), st.booleans(), st.data())
def test_compact_keeps_what_is_live(count: int, is_even: bool, choice: st.DataObject) -> None:
    payloads = [data(b"x" * (9 if is_even else 9 + n % 5) + b"%03d" % n) for n in range(count)]
    found = parsed_run(b"".join(_wide_frame(1000 + n, payload) for n, payload in enumerate(payloads)))
    kept = sorted(choice.draw(st.sets(st.integers(0, count - 1), min_size=1)))
    ranges: list[tuple[int, int]] = []
    for index in kept:
        if ranges and sum(ranges[-1]) == index:
            ranges[-1] = (ranges[-1][0], ranges[-1][1] + 1)
        else:
            ranges.append((index, 1))
    size = len(found.buffer)
    found.compact(ranges)
    assert (len(found.buffer) < size) == (len(kept) < count)
    for index, length in ranges:
        assert found.size_bytes(index, length) == len(found.block(index, length))
        raw = bytes(encode_run(found, index, length, heading(7, 1, False), 5))
        check_encoded(raw, found, index, 5, 1, False)
    assert [bytes(found.payload(index)) for index in kept] == [payloads[index] for index in kept]


def test_a_redelivery_replaces_the_header_section_only() -> None:
    message = build_message(b"body", durable=True)
    found = single(message)
    header = b"\x00\x53\x70\xc0\x06\x05\x41\x40\x40\x42\x52\x03"
    parts = payload_with_count(found, 0, header)
    assert b"".join(parts) == header + message[found.section.size_bytes :]


@pytest.mark.parametrize("is_settled", [False, True])
def test_payloads_become_transfers_under_ascending_ids(is_settled: bool) -> None:
    payloads = [build_message(b"x" * size) for size in (1, 300, 0)]
    block = encode_payloads(payloads, heading(3, 300, is_settled), 0xFFFFFFFF)
    found, offset = [], 0
    while offset < len(block):
        frame = frame_at(block, offset, len(block), 1 << 20)
        assert frame is not None
        transfer, payload = decode_frame(block, frame)
        assert isinstance(transfer, Transfer)
        assert (frame.channel, transfer.handle, bool(transfer.settled)) == (3, 300, is_settled)
        found.append((transfer.delivery_id, block[payload : frame.end]))
        offset = frame.end
    assert found == [(0xFFFFFFFF, payloads[0]), (0, payloads[1]), (1, payloads[2])]
