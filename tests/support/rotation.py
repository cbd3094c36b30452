"""What a run of all takes on one day of three: long stories, and what mqctl does on hosts that are folders.

    @pytest.mark.one_day_in_three(1)  # on days whose number has the rest 1

Each slow test of mqctl (tests/unit/mqctl) starts dozens of processes, and most breaks of what they share break many of
them; so a third of those is taken each day, by their names, without a mark. Quick ones are taken each day.
`.ci/checks.py test` says the day, that of the newest commit; without one, and in a part that is called by its name, all
is taken. What is left out on a day is no skip: it is not there. Tables have a third of their rows each day by the same
day (tests/sim/days.py), and whole parts of a run have one of three (.ci/checks.py).
"""

from __future__ import annotations

import os
import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pytest

DAY: Final = "CHECKS_DAY"
MARK: Final = "one_day_in_three"
SHARES: Final = 3
SHARED: Final = "tests/unit/mqctl/"


def day_of_run() -> int | None:
    """What a run of all says; nothing where everything is taken."""
    said = os.environ.get(DAY, "")
    return int(said) if said else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A hook, for conftest.py."""
    today = day_of_run()
    others = {item for item in items if today is not None and is_of_another_day(item, today)}
    if others:
        config.hook.pytest_deselected(items=[item for item in items if item in others])
        items[:] = [item for item in items if item not in others]


def is_of_another_day(item: pytest.Item, today: int) -> bool:
    """Whether it says, or its name where it needs no mark, that it is taken on other days."""
    if mark := item.get_closest_marker(MARK):
        share = mark.args[0]
    elif item.nodeid.startswith(SHARED) and item.get_closest_marker("slow"):
        share = zlib.crc32(item.nodeid.encode()) % SHARES
    else:
        return False
    return bool(share != today % SHARES)
