"""A connection router: from the key of a connection to a verdict, over the brokers that are there.

Owns what is known of static targets and members of a cluster (probed every `check-period`) and the cache of keys.
Brokers of a discovery group are there as long as they are heard. Invariant: a verdict names only a target that is there
at that time.

With `cache-persisted` the World keeps what the cache holds. What it kept for a broker that has not been seen since the
start waits for that one up to `quorum-timeout`, as targets are found one after the other.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, NamedTuple, Protocol

from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level
from mqbroker.base.time import NS_PER_MS
from mqbroker.cluster.routing.policies import RoutingTarget, Situation, policy_of
from mqbroker.config.slices import ConnectionRouterOptions

CACHED_MAX: Final = 10_000
KEY_CHARACTERS_MAX: Final = 256  # of which patterns see no more

RoutingTargets = Callable[[], list[RoutingTarget]]


class RoutingVerdict(NamedTuple):
    """Stay where `place` is None and `why` is empty; go to the place, perhaps for a reason of its own; or be refused,
    and why."""

    place: RoutingTarget | None = None
    why: str = ""


STAY: Final = RoutingVerdict()


class RoutingWorld(Protocol):
    """What routers ask of the node. Each probe is answered once, by `probed`."""

    def probe(self, router: str, target: RoutingTarget) -> None:
        """Find out whether somebody answers there."""

    def tell(self, level: Level, event: str, **fields: str | int) -> None:
        """Have an event logged, with these fields."""

    def keep(self, router: str, key: str, target_id: str) -> None:
        """Remember beyond a restart that the key was sent there now."""

    def drop(self, router: str, key: str) -> None:
        """Remember no more where the key was sent."""


class Pool(NamedTuple):
    """The targets of a router: those that are probed, or those that are heard; and this broker, where it is one.

    `members` are probed too, and are other ones from time to time.
    """

    static: tuple[RoutingTarget, ...] = ()
    heard: RoutingTargets | None = None
    local: RoutingTarget | None = None
    members: RoutingTargets | None = None


class Router:
    """See the module's docstring. Has a deadline like everybody in node/values/timers.py."""

    def __init__(self, options: ConnectionRouterOptions, pool: Pool, world: RoutingWorld, now_ns: int) -> None:
        self.options = options
        self._pool = pool
        self._world = world
        self._policy = policy_of(options.policy, options.modulo)
        self._key_filter = re.compile(options.key_filter) if options.key_filter else None
        self._stays = re.compile(options.local_target_filter) if options.local_target_filter else None
        is_probed = bool(pool.static) or pool.members is not None
        self._has_pool = is_probed or pool.heard is not None
        self._answering: dict[RoutingTarget, bool] = {}  # missing: not known yet
        self._probing: dict[RoutingTarget, None] = {}
        self._counts: dict[str, int] = {}
        self._cache: OrderedDict[str, tuple[str, int]] = OrderedDict()  # key: target id, when it was used last
        self._settled_ns = 0  # until then brokers may come that keys are kept for
        self.due_ns = now_ns if is_probed else 0
        self.scheduled_ns = 0

    def on_time(self, now_ns: int) -> None:
        """Probe all, unless the probe before is still under way."""
        LOOK.has_touched = True
        self.due_ns = now_ns + self.options.check_period * NS_PER_MS
        for target in self._probed():
            self._probe(target)

    def look(self) -> None:
        """Members may be other ones: those that are new are probed at once, those that left are not there any more."""
        members = dict.fromkeys(self._probed())
        LOOK.has_touched = True
        for target in [each for each in self._answering if each not in members]:
            if self._answering.pop(target):
                self._tell_lost(target, "it has left the cluster, or is reached elsewhere")
        for target in members:
            if target not in self._answering:
                self._probe(target)

    def _probed(self) -> list[RoutingTarget]:
        return [*self._pool.static, *(self._pool.members() if self._pool.members is not None else ())]

    def _probe(self, target: RoutingTarget) -> None:
        if target not in self._probing:
            self._probing[target] = None
            self._world.probe(self.options.name, target)

    def stop(self) -> None:
        """Probe no target any more; nothing is due."""
        LOOK.has_touched = True
        self.due_ns = 0

    def probed(self, target: RoutingTarget, why: str) -> None:
        """A probe is over; `why` is empty where somebody answers. Changes are told."""
        LOOK.has_touched = True
        del self._probing[target]
        if target not in self._probed():
            return  # it left meanwhile
        before, now = self._answering.get(target), not why
        self._answering[target] = now
        if now and not before:
            self._world.tell(Level.INFO, "router-target-found", **self._fields(target))
        elif before is not False and not now:
            self._tell_lost(target, why)

    def _tell_lost(self, target: RoutingTarget, why: str) -> None:
        self._world.tell(Level.WARNING, "router-target-lost", **self._fields(target), why=why)

    def _fields(self, target: RoutingTarget) -> dict[str, str | int]:
        return {"router": self.options.name, "target": f"{target.host}:{target.port}"}

    @property
    def targets(self) -> list[RoutingTarget]:
        """Those that are there, by id."""
        there = [each for each in self._probed() if self._answering.get(each)]
        if self._pool.heard is not None:
            there += self._pool.heard()
        if self._pool.local is not None:
            there = [each for each in there if each.id != self._pool.local.id] + [self._pool.local]
        return sorted(there)

    def restore(self, key: str, target_id: str, used_ns: int, now_ns: int) -> None:
        """A key was sent there before the start; the one that was used last comes last."""
        LOOK.has_touched = True
        self._settled_ns = now_ns + self.options.quorum_timeout * NS_PER_MS
        self._cache[key] = target_id, used_ns
        self._tidy(now_ns)

    def must_wait(self, key: str, now_ns: int) -> bool:
        """Whether more is known soon: fewer than the quorum are there, or not the one that the key is kept for."""
        if not self._has_pool or self._is_of_here(key):
            return False
        targets = self.targets
        if len(targets) < self.options.quorum_size:
            return True
        kept = self._kept(key, now_ns)
        return now_ns < self._settled_ns and kept != "" and all(each.id != kept for each in targets)

    def key_of(self, values: Iterable[str]) -> str:
        """The key of a connection that has these values: the first in which the filter finds anything."""
        for value in values:
            text = value[:KEY_CHARACTERS_MAX]
            match = None if self._key_filter is None else self._key_filter.search(text)
            if self._key_filter is None or match is not None:
                return text if match is None else match[0]
        return ""

    def route(self, key: str, now_ns: int) -> RoutingVerdict:
        """Where a connection with this key belongs."""
        if self._is_of_here(key):
            return STAY
        name = self.options.name
        if not self._has_pool:
            return RoutingVerdict(why=f"router {name!r}: the key {key!r} is not for this broker, and no other is known")
        targets = self.targets
        LOOK.has_touched = True
        self._counts = {each.id: self._counts.get(each.id, 0) for each in targets}
        if len(targets) < self.options.quorum_size or not targets:
            wanted = self.options.quorum_size
            return RoutingVerdict(why=f"router {name!r}: {len(targets)} of {wanted} brokers are there; try again later")
        kept = self._kept(key, now_ns)
        target = next((each for each in targets if each.id == kept), None)
        if target is None:
            target = self._policy(key, Situation(targets, self._counts))
        self._counts[target.id] += 1
        self._keep(key, target, now_ns)
        return STAY if target.is_local else RoutingVerdict(target)

    def _is_of_here(self, key: str) -> bool:
        return self._stays is not None and self._stays.fullmatch(key) is not None

    def _kept(self, key: str, now_ns: int) -> str:
        """The id of the target that a key keeps, there or not; empty: none."""
        target_id, used_ns = self._cache.get(key, ("", 0))
        return "" if self._is_over(used_ns, now_ns) else target_id

    def _is_over(self, used_ns: int, now_ns: int) -> bool:
        timeout_ms = self.options.cache_timeout
        return timeout_ms > 0 and now_ns - used_ns >= timeout_ms * NS_PER_MS

    def _keep(self, key: str, target: RoutingTarget, now_ns: int) -> None:
        if self.options.cache_timeout < 0:
            return
        before = self._cache.get(key)
        now = self._cache[key] = (target.id, now_ns)
        self._cache.move_to_end(key)
        self._tidy(now_ns)
        # Without a timeout nobody asks when a key was used, so only another target is news.
        is_news = before is None or before[0] != target.id or (self.options.cache_timeout > 0 and before != now)
        if self.options.cache_persisted and is_news:
            self._world.keep(self.options.name, key, target.id)

    def _tidy(self, now_ns: int) -> None:
        """Forget the oldest, where there are too many or their time is over. Two for each that comes are enough."""
        for key, (_, used_ns) in list(islice(self._cache.items(), 2)):
            if len(self._cache) <= CACHED_MAX and not self._is_over(used_ns, now_ns):
                return
            del self._cache[key]
            if self.options.cache_persisted:
                self._world.drop(self.options.name, key)
