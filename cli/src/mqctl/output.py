"""Data on standard output: the same rows as a table, as JSON or as CSV.

Invariant: nothing is cut off, and nothing drives a terminal, whatever others have put into it. A table on a terminal
folds long cells; anywhere else it is as wide as it must be. In a table no cell begins a line of its own. CSV has line
ends and tabs as they were said, and other control characters made visible; JSON has everything as it was said, escaped.
JSON carries `schema`, a name with a version that changes when a field changes its meaning or goes away.
"""

from __future__ import annotations

import csv
import enum
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from mqbroker.base.text import one_line, printable
from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style
from rich.text import Text

from mqctl.errors import UsageError

UNLIMITED_COLUMNS = 100_000
GAP = "  "
STYLES = {
    "running": "green", "ok": "green", "stopped": "red", "failed": "red", "unreachable": "red", "error": "red",
    "absent": "yellow", "starting": "yellow", "warning": "yellow",
}  # fmt: skip


class Format(enum.StrEnum):
    """How rows are written: a table, JSON or CSV."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class Column:
    """`name` is the key of a row and the name in JSON, CSV and `--columns`; `wide_only` hides it in plain tables."""

    name: str
    is_number: bool = False
    wide_only: bool = False


@dataclass(slots=True)
class Rows:
    """A result of a command. `extra` stands beside the rows in JSON (the hash of a plan, for example)."""

    schema: str
    columns: Sequence[Column]
    rows: list[dict[str, Any]] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OutputShape:
    """What the user asked for: the format, and which columns; none: all."""

    format: Format = Format.TABLE
    columns: tuple[str, ...] = ()


def chosen_columns(rows: Rows, shape: OutputShape) -> list[Column]:
    """The columns to show, in the order that the user named them in."""
    if not shape.columns:
        return [one for one in rows.columns if shape.format is not Format.TABLE or not one.wide_only]
    known = {one.name: one for one in rows.columns}
    unknown = [name for name in shape.columns if name not in known]
    if unknown:
        raise UsageError(f"--columns: there is no column {', '.join(unknown)}", f"--columns {','.join(known)}")
    return [known[name] for name in shape.columns]


def cell_text(value: Any) -> str:
    """One cell for people and CSV: nothing for None, yes and no for booleans, lists separated by spaces."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return " ".join(cell_text(one) for one in value)
    return str(value)


def counted(count: int, noun: str) -> str:
    """A number and its noun: `1 host`, `2 hosts`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def write(rows: Rows, shape: OutputShape, console: Console) -> None:
    """Write all rows to the file of `console`."""
    columns = chosen_columns(rows, shape)
    if shape.format is Format.JSON:
        kept = [{one.name: row.get(one.name) for one in columns} for row in rows.rows] if shape.columns else rows.rows
        write_json({"schema": rows.schema, **rows.extra, "rows": kept}, console.file)
    elif shape.format is Format.CSV:
        write_csv([one.name for one in columns], rows.rows, console.file)
    else:
        _write_table(columns, rows.rows, console)


def write_json(value: dict[str, Any], out: Any) -> None:
    """One JSON document, indented, keys in the order that they were given."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    out.write("\n".join(_escaped(line) for line in text.split("\n")) + "\n")


def _escaped(line: str) -> str:
    """What `json.dumps` leaves of control characters, and of marks that turn the direction of writing."""
    if line.isprintable():
        return line
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1].replace("\x7f", "\\u007f") for one in line)


def write_csv(names: Sequence[str], rows: Iterable[dict[str, Any]], out: Any) -> None:
    """RFC 4180 with a header line; line ends are newlines, as in every other output, and nothing drives a terminal."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow([printable(cell_text(row.get(name))) for name in names])


def _write_table(columns: list[Column], rows: list[dict[str, Any]], console: Console) -> None:
    """Only the last column folds: an id in pieces is of no use. What is too wide for a terminal is wrapped by it.

    Made here, because rich's table takes a minute for the queues of a large broker: it lays out cell by cell.
    """
    titles = [one.name.replace("_", " ").upper() for one in columns]
    texts = [[one_line(cell_text(row.get(one.name))) for one in columns] for row in rows]
    widths = [max(map(cell_len, cells)) for cells in zip(titles, *texts, strict=True)]
    indent = " " * sum(width + len(GAP) for width in widths[:-1])
    words = (word for cells in texts for word in cells[-1].split())
    room = max(console.width - len(indent), *map(cell_len, (titles[-1], *words)))
    widths[-1] = min(widths[-1], room)
    colours = ColorSystem.STANDARD if console.color_system else None
    styles = {text: Style.parse(style) for text, style in STYLES.items()}
    title_style = Style(bold=True)

    def line(cells: Sequence[str], style_of: Callable[[str], Style | None]) -> str:
        shown = []
        for one, width, cell in zip(columns, widths, cells, strict=True):
            space = " " * (width - cell_len(cell))
            style = style_of(cell) if colours else None
            text = style.render(cell, color_system=colours) if style else cell
            shown.append(space + text if one.is_number else text + space)
        return GAP.join(shown).rstrip()

    lines = [line(titles, lambda _: title_style)]
    for *cells, last in texts:
        first, *others = [last] if cell_len(last) <= room else _folded(last, room, console)
        lines.append(line([*cells, first], styles.get))
        lines += [indent + part for part in others]
    console.file.write("".join(f"{one}\n" for one in lines))


def _folded(text: str, width: int, console: Console) -> list[str]:
    return [part.plain.rstrip() for part in Text(text).wrap(console, width, overflow="fold")]


def data_console(out: TextIO, *, has_colour: bool) -> Console:
    """A console for standard output that cuts nothing: beyond a terminal its width has no bound."""
    is_terminal = out.isatty()
    return Console(
        file=out,
        force_terminal=is_terminal,
        color_system="standard" if has_colour and is_terminal else None,
        width=None if is_terminal else UNLIMITED_COLUMNS,
        highlight=False,
        emoji=False,
        markup=False,
    )
