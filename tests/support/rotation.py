"""What a run of all takes on every other day: long stories on hosts, the other half of them on the days between.

Also the day that it says, by which tables have a third of their rows each day (tests/sim/days.py).

    @pytest.mark.every_other_day(1)  # on days whose number is odd

`.ci/checks.py test` says the day, that of the newest commit; without one, and in a part that is called by its name, all
is taken. What is left out on a day is no skip: it is not there.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

DAY = "CHECKS_DAY"
MARK = "every_other_day"


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
    """Whether it says that it is taken on the days between."""
    mark = item.get_closest_marker(MARK)
    return mark is not None and mark.args[0] != today % 2
