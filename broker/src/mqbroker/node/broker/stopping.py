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

if TYPE_CHECKING:
    from mqbroker.node.broker.broker import Broker


class Stopping:
    """See the module's docstring. `is_over`: the journal's end is on its way to the disk; until it is there the node
    answers, and does nothing."""

    __slots__ = ("_broker", "_is_last", "is_over")

    def __init__(self, broker: Broker) -> None:
        self._broker: Final = broker
        self._is_last = False  # the connections are closed: this step is the last one that does anything
        self.is_over = False

    def stop(self, _: Stop) -> None:
        """First everything that was taken in is answered, then connections close, then the journal, then the node."""
        broker = self._broker
        if not broker.is_stopping:
            LOOK.has_touched = True
            broker.is_stopping = True
            broker.discovery.stop()
            broker.cluster.stop()
            broker.routing.stop()
            broker.large.when_finished(lambda: broker.store.decisions.wait_for_earlier(self._close_all))

    def _close_all(self) -> None:
        LOOK.has_touched = True
        for peer in list(self._broker.peers.values()):
            peer.connection.allowance = NO_BOUND  # nothing of it may come behind the journal's end
            peer.close("amqp:connection:forced", "the broker stops")
            peer.received(b"")
        self._broker.local.close_all()
        self._is_last = True

    def end_journal(self) -> None:
        """Before the append of a step is sealed: the last one ends the journal."""
        if self._is_last:
            broker = self._broker
            LOOK.has_touched = True
            broker.store.remains.go_on(NO_BOUND)  # what was purged as consumers went
            broker.journal.stop()
            broker.store.decisions.wait(lambda: broker.effects.append(Halt(0)))
            self.is_over = True
