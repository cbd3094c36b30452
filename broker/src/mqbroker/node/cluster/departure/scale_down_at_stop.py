"""A node that is asked to stop and hands all that it has to another one before it does (`[scale-down]`).

Owns who the heir is, and when this is over: the receipt balances, or something makes it vain. Either way it is called
off in order, which takes until the heir has answered for what is on its way, and ENDING_NS at most. So the next start
serves what is here, and where that took longer it first waits for these answers. An heir that leaves itself is left in
the same order for another one, where there is one. Source: docs/adr/0027-scale-down.md.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level
from mqbroker.base.time import NS_PER_MS
from mqbroker.cluster.heirs import HeirCandidate
from mqbroker.node.cluster.departure.next_heir import candidates, chosen
from mqbroker.node.cluster.departure.scale_down_progress import (
    differences,
    has_anything,
    has_begun,
    is_linked,
    why_it_stays,
)

if TYPE_CHECKING:
    from mqbroker.core.queue.queue import Queue
    from mqbroker.node.cluster.membership.cluster_broker import ClusterBroker

LOOK_NS: Final = 100 * NS_PER_MS
ENDING_LOOK_NS: Final = 10 * NS_PER_MS
ENDING_NS: Final = 2_000 * NS_PER_MS
STILL_NS: Final = 2_000 * NS_PER_MS  # so long nothing may move where all that is left is refused
TOLD_MAX: Final = 10  # reasons that the log names
ASKED: Final = "it was asked to stop once more"
STUCK: Final = "what is left cannot go"
RESTARTS: Final = "it starts again at once, and serves them then"


class StopWaiting(Protocol):
    """The stop that waits for it."""

    def stop_waiting(self, why: str) -> None:
        """No further message is to go, for this reason: the stop breaks off or ends."""

    def left(self) -> None:
        """All has gone that could: the stop goes on."""


class LeavingPhase(Enum):
    """What a node that leaves before it stops is waiting for."""

    MOVES = "for messages to go"
    TURNS = "for the answers of an heir that leaves itself, to begin anew with another one"
    ENDS = "for the last answers, to stop"


class LeavingAtStop:
    """See the module's docstring. It has a deadline."""

    def __init__(self, broker: ClusterBroker, stopping: StopWaiting) -> None:
        self._broker: Final = broker
        self._stopping: Final = stopping
        self.due_ns = 0
        self.scheduled_ns = 0
        self._until_ns = 0  # it may go on
        self._phase = LeavingPhase.MOVES
        self._ending_until_ns = 0  # of TURNS and ENDS: it is over then, whatever the heir has not answered
        self._still = (0, 0)  # what has moved and what is here, and since when
        self._still_since_ns = 0
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
        heir_or_why = self._chosen()
        if broker.store.remotes.scale_down.is_on:
            heir_or_why = "a scale-down that was called off is not over"
        elif broker.store.arrivals.drained_here():
            heir_or_why = "queues of other nodes drain to this one"
        if isinstance(heir_or_why, HeirCandidate):
            return heir_or_why
        self._tell_vain("scale-down-passed-over", heir_or_why)
        return None

    def _chosen(self) -> HeirCandidate | str:
        """One that stays, or why there is none."""
        return chosen(self._broker, candidates(self._broker))

    def begin(self, heir: HeirCandidate) -> None:
        """All goes there from now on."""
        broker = self._broker
        LOOK.has_touched = True
        self._until_ns = broker.at.monotonic_ns + broker.options.scale_down.timeout * NS_PER_MS
        self._begin(heir)

    def _begin(self, heir: HeirCandidate) -> None:
        LOOK.has_touched = True
        self._phase = LeavingPhase.MOVES
        left_ns = max(self._until_ns - self._broker.at.monotonic_ns, 1)
        self._broker.scaling_down.begin(heir.connection, heir.node_id, is_forced=True, at_stop_ns=left_ns)
        self._look_again(LOOK_NS)

    def _look_again(self, in_ns: int) -> None:
        LOOK.has_touched = True
        self.due_ns = self._broker.at.monotonic_ns + in_ns
        self._broker.timers.add(self)

    # -- how far it is -------------------------------------------------------------------------------------------------

    def on_time(self, now_ns: int) -> None:
        """Look how far the phase is, and go on to the next."""
        LOOK.has_touched = True
        looks = {LeavingPhase.MOVES: self._moves, LeavingPhase.TURNS: self._turns, LeavingPhase.ENDS: self._ends}
        self.due_ns = 0
        looks[self._phase](now_ns)

    def _moves(self, now_ns: int) -> None:
        if self._is_whole:
            record = self._broker.store.remotes.scale_down
            went = sum(tally.went_count for tally in record.tallies.values())
            self._broker.notice(Level.INFO, "scale-down-moved", node_id=record.target, moved=went, **self._left())
            self._end()
        elif why := self._why_over(now_ns):
            self._stopping.stop_waiting(why)
        elif why := self._why_without_heir():
            self._turn_away(why)
        else:
            self._look_again(LOOK_NS)

    def _left_to_go(self) -> list[Queue]:
        """Queues of which something is to go, or to be heard of: an empty one that is refused hinders nothing."""
        broker, progress = self._broker, self._broker.store.remotes.drains.progress
        left = (queue for queue in broker.scaling_down.queues() if has_anything(broker, queue))
        return [queue for queue in left if not progress[queue.kind.name].why or _has_messages(queue)]

    @property
    def _is_whole(self) -> bool:
        """Whether all that can go has gone, and the receipt balances."""
        broker, remotes = self._broker, self._broker.store.remotes
        if not has_begun(broker) or self._left_to_go() or any(differences(broker)):
            return False
        waiting = [queue.kind for queue in remotes.queues.values() if queue.message_count]
        return not any(is_linked(broker, kind.connection, kind.forwards_to) for kind in waiting)

    def _why_over(self, now_ns: int) -> str:
        """Empty where it may go on."""
        record = self._broker.store.remotes.scale_down
        if not record.is_on or record.is_ending:
            return "an administrator called it off"
        if now_ns >= self._until_ns:
            return "scale-down.timeout is over"
        return STUCK if self._stands_still(now_ns) else ""

    def _stands_still(self, now_ns: int) -> bool:
        """Whether the other node refuses all that is left, and nothing has moved for a while."""
        broker, progress = self._broker, self._broker.store.remotes.drains.progress
        went = sum(tally.went_count for tally in broker.store.remotes.scale_down.tallies.values())
        LOOK.has_touched = True
        before, self._still = self._still, (went, sum(queue.message_count for queue in broker.store.queues.values()))
        left = self._left_to_go()
        is_stuck = bool(left) and all(progress[queue.kind.name].why for queue in left)
        if self._still != before or not is_stuck:
            self._still_since_ns = now_ns
        return now_ns - self._still_since_ns >= STILL_NS and has_begun(broker)

    # -- another heir --------------------------------------------------------------------------------------------------

    def _why_without_heir(self) -> str:
        """Empty where it is there, and stays."""
        heir = self._broker.scaling_down.member
        if heir is None:
            return "the node that takes them has stopped"
        return f"node {heir.name}, which takes them, leaves itself" if heir.heir else ""

    def _turn_away(self, why: str) -> None:
        """To another one, where there is one, once the heir has answered for what it may have."""
        broker = self._broker
        if not isinstance(self._chosen(), HeirCandidate):
            self._stopping.stop_waiting(why)
            return
        broker.notice(Level.INFO, "scale-down-turns", node_id=broker.store.remotes.scale_down.target, why=why)
        LOOK.has_touched = True
        self._phase = LeavingPhase.TURNS
        self._finish()

    def _turns(self, now_ns: int) -> None:
        if self._answered_or_looked_at_again(now_ns):
            heir_or_why = "it did not answer" if self._broker.store.remotes.scale_down.is_on else self._chosen()
            if isinstance(heir_or_why, HeirCandidate):
                self._begin(heir_or_why)
            else:
                self._stopping.stop_waiting(f"the node that takes them leaves itself, and {heir_or_why}")

    def _answered_or_looked_at_again(self, now_ns: int) -> bool:
        """True: the heir has answered for what it may have, or is waited for no longer. False: a look is due again."""
        if self._broker.store.remotes.scale_down.is_on and now_ns < self._ending_until_ns:
            self._look_again(ENDING_LOOK_NS)
            return False
        return True

    def _finish(self) -> None:
        broker = self._broker
        LOOK.has_touched = True
        self._ending_until_ns = broker.at.monotonic_ns + ENDING_NS
        if broker.store.remotes.scale_down.is_on:
            broker.scaling_down.finish()
        self._look_again(ENDING_LOOK_NS)

    # -- the end -------------------------------------------------------------------------------------------------------

    def break_off(self, why: str) -> None:
        """What has not gone stays, for this reason; answers are waited for still."""
        if self._phase is not LeavingPhase.ENDS:
            self._tell_vain("scale-down-unfinished", why)
            self._end()

    def _end(self) -> None:
        LOOK.has_touched = True
        self._phase = LeavingPhase.ENDS
        self._finish()

    def _ends(self, now_ns: int) -> None:
        if self._answered_or_looked_at_again(now_ns):
            self._stopping.left()

    def _tell_vain(self, event: str, why: str) -> None:
        self._broker.notice(Level.WARNING, event, why=why, **self._left())

    def _left(self) -> dict[str, str | int]:
        """What is here, and of some queues why."""
        broker = self._broker
        queues = sorted(broker.store.queues.values(), key=lambda each: each.kind.name)
        reasons = ((queue.kind.name, why_it_stays(broker, queue)) for queue in queues)
        told = [*differences(broker), *(f"queue {name!r} {why}" for name, why in reasons if why)][:TOLD_MAX]
        left = sum(queue.message_count for queue in queues if not queue.kind.is_ring)  # these stay with this node
        said: dict[str, str | int] = {"left": left}
        return said | ({"stays": "; ".join(told)} if told else {})


def _has_messages(queue: Queue) -> bool:
    """In it, or without an answer that is on disk."""
    return bool(queue.message_count) or (queue.handed_over is not None and queue.handed_over.ids.count > 0)
