"""The reference of mqctl's command line."""

from __future__ import annotations

from mqctl.reference import markdown


def files() -> dict[str, str]:
    """Path from the root -> text."""
    return {"docs/reference/mqctl.md": markdown()}
