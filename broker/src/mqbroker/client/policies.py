"""Load-balancing policies: which of several brokers a connection tries first. Artemis's four.

Connections of one process that name the same brokers share a policy, so they take turns. Chance is given from outside.
"""

from __future__ import annotations

from collections.abc import Callable

from mqbroker.client.errors import UriFault

Draw = Callable[[int], int]
"""A number from 0 to below its argument."""


class RoundRobin:
    """Each the next one; the first is drawn, so that processes do not all begin at one broker."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._at = -1

    def __call__(self, count: int) -> int:
        self._at = self._draw(count) if self._at < 0 else (self._at + 1) % count
        return self._at % count


class RandomSticky:
    """Which of a list is taken: drawn at random once, and the same place from then on."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._at = -1

    def __call__(self, count: int) -> int:
        if self._at < 0:
            self._at = self._draw(count)
        return self._at % count


def first_element(count: int) -> int:
    """The index of the first of the list, each time."""
    return 0


def policy_named(name: str, draw: Draw) -> Callable[[int], int]:
    """A new policy of that name. Raises UriFault."""
    if name == "round-robin":
        return RoundRobin(draw)
    if name == "random":
        return draw
    if name == "random-sticky":
        return RandomSticky(draw)
    if name == "first-element":
        return first_element
    raise UriFault(f"there is no load-balancing policy {name!r}")
