"""How many breaks of each module were tried, how many were noticed, and how many were not."""

from __future__ import annotations

from collections import Counter


class Tally:
    """What became of the breaks of each module. Told of at the end, also where the run is cut off."""

    def __init__(self, places: dict[str, int]) -> None:
        self._places = places
        self.noticed: Counter[str] = Counter()
        self.survived: Counter[str] = Counter()

    def __str__(self) -> str:
        tried = [module for module in self._places if self.noticed[module] + self.survived[module]]
        rows = [
            self._row(module, self.noticed[module], self.survived[module], self._places[module]) for module in tried
        ]
        both = self.noticed.total(), self.survived.total()
        return "\n".join([*rows, self._row("all", *both, sum(self._places.values()))])

    @staticmethod
    def _row(name: str, noticed: int, survived: int, lines: int) -> str:
        return f"{name:26} {noticed + survived:5} tried {noticed:5} noticed {survived:5} survived, of {lines:5} lines"
