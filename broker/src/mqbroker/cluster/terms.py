"""The highest term that each other node was heard in: which of its processes are of the past.

Invariants: what is remembered of a node only grows, so a process that was deposed counts for nothing, whoever tells of
it and however it is met; nodes without terms cost nothing. Source: docs/adr/0023-term.md.
"""

from __future__ import annotations

from typing import Final

from mqbroker.base.look import LOOK

TERMS_MAX: Final = 4000  # nodes; the one that was remembered first is forgotten


class HighestTerms:
    """See the module's docstring."""

    def __init__(self) -> None:
        self._highest: dict[str, int] = {}

    def of(self, node_id: str) -> int:
        """The highest that was heard, 0 for none."""
        return self._highest.get(node_id, 0)

    def hear(self, node_id: str, term: int) -> bool:
        """A process of this node is, or was, in this term; whether that deposes those that were heard before."""
        if term <= self.of(node_id):
            return False
        LOOK.has_touched = True
        self._highest.pop(node_id, None)
        self._highest[node_id] = term
        if len(self._highest) > TERMS_MAX:
            del self._highest[next(iter(self._highest))]
        return True
