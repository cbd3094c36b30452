"""What is a message, against decoding all of it; and runs of messages against each of them alone."""

from __future__ import annotations

import random
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.base.errors import PeerFault
from mqbroker.wire.composites import encode_composite
from mqbroker.wire.parts import _is_plain, parts_of
from mqbroker.wire.run import Run, single
from mqbroker.wire.sections import Properties, describe_message, encode_section, scan_sections
from mqbroker.wire.traits import PLAIN
from mqbroker.wire.values import Described, Symbol, Timestamp, UInt, ULong
from mqbroker.wire.wellformed import COLUMNS_MIN, Forms, form_of

from tests.support.malformed import BODY, HEADERS, MALFORMED, MESSAGES, composed, mapped, section
from tests.unit.wire.strategies import steady, values
from tests.unit.wire.test_parts import message, run_of


def why_malformed(payload: bytes) -> str:
    found = Forms().malformed(single(payload))
    return "" if found is None else found.why


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_none_is_told_with_its_byte(name: str) -> None:
    why = why_malformed(MALFORMED[name])
    assert why
    at = int(why.rsplit(" ", 1)[1])
    assert 0 <= at <= len(MALFORMED[name])
    assert why_malformed(HEADERS["durable"] + MALFORMED[name]).startswith(why.rsplit(" ", 1)[0])


@pytest.mark.parametrize("name", MESSAGES)
def test_what_is_one_is_taken(name: str) -> None:
    assert why_malformed(MESSAGES[name]) == ""
    scan_sections(MESSAGES[name], 0, len(MESSAGES[name]))


@pytest.mark.parametrize("name", MESSAGES)
def test_what_is_one_can_be_decoded(name: str) -> None:
    assert why_not_decoded(MESSAGES[name]) == ""


@pytest.mark.parametrize("count", [2, COLUMNS_MIN, 100])
@pytest.mark.parametrize("name", MALFORMED)
def test_the_first_that_is_none_is_found_in_a_run(name: str, count: int) -> None:
    """Whatever form its neighbours have, those of its own length included."""
    bad = HEADERS["durable"] + MALFORMED[name]
    size = max(len(bad) - len(HEADERS["durable"]) - 8, 0)
    good = HEADERS["durable"] + b"\x00\x53\x75\xb0" + size.to_bytes(4, "big") + bytes(size)
    if len(good) != len(bad):
        count = 2  # too short for a body: a run of other sizes is found frame by frame
    run = run_of([good] * (count - 1) + [bad])
    found = Forms().malformed(run)
    assert found is not None
    assert found.place == count - 1


def test_before_the_body_nothing_is_left_out_for_time() -> None:
    """The broker decodes what is there; of a body it lets pass what it has not looked into."""
    value = composed(0xD0, 66_001, b"\x45\x40" * 33_000 + b"\x56\x02")  # the last one is none
    for code in (0x71, 0x72):
        assert "values before the body" in why_malformed(section(code, mapped(b"\xa3\x01k", value)) + BODY)
    assert "values before the body" in why_malformed(section(0x74, mapped(b"\xa1\x01k", value)) + BODY)
    assert why_malformed(section(0x77, value)) == ""


sections = st.builds(
    lambda properties, named, annotations, body, footer: b"".join(
        [
            encode_section(0x72, annotations) if annotations is not None else b"",
            encode_composite(properties) if properties is not None else b"",
            encode_section(0x74, named) if named is not None else b"",
            body,
            encode_section(0x78, footer) if footer is not None else b"",
        ]
    ),
    st.none()
    | st.builds(
        Properties,
        message_id=st.none() | st.text() | st.binary() | st.uuids().map(lambda value: None),
        to=st.none() | st.text(), content_type=st.none() | st.just(Symbol("text/plain")),
        creation_time=st.none() | st.integers(0, 1 << 60).map(Timestamp), group_id=st.none() | st.text(max_size=3),
        group_sequence=st.none() | st.integers(0, 9).map(UInt),
    ),
    st.none() | st.dictionaries(st.text(), st.none() | st.booleans() | st.text() | st.binary() | st.floats()),
    st.none() | st.dictionaries(st.sampled_from(["a", "x-opt-delivery-delay", "b"]).map(Symbol), values),
    st.one_of(
        st.lists(st.binary(max_size=20), min_size=0, max_size=3).map(
            lambda all_: b"".join(encode_section(0x75, each) for each in all_)
        ),
        values.map(lambda value: encode_section(0x77, value)),
        st.lists(st.lists(values, max_size=3), min_size=1, max_size=3).map(
            lambda all_: b"".join(encode_section(0x76, each) for each in all_)
        ),
    ),
    st.none() | st.dictionaries(st.just(ULong(1)) | st.just(Symbol("s")), values),
)  # fmt: skip


