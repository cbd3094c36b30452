"""Where the parts of a picture stand: boxes on an ellipse, curves between them, labels on curves. Pure geometry.

Invariants: no two boxes meet, no curve goes through the box of a node that it does not belong to, and no label meets
a box or another label. Where a size does not allow this the ellipse grows, so the same input gives the same picture.
Lengths are pixels, y grows downwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mqctl.errors import CommandError

Point = tuple[float, float]
GAP = 44.0  # between two boxes
CLEARANCE = 6.0  # between a curve or a label and a box
LINK_LENGTH_MIN = 150.0  # room for a label between neighbours
GROWTH = 1.08
GROWTHS_MAX = 120
SAMPLES = 24
SPREAD = 9.0  # between the two directions of one pair, at their ends; in the middle it is more
CHORDS_FROM = 7  # from so many nodes on, links leave towards the middle and are bent to it
PULL = 0.35  # how far
# Where on a curve a label may stand: near the middle first.
STOPS = tuple(0.5 + sign * step / 40 for step in range(15) for sign in ((1,) if step == 0 else (1, -1)))


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle by its middle."""

    x: float
    y: float
    width: float
    height: float

    def meets(self, other: Box, gap: float = 0.0) -> bool:
        """Whether less than `gap` is between them, in both directions."""
        return (
            abs(self.x - other.x) < (self.width + other.width) / 2 + gap
            and abs(self.y - other.y) < (self.height + other.height) / 2 + gap
        )

    def holds(self, point: Point, gap: float = 0.0) -> bool:
        """Whether the point is in it, or nearer than `gap`."""
        return abs(point[0] - self.x) < self.width / 2 + gap and abs(point[1] - self.y) < self.height / 2 + gap

    def edge(self, inside: Point, outside: Point) -> Point:
        """Where the way from a point of the box to one outside leaves it."""
        dx, dy = outside[0] - inside[0], outside[1] - inside[1]
        across = (self.x + math.copysign(self.width / 2, dx) - inside[0]) / dx if dx else math.inf
        down = (self.y + math.copysign(self.height / 2, dy) - inside[1]) / dy if dy else math.inf
        share = min(across, down)
        return (inside[0] + dx * share, inside[1] + dy * share) if share < math.inf else inside


@dataclass(frozen=True, slots=True)
class Curve:
    """A quadratic Bézier curve."""

    start: Point
    bend: Point
    end: Point

    def at(self, share: float) -> Point:
        """The point at this share of the way, 0 to 1."""
        a, b, c = (1 - share) ** 2, 2 * share * (1 - share), share**2
        return (
            a * self.start[0] + b * self.bend[0] + c * self.end[0],
            a * self.start[1] + b * self.bend[1] + c * self.end[1],
        )

    def points(self) -> Iterator[Point]:
        """Some points of it, the ends left out."""
        return (self.at(number / SAMPLES) for number in range(1, SAMPLES))


@dataclass(frozen=True, slots=True)
class WantedCurve:
    """A curve to be drawn from one box to another. `side` is 0 for the middle, 1 to the left of the way there."""

    source: int
    target: int
    side: int = 0
    label_width: float = 0.0  # 0: it has none


@dataclass(frozen=True, slots=True)
class PictureLayout:
    """Boxes, curves and labels in the order of what was wanted; what has no label has None."""

    boxes: tuple[Box, ...]
    curves: tuple[Curve, ...]
    labels: tuple[Box | None, ...]


def lay_out(count: int, box: Point, wanted: Sequence[WantedCurve], label_height: float) -> PictureLayout:
    """Place `count` boxes of one size, what connects them, and labels."""
    across, down = box[0] * 0.6, box[1] * 0.9
    for _ in range(GROWTHS_MAX):
        boxes = tuple(Box(x, y, *box) for x, y in _on_ellipse(count, across, down))
        if _is_clear(boxes):
            curves = tuple(curve_between(boxes, one) for one in wanted)
            labels = _labels(boxes, curves, wanted, label_height)
            if labels is not None:
                return PictureLayout(boxes, curves, labels)
        across, down = across * GROWTH, down * GROWTH
    raise CommandError(f"{count} nodes with these links do not fit into a picture", "mqctl topology")


def _on_ellipse(count: int, across: float, down: float) -> list[Point]:
    """Two side by side, four in a square; else the first is at the top, and the others follow the clock."""
    if count == 1:
        return [(0.0, 0.0)]
    first = {2: math.pi, 4: -3 * math.pi / 4}.get(count, -math.pi / 2)
    angles = [first + 2 * math.pi * number / count for number in range(count)]
    return [(round(across * math.cos(angle), 3), round(down * math.sin(angle), 3)) for angle in angles]


def curve_between(boxes: Sequence[Box], one: WantedCurve) -> Curve:
    """From edge to edge: straight among few nodes, bent to the middle among many."""
    source, target = boxes[one.source], boxes[one.target]
    here, there = (source.x, source.y), (target.x, target.y)
    is_chord = len(boxes) >= CHORDS_FROM
    length = math.dist(here, there)
    left = ((there[1] - here[1]) / length * SPREAD * one.side, (here[0] - there[0]) / length * SPREAD * one.side)
    start = source.edge(_moved(here, left, 1), _moved((0.0, 0.0) if is_chord else there, left, 1))
    end = target.edge(_moved(there, left, 1), _moved((0.0, 0.0) if is_chord else here, left, 1))
    pull = PULL if is_chord else 0.0
    bend = ((start[0] + end[0]) / 2 * (1 - pull), (start[1] + end[1]) / 2 * (1 - pull))
    return Curve(start, _moved(bend, left, 1.6), end)


def _moved(point: Point, way: Point, times: float) -> Point:
    return point[0] + way[0] * times, point[1] + way[1] * times


def _is_clear(boxes: Sequence[Box]) -> bool:
    """Whether boxes leave room for each other and for every link that there could be."""
    pairs = [(a, b) for b in range(len(boxes)) for a in range(b)]
    if any(boxes[a].meets(boxes[b], GAP) for a, b in pairs):
        return False
    for a, b in pairs:
        for side in (-1, 0, 1):
            curve = curve_between(boxes, WantedCurve(a, b, side))
            if len(boxes) < CHORDS_FROM and math.dist(curve.start, curve.end) < LINK_LENGTH_MIN:
                return False
            others = [box for number, box in enumerate(boxes) if number not in (a, b)]
            if any(box.holds(point, CLEARANCE) for point in curve.points() for box in others):
                return False
    return True


def _labels(
    boxes: Sequence[Box], curves: Sequence[Curve], wanted: Sequence[WantedCurve], height: float
) -> tuple[Box | None, ...] | None:
    """Each where it meets nothing, as near to the middle of its curve as that is possible; None if one has no place."""
    placed: list[Box | None] = []
    for one, curve in zip(wanted, curves, strict=True):
        if not one.label_width:
            placed.append(None)
            continue
        taken = [box for box in placed if box is not None]
        candidates = (Box(*curve.at(stop), one.label_width, height) for stop in STOPS)
        free = (
            box
            for box in candidates
            if not any(box.meets(other, CLEARANCE) for other in boxes)
            and not any(box.meets(other, 3.0) for other in taken)
        )
        spot = next(free, None)
        if spot is None:
            return None
        placed.append(spot)
    return tuple(placed)
