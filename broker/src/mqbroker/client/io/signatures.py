"""Options of calls, for whoever looks at a running program: `help()`, IPython and the like.

Checkers and editors read them from the typed dictionary that is unpacked in the call; what looks at a function sees
`**options` there, so it is told the same names, with their defaults.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def with_options(options: type, defaults: type) -> Callable[[F], F]:
    """Show the names of a typed dictionary in place of a call's `**options`, with the defaults of a dataclass."""

    def show(call: F) -> F:
        plain = inspect.signature(call)
        shown = [each for each in plain.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        values = {each.name: each.default for each in fields(defaults) if each.default is not MISSING}
        for name, kind in options.__annotations__.items():
            default = values.get(name)
            shown.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind))
        call.__signature__ = plain.replace(parameters=shown)  # type: ignore[attr-defined]  # as `inspect` has it
        return call

    return show
