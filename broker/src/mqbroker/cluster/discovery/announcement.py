"""What a node says of itself to others, and its form as JSON.

Keys that this release does not know are passed over, so a later one may add some within the same version; what is
known is checked to the letter. Sizes are bounded so that one datagram always holds all of it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from mqbroker.base.term import TERM_MAX
from mqbroker.cluster.fields import (
    BOOT_ID,
    NAME,
    NODE_ID,
    SCHEMES,
    Connector,
    MalformedField,
    connector_rows,
    connectors_of,
    flag_of,
    number_of,
    object_in,
    text_of,
)

__all__ = ["SCHEMES", "Announcement", "Connector", "MalformedField", "from_json", "to_json"]

JSON_BYTES_MAX: Final = 1400  # with head and MAC below 1472, so that no Ethernet makes fragments of it
CONNECTORS_MAX: Final = 8
SEQ_MAX: Final = 2**63 - 1
PERIOD_MS_MAX: Final = 3_600_000
HEARS_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Announcement:
    """One node at one time. `boot_id` is new in each process, `seq` grows within it; one comes every `period_ms`.

    `started_ms` is when the process started, by the clock of its host, 0 where that is not said. `has_yielded`: it has
    left its node id to another process and is no node of the cluster (cluster/node_id_conflict.py). `hears` are the
    boot ids of other processes with its node id that it hears: what was recorded before a process was started cannot
    name it.
    """

    node_id: str
    boot_id: str
    seq: int
    name: str
    period_ms: int
    connectors: tuple[Connector, ...]
    started_ms: int = 0
    has_yielded: bool = False
    hears: tuple[str, ...] = ()
    term: int = 0  # of the node, 0 where that is not said


def to_json(announcement: Announcement) -> bytes:
    """The announcement as JSON without blanks, as a datagram carries it."""
    row: dict[str, Any] = {
        "node_id": announcement.node_id,
        "boot_id": announcement.boot_id,
        "seq": announcement.seq,
        "name": announcement.name,
        "period_ms": announcement.period_ms,
        "connectors": connector_rows(announcement.connectors),
        "started_ms": announcement.started_ms,
        "yielded": announcement.has_yielded,
        "hears": list(announcement.hears),
    }
    if announcement.term:
        row["term"] = announcement.term
    return json.dumps(row, separators=(",", ":")).encode()


def from_json(text: bytes) -> Announcement:
    """The way back. Raises Malformed, whatever the bytes are."""
    row = object_in(text)
    connectors = connectors_of(row, CONNECTORS_MAX)
    return Announcement(
        node_id=text_of(row, "node_id", NODE_ID),
        boot_id=text_of(row, "boot_id", BOOT_ID),
        seq=number_of(row, "seq", SEQ_MAX),
        name=text_of(row, "name", NAME),
        period_ms=number_of(row, "period_ms", PERIOD_MS_MAX),
        connectors=connectors,
        started_ms=number_of(row, "started_ms", SEQ_MAX, 0) if "started_ms" in row else 0,
        has_yielded=flag_of(row, "yielded"),
        hears=_hears_in(row),
        term=number_of(row, "term", TERM_MAX, 0) if "term" in row else 0,
    )


def _hears_in(row: dict[str, Any]) -> tuple[str, ...]:
    heard = row.get("hears", [])
    if not isinstance(heard, list) or len(heard) > HEARS_MAX:
        raise MalformedField(f"hears must be a list of at most {HEARS_MAX}")
    return tuple(text_of({"hears": each}, "hears", BOOT_ID) for each in heard)
