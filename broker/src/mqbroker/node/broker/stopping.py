"""The end of a node in good order: what was taken in is answered, connections close, then the journal ends.

Invariant: nothing comes behind the journal's end, whatever the node was about to do. Else the next start took it for
that of a crash, after which everything that consumers may have had counts as delivered once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mqbroker.amqp.work import NO_BOUND
from mqbroker.base.look import LOOK
from mqbroker.node.values.effects import Halt
from mqbroker.node.values.inputs import Stop
from mqbroker.node.values.node_states import NODE_STATES, RUNS, NodeEvent, NodeState

if TYPE_CHECKING:
    from mqbroker.node.broker.broker import Broker


class Stopping:
    """See the module's docstring. `state` is where the node stands."""

    __slots__ = ("_broker", "state")

    def __init__(self, broker: Broker) -> None:
        self._broker: Final = broker
        self.state = NodeState.RUNNING

    def stop(self, _: Stop) -> None:
        """First everything that was taken in is answered, then connections close, then the journal, then the node."""
        broker, before = self._broker, self.state
        LOOK.has_touched = True
        self._move(NodeEvent.STOP)
        if before in RUNS:
            broker.discovery.stop()
            broker.cluster.stop()
            broker.routing.stop()
            broker.reloads.stop()
            broker.large.when_finished(lambda: broker.store.decisions.wait_for_earlier(self._close_all))

    def cordon(self) -> None:
        """No client is let in from now on."""
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
            peer.connection.allowance = NO_BOUND  # nothing of it may come behind the journal's end
            peer.close("amqp:connection:forced", "the broker stops")
            peer.received(b"")
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
