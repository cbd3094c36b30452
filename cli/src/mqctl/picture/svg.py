"""Clusters as SVG: one file without scripts, fonts or pictures of its own, for light and for dark pages.

Invariant: the same clusters give the same bytes. Nothing is told by colour alone: a link that is broken is dashed and
its label is a round one with a cross, one where messages wait is thick and its label is a square one with two bars.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from mqbroker.base.text import printable

from mqctl.picture.cluster import ClusterPicture, DrawingClass, LinkPicture, NodePicture
from mqctl.picture.layout import CHORDS_FROM, Box, Curve, PictureLayout, WantedCurve, lay_out

SIZE = 13
LINE = 18.0
PADDING = 12.0
MARGIN = 24.0
HEADING = 64.0
LABEL_HEIGHT = 22.0
ROW_HEIGHT = 28.0
ROWS_MIN = 8  # of one column, before a second one is begun
SAID_MAX = 12  # with more labels than this they say their number alone
NAME_MAX, WHY_MAX = 32, 90
ROW_WIDTH_MAX = 1900.0
LEGEND_WIDTH = 590.0
NARROW, WIDE = frozenset("iljtf.,:;'|!()[] "), frozenset("mwMW@%—→")
STYLE = """
  text { font-family: "DejaVu Sans", Verdana, Helvetica, Arial, sans-serif; font-size: 13px; fill: #1c2733; }
  .name, .title { font-weight: bold; } .title { font-size: 17px; } .dim { fill: #54687a; }
  .page { fill: #ffffff; } .panel { fill: #f4f7fa; stroke: #d3dce5; }
  .box { fill: #ffffff; stroke: #5b7387; stroke-width: 1.4; }
  .box.broken { stroke: #b3261e; stroke-width: 2.2; stroke-dasharray: 7 4; } .box.unknown { stroke-dasharray: 2 4; }
  .link { fill: none; stroke: #6b8499; stroke-width: 1.6; } .tip { fill: #6b8499; }
  .link.many { stroke-width: 1; stroke-opacity: 0.55; }
  .link.waiting { stroke: #9a5b00; stroke-width: 4; } .tip.waiting, .label.waiting, .mark.waiting { fill: #9a5b00; }
  .link.broken { stroke: #b3261e; stroke-width: 2.2; stroke-dasharray: 8 5; }
  .tip.broken, .label.broken, .mark.broken { fill: #b3261e; }
  .mark.fine { fill: #2b7a3b; } .mark.unknown { fill: #6b8499; }
  .sign { fill: none; stroke: #ffffff; stroke-width: 2; stroke-linecap: round; stroke-linejoin: round; }
  text.said { fill: #ffffff; font-weight: bold; font-size: 12px; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .dim { fill: #a3b1be; }
    .page { fill: #0d1117; } .panel { fill: #151c24; stroke: #323d49; } .box { fill: #1f2933; stroke: #8ba0b3; }
    .link { stroke: #8ba0b3; } .tip, .mark.unknown { fill: #8ba0b3; } .mark.fine { fill: #57c46b; }
    .link.waiting { stroke: #e8b04a; } .tip.waiting, .label.waiting, .mark.waiting { fill: #e8b04a; }
    .box.broken, .link.broken { stroke: #ff8a80; } .tip.broken, .label.broken, .mark.broken { fill: #ff8a80; }
    .sign { stroke: #0d1117; } text.said { fill: #0d1117; }
  }
"""  # fmt: skip
SIGNS = {
    DrawingClass.FINE: "M-3.5,0.3 l2.4,2.6 l4.6,-5.4",
    DrawingClass.WAITING: "M-2,-3.5 v7 M2,-3.5 v7",
    DrawingClass.BROKEN: "M-3,-3 l6,6 M3,-3 l-6,6",
    DrawingClass.UNKNOWN: "M-3.5,0 h7",
}
LEGEND = (
    (DrawingClass.FINE, "up, nothing waits"),
    (DrawingClass.WAITING, "up, messages wait"),
    (DrawingClass.BROKEN, "does not stand"),
)


@dataclass(frozen=True, slots=True)
class Trouble:
    """A link that has a label, with its number, which its line below the drawing has as well."""

    number: int
    link: LinkPicture


@dataclass(frozen=True, slots=True)
class LegendTable:
    """What is said below the drawing: `lines` of rows, the others beside them, each row `width` wide."""

    rows: tuple[tuple[str, ...], ...]
    widths: tuple[float, ...]
    width: float
    lines: int


@dataclass(frozen=True, slots=True)
class Panel:
    """One cluster, drawn with its corner at 0, 0."""

    width: float
    height: float
    lines: tuple[str, ...]


def svg(clusters: Sequence[ClusterPicture]) -> str:
    """The whole picture. Clusters stand beside each other while there is room, in the order given."""
    panels = [_panel(one) for one in clusters]
    places, width, height = _places(panels)
    height += 36
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(width)} {_n(height)}" '
        f'width="{_n(width)}" height="{_n(height)}" role="img">',
        f"<title>{_text('; '.join(f'{one.name}: {summary(one)}' for one in clusters))}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{_n(width)}" height="{_n(height)}"/>',
    ]
    for panel, (x, y) in zip(panels, places, strict=True):
        parts += [f'<g transform="translate({_n(x)},{_n(y)})">', *panel.lines, "</g>"]
    parts += [*_legend(MARGIN, height - 24), "</svg>"]
    return "\n".join(parts) + "\n"


def summary(cluster: ClusterPicture) -> str:
    """`3 nodes; of 6 links 5 stand; 120 messages wait`."""
    silent = sum(node.look is not DrawingClass.FINE for node in cluster.nodes)
    standing = sum(link.look is not DrawingClass.BROKEN for link in cluster.links)
    waiting = sum(link.depth for link in cluster.links)
    said = [f"{len(cluster.nodes)} node{'s' * (len(cluster.nodes) != 1)}{f', {silent} not heard' * bool(silent)}"]
    if cluster.links:
        is_whole = standing == len(cluster.links)
        said.append(f"all {standing} links stand" if is_whole else f"of {len(cluster.links)} links {standing} stand")
    if waiting:
        said.append(f"{waiting:,} messages wait")
    return "; ".join(said)


def text_width(text: str, *, is_bold: bool = False) -> float:
    """At most what the usual fonts need."""
    wide = sum(0.42 if one in NARROW else 1.0 if one in WIDE else 0.66 for one in text)
    return wide * SIZE * (1.1 if is_bold else 1.0)


def _places(panels: Sequence[Panel]) -> tuple[list[tuple[float, float]], float, float]:
    """Corners of the panels, and width and height of all with a margin around."""
    x = y = MARGIN
    below = right = MARGIN
    places = []
    for panel in panels:
        if x > MARGIN and x + panel.width > ROW_WIDTH_MAX:
            x, y = MARGIN, below
        places.append((x, y))
        x += panel.width + MARGIN
        right, below = max(right, x), max(below, y + panel.height + MARGIN)
    return places, max(right, LEGEND_WIDTH + 2 * MARGIN), below


def _panel(cluster: ClusterPicture) -> Panel:
    width, height = box_size(cluster.nodes)
    troubles = [Trouble(number, link) for number, link in enumerate(_troubled(cluster.links), 1)]
    drawn = list(_drawn(cluster, troubles))
    layout = lay_out(len(cluster.nodes), (width, height), [wanted for wanted, _, _ in drawn], LABEL_HEIGHT)
    left = min(box.x - box.width / 2 for box in layout.boxes)
    top = min(box.y - box.height / 2 for box in layout.boxes)
    across = max(box.x + box.width / 2 for box in layout.boxes) - left
    down = max(box.y + box.height / 2 for box in layout.boxes) - top
    table = _table(list(_rows(cluster, troubles)), across)
    heading = max(text_width(summary(cluster)), text_width(cluster.name, is_bold=True) * 1.4)
    inner = max(across, heading, table.width, LEGEND_WIDTH - 2 * MARGIN)
    full = inner + 2 * MARGIN
    rows_top = HEADING + down + MARGIN * 1.4
    full_height = rows_top + (table.lines * ROW_HEIGHT + MARGIN * 0.6 if table.lines else 0)
    lines = [
        f'<rect class="panel" width="{_n(full)}" height="{_n(full_height)}" rx="10"/>',
        f'<text class="title" x="{_n(MARGIN)}" y="30">{_text(cluster.name)}</text>',
        f'<text class="dim" x="{_n(MARGIN)}" y="50">{_text(summary(cluster))}</text>',
        f'<g transform="translate({_n(MARGIN + (inner - across) / 2 - left)},{_n(HEADING + 6 - top)})">',
        *_links(layout, drawn, cluster),
        *(line for node, box in zip(cluster.nodes, layout.boxes, strict=True) for line in _node(node, box)),
        "</g>",
        *_row_lines(table, troubles, rows_top),
    ]
    return Panel(full, full_height, tuple(lines))


def box_size(nodes: Sequence[NodePicture]) -> tuple[float, float]:
    """One size for all boxes of a cluster, so that no text is wider than its box."""
    names = [text_width(_cut(node.name, NAME_MAX), is_bold=True) + 24 for node in nodes]
    lines = [text_width(_cut(line, NAME_MAX)) for node in nodes for line in node.lines]
    count = max(len(node.lines) for node in nodes) + 1
    return max([*names, *lines]) + 2 * PADDING, count * LINE + 2 * PADDING - 4


def _troubled(links: Iterable[LinkPicture]) -> list[LinkPicture]:
    return [link for link in links if link.look is not DrawingClass.FINE]


def _drawn(
    cluster: ClusterPicture, troubles: Sequence[Trouble]
) -> Iterator[tuple[WantedCurve, DrawingClass, Trouble | None]]:
    """Curves: one for a pair where all is well both ways, else one for each link."""
    order = {node.key: number for number, node in enumerate(cluster.nodes)}
    number_of = {id(each.link): each for each in troubles}
    pairs: dict[tuple[int, int], list[LinkPicture]] = {}
    for link in cluster.links:
        ends = sorted((order[link.source], order[link.target]))
        pairs.setdefault((ends[0], ends[1]), []).append(link)
    for (a, b), links in sorted(pairs.items()):
        ways = {order[link.source] for link in links}
        if len(ways) == 2 and not _troubled(links):
            yield WantedCurve(a, b), DrawingClass.FINE, None
            continue
        sides = {a: 0, b: 0} if len(links) == 1 else {a: 1, b: 1}
        steps: dict[int, int] = {}
        for link in links:
            source = order[link.source]
            # Several connections between two nodes lie beside each other, further and further out.
            side = sides[source] * (1 + steps.get(source, 0))
            steps[source] = steps.get(source, 0) + 1
            trouble = number_of.get(id(link))
            width = 0.0 if trouble is None else text_width(_said(trouble, troubles), is_bold=True) + 32
            yield WantedCurve(source, order[link.target], side, width), link.look, trouble


def _said(one: Trouble, troubles: Sequence[Trouble]) -> str:
    return f"{one.number}" if len(troubles) > SAID_MAX else f"{one.number}: {one.link.short}"


def _links(
    layout: PictureLayout, drawn: Sequence[tuple[WantedCurve, DrawingClass, Trouble | None]], cluster: ClusterPicture
) -> Iterator[str]:
    """First all lines, then all labels, so that no line goes over a label."""
    names = [_cut(node.name, NAME_MAX) for node in cluster.nodes]
    troubles = [trouble for _, _, trouble in drawn if trouble is not None]
    for curve, (wanted, look, _) in zip(layout.curves, drawn, strict=True):
        arrow = "→" if wanted.side or look is not DrawingClass.FINE else "↔"
        ends = f"{names[wanted.source]} {arrow} {names[wanted.target]}"
        kind = f"{look} many" if len(names) >= CHORDS_FROM and look is DrawingClass.FINE else look
        yield (
            f'<path class="link {kind}" d="M{_p(curve.start)} Q{_p(curve.bend)} {_p(curve.end)}">'
            f"<title>{_text(ends)}</title></path>"
        )
        if wanted.side or look is not DrawingClass.FINE:
            yield _tip(curve, look)
    for label, (_, look, trouble) in zip(layout.labels, drawn, strict=True):
        if label is not None and trouble is not None:
            yield from _label(label, look, _said(trouble, troubles))


def _tip(curve: Curve, look: DrawingClass) -> str:
    """An arrow's head at the end of a curve."""
    (x, y), (bx, by) = curve.end, curve.bend
    length = ((x - bx) ** 2 + (y - by) ** 2) ** 0.5 or 1.0
    dx, dy = (x - bx) / length, (y - by) / length
    back = (x - 11 * dx, y - 11 * dy)
    left, right = (back[0] - 5 * dy, back[1] + 5 * dx), (back[0] + 5 * dy, back[1] - 5 * dx)
    return f'<path class="tip {look}" d="M{_p(curve.end)} L{_p(left)} L{_p(right)} z"/>'


def _label(box: Box, look: DrawingClass, said: str) -> Iterator[str]:
    round_by = box.height / 2 if look is DrawingClass.BROKEN else 3
    x, y = box.x - box.width / 2, box.y - box.height / 2
    yield (
        f'<rect class="label {look}" x="{_n(x)}" y="{_n(y)}" width="{_n(box.width)}" height="{_n(box.height)}" '
        f'rx="{_n(round_by)}"/>'
    )
    yield f'<path class="sign" transform="translate({_n(x + 13)},{_n(box.y)})" d="{SIGNS[look]}"/>'
    yield f'<text class="said" x="{_n(x + 23)}" y="{_n(box.y + 4.3)}">{_text(said)}</text>'


def _node(node: NodePicture, box: Box) -> Iterator[str]:
    x, y = box.x - box.width / 2, box.y - box.height / 2
    yield f"<g><title>{_text(f'{node.name}: {node.note}' if node.note else node.name)}</title>"
    yield (
        f'<rect class="box {node.look}" x="{_n(x)}" y="{_n(y)}" width="{_n(box.width)}" height="{_n(box.height)}" '
        'rx="8"/>'
    )
    mark = (x + PADDING + 8, y + PADDING + 7)
    yield f'<circle class="mark {node.look}" cx="{_n(mark[0])}" cy="{_n(mark[1])}" r="8"/>'
    yield f'<path class="sign" transform="translate({_n(mark[0])},{_n(mark[1])})" d="{SIGNS[node.look]}"/>'
    yield f'<text class="name" x="{_n(mark[0] + 14)}" y="{_n(mark[1] + 5)}">{_text(_cut(node.name, NAME_MAX))}</text>'
    for number, line in enumerate(node.lines, 1):
        below = _n(mark[1] + 5 + number * LINE)
        yield f'<text class="dim" x="{_n(x + PADDING)}" y="{below}">{_text(_cut(line, NAME_MAX))}</text>'
    yield "</g>"


def _rows(cluster: ClusterPicture, troubles: Sequence[Trouble]) -> Iterator[tuple[str, str, str, str]]:
    """The line of each label below the drawing: ends, state, what waits, and why."""
    names = {node.key: _cut(node.name, NAME_MAX) for node in cluster.nodes}
    has_several = len({link.connection for link in cluster.links}) > 1
    for each in troubles:
        link = each.link
        ends = f"{names[link.source]} → {names[link.target]}"
        waits = f"{link.depth:,} wait, the first for {link.lag_ms / 1000:,.1f} s" if link.depth else "nothing waits"
        connection = f"{link.connection}: " if has_several else ""
        yield ends, link.state, waits, _cut(connection + link.why, WHY_MAX)


def _table(rows: Sequence[tuple[str, ...]], room: float) -> LegendTable:
    """Several beside each other where there is room and many rows."""
    widths = [
        max(text_width(cell, is_bold=number == 0) for cell in column) + 18
        for number, column in enumerate(zip(*rows, strict=True))
    ]
    width = sum(widths) + 64
    beside = min(max(1, int(room // width)), -(-len(rows) // ROWS_MIN)) if rows else 1
    return LegendTable(tuple(rows), tuple(widths), width if rows else 0.0, -(-len(rows) // beside))


def _row_lines(table: LegendTable, troubles: Sequence[Trouble], top: float) -> Iterator[str]:
    for row, each in zip(table.rows, troubles, strict=True):
        column, line = divmod(each.number - 1, table.lines)
        x, y = MARGIN + column * table.width, top + line * ROW_HEIGHT + LABEL_HEIGHT / 2
        yield from _label(Box(x + 26, y, 52, LABEL_HEIGHT), each.link.look, str(each.number))
        x += 64
        for number, (cell, width) in enumerate(zip(row, table.widths, strict=True)):
            kind = "name" if number == 0 else "dim"
            yield f'<text class="{kind}" x="{_n(x)}" y="{_n(y + 4.5)}">{_text(cell)}</text>'
            x += width


def _legend(x: float, y: float) -> Iterator[str]:
    for look, said in LEGEND:
        curve = Curve((x, y), (x + 24, y), (x + 48, y))
        yield f'<path class="link {look}" d="M{_p(curve.start)} L{_p(curve.end)}"/>'
        if look is not DrawingClass.FINE:
            yield from _label(Box(x + 24, y, 26, 18), look, "")
        yield f'<text class="dim" x="{_n(x + 58)}" y="{_n(y + 4.5)}">{said}</text>'
        x += 58 + text_width(said) + 24


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _text(text: str) -> str:
    """What a host says must not end the element it stands in, nor hold what XML cannot."""
    return escape(printable(text).replace("\n", " ").replace("\t", " "), {'"': "&quot;"})


def _n(value: float) -> str:
    """A length with one decimal at most."""
    return f"{round(value, 1) + 0.0:g}" if abs(value) < 1e5 else f"{value:.0f}"


def _p(point: tuple[float, float]) -> str:
    return f"{_n(point[0])},{_n(point[1])}"
