"""Figures as a table for people and as JSON for programs. Pure: text in, text out.

Ratios are ours to theirs, round by round, so 2.0 at msg/s is twice as fast and 0.5 at microseconds is half as long.
Each peer's line has one, for the first figure of its row; a line of its own has those to the peer that is best at each.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

from bench.metrics import METRICS, Metric
from bench.rounds import Result
from bench.stats import Spread, paired_ratio

SCHEMA = 1


def ratios(results: Sequence[Result], ours: str) -> dict[str, dict[str, Spread]]:
    """Row → metric → our ratio to the best peer; rows without a peer are left out."""
    found: dict[str, dict[str, Spread]] = {}
    for mine in (result for result in results if result.peer == ours):
        others = [result for result in results if result.row == mine.row and result.peer != ours]
        row = {
            metric.name: _ratio(metric, mine, others)
            for metric in METRICS
            if metric.compared and metric.name in mine.figures
        }
        present = {name: value for name, value in row.items() if value is not None}
        if present:
            found[mine.row] = present
    return found


def _ratio(metric: Metric, mine: Result, others: list[Result]) -> Spread | None:
    candidates = [other.figures[metric.name] for other in others if metric.name in other.figures]
    if not candidates:
        return None
    best = max if metric.more_is_better else min
    return paired_ratio(mine.figures[metric.name], best(candidates, key=lambda figure: figure.median))


def number(value: float) -> str:
    """Three digits that mean something, thousands with commas."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.{2 if abs(value) < 10 else 1}f}"


def _cell(figure: Spread | None) -> str:
    if figure is None:
        return ""
    if len(figure.samples) == 1:
        return number(figure.median)
    return f"{number(figure.median)} ({number(figure.lowest)}–{number(figure.highest)})"


def table(results: Sequence[Result], ours: str) -> str:
    """Markdown: median, spread in brackets; one table for each run of rows that have the same figures."""
    against = ratios(results, ours)
    return "\n\n".join(_one_table(list(group), ours, against) for _, group in itertools.groupby(results, _columns))


def omissions(omitted: dict[tuple[str, str], str], titles: dict[str, str]) -> str:
    """A line for each row that a peer has no figures for, with the reason."""
    lines = [f"not measured: {peer}: {titles.get(row) or 'all rows'}: {why}\n" for (row, peer), why in omitted.items()]
    return "\n" + "".join(lines) if lines else ""


def _columns(result: Result) -> tuple[Metric, ...]:
    return tuple(metric for metric in METRICS if metric.name in result.figures)


def headline(results: Sequence[Result], ours: str) -> dict[tuple[str, str], Spread]:
    """(Row, peer) → our ratio to this peer at the row's first figure."""
    found = {}
    mine = {result.row: result for result in results if result.peer == ours}
    for result in results:
        if result.peer != ours and result.row in mine:
            first = _columns(result)[0]
            ratio = _ratio(first, mine[result.row], [result])
            if ratio is not None:
                found[result.row, result.peer] = ratio
    return found


def _one_table(results: list[Result], ours: str, against: dict[str, dict[str, Spread]]) -> str:
    metrics = _columns(results[0])
    singles = headline(results, ours)
    ratio_title = [f"{ours} ÷ it, {metrics[0].title}"] if singles else []
    lines = [["load", "broker", *(metric.title for metric in metrics), *ratio_title]]
    titled = ""
    for result in results:
        title, titled = "" if result.title == titled else result.title, result.title
        ratio = [_ratio_cell(singles.get((result.row, result.peer)))] if singles else []
        lines.append([title, result.peer, *(_cell(result.figures[metric.name]) for metric in metrics), *ratio])
        if result.peer == ours and result.row in against:
            row = against[result.row]
            cells = [_ratio_cell(row.get(metric.name)) for metric in metrics]
            lines.append(["", f"{ours} ÷ best", *cells, *([""] if singles else [])])
    return _markdown(lines)


def _ratio_cell(ratio: Spread | None) -> str:
    return f"{_cell(ratio)}×" if ratio else ""


def _markdown(lines: list[list[str]]) -> str:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    rows = [" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([f"| {rows[0]} |", rule, *(f"| {row} |" for row in rows[1:])])


def _figure(value: Spread) -> dict[str, Any]:
    return {
        "median": value.median,
        "lowest": value.lowest,
        "highest": value.highest,
        "samples": list(value.samples),
    }


def as_json(results: Sequence[Result], ours: str, facts: dict[str, Any]) -> str:
    """One document: what was measured where (`facts`), every sample, medians, ratios, units."""
    against = ratios(results, ours)
    document = {
        "schema": SCHEMA,
        "facts": facts,
        "units": {metric.name: metric.unit for metric in METRICS},
        "results": [
            {
                "row": result.row,
                "title": result.title,
                "broker": result.peer,
                "figures": {name: _figure(value) for name, value in result.figures.items()},
            }
            for result in results
        ],
        "ratios": {row: {name: _figure(value) for name, value in found.items()} for row, found in against.items()},
        "headline_ratios": [
            {"row": row, "broker": peer, "ratio": _figure(value)}
            for (row, peer), value in headline(results, ours).items()
        ],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
