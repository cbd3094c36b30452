"""How long tests wait for what comes in a moment where the machine is idle.

Who waits for something waits until it is there, so a long limit costs nothing where all is well, and a short one fails
where others use the machine. Below are only those that say what has not happened, well before the limit of a test.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

PATIENCE_S: Final = 120.0


def wait_until(holds: Callable[[], object], what: str = "") -> None:
    """Until it holds, which may take a moment. Looks again and again, and never fails for a number of looks."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline_s, f"not within {PATIENCE_S:g} s: {what or holds}"
        time.sleep(0.01)
