"""A broadcast group: announces this node, first at once, then every `broadcast-period`.

One datagram is on its way at a time. The first failure is told, further ones are counted only, until one succeeds. By
gossip it is told once it lasts: the first node of a cluster that starts finds nobody, and nothing is wrong with that.
"""

from __future__ import annotations

from collections.abc import Callable

from mqbroker.base.notice import Level
from mqbroker.base.time import NS_PER_MS
from mqbroker.cluster.discovery.world import DiscoveryWorld
from mqbroker.config.slices import BroadcastGroupOptions

GOSSIP_FAILURES_TOLD = 5  # in a row


class Broadcaster:
    """`announce` makes the next datagram. Has a deadline like everybody in node/values/timers.py."""

    def __init__(
        self, options: BroadcastGroupOptions, world: DiscoveryWorld, announce: Callable[[], bytes], now_ns: int
    ) -> None:
        self.options = options
        self._world = world
        self._announce = announce
        self._is_on_its_way = False
        self.trouble = ""  # why the last one failed, where it did
        self._failures = 0  # in a row
        self._failures_told = GOSSIP_FAILURES_TOLD if options.discovery == "gossip" else 1
        self.sent_total = 0
        self.failed_total = 0
        self.due_ns = now_ns
        self.scheduled_ns = 0

    def on_time(self, now_ns: int) -> None:
        """Announce, unless the datagram before is still on its way."""
        self.due_ns = now_ns + self.options.broadcast_period * NS_PER_MS
        if not self._is_on_its_way:
            self._is_on_its_way = True
            self._world.send(self.options.name, self._announce())

    def sent(self) -> None:
        """The datagram that was on its way has left."""
        self._is_on_its_way = False
        self.sent_total += 1
        failures, self._failures, self.trouble = self._failures, 0, ""
        if failures >= self._failures_told:
            self._world.tell(Level.INFO, "broadcast-works-again", group=self.options.name)

    def failed(self, why: str) -> None:
        """The datagram that was on its way could not be sent, and why."""
        self._is_on_its_way = False
        self.failed_total += 1
        self._failures += 1
        self.trouble = why
        if self._failures == self._failures_told:
            level = Level.WARNING if self.options.discovery == "gossip" else Level.ERROR
            self._world.tell(level, "broadcast-failed", group=self.options.name, why=why)

    def stop(self) -> None:
        """Make no further datagram; nothing is due."""
        self.due_ns = 0
