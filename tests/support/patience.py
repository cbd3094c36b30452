"""How long tests wait for what comes in a moment where the machine is idle.

Who waits for something waits until it is there, so a long limit costs nothing where all is well, and a short one fails
where others use the machine. Below are only those that say what has not happened, well before the limit of a test.
"""

from __future__ import annotations

from typing import Final

PATIENCE_S: Final = 120.0
