"""Request heads from bytes: one outcome whatever the cuts, and garbage is refused with a sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.io.requests.http_head import HEAD_BYTES_MAX, Head, Response, head_bytes, refusal, take_head

Outcome = list[Head | Response]


def outcomes(data: bytes, piece: int) -> Outcome:
    """Everything that is taken out of `data`, handed over in pieces; nothing follows a refusal."""
    buffer = bytearray()
    found: Outcome = []
    for start in range(0, len(data), piece):
        buffer += data[start : start + piece]
        while (taken := take_head(buffer)) is not None:
            found.append(taken)
            if isinstance(taken, Response):
                return found
    return found


def only(data: bytes) -> Head | Response:
    (found,) = outcomes(data, len(data))
    return found


GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n"
# What is no zero, though some take it for one: also by the digits and the blanks of others than ASCII.
LENGTHS = (b"", b" ", b"+0", b"-0", b"0x0", b"0,0", b"0 0", b"0.0", b"5,5", b"\xa0", b"0\xa0", b"\x850", b"\xb2")
LENGTHS += (b"\xd9\xa0", b" 5 ", b"1" * 5000)


@pytest.mark.parametrize(
    ("data", "head"),
    [
        (GET + b"\r\n", Head("GET", "/metrics", True)),
        (b"GET /livez HTTP/1.1\nHost: x\n\n", Head("GET", "/livez", True)),
        (b"\r\n\r\n" + GET + b"\r\n", Head("GET", "/metrics", True)),
        (b"GET / HTTP/1.0\r\n\r\n", Head("GET", "/", False)),
        (b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", Head("GET", "/", True)),
        (GET + b"Connection: x, Close\r\n\r\n", Head("GET", "/metrics", False)),
        (b"GET http://h:1/a?b HTTP/1.1\r\nHost: x\r\n\r\n", Head("GET", "/a", True)),
        (b"GET http://h HTTP/1.1\r\nHost: x\r\n\r\n", Head("GET", "/", True)),
        (GET + b"accept: a;q=1\r\nAccept:\tb \r\n\r\n", Head("GET", "/metrics", True, "a;q=1, b")),
        (GET + b"Content-Length: 0\r\n\r\n", Head("GET", "/metrics", True)),
        (b"GET HTTPS://h?b HTTP/1.1\r\nHost: x\r\n\r\n", Head("GET", "/", True)),
        (b"GET /metrics?name=http://h HTTP/1.1\r\nHost: [::1]:9672\r\n\r\n", Head("GET", "/metrics", True)),
        (b"GET /metrics HTTP/1.9\r\nHost: x\r\n\r\n", Head("GET", "/metrics", True)),
        (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", Head("OPTIONS", "*", True)),
        (GET + b"Content-Length: \t 00 \r\n\r\n", Head("GET", "/metrics", True)),
        (b"BREW /pot HTTP/1.1\r\nHost:\r\n\r\n", Head("BREW", "/pot", True)),
    ],
)
def test_heads(data: bytes, head: Head) -> None:
    assert only(data) == head
    assert outcomes(data, 1) == [head]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "status", "word"),
    [
        (b"GET\r\n\r\n", 400, "request line"),
        (b"GET  / HTTP/1.1\r\nHost: x\r\n\r\n", 400, "request line"),
        (b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505, "HTTP/1.1"),
        (b"GET / HTTP/0.9\r\nHost: x\r\n\r\n", 505, "HTTP/1.1"),
        (b"GET / HTTP/1.10\r\nHost: x\r\n\r\n", 400, "request line"),
        (b"GET / HTTP/1.\xb9\r\nHost: x\r\n\r\n", 400, "request line"),
        (b"GET / http/1.1\r\nHost: x\r\n\r\n", 400, "request line"),
        (b"\r" + GET + b"\r\n", 400, "request line"),
        (b"\r\n\r\r\n" + GET + b"\r\n", 400, "request line"),
        (b"GET / HTTP/1.1\r\r\nHost: x\r\n\r\n", 400, "request line"),
        (b"GET * HTTP/1.1\r\nHost: x\r\n\r\n", 400, "target"),
        (b"GET metrics HTTP/1.1\r\nHost: x\r\n\r\n", 400, "target"),
        (b"GET http:///metrics HTTP/1.1\r\nHost: x\r\n\r\n", 400, "target"),
        (b"GET http://a@h/metrics HTTP/1.1\r\nHost: x\r\n\r\n", 400, "target"),
        (b"GET ftp://h/metrics HTTP/1.1\r\nHost: x\r\n\r\n", 400, "target"),
        (b"GET /metrics#top HTTP/1.1\r\nHost: x\r\n\r\n", 400, "target"),
        (b"AMQP\x03\x01\x00\x00\r\n\r\n", 400, "request line"),
        (b"\x16\x03\x01\x02\x00\x01\n\n", 400, "request line"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "Host"),
        (GET + b"Host: y\r\n\r\n", 400, "Host"),
        (b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400, "Host"),
        (b"GET / HTTP/1.1\r\nHost: x, y\r\n\r\n", 400, "Host"),
        (b"GET / HTTP/1.1\r\nHost: h/metrics\r\n\r\n", 400, "Host"),
        (b"GET / HTTP/1.0\r\nHost: x\r\nHost: x\r\n\r\n", 400, "Host"),
        (GET + b" folded\r\n\r\n", 400, "name: value"),
        (GET + b"Space : x\r\n\r\n", 400, "name: value"),
        (GET + b"A: \x00\r\n\r\n", 400, "name: value"),
        (GET + b"A: b\rC: d\r\n\r\n", 400, "name: value"),
        (GET + b"Content-Length: 5\r\n\r\nhello", 400, "no body"),
        (GET + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n", 400, "no body"),
        (GET + b"Transfer-Encoding: chunked\r\n\r\n", 400, "no body"),
        (GET + b"A: b\r\n\tfolded\r\n\r\n", 400, "name: value"),
        (GET + b": x\r\n\r\n", 400, "name: value"),
        (GET + b"A: b\r\r\n\r\n", 400, "name: value"),
        *((GET + b"Content-Length:" + value + b"\r\n\r\n", 400, "no body") for value in LENGTHS),
        (GET + b"Content-Length: 0\r\nTransfer-Encoding: identity\r\n\r\n", 400, "no body"),
        (GET + b"Transfer-Encoding:\r\n\r\n", 400, "no body"),
        (GET + b"A: " + b"x" * HEAD_BYTES_MAX + b"\r\n\r\n", 431, "8192 bytes"),
        (b"GET /" + b"x" * 100_000, 431, "8192 bytes"),
    ],
)
def test_refusals(data: bytes, status: int, word: str) -> None:
    refused = only(data)
    assert isinstance(refused, Response)
    assert refused.status == status
    assert word in refused.body.decode()
    assert outcomes(data, 1) == [refused]


@pytest.mark.slow
@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
@pytest.mark.parametrize("over", [-2, -1, 0, 1, 2])
def test_the_bound_is_the_same_however_it_is_reached(end: bytes, over: int) -> None:
    start = GET + b"A: "
    data = start + b"x" * (HEAD_BYTES_MAX + over - len(start)) + end + GET + b"\r\n"
    found = outcomes(data, len(data))
    assert [type(each) for each in found] == ([Head, Head] if over <= 0 else [Response])
    assert outcomes(data, 1) == outcomes(data, 7) == found


LINES = st.sampled_from(
    [
        b"GET / HTTP/1.1",
        b"GET",
        b"Host: x",
        b"A:b",
        b"a b",
        b"",
        b"\r",
        b"Connection: close",
        b"\xff\x00",
        b"HEAD * HTTP/1.0",
    ]
)
TEXTS = st.lists(st.tuples(LINES, st.sampled_from([b"\r\n", b"\n", b"\r", b""])), max_size=12).map(
    lambda rows: b"".join(line + end for line, end in rows)
)


@given(TEXTS | st.binary(max_size=60))
def test_whatever_comes_has_one_outcome(data: bytes) -> None:
    assert outcomes(data, 1) == outcomes(data, max(1, len(data))) == outcomes(data, 3)


def test_the_head_of_an_answer() -> None:
    made = head_bytes(Response(200, b"yes\n"), True, "Thu, 01 Jan 1970 00:00:00 GMT")
    assert made == (
        b"HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nContent-Type: text/plain; charset=utf-8\r\n"
        b"Content-Length: 4\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
        b"Connection: keep-alive\r\n\r\n"
    )
    assert b"\r\nAllow: GET, HEAD\r\n" in head_bytes(refusal(405, "no"), False, "")
