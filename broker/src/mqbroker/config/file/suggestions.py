"""Did-you-mean for names that nobody knows."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """One sentence on an unknown name, with the nearest known one if any is near."""
    choices = sorted(known)
    near = difflib.get_close_matches(name, choices, n=1, cutoff=0.6)
    if near:
        return f"unknown {what}; did you mean {near[0]}?"
    return f"unknown {what}; known are {', '.join(choices)}"
