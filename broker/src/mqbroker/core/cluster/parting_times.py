"""How long clients may stay at a node that leaves, which its heir reckons with.

Source: docs/adr/0027-scale-down.md.
"""

from __future__ import annotations

from typing import Final

from mqbroker.base.time import NS_PER_S

GRACE_NS: Final = 1 * NS_PER_S  # so long clients that are here may go on
STAY_NS: Final = 10 * NS_PER_S  # so much longer those with an open transaction, or with unsettled messages
CARGO_NS: Final = 5 * NS_PER_S  # so long those that go are held for the heir to know the ids of duplicate detection
# All of that, where some are held when the others may still stay a moment, and these are held after that.
BEGINS_NS: Final = GRACE_NS + STAY_NS + 2 * CARGO_NS
