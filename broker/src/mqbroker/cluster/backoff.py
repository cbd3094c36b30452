"""When a node that could not be reached is tried again, and when no more.

The delay before attempt n is `retry-interval` times `retry-interval-multiplier` to the power of n, at most
`max-retry-interval`. Attempts are counted against `initial-connect-attempts` until a link stood once, and from then on
against `reconnect-attempts`, anew after each link that stood.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mqbroker.base.time import NS_PER_MS
from mqbroker.config.slices import ClusterConnectionOptions

UNBOUNDED = -1


@dataclass(frozen=True, slots=True)
class Backoff:
    """A value: each event gives the next one. `failures` counts attempts in vain since the last link."""

    interval_ms: int
    multiplier: float
    interval_ms_max: int
    initial_attempts: int
    reconnect_attempts: int
    failures: int = 0
    was_connected: bool = False

    @classmethod
    def of(cls, options: ClusterConnectionOptions) -> Backoff:
        """Before the first attempt."""
        return cls(
            options.retry_interval,
            options.retry_interval_multiplier,
            options.max_retry_interval,
            options.initial_connect_attempts,
            options.reconnect_attempts,
        )

    @property
    def is_exhausted(self) -> bool:
        """Whether no attempt is left."""
        attempts = self.reconnect_attempts if self.was_connected else self.initial_attempts
        return attempts != UNBOUNDED and self.failures >= attempts

    @property
    def delay_ns(self) -> int:
        """Time to the next attempt. The very first one needs none, the first after a lost link does."""
        if not self.failures and not self.was_connected:
            return 0
        exponent = self.failures if self.was_connected else self.failures - 1
        delay_ms = float(self.interval_ms)
        # Step by step up to the bound, because a power of many attempts is beyond all numbers.
        while exponent and self.multiplier > 1 and delay_ms < self.interval_ms_max:
            delay_ms *= self.multiplier
            exponent -= 1
        return int(min(delay_ms, self.interval_ms_max) * NS_PER_MS)

    def failed(self) -> Backoff:
        """An attempt was in vain."""
        return replace(self, failures=self.failures + 1)

    def connected(self) -> Backoff:
        """A link stands; should it be lost, counting begins anew."""
        return replace(self, failures=0, was_connected=True)
