"""Routes: which broker a connection router has sent a key to, where its cache is persisted.

They are kept in the journal as ids of duplicate detection are, under names that no address has, as owners of groups are
(group_owners.py): moved on when their segment goes, and passed over by releases that do not know them. Nobody waits for
one, so a route rides along with what is written anyway. Times are those of the clock, as they outlive the process.
Source: docs/adr/0012-cluster-connections.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from mqbroker.base.look import LOOK
from mqbroker.core.address.stored_tables import list_in
from mqbroker.core.queue.kinds import INTERNAL_PREFIX

if TYPE_CHECKING:
    from mqbroker.journal.plan import Journal
    from mqbroker.journal.recovered import Recovered

PREFIX: Final = INTERNAL_PREFIX + "route."
NUMBER: Final = 1  # each name holds one id


class RouterRoute(NamedTuple):
    """The connection router `router` has sent `key` to the broker `target`, last at `used_ms`."""

    router: str
    key: str
    target: str
    used_ms: int


def keep(journal: Journal, route: RouterRoute) -> None:
    """Keep it in place of what is kept of the same key; on disk with this step's append."""
    said = json.dumps([route.target, route.used_ms], separators=(",", ":"))
    LOOK.has_touched = True
    journal.duplicates.add(_name_of(route.router, route.key), NUMBER, said.encode(), NUMBER)


def drop(journal: Journal, router: str, key: str) -> None:
    """Nothing is kept of a key any more."""
    journal.duplicates.drop(_name_of(router, key))


def routes_of(recovered: Recovered) -> Iterator[RouterRoute]:
    """All that recovery found. Raises StorageFault."""
    for name, stored in recovered.duplicates.items():
        if name.startswith(PREFIX):
            what = f"route {name!r}"
            router, key = list_in(what, name.removeprefix(PREFIX), (str, str))
            target, used_ms = list_in(what, stored[-1].duplicate_id, (str, int))
            yield RouterRoute(router, key, target, used_ms)


def _name_of(router: str, key: str) -> str:
    return PREFIX + json.dumps([router, key], separators=(",", ":"))
