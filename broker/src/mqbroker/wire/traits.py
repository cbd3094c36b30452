"""What a message says of itself beyond its header section, as far as the broker acts on it."""

from __future__ import annotations

from typing import NamedTuple


class Traits(NamedTuple):
    """What a message says beyond its header section that makes the broker treat it apart (parts.py finds it).

    Times are wall clock, ms since 1970; 0 or empty: the message does not say. `delay_ms` counts from arrival.
    """

    expires_ms: int = 0
    deliver_at_ms: int = 0
    delay_ms: int = 0
    group_id: str = ""
    group_sequence: int = 0
    duplicate_id: bytes = b""
    last_value: str = ""


PLAIN = Traits()
