"""Values with other fields."""

from __future__ import annotations

from typing import TypeVar

from mqbroker.base.value import Value

V = TypeVar("V", bound=Value)


def replaced(value: V, **changes: object) -> V:
    """The same but for `changes`."""
    fields = {name: getattr(value, name) for name in type(value).__match_args__}
    return type(value)(**{**fields, **changes})
