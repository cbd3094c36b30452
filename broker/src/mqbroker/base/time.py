"""Time as an input. `At` is made in `io/` (or by the simulator) and handed to every step."""

from __future__ import annotations

from typing import NamedTuple

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


class At(NamedTuple):
    """One instant: timers go by `monotonic_ns`, expiry and schedules by `wall_ms` (since 1970, UTC)."""

    monotonic_ns: int
    wall_ms: int
