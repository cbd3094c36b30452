"""Whether the heir of a node that leaves still takes what it gets, and which node does so in its place.

It is passed over when something waits that it cannot have yet, and nothing has gone for `[scale-down] heir-timeout`:
that it is away, full, paused or refuses looks the same from here. So it is where others go, and the
link of one queue has had no credit for so long, as where its address is full. It is passed over at once where somebody
had it forgotten. Source: docs/adr/0027-scale-down.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from mqbroker.base.look import LOOK
from mqbroker.base.time import NS_PER_MS
from mqbroker.cluster.heirs import HeirCandidate, choose
from mqbroker.core.cluster.duplicate_cargo import DuplicateCargo
from mqbroker.node.cluster.departure.idle_queues import IdleQueues
from mqbroker.node.values.bridge_states import BridgeState

if TYPE_CHECKING:
    from mqbroker.core.queue.queue import Queue
    from mqbroker.node.cluster.membership.cluster_broker import ClusterBroker


def candidates(broker: ClusterBroker) -> list[HeirCandidate]:
    """Nodes to which a link stands."""
    linked = []
    for connection in broker.cluster.connections.values():
        for bridge in connection.bridges.values():
            member = connection.topology.get(bridge.node_id)
            if bridge.state is not BridgeState.UP or member is None:
                continue
            told = [each.place for each in (*member.connectors, bridge.connector)]
            places = frozenset((*told, *connection.listed_places.places_of(bridge.node_id)))
            options = connection.options
            linked.append(
                HeirCandidate(options.name, options.discovery_group_ref, member.node_id, member.name, places,
                          member.scale_down_group, member.heir)
            )  # fmt: skip
    return linked


def chosen(broker: ClusterBroker, linked: Sequence[HeirCandidate]) -> HeirCandidate | str:
    """One of these that `[scale-down]` allows and that stays, or why there is none."""
    options = broker.options.scale_down
    return choose(options, [broker.discovery.connectors[name] for name in options.connectors], linked)


class NextHeir:
    """See the module's docstring."""

    def __init__(self, broker: ClusterBroker) -> None:
        self._broker: Final = broker
        self.idle: Final = IdleQueues(broker)
        self._went = -1  # so much has gone,
        self._since_ns = 0  # since then by the clock of what is idle

    def begin(self) -> None:
        """It leaves from now on, or the heir is another one."""
        LOOK.has_touched = True
        self._went = -1
        self.idle.forget()

    @property
    def stands_ns(self) -> int:
        """For how long nothing has gone, to the heir or a third node; 0 where that was not looked at yet."""
        return 0 if self._went < 0 else self.idle.clock_ns - max(self._since_ns, self.idle.gone_ns)

    def look(self, now_ns: int) -> HeirCandidate | None:
        """Who is to be the heir from now on; None: it stays the same, since it takes what it gets, or nobody else
        does."""
        broker, record = self._broker, self._broker.store.remotes.scale_down
        went, is_given_up = self._went_count, self._is_given_up
        is_asked = broker.scaling_down.is_moving or is_given_up
        owed = [queue for queue in broker.store.queues.values() if is_asked and self._is_owed(queue, is_given_up)]
        LOOK.has_touched = True
        self.idle.look(now_ns)
        if went != self._went:
            self._went, self._since_ns = went, self.idle.clock_ns
        if record.is_at_stop:
            return None  # that has a way of its own (scale_down_at_stop.py)
        bound_ms = broker.options.scale_down.heir_timeout
        is_late = bound_ms >= 0 and self.idle.clock_ns - self._since_ns >= bound_ms * NS_PER_MS
        late = [queue for queue in owed if self.idle.is_late(queue)] if bound_ms >= 0 else []
        is_full = any(map(self.idle.is_without_credit, late))
        if not owed or not (is_late or is_full or is_given_up):
            return None
        unfit = {record.target, *(node_id for _, node_id in record.past), *record.passed_over}
        heir = chosen(broker, [each for each in candidates(broker) if each.node_id not in unfit])
        return heir if isinstance(heir, HeirCandidate) else None

    @property
    def _went_count(self) -> int:
        remotes = self._broker.store.remotes
        cargo = (queue for queue in remotes.queues_of(remotes.scale_down.target) if DuplicateCargo.is_of(queue))
        tallies = remotes.scale_down.tallies.values()
        went = sum(tally.went_count + tally.volatile_went for tally in tallies)
        return went + sum(queue.acknowledged_total for queue in cargo)

    @property
    def _is_given_up(self) -> bool:
        """Whether somebody had it forgotten, so that it gets nothing any more."""
        record = self._broker.store.remotes.scale_down
        return any(tally.now.target == record.target and tally.now.is_given_up for tally in record.tallies.values())

    def _is_owed(self, queue: Queue, is_given_up: bool) -> bool:
        """Whether something waits in it that could go to anybody: what the heir may have cannot."""
        kind, handed_over = queue.kind, queue.handed_over
        waiting = queue.backlog.count + queue.paged_count
        if kind.is_forwarding or not waiting or not kind.is_draining or handed_over is None:
            return not kind.is_forwarding and not kind.is_draining and is_given_up and waiting > 0
        record = self._broker.store.remotes.scale_down
        if (kind.connection, kind.forwards_to) != (record.connection, record.target) or kind.drain_ends:
            return False
        return waiting > handed_over.awaited_in(queue.backlog) and not self._is_all_old(queue)

    @staticmethod
    def _is_all_old(queue: Queue) -> bool:
        """Whether nobody knows of the last of what is on disk alone whether it went."""
        pages, handed_over = queue.pages, queue.handed_over
        is_old = pages is not None and handed_over is not None and handed_over.is_old(pages.first_id)
        return is_old and not queue.waiting_count
