"""What taking in a frame costs, in units of about a microsecond of the machine that this was measured on.

Only the proportions matter: they decide how much of what a peer sent is taken in before others have a turn. What grows
with something that the peer made before (its links, its deliveries that are not settled) is charged by that as well.
"""

from __future__ import annotations

from typing import Any, Final

from mqbroker.wire.performatives import Attach, Begin, Close, Detach, End, Open

NO_BOUND: Final = 1 << 62
EMPTY: Final = 1
DISPOSITION: Final = 3
FLOW: Final = 10
LINK_FLOW: Final = 15  # besides, for the queue that is looked at
RUN: Final = 25
TRANSFER: Final = 35  # by itself
OTHER: Final = 50
GENERAL: Final[dict[type[Any], int]] = {Open: 80, Begin: 45, Attach: 90, Detach: 45, End: 40, Close: 40}
# Of what is small, so many make a unit.
MESSAGES_SHIFT: Final = 5
BYTES_SHIFT: Final = 14
ENTRIES_SHIFT: Final = 3
