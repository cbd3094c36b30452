"""How far a node is on its way to its end, as a table. A pair (state, event) that is missing is a bug of ours."""

from __future__ import annotations

from typing import Final

from mqbroker.base.state_table import StateTable
from mqbroker.base.states import OURS, StateEvent, StateMember


class NodeState(StateMember):
    """Where a node stands. Whoever begins something asks whether it runs, and whoever lets clients in whether it is
    RUNNING. Nothing leads back from DRAINING."""

    RUNNING = "running"
    CORDONED = "cordoned"  # it runs, and lets no client in: what it has stays, or goes to another node
    LEAVING = "leaving"  # as that, and then it stops
    BREAKING_OFF = "breaking off"  # nothing more goes there: it waits for answers, and then it stops
    DRAINING = "draining"  # it gives no credit, answers what it took in, and takes in nothing more that needs an answer
    STOPPING = "stopping"  # its connections are closed: the step that is under way ends the journal
    STOPPED = "stopped"  # the journal's end is on its way to the disk; until it is there the node answers, no more


RUNS: Final = (NodeState.RUNNING, NodeState.CORDONED, NodeState.LEAVING, NodeState.BREAKING_OFF)
CLOSED: Final = (NodeState.CORDONED, NodeState.LEAVING, NodeState.BREAKING_OFF)  # to clients, while it runs


class NodeEvent(StateEvent):
    """What moves a node. Who asks it to stop may do so again at any time."""

    CORDON = "is to take no clients", OURS
    UNCORDON = "is to take clients again", OURS
    LEAVE = "is to hand over what it has before it stops", OURS
    LEFT = "has handed over what it could", OURS
    STOP = "is asked to stop", OURS
    ANSWERED = "has answered all that it took in", OURS
    JOURNAL_ENDED = "has ended its journal", OURS


NODE_STATES: Final = StateTable(
    {
        (NodeState.RUNNING, NodeEvent.STOP): NodeState.DRAINING,
        (NodeState.RUNNING, NodeEvent.CORDON): NodeState.CORDONED,
        (NodeState.CORDONED, NodeEvent.UNCORDON): NodeState.RUNNING,
        (NodeState.CORDONED, NodeEvent.STOP): NodeState.DRAINING,
        (NodeState.RUNNING, NodeEvent.LEAVE): NodeState.LEAVING,
        (NodeState.LEAVING, NodeEvent.LEFT): NodeState.DRAINING,
        (NodeState.LEAVING, NodeEvent.STOP): NodeState.BREAKING_OFF,
        (NodeState.BREAKING_OFF, NodeEvent.LEFT): NodeState.DRAINING,
        (NodeState.BREAKING_OFF, NodeEvent.STOP): NodeState.DRAINING,
        (NodeState.DRAINING, NodeEvent.STOP): NodeState.DRAINING,
        (NodeState.DRAINING, NodeEvent.ANSWERED): NodeState.STOPPING,
        (NodeState.STOPPING, NodeEvent.STOP): NodeState.STOPPING,
        (NodeState.STOPPING, NodeEvent.JOURNAL_ENDED): NodeState.STOPPED,
        (NodeState.STOPPED, NodeEvent.STOP): NodeState.STOPPED,
    },
    "a node that is {state} {event}",
)
