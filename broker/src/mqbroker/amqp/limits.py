"""What one connection may ask of us."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What we allow a peer. Sizes in bytes."""

    frame_size_max: int
    frame_size_before_open_max: int
    idle_timeout_ms: int
    sessions_max: int
    links_max: int
    partial_bytes_max: int