@pytest.mark.slow
@steady
@given(sections)
def test_all_that_our_encoder_makes_is_a_message(payload: bytes) -> None:
    if payload:
        assert why_malformed(payload) == ""


@pytest.mark.slow
@steady
@given(sections, st.integers(0, 1 << 30))
def test_what_is_taken_can_be_decoded_whatever_was_done_to_it(payload: bytes, seed: int) -> None:
    """Bytes are changed at random; what is still taken, alone and among its likes, decodes to the end."""
    rng = random.Random(seed)
    spoilt = bytearray(payload or MESSAGES["everything"])
    for _ in range(rng.randrange(1, 4)):
        spoilt[rng.randrange(len(spoilt))] = rng.choice((rng.randrange(256), 0x40, 0xA1, 0x53, 0xC1, 0x00))
    if rng.random() < 0.3:
        del spoilt[rng.randrange(len(spoilt)) :]
    data = bytes(spoilt)
    if not why_malformed(data):
        assert why_not_decoded(data) == ""


def why_not_decoded(payload: bytes) -> str:
    """Decodes all of it."""
    try:
        describe_message(payload)
    except PeerFault as fault:
        return fault.description
    return ""


@pytest.mark.slow
@steady
@given(st.lists(sections, min_size=1, max_size=3), st.integers(0, 1 << 30))
def test_a_run_is_judged_as_its_messages_alone(payloads: list[bytes], seed: int) -> None:
    """Messages of few forms, some of them with bytes changed, as one run and one by one: the same is found."""
    rng = random.Random(seed)
    messages = []
    for _ in range(rng.choice((3, 40))):
        each = bytearray(rng.choice(payloads) or MESSAGES["text"])
        if rng.random() < 0.1:
            each[rng.randrange(len(each))] = rng.randrange(256)
        messages.append(bytes(HEADERS["durable"] + each))
    judge(run_of(messages))


def judge(run: Run) -> None:
    alone = [why_malformed(bytes(run.payload(index))) for index in range(run.count)]
    found = Forms().malformed(run)
    bad = next((index for index, why in enumerate(alone) if why), None)
    assert (None if found is None else found.place) == bad
    if found is None and run.is_plain:
        assert all(traits_of(run, index) == PLAIN for index in range(run.count))


def traits_of(run: Run, index: int) -> Any:
    return parts_of(single(bytes(run.payload(index))))[0].traits


@pytest.mark.parametrize("special", [
    message(Properties(absolute_expiry_time=Timestamp(5))), message(Properties(group_id="g")),
    message(annotations={"x-opt-delivery-time": 5}), message(application={"_AMQ_DUPL_ID": "a"}),
    message(application={"_AMQ_LVQ_NAME": "a"}),
])  # fmt: skip
def test_what_says_something_special_is_not_plain(special: bytes) -> None:
    run = run_of([special] * 20)
    assert Forms().malformed(run) is None
    assert not run.is_plain
    assert parts_of(run)[0].traits != PLAIN


def test_keys_that_become_equal_do_not_fit_the_form_of_others() -> None:
    """What stands in a form for bytes that may be others never lies in a key of a map that is compared."""
    for pair in ((b"\xa1\x01a", b"\xa1\x01b"), (b"\x81" + bytes(8), b"\x81" + bytes(7) + b"\1")):
        good, bad = (
            section(0x74, mapped(b"\xa1\x01k", mapped(pair[0], b"\x40", other, b"\x40"))) + BODY
            for other in (pair[1], pair[0])
        )
        for count in (2, COLUMNS_MIN, 100):
            found = Forms().malformed(run_of([good] * (count - 1) + [bad]))
            assert found is not None
            assert found.place == count - 1


def test_what_says_nothing_special_is_plain_and_not_looked_into_again() -> None:
    run = run_of([message(Properties(message_id=f"i{number:02}"), {"k": "v"}) for number in range(20)])
    assert Forms().malformed(run) is None
    assert run.is_plain
    assert _is_plain(run)
    assert parts_of(run) == [run]


def test_time_is_in_proportion_to_the_bytes() -> None:
    """Nothing is walked through twice: a body of nested lists, each of them with a size, costs its bytes once."""
    deep: Any = "x"
    for _ in range(30):
        deep = Described(ULong(1), deep) if deep == "x" else [deep, *range(100)]
    payload = encode_section(0x77, deep)
    walked = {"count": 0}

    def trace(frame: Any, event: str, _: Any) -> None:
        walked["count"] += event == "call" and frame.f_code.co_filename.endswith(("wellformed.py", "walk.py"))

    sys.setprofile(trace)
    try:
        form_of(payload, 0)
    finally:
        sys.setprofile(None)
    assert walked["count"] < len(payload) * 3
