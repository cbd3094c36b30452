"""From tables that were validated to slices, the plain values that rooms get.

`slices.py` is generated from the declarations, and here is the one mapping between the two: a slice has the fields of
its table by the same names, lists are tuples, tables inside of a table are slices of their own.
"""

from __future__ import annotations

from typing import Any

from mqbroker.config import slices
from mqbroker.config.declarations.declaration import OptionTable


def slice_name(model: type[OptionTable]) -> str:
    """What the slice of a table is called: that of `LimitTable` is `LimitOptions`; settings are called so."""
    name = model.__name__.removesuffix("Table").removesuffix("File")
    return name if name.endswith("Settings") else f"{name}Options"


def slice_of(table: OptionTable, **instead: Any) -> Any:
    """The slice of a table. `instead`: fields that are not simply what was said."""
    said = {name: plain(getattr(table, name)) for name in type(table).model_fields if name not in instead}
    return getattr(slices, slice_name(type(table)))(**said, **instead)


def plain(value: Any) -> Any:
    """A value of an option as slices have it."""
    if isinstance(value, OptionTable):
        return slice_of(value)
    return tuple(map(plain, value)) if isinstance(value, list) else value
