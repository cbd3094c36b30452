"""Medians, spread and ratios of a few rounds. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """What the rounds gave for one figure, in the order of the rounds."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        """The figure that stands in tables."""
        return statistics.median(self.samples)

    @property
    def lowest(self) -> float:
        """The smallest sample."""
        return min(self.samples)

    @property
    def highest(self) -> float:
        """The largest sample."""
        return max(self.samples)

    def quantile(self, fraction: float) -> float:
        """Linear between neighbours, the ends included: of five samples the quartiles are the second and fourth."""
        ordered = sorted(self.samples)
        place = fraction * (len(ordered) - 1)
        below = int(place)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def spread(samples: Sequence[float]) -> Spread:
    """A Spread of at least one sample."""
    if not samples:
        raise ValueError("no samples: a figure needs at least one round")
    return Spread(tuple(samples))


def paired_ratio(ours: Spread, theirs: Spread) -> Spread | None:
    """Round by round, because a noisy minute hits both sides of its round. None where a peer's figure is zero."""
    if len(ours.samples) != len(theirs.samples):
        raise ValueError(f"{len(ours.samples)} rounds against {len(theirs.samples)}: ratios need the same rounds")
    if not all(theirs.samples):
        return None
    return Spread(tuple(our / their for our, their in zip(ours.samples, theirs.samples, strict=True)))
