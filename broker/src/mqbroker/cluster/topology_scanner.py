"""Looks for nodes that should be members of the cluster and are not.

Connectors that are listed in the options or were discovered, and that no member has, are dialled every
`retry-interval`, at most `topology-scanner-attempts` times; then it is told once that the topology is incomplete.
Whoever comes to be listed makes counting begin anew.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final

from mqbroker.base.errors import Bug
from mqbroker.base.notice import Level
from mqbroker.base.notice import Notice as Logged
from mqbroker.base.time import NS_PER_MS
from mqbroker.cluster.fields import Connector
from mqbroker.cluster.notices import Member
from mqbroker.config.slices import ClusterConnectionOptions

UNBOUNDED: Final = -1
LISTED_MAX: Final = 1000
Place = tuple[str, str, int]


class State(enum.Enum):
    """Whether it looks for somebody."""

    IDLE = "idle"
    SCANNING = "scanning"
    GIVEN_UP = "given-up"


class Event(enum.Enum):
    """What happens to it."""

    ABSENT = "absent"  # somebody new is listed, and no member
    COMPLETE = "complete"  # all who are listed are members
    LAST = "last"  # the last attempt has been made


NEXT: Final[dict[tuple[State, Event], State]] = {
    (State.IDLE, Event.ABSENT): State.SCANNING,
    (State.IDLE, Event.COMPLETE): State.IDLE,
    (State.SCANNING, Event.ABSENT): State.SCANNING,
    (State.SCANNING, Event.COMPLETE): State.IDLE,
    (State.SCANNING, Event.LAST): State.GIVEN_UP,
    (State.GIVEN_UP, Event.ABSENT): State.SCANNING,
    (State.GIVEN_UP, Event.COMPLETE): State.IDLE,
}


def after(state: State, event: Event) -> State:
    """The next state. A pair that is missing is our own fault."""
    try:
        return NEXT[state, event]
    except KeyError:
        raise Bug(f"a topology scanner is {state.value}, and got {event.value}") from None


class TopologyScanner:
    """See the module's docstring. Has a deadline like everybody in node/timers.py."""

    def __init__(self, options: ClusterConnectionOptions, own: Connector) -> None:
        self._name = options.name
        self._interval_ns = options.retry_interval * NS_PER_MS
        self._attempts_max = options.topology_scanner_attempts
        self._own = own.place
        self._listed: dict[Place, Connector] = {}
        self._members: frozenset[Place] = frozenset()
        self._found: set[Place] = set()  # those that are listed and were members once
        self.state = State.IDLE
        self.attempts = 0
        self.next_due_ns = 0  # 0: nothing is due

    @property
    def absent(self) -> list[Connector]:
        """Those that are listed and no member has."""
        return [one for place, one in self._listed.items() if place not in self._found]

    def listed(self, connectors: Iterable[Connector], now_ns: int) -> None:
        """These are listed as well: at the start, or because they were discovered."""
        is_new = False
        for one in connectors:
            if one.place == self._own or one.place in self._listed or len(self._listed) >= LISTED_MAX:
                continue
            self._listed[one.place] = one
            if one.place in self._members:
                self._found.add(one.place)
            else:
                is_new = True
        if is_new and self._attempts_max:
            self.state = after(self.state, Event.ABSENT)
            self.attempts = 0
            self.next_due_ns = self.next_due_ns or now_ns

    def unlisted(self, connectors: Iterable[Connector]) -> None:
        """These are not any more: discovery has lost them."""
        for one in connectors:
            self._listed.pop(one.place, None)
            self._found.discard(one.place)
        self._look()

    def members_changed(self, members: Iterable[Member]) -> None:
        """Who is a member now. One that goes is for its own link to reach again, and not looked for here."""
        self._members = frozenset(connector.place for member in members for connector in member.connectors)
        self._found.update(self._members.intersection(self._listed))
        self._look()

    def due(self, now_ns: int) -> tuple[list[Connector], Logged | None]:
        """Whom to dial now, and what to log."""
        if not self.next_due_ns or now_ns < self.next_due_ns:
            return [], None
        if self._attempts_max != UNBOUNDED and self.attempts >= self._attempts_max:
            self.state = after(self.state, Event.LAST)
            self.next_due_ns = 0
            return [], self._incomplete()
        self.attempts += 1
        self.next_due_ns = now_ns + self._interval_ns
        return self.absent, None

    def _look(self) -> None:
        if not self.absent:
            self.state = after(self.state, Event.COMPLETE)
            self.next_due_ns = self.attempts = 0

    def _incomplete(self) -> Logged:
        missing = ", ".join(one.uri for one in self.absent[:10])
        fields: dict[str, str | int] = {
            "connection": self._name,
            "missing": missing,
            "attempts": self.attempts,
            "remedy": "start these nodes, or take them out of static-connectors",
        }
        return Logged(Level.WARNING, "cluster-topology-incomplete", fields)
