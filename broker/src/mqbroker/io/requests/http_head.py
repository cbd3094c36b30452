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
    505: "HTTP Version Not Supported",
}
TEXT = "text/plain; charset=utf-8"

# A lone line feed ends a line as well (§2.2): people ask by hand.
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_LINE_END = re.compile(r"\r?\n")
_EMPTY_LINES = re.compile(rb"(?:\r?\n)*")
_REQUEST_LINE = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([!-~]+) HTTP/([0-9])\.([0-9])")
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*)")
# The origin form or the absolute one, whose host nobody looks at: there is one here (§3.2.1, §3.2.2).
_TARGET = re.compile(r"(?:https?://[^/?#@]+)?((?:/[^?#]*)?)(?:\?[^#]*)?", re.IGNORECASE)
# The host of a URI and its port (RFC 3986 §3.2.2); empty where the target has none.
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.vV]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]*)(?::[0-9]*)?")
# What surrounds the value of a header (§5): no more of Unicode's blanks.
_BLANKS = " \t"


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
    blank = _EMPTY_LINES.match(buffer)
    if blank is not None and blank.end():
        del buffer[: blank.end()]  # empty lines before a request are ignored (§2.2)
    end = _HEAD_END.search(buffer, 0, HEAD_BYTES_MAX + HEAD_END_BYTES_MAX)
    if end is None and len(buffer) < HEAD_BYTES_MAX + HEAD_END_BYTES_MAX:
        return None
    if end is None or end.start() > HEAD_BYTES_MAX:
        return refusal(431, f"the request line and the headers have more than {HEAD_BYTES_MAX} bytes")
    lines = _LINE_END.split(buffer[: end.start()].decode("latin-1"))
    del buffer[: end.end()]
    return _head_of(lines)


def _head_of(lines: list[str]) -> Head | Response:
    request_line = _REQUEST_LINE.fullmatch(lines[0])
    if request_line is None:
        return refusal(400, "the request line is not one of HTTP/1.1, such as: GET /metrics HTTP/1.1")
    if request_line[3] != "1":
        return refusal(505, "only HTTP/1.1 is spoken here")
    fields: dict[str, list[str]] = {}
    for line in lines[1:]:
        field = _FIELD.fullmatch(line)
        if field is None:
            return refusal(400, "a header is not of the form name: value")
        fields.setdefault(field[1].lower(), []).append(field[2].strip(_BLANKS))
    # A later minor version is answered as the latest one that is known (RFC 9110 §2.5).
    is_1_0 = request_line[4] == "0"
    fault = _fault_of(fields, is_1_0=is_1_0)
    if fault is not None:
        return fault
    target = _TARGET.fullmatch(request_line[2])
    if target is None and request_line[1] in METHODS:
        return refusal(400, "the target is no path, such as: GET /metrics HTTP/1.1")
    path = request_line[2] if target is None else target[1] or "/"
    return Head(request_line[1], path, _keeps_open(fields, is_1_0=is_1_0), ", ".join(fields.get("accept", ())))


def _fault_of(fields: dict[str, list[str]], *, is_1_0: bool) -> Response | None:
    hosts = fields.get("host", [])
    if len(hosts) > 1 or not (hosts or is_1_0):
        return refusal(400, "a request of HTTP/1.1 has exactly one header Host")
    if hosts and not _HOST.fullmatch(hosts[0]):
        return refusal(400, "the header Host names no host")
    lengths = fields.get("content-length", [])
    # One, of zeros alone. An empty one says nothing, so whoever is in between may take it for something else (§6.3).
    if "transfer-encoding" in fields or len(lengths) > 1 or any(set(length) != {"0"} for length in lengths):
        return refusal(400, "requests have no body here; leave out Content-Length and Transfer-Encoding")
    return None


def _keeps_open(fields: dict[str, list[str]], *, is_1_0: bool) -> bool:
    wishes = {wish.strip(_BLANKS).lower() for value in fields.get("connection", ()) for wish in value.split(",")}
    return "close" not in wishes and (not is_1_0 or "keep-alive" in wishes)


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
