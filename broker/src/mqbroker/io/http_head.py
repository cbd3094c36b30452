"""The bytes of HTTP/1.1 as far as metrics and health need them: request heads in, response heads out.

Owns the syntax and its bounds, no socket. Invariant: whatever the bytes are, the outcome is a Head, an answer that
refuses or the wish for more, and the same whether they came at once or one at a time. Requests have no body here, so
nothing can hide in one. Source: RFC 9112 §2 to §6.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

HEAD_BYTES_MAX = 8 << 10
HEAD_END_BYTES_MAX = 4  # CR LF CR LF
METHODS = ("GET", "HEAD")
REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
TEXT = "text/plain; charset=utf-8"

# A lone line feed ends a line as well (§2.2): people ask by hand.
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_REQUEST_LINE = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([!-~]+) HTTP/1\.([01])")
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*)")
_ABSOLUTE = re.compile(r"https?://[^/?#]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Head:
    """A request. `path` has no query; `keeps_open`: the client may ask again on this connection."""

    method: str
    path: str
    keeps_open: bool
    accept: str = ""


@dataclass(frozen=True, slots=True)
class Response:
    """An answer with its whole body."""

    status: int
    body: bytes
    content_type: str = TEXT


def refusal(status: int, sentence: str) -> Response:
    """An answer that says in plain words what was wrong."""
    return Response(status, f"{sentence}\n".encode())


def take_head(buffer: bytearray) -> Head | Response | None:
    """The next request, taken out of `buffer`; a Response where the connection cannot go on; None: more is needed."""
    blank = len(buffer) - len(buffer.lstrip(b"\r\n"))
    if blank:
        del buffer[:blank]  # empty lines before a request are ignored (§2.2)
    end = _HEAD_END.search(buffer, 0, HEAD_BYTES_MAX + HEAD_END_BYTES_MAX)
    if end is None and len(buffer) < HEAD_BYTES_MAX + HEAD_END_BYTES_MAX:
        return None
    if end is None or end.start() > HEAD_BYTES_MAX:
        return refusal(431, f"the request line and the headers have more than {HEAD_BYTES_MAX} bytes")
    lines = [line.removesuffix("\r") for line in buffer[: end.start()].decode("latin-1").split("\n")]
    del buffer[: end.end()]
    return _head_of(lines)


def _head_of(lines: list[str]) -> Head | Response:
    found = _REQUEST_LINE.fullmatch(lines[0])
    if found is None:
        return refusal(400, "the request line is not one of HTTP/1.1, such as: GET /metrics HTTP/1.1")
    fields: dict[str, list[str]] = {}
    for line in lines[1:]:
        field = _FIELD.fullmatch(line)
        if field is None:
            return refusal(400, "a header is not of the form name: value")
        fields.setdefault(field[1].lower(), []).append(field[2].strip())
    fault = _fault_of(found, fields)
    if fault is not None:
        return fault
    return Head(found[1], _path_of(found[2]), _keeps_open(found[3], fields), ", ".join(fields.get("accept", ())))


def _fault_of(line: re.Match[str], fields: dict[str, list[str]]) -> Response | None:
    hosts = len(fields.get("host", ()))
    if hosts > 1 or (line[3] == "1" and not hosts):
        return refusal(400, "a request of HTTP/1.1 has exactly one header Host")
    lengths = fields.get("content-length", [])
    if "transfer-encoding" in fields or any(length.strip("0") for length in lengths) or len(lengths) > 1:
        return refusal(400, "requests have no body here; leave out Content-Length and Transfer-Encoding")
    return None


def _path_of(target: str) -> str:
    """Path of the origin form or of the absolute one (§3.2), without its query."""
    path = _ABSOLUTE.sub("", target, count=1) or "/"
    return path.partition("?")[0].partition("#")[0]


def _keeps_open(minor: str, fields: dict[str, list[str]]) -> bool:
    wishes = {wish.strip().lower() for value in fields.get("connection", ()) for wish in value.split(",")}
    return "close" not in wishes and (minor == "1" or "keep-alive" in wishes)


def head_bytes(response: Response, keeps_open: bool, date: str) -> bytes:
    """Status line and headers of an answer. `date` as in RFC 9110 §5.6.7."""
    lines = [
        f"HTTP/1.1 {response.status} {REASONS[response.status]}",
        f"Date: {date}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(response.body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        f"Connection: {'keep-alive' if keeps_open else 'close'}",
    ]
    if response.status == 405:
        lines.append(f"Allow: {', '.join(METHODS)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
