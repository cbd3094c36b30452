"""How far appends have come: durable here, and committed. Two things, which a node without a backup has at once.

Durable here: on this node's disk. That is enough for what this disk alone has to bear out: files are deleted of which a
recovery here needs nothing more, and parts of files are read that were written. Committed: durable here, and confirmed
by everybody who was asked for that too. Answers wait for it, and messages, which nobody may see that could be gone with
this node: decisions (decisions.py), and pages that come back. Invariant: what is committed stays so, whoever is asked
from then on. Source: docs/adr/0022-durable-and-committed.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mqbroker.base.look import LOOK

if TYPE_CHECKING:
    from mqbroker.core.store.store import Store


class Commits:
    """See the module's docstring. Nobody is asked until pairs are: then the two are one."""

    def __init__(self, store: Store) -> None:
        self._store: Final = store
        self._confirmed: dict[str, int] = {}  # by who is asked

    def synced(self, position: int) -> None:
        """Everything up to here is durable here."""
        LOOK.has_touched = True
        self._store.journal.synced(position)
        self._store.large.synced(position)
        self._commit()

    def ask(self, who: str, position: int) -> None:
        """From now on nothing is committed that this one has not confirmed. It has everything up to here."""
        LOOK.has_touched = True
        self._confirmed[who] = position

    def confirmed(self, who: str, position: int) -> None:
        """One who was asked has everything up to here; what comes late, or was not asked for, is passed over."""
        LOOK.has_touched = True
        if who in self._confirmed:
            self._confirmed[who] = max(self._confirmed[who], position)
            self._commit()

    def excuse(self, who: str) -> None:
        """Nobody waits for this one any more."""
        LOOK.has_touched = True
        self._confirmed.pop(who, None)
        self._commit()

    def _commit(self) -> None:
        durable = self._store.journal.synced_position
        self._store.decisions.release(min(durable, *self._confirmed.values()) if self._confirmed else durable)
        if self._store.paging.queues:
            self._store.paging.committed()
