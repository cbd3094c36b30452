"""What nodes say to each other by gossip, as bytes."""

from __future__ import annotations

import pytest
from mqbroker.cluster.discovery.datagram import DATAGRAM_BYTES_MAX, Drop, unseal
from mqbroker.cluster.discovery.gossip import (
    HEAD_BYTES,
    LENGTH_BYTES,
    RECORDS_MAX,
    count_of,
    length_of,
    pieces,
)

from tests.unit.cluster.discovery.sayings import KEY


def taken_apart(data: bytes) -> list[bytes]:
    count = count_of(data[:HEAD_BYTES])
    assert count is not None
    found, offset = [], HEAD_BYTES
    for _ in range(count):
        length = length_of(data[offset : offset + LENGTH_BYTES])
        assert length is not None
        offset += LENGTH_BYTES
        found.append(data[offset : offset + length])
        offset += length
    assert offset == len(data)
    return found


@pytest.mark.parametrize("records", [[], [b"a"], [b"", b"x" * DATAGRAM_BYTES_MAX, b"b"]])
def test_records_arrive_as_they_left(records: list[bytes]) -> None:
    assert taken_apart(b"".join(pieces(records))) == records


def test_no_more_records_leave_than_may_come() -> None:
    assert len(taken_apart(b"".join(pieces([b"x"] * (RECORDS_MAX + 5))))) == RECORDS_MAX


@pytest.mark.parametrize(
    "head", [b"GET / H", b"\0" * 7, b"MQDG\x01\0\x01", b"MQDR\x02\0\x01", b"MQDR\x01\xff\xff", b"MQDR\x01\x03\xea"]
)
def test_heads_that_are_none(head: bytes) -> None:
    assert count_of(head) is None
    assert isinstance(unseal(head, KEY), Drop), "it is told of as a datagram, which nobody believes"


def test_lengths_beyond_a_datagram_are_none() -> None:
    assert length_of((DATAGRAM_BYTES_MAX).to_bytes(2, "big")) == DATAGRAM_BYTES_MAX
    assert length_of((DATAGRAM_BYTES_MAX + 1).to_bytes(2, "big")) is None
