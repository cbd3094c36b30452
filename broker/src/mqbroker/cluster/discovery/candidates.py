"""A table of places where nodes may be, for what names them and knows nothing else of them: DNS.

Its entries have no node id, so the key is `host:port`. Each answer replaces the one before as a whole; entries do not
end by time, since who keeps the names says when a node is gone. They serve for first connections, which find out
whose node it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from mqbroker.base.look import LOOK
from mqbroker.cluster.discovery.announcement import Announcement, Connector
from mqbroker.cluster.discovery.entries import ENTRIES_MAX, EntryChange, EntryChangeKind, EntryTable, HeardNode

IPV4, IPV6, NAMED = "IPv4", "IPv6", "name"


class CandidateTable(EntryTable):
    """`own` are the places of this very node, which answers usually name as well."""

    def __init__(self, own: frozenset[tuple[str, int]]) -> None:
        super().__init__("", "", 0)
        self._places = own
        self.named: dict[str, list[tuple[str, int]]] = {}  # where each name leads, also to this node

    def answer(self, places: Sequence[tuple[str, Connector]], now_ns: int) -> int:
        """Take the whole of an answer, each with the name that led to it; how many there was no room for."""
        wanted = {
            f"{one.host}:{one.port}": (name, one) for name, one in places if (one.host, one.port) not in self._places
        }
        keys = list(wanted)[:ENTRIES_MAX]
        LOOK.has_touched = True
        self.named = {}
        for name, one in places[: ENTRIES_MAX + len(self._places)]:
            self.named.setdefault(name, []).append((one.host, one.port))
        for key in [each for each in self._entries if each not in keys]:
            entry = self._entries.pop(key)
            self._tell(EntryChange(EntryChangeKind.LOST, entry.announcement, entry.source))
        for key in keys:
            name, connector = wanted[key]
            before = self._entries.get(key)
            if before is not None:
                self._entries[key] = replace(before, source=name, heard_ns=now_ns)
                continue
            said = Announcement("", "", 0, key, 0, (connector,))
            self._entries[key] = HeardNode(said, name, now_ns, now_ns)
            self._tell(EntryChange(EntryChangeKind.FOUND, said, name))
        return len(wanted) - len(keys)

    def is_own(self, place: tuple[str, int]) -> bool:
        """Whether that is a place of this very node."""
        return place in self._places

    def nodes_count(self, name: str) -> int:
        """How many nodes a name stands for: a node has an address of each family, or one host name, and a port."""
        places = dict.fromkeys(self.named.get(name, ()))
        families = Counter(map(_family, places))
        return families[NAMED] + max(families[IPV4], families[IPV6])


def _family(place: tuple[str, int]) -> str:
    host = place[0]
    if ":" in host:
        return IPV6
    return IPV4 if host.replace(".", "").isdigit() else NAMED
