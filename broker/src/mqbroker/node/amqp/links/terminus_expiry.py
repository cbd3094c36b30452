"""Subscriptions that are not durable and outlive their link, as their source wants it (AMQP 1.0 §3.5.3).

A subscriber that detaches without closing may come back under the name of its link. `expiry-policy` says from when on
its subscription expires: with the link, its session or its connection; `timeout` says how long that takes. `never` is a
durable subscription (subscriptions.py). Their number is bounded by `queues-max`, as that of all queues.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from mqbroker.amqp.states import LinkState
from mqbroker.base.look import LOOK
from mqbroker.base.time import NS_PER_S

if TYPE_CHECKING:
    from mqbroker.amqp.connection import Connection
    from mqbroker.amqp.session import Session
    from mqbroker.core.queue.queue import Queue
    from mqbroker.core.selector.source_filters import SourceFilter
    from mqbroker.node.amqp.links.consumer import LinkConsumer
    from mqbroker.node.amqp.peers.peer import Peer
    from mqbroker.wire.performatives import Source

    ExpiryScope: TypeAlias = Session | Connection

TerminusKey = tuple[str | None, str, str]
SESSION_END, CONNECTION_CLOSE = "session-end", "connection-close"


class Kept:
    """A subscription without a link. Its timer runs from when it began to expire."""

    __slots__ = ("_owner", "due_ns", "key", "queue", "scheduled_ns", "timeout_s")

    judges_others: ClassVar[bool] = True

    def __init__(self, owner: TerminusExpiry, key: TerminusKey, queue: Queue, timeout_s: int) -> None:
        self._owner = owner
        self.key = key
        self.queue = queue
        self.timeout_s = timeout_s
        self.due_ns = 0
        self.scheduled_ns = 0

    def on_time(self, now_ns: int) -> None:
        """Nobody came back in time."""
        LOOK.has_touched = True
        self.due_ns = 0
        self._owner.expired(self)


class TerminusExpiry:
    """See the module's docstring. `end` deletes a queue that nobody uses."""

    def __init__(self, end: Callable[[Queue], None]) -> None:
        self._end = end
        self._kept: dict[TerminusKey, Kept] = {}
        self._within: dict[ExpiryScope, dict[TerminusKey, Kept]] = {}

    def keep(self, peer: Peer, consumer: LinkConsumer, *, is_stolen: bool) -> bool:
        """A subscriber's link is gone. Whether its queue stays: not where either end closed it for good.

        `is_stolen`: another link is about to be attached in its place, and has the subscription where it has its terms.
        """
        link, source = consumer.link, consumer.lasts_as
        if source is None:
            return False
        scope: ExpiryScope | None = link.session if source.expiry_policy == SESSION_END else None
        if source.expiry_policy == CONNECTION_CLOSE:
            scope = peer.connection
        is_over = link.is_closed or link.state is LinkState.DETACH_SENT or not (scope or source.timeout)
        if is_over and not is_stolen:
            return False
        key = _key(peer, link.name)
        self._drop(key)
        LOOK.has_touched = True
        kept = self._kept[key] = Kept(self, key, consumer.queue, source.timeout)
        if is_stolen:
            self._wind(peer, kept)
        elif scope is None:
            self._expire(peer, kept)
        else:
            self._within.setdefault(scope, {})[key] = kept
        return True

    def ended(self, peer: Peer, scope: ExpiryScope) -> None:
        """A session or a connection is over: what was kept within it begins to expire."""
        LOOK.has_touched = True
        for key, kept in self._within.pop(scope, {}).items():
            if self._kept.get(key) is kept:
                self._expire(peer, kept)

    def resume(self, peer: Peer, link_name: str, source: Source, filters: SourceFilter) -> Queue | None:
        """The queue that was kept for a link of this name. One with other terms ends, and the link begins anew."""
        key = _key(peer, link_name)
        kept = self._kept.get(key)
        if kept is None:
            return None
        kind = kept.queue.kind
        selector = filters.selector.text if filters.selector is not None else ""
        is_same = (kind.address, kind.selector, bool(kind.no_local)) == (source.address, selector, filters.no_local)
        if kept.queue.is_deleted or not is_same:
            self._drop(key)
            return None
        LOOK.has_touched = True
        del self._kept[key]
        kept.due_ns = 0
        return kept.queue

    def expired(self, kept: Kept) -> None:
        """Its time is over, unless it is used again."""
        if self._kept.get(kept.key) is kept:
            self._drop(kept.key)

    def _expire(self, peer: Peer, kept: Kept) -> None:
        if not kept.timeout_s:
            self._drop(kept.key)
        else:
            self._wind(peer, kept)

    @staticmethod
    def _wind(peer: Peer, kept: Kept) -> None:
        kept.due_ns = peer.broker.at.monotonic_ns + kept.timeout_s * NS_PER_S
        peer.broker.timers.add(kept)

    def _drop(self, key: TerminusKey) -> None:
        LOOK.has_touched = True
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._end(kept.queue)


def _key(peer: Peer, link_name: str) -> TerminusKey:
    """Nobody takes somebody else's by calling himself so."""
    return peer.user, peer.container_id, link_name
