"""Bodies into requests and out of answers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some
from mqctl.brokers.messages import CHUNK_BYTES_MAX, CHUNK_COUNT_MAX, body_of, chunked, lines, numbered, to_wire


def test_numbers_go_into_the_body() -> None:
    assert list(numbered("order {n} of {n}", 2)) == [b"order 1 of 1", b"order 2 of 2"]
    assert list(numbered("same", 2)) == [b"same", b"same"]


def test_lines_lose_their_ends_only() -> None:
    assert list(lines([b" a \r\n", b"\n", b"b"])) == [b" a ", b"", b"b"]


def test_text_stays_text_and_the_rest_is_base64() -> None:
    assert to_wire("é".encode(), durable=True) == {"body": "é", "durable": True}
    assert to_wire(b"\xff", durable=False) == {"body_base64": "/w==", "durable": False}


def test_every_encoding_of_a_received_body() -> None:
    assert body_of({"body": "é", "body_encoding": "text"}) == "é".encode()
    assert body_of({"body": "/w==", "body_encoding": "base64"}) == b"\xff"
    assert body_of({"body": {"a": [1]}, "body_encoding": "json"}) == b'{"a": [1]}'
    assert body_of({"body": None}) == b""


@given(some.lists(some.integers(0, 3000), max_size=30).map(lambda sizes: [b"x" * size for size in sizes]))
def test_chunks_hold_everything_in_order(bodies: list[bytes]) -> None:
    assert [one["body"].encode() for chunk in chunked(bodies, durable=True) for one in chunk] == bodies


def test_chunks_stay_within_both_bounds() -> None:
    assert [len(one) for one in chunked([b""] * (CHUNK_COUNT_MAX + 1), durable=True)] == [CHUNK_COUNT_MAX, 1]
    large = [b"x" * (CHUNK_BYTES_MAX - 1), b"xx", b"x" * (2 * CHUNK_BYTES_MAX), b"x"]
    assert [len(one) for one in chunked(large, durable=True)] == [1, 1, 1, 1]


def test_a_request_has_the_bytes_that_are_sent() -> None:
    """Zeros take six bytes each as JSON, and properties are said again with each message."""
    zeros = list(chunked([bytes(CHUNK_BYTES_MAX // 8)] * 3, durable=True))
    assert [len(one) for one in zeros] == [1, 1, 1]
    said = {"application_properties": {"k": "x" * (CHUNK_BYTES_MAX // 3)}}
    assert [len(one) for one in chunked([b"a", b"b", b"c"], durable=True, said=said)] == [2, 1]
