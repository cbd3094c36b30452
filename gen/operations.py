"""The reference of the admin protocol, from the rows of its operations."""

from __future__ import annotations

from collections.abc import Iterable

from mqbroker.admin.arguments import Argument
from mqbroker.admin.operation import JSON_KINDS, Operation
from mqbroker.admin.operations import OPERATIONS

HEAD = """# Operations of the admin socket

What a running broker answers on its admin socket, to root and to its own user alone, on its host: to
`mqbroker admin OPERATION key=value`, or to JSON lines (`{"id": 1, "op": "status", "args": {}}`) by
`mqbroker admin --stdio`. The broker itself has the same list: `mqbroker admin operations`. A wrong argument is an error
that names it, and so is one that there is not.

What *looks* is answered while the broker stops too, all else is refused then. What *changes* anything, or *ends* it,
leaves a line `admin` in the log with its outcome. What *takes part* does as a client or a node would.

| operation | what it does | arguments | answer | effect |
|---|---|---|---|---|
"""


def files() -> dict[str, str]:
    """The one file."""
    return {"docs/reference/operations.md": markdown(OPERATIONS.values())}


def markdown(rows: Iterable[Operation]) -> str:
    """The whole text."""
    return HEAD + "".join(map(line, rows))


def line(row: Operation) -> str:
    """One operation."""
    arguments = "<br>".join(map(_argument, row.arguments))
    return f"| `{row.name}` | {row.sentence} | {arguments} | {row.answer} | {row.effect.value} |\n".replace(
        "|  |", "| |"
    )


def _argument(argument: Argument) -> str:
    parts = [" or ".join(argument.choices) or JSON_KINDS[argument.kind]]
    if argument.bounds is not None:
        parts.append(f"{argument.bounds[0]} to {argument.bounds[1]}")
    if argument.is_needed:
        parts.append("needed")
    elif argument.default not in (None, ""):
        said = argument.default
        shown = str(said).lower() if isinstance(said, bool) else ", ".join(said) if isinstance(said, tuple) else said
        parts.append(f"else {shown}")
    return f"`{argument.name}`: {', '.join(parts)}"
