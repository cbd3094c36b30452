"""Time as an input. `At` is made in `io/` (or by the simulator) and handed to every step."""

from __future__ import annotations

from typing import Final, Protocol

from mqbroker.base.value import Value

NS_PER_US: Final = 1_000
NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000
STANDSTILL_MS_MAX: Final = 2_000  # so much of a standstill counts as time of a wait that ends by itself
LATE_NS: Final = 100 * NS_PER_MS  # from then on a deadline may have come while the process stood still


class At(Value):
    """One instant: timers go by `monotonic_ns`, expiry and schedules by `wall_ms` (since 1970, UTC)."""

    __match_args__ = ("monotonic_ns", "wall_ms")
    __slots__ = __match_args__

    def __init__(self, monotonic_ns: int, wall_ms: int) -> None:
        self.monotonic_ns: Final = monotonic_ns
        self.wall_ms: Final = wall_ms


class Timed(Protocol):
    """Whoever has a deadline: `due_ns` (0: none). `scheduled_ns` belongs to whoever watches it, 0 at first.

    One that judges others by what they did in time has `judges_others`, which is true (node/values/timers.py).
    """

    due_ns: int
    scheduled_ns: int

    def on_time(self, now_ns: int) -> None:
        """The deadline has come: act, and set `due_ns` to the next one."""
