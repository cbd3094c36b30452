"""Long work that is the broker's own, not what somebody has just sent: a piece in a step, and messages pass.

How much a piece may be is said by `turns.py`: little where somebody waits for the end of the step. Those that have
something to do take turns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from mqbroker.node.amqp.peers.amqp_broker import AmqpBroker


class Chore(Protocol):
    """One kind of long work that is done piece by piece."""

    @property
    def is_due(self) -> bool:
        """Whether there is something to do."""

    def go_on(self, work_max: int) -> None:
        """A piece of about so much, in units of amqp/frame_costs.py."""


class Chores:
    """The chores of a node, the one whose turn it is first; each step does a piece of one."""

    def __init__(self, broker: AmqpBroker, chores: list[Chore]) -> None:
        self._broker: Final = broker
        self._chores: Final = chores

    def run(self) -> bool:
        """A piece, where this step has room for one; whether to call again at once.

        Where something waits for the disk, `Synced` makes the next step: a loop that is never idle keeps the thread
        that writes from having its turn of the interpreter, some 5 ms each time.
        """
        chores = self._chores
        due = [each for each in chores if each.is_due]
        if not due:
            return False
        room = self._broker.turns.room()
        if room:
            due[0].go_on(room)
            chores.remove(due[0])
            chores.append(due[0])
        broker = self._broker
        waits_for_disk = broker.store.decisions.waits_behind(broker.journal.synced_position)
        return not waits_for_disk and any(each.is_due for each in chores)
