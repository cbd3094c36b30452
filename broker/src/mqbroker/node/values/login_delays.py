"""How long the outcome of a login is kept back, so that passwords are not guessed quickly.

Counted for one user from one network: others, and the same user from elsewhere, wait for nobody. After the first
failure a good outcome takes as long as a bad one, so hanging up early and asking again tells nothing. Bounded: entries
by number and age, outcomes of one entry that wait at the same time; beyond that a login is refused whatever it says.
"""

from __future__ import annotations

import functools
import ipaddress
from dataclasses import dataclass

from mqbroker.base.look import LOOK
from mqbroker.base.time import NS_PER_MS

DELAY_MS = 100
DELAY_MS_MAX = 5_000
FORGOTTEN_MS = 60_000
ENTRIES_MAX = 10_000
WAITING_MAX = 8
HOSTS_MAX = 1000  # whose networks are remembered

LoginOrigin = tuple[str, str]
"""Network and user."""


def network_of(peer: str) -> str:
    """Where a peer (`host:port`, `[host]:port`) comes from: its address, of IPv6 the /64 in which a host may choose."""
    return _network_of_host(peer.rpartition(":")[0].strip("[]").partition("%")[0] or peer)


@functools.lru_cache(HOSTS_MAX)
def _network_of_host(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else host


@dataclass(slots=True)
class _Entry:
    failures: int
    last_ns: int
    waiting: int


class LoginDelays:
    """The table of recent failures, oldest first."""

    def __init__(self) -> None:
        self._entries: dict[LoginOrigin, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def cleared(self, key: LoginOrigin, now_ns: int) -> bool:
        """Forget old failures; whether a good outcome would be told at once, since nobody failed there lately."""
        self._forget(now_ns)
        return key not in self._entries

    def decided(self, key: LoginOrigin, is_good: bool, now_ns: int) -> int | None:
        """In how many ns the outcome may be told (0: at once); then call `told`. None: it must not be told at all."""
        self._forget(now_ns)
        entry = self._entries.get(key)
        if entry is None:
            if is_good:
                return 0
            entry = _Entry(0, now_ns, 0)
        if entry.waiting >= WAITING_MAX:
            return None
        delay_ms = min(DELAY_MS << min(entry.failures, 16), DELAY_MS_MAX)
        LOOK.has_touched = True
        entry.waiting += 1
        if not is_good:
            entry.failures += 1
            entry.last_ns = now_ns
            self._entries.pop(key, None)
            self._entries[key] = entry
        return delay_ms * NS_PER_MS

    def told(self, key: LoginOrigin, is_good: bool) -> None:
        """The outcome was told, or nobody waits for it any more. A good one that was told forgives."""
        entry = self._entries.get(key)
        if entry is None:
            return
        LOOK.has_touched = True
        entry.waiting = max(entry.waiting - 1, 0)
        if is_good:
            del self._entries[key]

    def _forget(self, now_ns: int) -> None:
        LOOK.has_touched = True
        while self._entries:
            key, entry = next(iter(self._entries.items()))
            if len(self._entries) < ENTRIES_MAX and now_ns < entry.last_ns + FORGOTTEN_MS * NS_PER_MS:
                return
            del self._entries[key]
