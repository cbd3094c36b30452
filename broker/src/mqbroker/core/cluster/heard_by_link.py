"""One thing that another node has heard of queues that drain to it, kept in the journal by the name of the link.

It is so of the queue's present link alone: of a drain that begins later, or goes on to another node, it says nothing.
Source: docs/adr/0025-drain.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from mqbroker.base.look import LOOK
from mqbroker.core.address.stored_tables import text_in

if TYPE_CHECKING:
    from mqbroker.core.address.address_store import AddressStore
    from mqbroker.core.queue.queue import Queue
    from mqbroker.journal.recovered import Recovered

NUMBER: Final = 1  # of the one id that stands under each name


class HeardByLink:
    """See the module's docstring. `prefix`: before the name of a queue, of the name that the journal has it under;
    `what`: it, for who reads of a journal that is damaged."""

    def __init__(self, store: AddressStore, prefix: str, what: str) -> None:
        self._store = store
        self._prefix: Final = prefix
        self._what: Final = what
        self._links: dict[str, str] = {}  # by queue

    def add(self, queue: Queue) -> None:
        """It was heard; on disk with this step's append."""
        name, link = queue.kind.name, queue.kind.drains_as
        LOOK.has_touched = True
        if self._links.get(name) != link:
            self._links[name] = link
            self._store.journal.duplicates.add(self._prefix + name, NUMBER, link.encode(), NUMBER)

    def has(self, queue: Queue) -> bool:
        """Whether the other node of its present link has heard it."""
        return self._links.get(queue.kind.name) == queue.kind.drains_as

    def gone(self, queue: Queue) -> None:
        """It drains no more, or was deleted."""
        LOOK.has_touched = True
        if self._links.pop(queue.kind.name, None) is not None:
            self._store.journal.duplicates.drop(self._prefix + queue.kind.name)

    def load(self, recovered: Recovered, queues: Mapping[str, Queue]) -> None:
        """Take over what recovery found, `queues` being those that drain; of others, and of those that do so by another
        link, it is forgotten, as it would be taken for a later drain's. Raises StorageFault."""
        LOOK.has_touched = True
        for name, stored in recovered.duplicates.items():
            if name.startswith(self._prefix) and stored:
                link = text_in(f"{self._what}, {name!r}", stored[-1].duplicate_id)
                queue = queues.get(name.removeprefix(self._prefix))
                if queue is not None and queue.kind.drains_as == link:
                    self._links[queue.kind.name] = link
                else:
                    self._store.journal.duplicates.drop(name)
