"""How long clients may stay at a node that leaves, which its heir reckons with.

Source: docs/adr/0027-scale-down.md.
"""

from __future__ import annotations

from typing import Final

from mqbroker.base.time import NS_PER_S

GRACE_NS: Final = 1 * NS_PER_S  # so long clients that are here may go on
STAY_NS: Final = 10 * NS_PER_S  # so much longer those with an open transaction, or with unsettled messages
