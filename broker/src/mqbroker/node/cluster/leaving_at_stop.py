"""A node that is asked to stop and hands all that it has to another one before it does (`[scale-down]`).

Owns who the heir is, and when this is over: the receipt balances, or something makes it vain. Either way it is called
off in order, which takes until the heir has answered for what is on its way, and ENDING_NS at most. So the next start
serves what is here, and where that took longer it first waits for these answers. Source: docs/adr/0027-scale-down.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level
from mqbroker.base.time import NS_PER_MS
from mqbroker.cluster.heirs import HeirCandidate, choose
from mqbroker.node.cluster.scale_down_progress import MOVED, differences, is_linked, state_of, why_it_stays
from mqbroker.node.values.bridge_states import BridgeState

if TYPE_CHECKING:
    from mqbroker.node.cluster.cluster_broker import ClusterBroker

LOOK_NS: Final = 100 * NS_PER_MS
ENDING_LOOK_NS: Final = 10 * NS_PER_MS
ENDING_NS: Final = 2_000 * NS_PER_MS
TOLD_MAX: Final = 10  # reasons that the log names
ASKED: Final = "it was asked to stop once more"
RESTARTS: Final = "it starts again at once, and serves them then"


class StopWaiting(Protocol):
    """The stop that waits for it."""

    def stop_waiting(self, why: str) -> None:
        """Nothing more is to go."""

    def left(self) -> None:
        """It is over."""


class LeavingAtStop:
    """See the module's docstring. It has a deadline."""

    def __init__(self, broker: ClusterBroker, stopping: StopWaiting) -> None:
        self._broker: Final = broker
        self._stopping: Final = stopping
        self.due_ns = 0
        self.scheduled_ns = 0
        self._until_ns = 0  # it may go on
        self._ending_until_ns = 0  # it is over then, whatever the heir has not answered
        self._restart_until_ns = 0  # a stop before is that of a restart

    # -- begin ---------------------------------------------------------------------------------------------------------

    def restart_begins(self, within_ns: int) -> None:
        """The stop that comes in this time is that of a restart: what is here stays, and is served again at once."""
        LOOK.has_touched = True
        self._restart_until_ns = self._broker.at.monotonic_ns + within_ns

    def heir(self) -> HeirCandidate | None:
        """Who takes all, where this node is to hand it over and somebody can; why not is told."""
        broker = self._broker
        options = broker.options.scale_down
        if not options.enabled:
            return None
        if broker.at.monotonic_ns < self._restart_until_ns:
            broker.notice(Level.INFO, "scale-down-passed-over", why=RESTARTS, **self._left())
            return None
        if broker.store.arrivals.drained_here():
            found: HeirCandidate | str = "queues of other nodes drain to this one"
        else:
            listed = [broker.discovery.connectors[name] for name in options.connectors]
            found = choose(options, listed, self._candidates())
        if isinstance(found, HeirCandidate):
            return found
        self._tell_vain("scale-down-passed-over", found)
        return None

    def _candidates(self) -> list[HeirCandidate]:
        found = []
        for connection in self._broker.cluster.connections.values():
            for bridge in connection.bridges.values():
                member = connection.topology.get(bridge.node_id)
                if bridge.state is not BridgeState.UP or member is None:
                    continue
                told = [each.place for each in (*member.connectors, bridge.connector)]
                places = frozenset((*told, *connection.listed_places.places_of(bridge.node_id)))
                options = connection.options
                found.append(
                    HeirCandidate(options.name, options.discovery_group_ref, member.node_id, member.name, places,
                              member.scale_down_group, member.heir)
                )  # fmt: skip
        return found

    def begin(self, heir: HeirCandidate) -> None:
        """All goes there from now on."""
        broker = self._broker
        LOOK.has_touched = True
        self._until_ns = broker.at.monotonic_ns + broker.options.scale_down.timeout * NS_PER_MS
        broker.scaling_down.begin(heir.connection, heir.node_id, is_forced=True, is_at_stop=True)
        self._look_again(LOOK_NS)

    def _look_again(self, in_ns: int) -> None:
        LOOK.has_touched = True
        self.due_ns = self._broker.at.monotonic_ns + in_ns
        self._broker.timers.add(self)

    # -- the end -------------------------------------------------------------------------------------------------------

    def on_time(self, now_ns: int) -> None:
        """Look how far it is."""
        broker = self._broker
        record = broker.store.remotes.scale_down
        LOOK.has_touched = True
        self.due_ns = 0
        if self._ending_until_ns:
            if record.is_on and now_ns < self._ending_until_ns:
                self._look_again(ENDING_LOOK_NS)
            else:
                self._stopping.left()
        elif self._is_whole:
            went = sum(tally.went.count for tally in record.tallies.values())
            broker.notice(Level.INFO, "scale-down-moved", node_id=record.target, moved=went, **self._left())
            self._end()
        elif why := self._why_vain(now_ns):
            self._stopping.stop_waiting(why)
        else:
            self._look_again(LOOK_NS)

    @property
    def _is_whole(self) -> bool:
        """Whether all that can go has gone, and the receipt balances."""
        broker, remotes = self._broker, self._broker.store.remotes
        if state_of(broker, is_hindered=False) != MOVED or any(differences(broker)):
            return False
        waiting = [queue.kind for queue in remotes.queues.values() if queue.message_count]
        return not any(is_linked(broker, kind.connection, kind.forwards_to) for kind in waiting)

    def _why_vain(self, now_ns: int) -> str:
        """Empty where it may go on."""
        broker = self._broker
        record, heir = broker.store.remotes.scale_down, broker.scaling_down.member
        if not record.is_on or record.is_ending:
            return "an administrator called it off"
        if heir is None:
            return "the node that takes them has stopped"
        if heir.heir:
            return f"node {heir.name}, which takes them, leaves itself"
        return "scale-down.timeout is over" if now_ns >= self._until_ns else ""

    def break_off(self, why: str) -> None:
        """What has not gone stays."""
        if not self._ending_until_ns:
            self._tell_vain("scale-down-unfinished", why)
            self._end()

    def _end(self) -> None:
        broker = self._broker
        LOOK.has_touched = True
        self._ending_until_ns = broker.at.monotonic_ns + ENDING_NS
        if broker.store.remotes.scale_down.is_on:
            broker.scaling_down.finish()
        self._look_again(ENDING_LOOK_NS)

    def _tell_vain(self, event: str, why: str) -> None:
        self._broker.notice(Level.WARNING, event, why=why, **self._left())

    def _left(self) -> dict[str, str | int]:
        """What is here, and of some queues why."""
        broker = self._broker
        queues = sorted(broker.store.queues.values(), key=lambda each: each.kind.name)
        reasons = ((queue.kind.name, why_it_stays(broker, queue)) for queue in queues)
        told = [*differences(broker), *(f"queue {name!r} {why}" for name, why in reasons if why)][:TOLD_MAX]
        said: dict[str, str | int] = {"left": sum(queue.message_count for queue in queues)}
        return said | ({"stays": "; ".join(told)} if told else {})
