"""Messages on their way between files, the admin protocol and the terminal. Pure.

Requests are bounded in messages and in bytes, several are in flight at a time: enough to hide the way to the host,
few enough that an interrupted command knows what was accepted.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

CHUNK_COUNT_MAX = 500  # fewer where a broker says so (commands/messages/send.py)
CHUNK_BYTES_MAX = 4 * 2**20
REQUESTS_IN_FLIGHT = 4
NUMBER = "{n}"


def numbered(body: str, count: int) -> Iterator[bytes]:
    """`count` bodies: `{n}` in the text becomes 1, 2, …; without it all are the same."""
    for number in range(1, count + 1):
        yield typed(body.replace(NUMBER, str(number)))


def typed(text: str) -> bytes:
    """The bytes of a word of the command line, which need not be UTF-8."""
    return text.encode(errors="surrogateescape")


def lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """One body per line, without its line end. An empty line is an empty body."""
    for line in chunks:
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def to_wire(body: bytes, *, durable: bool, said: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A message for the operation `send`: text where it is UTF-8, else base64. `said`: what else every message has."""
    rest = {"durable": durable, **(said or {})}
    try:
        return {"body": body.decode(), **rest}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode(), **rest}


def chunked(
    bodies: Iterable[bytes], *, durable: bool, said: Mapping[str, Any] | None = None
) -> Iterator[list[dict[str, Any]]]:
    """Messages in requests that stay within both bounds, as JSON; one that is larger goes alone."""
    chunk: list[dict[str, Any]] = []
    size = 0
    for body in bodies:
        message = to_wire(body, durable=durable, said=said)
        length = len(json.dumps(message))
        if chunk and (len(chunk) == CHUNK_COUNT_MAX or size + length > CHUNK_BYTES_MAX):
            yield chunk
            chunk, size = [], 0
        chunk.append(message)
        size += length
    if chunk:
        yield chunk


def body_of(message: dict[str, Any]) -> bytes:
    """The body of a message as the operation `receive` describes it; values that are no text are JSON."""
    body, encoding = message.get("body"), message.get("body_encoding", "text")
    if body is None:
        return b""
    if encoding == "base64":
        return base64.b64decode(body)
    return json.dumps(body, ensure_ascii=False).encode() if encoding == "json" else str(body).encode()
