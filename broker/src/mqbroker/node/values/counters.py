"""What a node has done since its process began, as plain integers that only grow. Messages are counted in Store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mqbroker.base.look import LOOK

FULL: Final = "amqp:resource-limit-exceeded"


@dataclass(slots=True)
class Counters:
    """Counted once for a run, a login, a connection; never once for each message of a run."""

    connections: int = 0
    logins: int = 0
    logins_failed: int = 0
    delivered: int = 0  # messages handed to consumers, again and again where they came back
    rejected: int = 0  # messages that consumers rejected
    refused: int = 0  # messages of publishers for which memory, or their transaction, had no room
    malformed: int = 0  # what publishers sent and is no message
    bugs_contained: int = 0  # faults of ours that ended no more than one connection

    def count_refused(self, condition: str, count: int) -> None:
        """The senders of so many messages are told this condition; it counts where there was no room."""
        LOOK.has_touched = True
        if condition == FULL:
            self.refused += count
