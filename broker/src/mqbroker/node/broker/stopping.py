"""The end of a node in good order: what was taken in is answered, connections close, then the journal ends.

Where messages go to another node first (`[scale-down]`), the node runs until that is over. Who asks for a stop again
has it without the rest of them, and who asks once more has it at once.

Invariants: from the moment at which only the disk is waited for, nothing is taken in that would get no answer, because
its sender says it again, perhaps to another node, where nobody knows it; nor what comes behind it on its link, even
where that needs no answer, so that the order holds; nor a commit that has not had its turn. Nothing comes behind the
journal's end, whatever the node was about to do. Else the next start took it for that of a crash, after which
everything that consumers may have had counts as delivered once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mqbroker.amqp.frame_costs import NO_BOUND
from mqbroker.base.look import LOOK
from mqbroker.node.cluster.departure.scale_down_at_stop import ASKED, LeavingAtStop
from mqbroker.node.values.effects import DelayStop, Halt
from mqbroker.node.values.inputs import Stop
from mqbroker.node.values.node_states import NODE_STATES, RUNS, NodeEvent, NodeState

if TYPE_CHECKING:
    from mqbroker.node.broker.broker import Broker


WHY: Final = "the broker stops"


class Stopping:
    """See the module's docstring. `state` is where the node stands."""

    __slots__ = ("_broker", "_leaving", "state")

    def __init__(self, broker: Broker) -> None:
        self._broker: Final = broker
        self._leaving: Final = LeavingAtStop(broker, self)
        self.state = NodeState.RUNNING

    def stop(self, _: Stop) -> None:
        """Messages may go to another node first (scale_down_at_stop.py). Then everything that was taken in is answered,
        then connections close, then the journal, then the node."""
        heir = self._leaving.heir() if self.state is NodeState.RUNNING else None
        LOOK.has_touched = True
        if heir is not None:
            self._move(NodeEvent.LEAVE)
            self._leaving.begin(heir)
            self._broker.effects.append(DelayStop(is_over=False))
        elif self.state is NodeState.LEAVING:
            self.stop_waiting(ASKED)
        else:
            self._end(NodeEvent.STOP)

    def restart_begins(self, within_ns: int) -> None:
        """The stop that comes in this time is that of a restart: nothing goes to another node for it."""
        self._leaving.restart_begins(within_ns)

    def stop_waiting(self, why: str) -> None:
        """Nothing more is to go to another node: what is here stays."""
        self._move(NodeEvent.STOP)
        self._leaving.break_off(why)

    def left(self) -> None:
        """What could go has gone, or that is broken off."""
        if self.state in RUNS:
            self._end(NodeEvent.LEFT)

    def _end(self, event: NodeEvent) -> None:
        broker, before = self._broker, self.state
        LOOK.has_touched = True
        self._move(event)
        if before in RUNS:
            if broker.options.scale_down.enabled:
                broker.effects.append(DelayStop(is_over=True))
            broker.discovery.stop()
            broker.cluster.stop()
            broker.routing.stop()
            broker.reloads.stop()
            broker.large.when_finished(self._answer)

    def _answer(self) -> None:
        """All that was taken in is on its way to the disk, and is answered when it is there."""
        LOOK.has_touched = True
        self._broker.is_answering = True
        for peer in list(self._broker.peers.values()):
            peer.call_off(WHY)
        self._broker.store.decisions.wait_for_earlier(self._close_all)

    def cordon(self) -> None:
        """No client is let in from now on; of a scale-down as of a cordon, one of which may take the other's place."""
        if self.state is NodeState.RUNNING:
            self._move(NodeEvent.CORDON)

    def uncordon(self) -> None:
        """Clients are let in again."""
        if self.state is NodeState.CORDONED:
            self._move(NodeEvent.UNCORDON)

    def _move(self, event: NodeEvent) -> None:
        after = NODE_STATES.after(self.state, event)
        LOOK.has_touched = True
        self.state = after

    def _close_all(self) -> None:
        LOOK.has_touched = True
        for peer in list(self._broker.peers.values()):
            peer.stop(WHY)
        self._broker.local.close_all()
        self._move(NodeEvent.ANSWERED)

    def end_journal(self) -> None:
        """Before the append of a step is sealed: the last one ends the journal."""
        if self.state is NodeState.STOPPING:
            broker = self._broker
            LOOK.has_touched = True
            broker.store.remains.go_on(NO_BOUND)  # what was purged as consumers went
            broker.journal.stop()
            broker.store.decisions.wait(lambda: broker.effects.append(Halt(0)))
            self._move(NodeEvent.JOURNAL_ENDED)
