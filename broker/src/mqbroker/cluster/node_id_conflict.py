"""Two processes with one node id: which of them goes on.

A copied disk brings this about, and both processes have to come to the same answer without a word to each other. The
one of a higher term goes on (docs/adr/0023-term.md). Of one term, which is the rule, they compare when they were
started, as each says of itself: the one that was started later yields, since the other has the links, and its
neighbours count its messages. Epochs, the counts of starts, say nothing here: both have grown from one journal, so
that of the original may be the higher one or the lower one. An uptime would change on its way through a relay. So it
is the clock of each host, which a rollout checks: a clock that is wrong by more than the time between the two starts
makes the wrong one yield, but never both, and never none.
"""

from __future__ import annotations

from typing import Final, NamedTuple

# Whatever runs was not refused at its start: to the command a cloned disk looks like the original, unless it is told.
NEW_ID: Final = "`mqbroker identity new --even-if-original`"
CONFLICT_REMEDY: Final = (
    f"two brokers run with one node id: stop the one whose data was copied, run {NEW_ID} there and start it"
)
ECHO_REMEDY: Final = (
    "it does not hear this broker and is asked at its connector; if nothing more is told, somebody repeats what this "
    "broker said before it was restarted"
)
NOT_ALLOWED: Final = "amqp:not-allowed"
DEPOSED: Final = "another broker with this node id is in a higher term, so it took over and this one is of the past"
WHY: Final = "another broker with the node id of this one was started earlier, so this one is no node of the cluster"
REMEDY: Final = (
    f"if the data directory of this broker is the copy, stop it, run {NEW_ID} and start it; if the other one is, do so "
    "there, then restart this one"
)


class ProcessStart(NamedTuple):
    """The start of a process: by the clock of its host, in ms since 1970 (0: it does not say), its boot id and term."""

    started_ms: int
    boot_id: str
    term: int = 0


def yields(own: ProcessStart, other: ProcessStart) -> bool:
    """Whether a process leaves the node id to the other.

    Who does not say when it was started is of a release that never yields.
    """
    if own.term != other.term:
        return own.term < other.term
    if own.started_ms != other.started_ms:
        return own.started_ms > other.started_ms
    # None was first. A greater boot id is not a later one, but both processes know both, so this coin falls alike.
    return own.boot_id > other.boot_id
