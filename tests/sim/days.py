"""Which seeds a run takes: others each day on which something was committed, so that fixed counts see more in time.

The day is that of the newest commit, so a commit has the same seeds wherever and whenever it is tested. SIM_DAY says
another one. Seeds that once failed are taken every day (REGRESSIONS).

Of tables whose rows are alike a run of all takes a third each day, and says the day (tests/support/rotation.py).
Without one all of them are taken, and with SOAK=1.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from tests.support.rotation import SHARES, day_of_newest_commit, day_of_run

Row = TypeVar("Row")


def day() -> int:
    """Days since 1970; 0 where there is no history to ask."""
    if said := os.environ.get("SIM_DAY"):
        return int(said)
    return day_of_newest_commit(Path(__file__).parent) or 0


DAY = day()
TODAY = None if os.environ.get("SOAK") else day_of_run()
# The days of what is itself taken on one of three: by the others it would have the same share each time.
TURN = None if TODAY is None else TODAY // SHARES


def of_today(seeds: Sequence[int], count: int, today: int = DAY) -> Sequence[int]:
    """So many of them, the next ones each day; once all were taken, it begins again."""
    first = today % (len(seeds) // count) * count
    return seeds[first : first + count]


def share_of_today(rows: Iterable[Row], today: int | None = TODAY) -> list[Row]:
    """A third of a table, the next one each day, and of less than three rows one; without a day all."""
    table = list(rows)
    shares = min(SHARES, len(table))
    return table if today is None else table[today % shares :: shares]
