"""That this node is cordoned: it lets no client in and keeps what it has, over restarts too, until that is taken back.

The record of it is in the journal as that of a scale-down is (scale_down.py), under a name that no address has. Of
both there is one at most: a scale-down that begins takes the place of the cordon. Source: docs/adr/0027-scale-down.md.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from mqbroker.base.look import LOOK
from mqbroker.core.address.stored_tables import unreadable
from mqbroker.core.queue.kinds import INTERNAL_PREFIX
from mqbroker.journal.records import as_json

if TYPE_CHECKING:
    from mqbroker.core.address.address_store import AddressStore
    from mqbroker.journal.recovered import Recovered

NAME: Final = INTERNAL_PREFIX + "cordon"
NUMBER: Final = 1  # of the one id that stands under the name


class Cordon:
    """See the module's docstring. `since_ms`: wall time of its begin, 0 where there is none."""

    __slots__ = ("_store", "since_ms")

    def __init__(self, store: AddressStore) -> None:
        self._store: Final = store
        self.since_ms = 0

    @property
    def is_on(self) -> bool:
        """Whether this node is cordoned without a scale-down."""
        return self.since_ms > 0

    def begin(self) -> None:
        """From now on; on disk with this step's append."""
        LOOK.has_touched = True
        self.since_ms = max(self._store.at.wall_ms, 1)
        self._store.journal.duplicates.add(NAME, NUMBER, as_json({"since_ms": self.since_ms}).encode(), NUMBER)

    def end(self) -> None:
        """No more; on disk with this step's append."""
        LOOK.has_touched = True
        self.since_ms = 0
        self._store.journal.duplicates.drop(NAME)

    def load(self, recovered: Recovered) -> None:
        """Take over what recovery found. Raises StorageFault."""
        stored = recovered.duplicates.get(NAME)
        if not stored:
            return
        LOOK.has_touched = True
        try:
            self.since_ms = max(int(json.loads(stored[-1].duplicate_id)["since_ms"]), 1)
        except (ValueError, KeyError, TypeError) as error:
            raise unreadable("whether this node is cordoned", str(error)) from error
