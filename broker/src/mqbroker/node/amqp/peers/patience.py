"""How long the other end of a connection is waited for."""

from __future__ import annotations

from typing import NamedTuple


class Patience(NamedTuple):
    """How long the other end has until it is opened, and how long it may be silent then (0: for ever)."""

    opened_ms: int
    idle_ms: int
