"""What a node says of itself to others, and its form as JSON.

Keys that this release does not know are passed over, so a later one may add some within the same version; what is
known is checked to the letter. Sizes are bounded so that one datagram always holds all of it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

JSON_BYTES_MAX: Final = 1400  # with head and MAC below 1472, so that no Ethernet makes fragments of it
CONNECTORS_MAX: Final = 8
SEQ_MAX: Final = 2**63 - 1
PERIOD_MS_MAX: Final = 3_600_000
SCHEMES: Final = ("amqp", "amqps")

_NODE_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_BOOT_ID: Final = re.compile(r"[0-9a-f]{32}")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_HOST: Final = re.compile(r"[A-Za-z0-9:][A-Za-z0-9:._-]{0,252}")


class Malformed(Exception):
    """Not an announcement; the text says what is wrong."""


@dataclass(frozen=True, slots=True)
class Connector:
    """How a node is reached. `scheme` is amqps where the listener has TLS."""

    name: str
    scheme: str
    host: str
    port: int

    @property
    def uri(self) -> str:
        """For people."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Announcement:
    """One node at one time. `boot_id` is new in each process, `seq` grows within it; one comes every `period_ms`."""

    node_id: str
    boot_id: str
    seq: int
    name: str
    period_ms: int
    connectors: tuple[Connector, ...]


def to_json(announcement: Announcement) -> bytes:
    """As compact as it gets."""
    row = {
        "node_id": announcement.node_id,
        "boot_id": announcement.boot_id,
        "seq": announcement.seq,
        "name": announcement.name,
        "period_ms": announcement.period_ms,
        "connectors": [
            {"name": one.name, "scheme": one.scheme, "host": one.host, "port": one.port}
            for one in announcement.connectors
        ],
    }
    return json.dumps(row, separators=(",", ":")).encode()


def from_json(text: bytes) -> Announcement:
    """The way back. Raises Malformed, whatever the bytes are."""
    try:
        row = json.loads(text.decode(), object_pairs_hook=_distinct)
    except (ValueError, RecursionError):
        raise Malformed("is not JSON") from None
    if not isinstance(row, dict):
        raise Malformed("is no object")
    connectors = row.get("connectors")
    if not isinstance(connectors, list) or not 1 <= len(connectors) <= CONNECTORS_MAX:
        raise Malformed(f"connectors must be a list of 1 to {CONNECTORS_MAX}")
    return Announcement(
        node_id=_text(row, "node_id", _NODE_ID),
        boot_id=_text(row, "boot_id", _BOOT_ID),
        seq=_number(row, "seq", SEQ_MAX),
        name=_text(row, "name", _NAME),
        period_ms=_number(row, "period_ms", PERIOD_MS_MAX),
        connectors=tuple(_connector(one) for one in connectors),
    )


def _connector(row: Any) -> Connector:
    if not isinstance(row, dict):
        raise Malformed("a connector must be an object")
    if row.get("scheme") not in SCHEMES:
        raise Malformed(f"scheme must be one of {', '.join(SCHEMES)}")
    return Connector(_text(row, "name", _NAME), row["scheme"], _text(row, "host", _HOST), _number(row, "port", 65_535))


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key comes twice")
    return made


def _text(row: dict[str, Any], key: str, form: re.Pattern[str]) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not form.fullmatch(value):
        raise Malformed(f"{key} is missing or not well-formed")
    return value


def _number(row: dict[str, Any], key: str, maximum: int) -> int:
    value = row.get(key)
    # True is an int to Python, and a lie here.
    if type(value) is not int or not 1 <= value <= maximum:
        raise Malformed(f"{key} must be a number from 1 to {maximum}")
    return value
