"""A node that was the arbiter of groups proposes to the one that is all owners that it had decided, in rounds.

A round is so many groups as the other node's backlog takes beside what else it says. The next one begins when all of it
are answered; the same one again, as notices may be lost with a link, after `timeout`, and after twice as long each time
that nothing is answered. An arbiter that keeps no more groups is asked seldom, about others first.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from mqbroker.base.look import LOOK
from mqbroker.core.cluster.group_owners import GroupKey, GroupOwners

ROUND_MAX: Final = 1_000  # groups
WAIT_MAX: Final = 10  # times `timeout`: between rounds that are in vain


class HandOver:
    """`due_ns`: when the next round begins, 0 while there is none. `is_refused`: the last round that was answered, as
    the arbiter keeps no more groups."""

    __slots__ = ("_has_refusal", "_owners", "_timeout_ns", "_unanswered", "_waits", "due_ns", "is_refused")

    def __init__(self, owners: GroupOwners, timeout_ns: int) -> None:
        self._owners: Final = owners
        self._timeout_ns: Final = timeout_ns
        self._unanswered: set[GroupKey] = set()
        self._waits = 1  # times `timeout`
        self._has_refusal = False
        self.due_ns = 0
        self.is_refused = False

    def look(self, now_ns: int, *, is_reached: bool) -> None:
        """Begin when there is something to hand over, and somebody who takes it; end when there is not."""
        LOOK.has_touched = True
        if not (is_reached and self._owners.inherited):
            self.due_ns = 0
            self._unanswered.clear()
            self._waits = 1
        elif not self.due_ns:
            self.due_ns = now_ns

    def anew(self, *, is_other: bool) -> None:
        """The way to the arbiter was lost, and stands again; `is_other`: or it is another node."""
        LOOK.has_touched = True
        self.due_ns = 0
        self._unanswered.clear()
        self._waits = 1
        self.is_refused = self.is_refused and not is_other

    def next_round(self, now_ns: int) -> list[tuple[GroupKey, str]]:
        """Groups with their owners."""
        LOOK.has_touched = True
        if not self._unanswered.isdisjoint(self._owners.inherited):
            self._waits = min(2 * self._waits, WAIT_MAX)
        owners = {key: self._owners.get(key) for key in islice(self._owners.inherited, ROUND_MAX)}
        self._unanswered = set(owners)
        self._has_refusal = False
        self.due_ns = now_ns + self._waits * self._timeout_ns
        return [(key, pin.owner) for key, pin in owners.items() if pin is not None]

    def answered(self, key: GroupKey, now_ns: int, *, is_taken: bool) -> None:
        """The arbiter has said who owns a group, or that it keeps no more."""
        LOOK.has_touched = True
        if key not in self._unanswered:
            return
        self._unanswered.discard(key)
        self._waits = 1
        if not is_taken:
            self._has_refusal = True
            self._owners.postpone(key)
        if not self._unanswered:
            self.is_refused = self._has_refusal
            self.due_ns = now_ns + (WAIT_MAX * self._timeout_ns if self.is_refused else 0)
