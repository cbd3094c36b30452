# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The offset between two clocks, from readings taken through a connection. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Reading:
    """The host's time, and our own before and after it was asked for; seconds since 1970."""

    before_s: float
    host_s: float
    after_s: float

    @property
    def offset_ms(self) -> float:
        """How far the host is ahead, if it read its clock in the middle."""
        return round((self.host_s - (self.before_s + self.after_s) / 2) * 1000, 3)

    @property
    def uncertainty_ms(self) -> float:
        """The offset is wrong by at most as much."""
        return round((self.after_s - self.before_s) / 2 * 1000, 3)


def best(readings: Sequence[Reading]) -> Reading:
    """The one that says most."""
    return min(readings, key=lambda one: one.uncertainty_ms)
