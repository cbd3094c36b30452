"""States and events of the state tables (base/state_table.py). Each event says who makes it, so none can be added that
nobody answers for.
"""

from __future__ import annotations

import enum
from typing import Final


class Blame(enum.Enum):
    """Who makes an event, and so erred where it cannot be."""

    OURS = "ours"
    PEERS = "the peer's"


OURS: Final = Blame.OURS
PEERS: Final = Blame.PEERS


class StateMember(enum.Enum):
    """Each is there once, so its identity does for a hash; that of Enum would be a call in Python for each look-up."""

    __hash__ = object.__hash__


class StateEvent(StateMember):
    """What moves a state: its words, and who makes it."""

    @property
    def words(self) -> str:
        """For whoever reads of a fault."""
        words: str = self.value[0]
        return words

    @property
    def blame(self) -> Blame:
        """Whose fault it is where no state follows."""
        blame: Blame = self.value[1]
        return blame
