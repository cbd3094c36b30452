"""Values with many fields that are made all the time, as performatives, inputs and effects are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

_Class = TypeVar("_Class")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(*, repr: bool = True) -> Callable[[type[_Class]], type[_Class]]:
    """Class decorator: `@dataclass(frozen=True, slots=True)` to whoever checks types, who refuses that a field is set.

    While it runs nobody does: a frozen class sets its own fields one after the other through `object`, and the twenty
    frames of a connection that comes and goes, or of a new queue, have some hundred of them.
    """
    return dataclass(slots=True, unsafe_hash=True, repr=repr)
