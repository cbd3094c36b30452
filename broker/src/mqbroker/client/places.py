"""Which broker is tried next, and when: lists, what brokers tell of each other, redirects, back-off.

A round tries each known broker once. Invariants: what was configured is never forgotten, whatever brokers push; a
connection that began with TLS is never sent to a place without; a chain of redirects ends. Source: Artemis's connection
load balancing, `failover-server-list` (docs/CLIENTS.md), AMQP 1.0 §2.8.16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from mqbroker.amqp.redirect import FAILOVER_SERVER_LIST, NETWORK_HOST, PORT, PORT_MAX, SCHEME, RedirectPlace
from mqbroker.client.options import FOREVER, Settings
from mqbroker.client.uri import Endpoint

LEARNED_MAX: Final = 64
REDIRECTS_MAX: Final = 5

Policy = Callable[[int], int]


class Places:
    """All brokers that one connection knows."""

    def __init__(self, configured: tuple[Endpoint, ...], policy: Policy, settings: Settings) -> None:
        self.configured = configured
        self.learned: tuple[Endpoint, ...] = ()
        self.rounds = 0  # that ended without a connection, since the last one stood
        self._policy = policy
        self._settings = settings
        self._queue: list[Endpoint] = []
        self._redirects = 0
        self._failed: Endpoint | None = None
        self._here: Endpoint | None = None  # where the connection stands, if others told of it: no broker names itself

    @property
    def _has_tls(self) -> bool:
        return all(each.has_tls for each in self.configured)

    def discovered(self, endpoints: tuple[Endpoint, ...]) -> None:
        """These announce themselves now, in place of those before. Silence is no reason to forget those."""
        self.configured = endpoints or self.configured

    @property
    def known(self) -> tuple[Endpoint, ...]:
        """Each once: those of the configuration first."""
        return tuple(dict.fromkeys(self.configured + self.learned))

    def begin_round(self) -> None:
        """All known ones, from the one that the policy chooses; the one that failed last comes last."""
        balanced = self.known if self._settings.use_topology_for_load_balancing else self.configured
        first = self._policy(len(balanced)) % len(balanced)
        order = list(dict.fromkeys(balanced[first:] + balanced[:first] + self.learned))
        if self._failed in order and len(order) > 1:
            order.remove(self._failed)
            order.append(self._failed)
        self._queue = order
        self._redirects = 0

    def next(self) -> Endpoint | None:
        """The next one of this round, None when the round is over."""
        return self._queue.pop(0) if self._queue else None

    def lost(self, endpoint: Endpoint) -> None:
        """The connection to it ended by itself."""
        self._failed = endpoint

    def redirect(self, place: RedirectPlace, has_tls: bool) -> bool:
        """Go there next. False: the chain is too long, or leads in a circle."""
        self._redirects += 1
        self._queue.insert(0, Endpoint(place.host, place.port, has_tls))
        return self._redirects <= REDIRECTS_MAX

    def opened(self, properties: Mapping[Any, Any] | None, endpoint: Endpoint | None = None) -> None:
        """A connection stands: count anew, and learn what its broker says of others."""
        self._here = endpoint if endpoint in self.learned else None
        self.rounds = 0
        self._redirects = 0
        self._failed = None
        self.learn((properties or {}).get(FAILOVER_SERVER_LIST))

    def learn(self, told: Any) -> None:
        """What the broker says of others now, in place of what was said before; what is no list says nothing."""
        if isinstance(told, list):
            endpoints = [each for each in map(_endpoint_of, told[:LEARNED_MAX]) if each is not None]
            safe = [each for each in endpoints if each.has_tls or not self._has_tls]
            self.learned = tuple(dict.fromkeys([*safe, self._here] if self._here is not None else safe))

    def delay_ms(self) -> int:
        """How long to wait before the next round: interval x multiplier^n, bounded."""
        settings = self._settings
        power = min(max(self.rounds - 1, 0), 1000)
        try:
            delay_ms = settings.retry_interval_ms * settings.retry_interval_multiplier**power
        except OverflowError:
            delay_ms = settings.max_retry_interval_ms
        return int(min(delay_ms, settings.max_retry_interval_ms))

    def may_go_on(self, *, was_connected: bool) -> bool:
        """Whether another round is allowed after `rounds` in vain."""
        settings = self._settings
        allowed = settings.reconnect_attempts if was_connected else max(settings.initial_connect_attempts, FOREVER)
        if not was_connected and allowed == 0:
            allowed = 1  # 0 is one try, as in Artemis
        return allowed == FOREVER or self.rounds < allowed


def _endpoint_of(told: Any) -> Endpoint | None:
    """An entry of a broker's list; None for one that does not say where."""
    if not isinstance(told, dict):
        return None
    host, port = told.get(NETWORK_HOST), told.get(PORT)
    if not isinstance(host, str) or not host or not isinstance(port, int) or not 0 < port <= PORT_MAX:
        return None
    return Endpoint(str(host), int(port), told.get(SCHEME) in ("amqps", "ssl"))
