"""Which of the numbered messages arrived, and how often. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

PREFIX = "order "


class Ledger:
    """Messages are numbered from 1 to `total`, behind what all bodies begin with; each must arrive once."""

    def __init__(self, total: int, prefix: str = PREFIX) -> None:
        self.total = total
        self.prefix = prefix
        self._seen: Counter[int] = Counter()
        self._strange: list[str] = []

    @property
    def arrived(self) -> int:
        """Deliveries so far, second ones included."""
        return sum(self._seen.values()) + len(self._strange)

    def take(self, bodies: Iterable[str]) -> list[int]:
        """Note what one consumer got; the numbers in their order."""
        numbers = []
        for body in bodies:
            number = body.removeprefix(self.prefix)
            if (
                body.startswith(self.prefix)
                and number.isascii()
                and number.isdigit()
                and 1 <= int(number) <= self.total
            ):
                numbers.append(int(number))
            else:
                self._strange.append(body)
        self._seen.update(numbers)
        return numbers

    def faults(self, expected: int) -> list[str]:
        """What is wrong if by now `expected` different messages should have arrived, once each."""
        twice = sorted(number for number, times in self._seen.items() if times > 1)
        found = []
        if len(self._seen) != expected:
            found.append(f"{len(self._seen)} different messages arrived instead of {expected}{self._missing(expected)}")
        if twice:
            found.append(f"{len(twice)} arrived more than once, the first of them {self.prefix}{twice[0]}")
        if self._strange:
            found.append(f"{len(self._strange)} are none of those that were sent, such as {self._strange[0][:40]!r}")
        return found

    def _missing(self, expected: int) -> str:
        if expected < self.total:
            return ""
        missing = [number for number in range(1, self.total + 1) if number not in self._seen]
        return f"; the first that is missing is {self.prefix}{missing[0]}" if missing else ""
