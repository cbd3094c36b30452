"""Writes everything that is made from declarations of options and operations: references, JSON schema, slices,
defaults and argument_specs of the role; and what is a copy of another file in another place or form.

Each piece is a function that returns {path from the root: text}. Without arguments the files are written; `--check`
writes nothing, names stale files and exits with 1.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import copies
import mqctl_reference
import operations
import playbook_variables
import references
import role_broker
import slices

ROOT = Path(__file__).resolve().parent.parent

PIECES: tuple[Callable[[], dict[str, str]], ...] = (
    references.files,
    role_broker.files,
    mqctl_reference.files,
    copies.files,
    slices.files,
    operations.files,
    playbook_variables.files,
)


def stale(root: Path = ROOT) -> dict[str, str]:
    """Files whose content on disk is not what it would be made now."""
    wanted = {path: text for piece in PIECES for path, text in piece().items()}
    return {path: text for path, text in wanted.items() if _content(root / path) != text}


def _content(file: Path) -> str | None:
    return file.read_text(encoding="utf-8") if file.exists() else None


def main(arguments: list[str]) -> int:
    """Write or check; the result is the exit code."""
    if arguments not in ([], ["--check"]):
        print("usage: generate.py [--check]", file=sys.stderr)
        return 2
    found = stale()
    if arguments:
        for path in found:
            print(f"{path} is stale; run `make gen` and commit the result", file=sys.stderr)
        return 1 if found else 0
    for path, text in found.items():
        file = ROOT / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
