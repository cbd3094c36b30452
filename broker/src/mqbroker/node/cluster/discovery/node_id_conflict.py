"""Other processes that have the node id of this one: whether this one goes on, or leaves the cluster to the other.

It yields once and for good: only a restart, with an id of its own, brings it back. A process that has yielded has no
bridges, lets no node in, says so in its announcements, and is not healthy; clients that it has stay. A rival must be
alive to count: for more than two periods it announced itself as one that hears this very process, or it answered or
dialled us. Announcements that do not name us may be recordings of an earlier process, so the place that they name is
asked. What third nodes tell of a rival (cluster/topology.py) may be long past, and is told only. Source:
docs/adr/0010-discovery.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level
from mqbroker.base.time import NS_PER_S
from mqbroker.cluster.node_id_conflict import (
    CONFLICT_REMEDY,
    DEPOSED,
    NOT_ALLOWED,
    REMEDY,
    WHY,
    ProcessStart,
    yields,
)
from mqbroker.node.amqp.listeners.accepted_peer import nodes_among

if TYPE_CHECKING:
    from mqbroker.node.amqp.peers.amqp_broker import AmqpBroker
    from mqbroker.node.values.handshake import Hello

TOLD_MAX: Final = 8  # rivals that are remembered, so that each is told of once
MET_NS: Final = 60 * NS_PER_S  # so long a rival that was met on a connection counts as one that is there


class NodeIdConflict:
    """See the module's docstring."""

    def __init__(self, broker: AmqpBroker, withdraw: Callable[[str], None]) -> None:
        """`withdraw`: leave the cluster, and why."""
        self._broker = broker
        self._withdraw = withdraw
        self.own = ProcessStart(broker.started_at.wall_ms, broker.boot_id, broker.term)
        self.has_yielded = False
        self.why = WHY  # it has, if it has
        self._met_ns = -MET_NS
        self._told: list[str] = []  # boot ids of those that were met

    @property
    def was_just_met(self) -> bool:
        """Whether another process with our node id was met on a connection a short time ago."""
        return self._broker.at.monotonic_ns - self._met_ns < MET_NS

    def met(self, other: Hello, source: str) -> None:
        """Another process with our node id is at the other end of a connection. One that has yielded does not come
        back, also when this one was restarted since and is the later one now.
        """
        broker = self._broker
        LOOK.has_touched = True
        self._met_ns = broker.at.monotonic_ns
        if other.boot_id not in self._told:
            self._told = [*self._told, other.boot_id][-TOLD_MAX:]
            broker.notice(Level.ERROR, "node-id-conflict", source=source, node_id=broker.node_id,
                          boot_id=other.boot_id, remedy=CONFLICT_REMEDY)  # fmt: skip
        if not other.has_yielded:
            self.compare(other.start, source)

    def compare(self, other: ProcessStart, source: str) -> None:
        """Another process with our node id is alive, and has not yielded: who goes on."""
        broker = self._broker
        if self.has_yielded or not broker.is_running or not yields(self.own, other):
            return
        LOOK.has_touched = True
        self.has_yielded = True
        self.why = DEPOSED if other.term > self.own.term else WHY
        broker.notice(Level.ERROR, "cluster-links-stopped", source=source, boot_id=other.boot_id, why=self.why,
                      remedy=REMEDY)  # fmt: skip
        # First those who would be told of what goes: to them nothing of it is true.
        for peer, _ in nodes_among(broker.peers.values()):
            peer.close_at_once(NOT_ALLOWED, self.why)
        self._withdraw(self.why)
