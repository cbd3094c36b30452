"""Questions and answers of DNS for SRV records, as bytes; answers are made by hand, as name servers make them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.cluster.discovery.srv import NoAnswer, ServicePlace, Truncated, question, targets

ASKED = question(0x1234, "_mq._tcp.example.org")
POINTER = b"\xc0\x0c"  # to the name of the question


def name(text: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode() for label in text.split(".")) + b"\0"


def record(data: bytes, kind: int = 33) -> bytes:
    return POINTER + struct.pack(">2HIH", kind, 1, 60, len(data)) + data


def target(priority: int, port: int, host: bytes) -> bytes:
    return record(struct.pack(">3H", priority, 5, port) + host)


def answer(*records: bytes, number: int = 0x1234, flags: int = 0x8180, asked: bytes = ASKED) -> bytes:
    return struct.pack(">6H", number, flags, 1, len(records), 0, 0) + asked[12:] + b"".join(records)


def test_the_question_is_that_of_the_specification() -> None:
    assert ASKED == (
        b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03_mq\x04_tcp\x07example\x03org\x00\x00\x21\x00\x01"
    )


def test_targets_come_by_priority_and_then_as_they_are_named() -> None:
    second = target(20, 5673, name("mq2.example.org"))
    first = target(10, 5674, b"\x03mq1" + b"\xc0\x15")  # the rest of the name is in the question
    also = target(10, 5675, name("mq3.example.org"))
    alias = record(name("elsewhere.example"), kind=5)
    assert targets(ASKED, answer(second, alias, first, also)) == [
        ServicePlace(10, 5, 5674, "mq1.example.org"),
        ServicePlace(10, 5, 5675, "mq3.example.org"),
        ServicePlace(20, 5, 5673, "mq2.example.org"),
    ]


def test_no_such_service_is_no_target() -> None:
    assert targets(ASKED, answer(target(0, 0, b"\0"))) == []
    assert targets(ASKED, answer()) == []
    assert targets(ASKED, answer(flags=0x8183)) == [], "that there is no such name is an answer"


def test_an_answer_that_is_cut_is_asked_for_again() -> None:
    assert targets(ASKED, answer(flags=0x8380)) is Truncated.CUT


LOOP = target(0, 1, b"\xc0" + bytes([len(ASKED) + 12 + 6]))
FORWARD = target(0, 1, b"\xc1\xff")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not well-formed"),
        (answer(number=0x1235), "to another question"),
        (answer(flags=0x0100), "to another question"),
        (answer(asked=question(0x1234, "_mq._tcp.example.com")), "to another question"),
        (answer(flags=0x8183, asked=question(0x1234, "_mq._tcp.example.com")), "to another question"),
        (answer(flags=0x8182), "it failed"),
        (answer(flags=0x8189), "with code 9"),
        (answer(target(0, 1, name("mq1.example.org")))[:-3], "not well-formed"),
        (answer(LOOP), "not well-formed"),
        (answer(FORWARD), "not well-formed"),
        (answer(target(0, 1, b"\x40x\0")), "not well-formed"),
        (answer(target(0, 1, name("mq 1"))), "a name that is none"),
        (answer(target(0, 1, b"\x01\xff\0")), "not well-formed"),
        (answer(target(0, 1, name(".".join(["a" * 60] * 5)))), "a name that is none"),
    ],
)
def test_what_is_no_answer(data: bytes, why: str) -> None:
    with pytest.raises(NoAnswer, match=why):
        targets(ASKED, data)


@given(st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_none(rest: bytes) -> None:
    for data in (rest, struct.pack(">6H", 0x1234, 0x8180, 1, 3, 0, 0) + ASKED[12:] + rest):
        try:
            found = targets(ASKED, data)
        except NoAnswer:
            continue
        assert found is Truncated.CUT or all(isinstance(each, ServicePlace) for each in found)
