"""Repeated tables of a file as TOML has them, before their models have looked at them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mqbroker.base.errors import ConfigFault

TableRows = Sequence[tuple[int, Mapping[str, Any]]]


def rows_of(tables: object) -> TableRows:
    """Those that are tables, each with its number."""
    numbered = enumerate(tables if isinstance(tables, list) else [])
    return [(number, item) for number, item in numbered if isinstance(item, dict)]


def names_twice(head: str, rows: TableRows, unknown: object) -> Iterator[ConfigFault]:
    """Faults of names that two tables have. Nothing is said of the value `unknown`."""
    seen: dict[str, int] = {}
    for number, row in rows:
        name = row.get("name")
        if not isinstance(name, str) or name == unknown:
            continue
        if name in seen:
            why = f"{name} is declared twice, first as {head}.{seen[name]}; rename one of them"
            yield ConfigFault(f"{head}.{number}.name", why)
        seen.setdefault(name, number)


def missing(path: str, kind: str, wanted: object, rows: TableRows, unknown: object) -> Iterator[ConfigFault]:
    """The fault of a reference to a table `kind` that is not there."""
    names = [row.get("name") for _, row in rows]
    if isinstance(wanted, str) and wanted not in names and unknown not in (wanted, *names):
        known = ", ".join(str(name) for name in names) or "none"
        noun = kind.removesuffix("s").replace("-", " ")
        yield ConfigFault(path, f"there is no {noun} {wanted}; declare it as [[{kind}]] (there are: {known})")
