"""Ratios that must hold. A floor fails only when even the better quartile of the rounds misses it: a shared machine has
bad minutes, and a check that fails by chance is soon ignored. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from bench.rows import METRICS
from bench.stats import Spread

QUARTILE = 0.25


@dataclass(frozen=True, slots=True)
class Floor:
    """Our ratio to the best peer at this figure of this row."""

    row: str
    metric: str
    ratio: float


FLOORS = (
    Floor("plain-100B-acknowledged", "rate", 1.2),
    Floor("durable-1000", "rate", 1.0),
    Floor("durable-1000-consumer", "rate", 1.0),
)

_MORE_IS_BETTER = {metric.name: metric.more_is_better for metric in METRICS}


def missed(ratios: dict[str, dict[str, Spread]], floors: tuple[Floor, ...] = FLOORS) -> list[str]:
    """A sentence for each floor that does not hold or was not measured."""
    return [sentence for floor in floors if (sentence := _judge(floor, ratios.get(floor.row, {}).get(floor.metric)))]


def _judge(floor: Floor, found: Spread | None) -> str:
    if found is None:
        return f"{floor.row}: {floor.metric} was not measured against a peer, so its floor of {floor.ratio}× is unknown"
    more = _MORE_IS_BETTER[floor.metric]
    better = found.quantile(1 - QUARTILE if more else QUARTILE)
    if better >= floor.ratio if more else better <= floor.ratio:
        return ""
    return f"{floor.row}: {floor.metric} is {better:.2f}× at the better quartile; the floor is {floor.ratio}×"
