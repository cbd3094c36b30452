"""What a node has done since its process began, as plain integers that only grow. Messages are counted in Store."""

from __future__ import annotations

from dataclasses import dataclass

from mqbroker.base.errors import NoRoom, Refused
from mqbroker.base.look import LOOK


@dataclass(slots=True)
class Counters:
    """Counted once for a run, a login, a connection; never once for each message of a run."""

    connections: int = 0
    logins: int = 0
    logins_failed: int = 0
    delivered: int = 0  # messages handed to consumers, again and again where they came back
    rejected: int = 0  # messages that consumers rejected
    refused: int = 0  # messages of publishers for which memory, the disk or their transaction had no room
    malformed: int = 0  # what publishers sent and is no message
    bugs_contained: int = 0  # faults of ours that ended no more than one connection

    def count_refused(self, refused: Refused, count: int) -> None:
        """So many messages are not taken, and this is why; it counts where there was no room."""
        LOOK.has_touched = True
        if isinstance(refused, NoRoom):
            self.refused += count
