"""Notices of what peers can make happen as often as they like: told at once, and then once in a while with how often.

What they are about has a key, a user or a queue. The first of a key is told at once; what follows within `PERIOD_NS` is
counted, and told at its end. Bounded: `KEYS_MAX` keys have a notice of their own in a period, the others share one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level
from mqbroker.base.time import NS_PER_MS

if TYPE_CHECKING:
    from mqbroker.node.values.base_broker import BaseBroker

PERIOD_NS: Final = 60_000 * NS_PER_MS
KEYS_MAX: Final = 10
OTHERS: Final = "(others)"  # the key of those that have no notice of their own


class Untold(NamedTuple):
    """What was counted since the last notice, and what it would have said."""

    times: int
    fields: dict[str, str | int]


class Seldom:
    """Notices of one event, gathered by what they are about and told from time to time. It has a deadline."""

    __slots__ = ("_broker", "_event", "_key", "_level", "_untold", "due_ns", "scheduled_ns")

    def __init__(self, broker: BaseBroker, event: str, key: str, level: Level = Level.WARNING) -> None:
        """`key`: how the field is called that says what a notice is about."""
        self._broker = broker
        self._event = event
        self._key = key
        self._level = level
        self._untold: dict[str, Untold] = {}
        self.due_ns = 0
        self.scheduled_ns = 0

    def tell(self, key: str, count: int, **fields: str | int) -> None:
        """It happened so many times more."""
        LOOK.has_touched = True
        known = self._untold.get(key)
        if known is None and len(self._untold) < KEYS_MAX:
            self._untold[key] = Untold(0, {})
            self._notice(key, Untold(count, fields))
            self._wind()
            return
        place = key if known is not None else OTHERS
        self._untold[place] = Untold(count + self._untold.get(place, Untold(0, {})).times, fields)

    def on_time(self, now_ns: int) -> None:
        """Tell what happened since, and go on counting for those that go on."""
        LOOK.has_touched = True
        self.due_ns = 0
        self._untold, before = {}, self._untold
        for key, untold in before.items():
            if untold.times:
                self._notice(key, untold)
                self._untold[key] = Untold(0, {})
        self._untold.pop(OTHERS, None)
        if self._untold:
            self._wind()

    def _wind(self) -> None:
        if not self.due_ns:
            self.due_ns = self._broker.at.monotonic_ns + PERIOD_NS
            self._broker.timers.add(self)

    def _notice(self, key: str, untold: Untold) -> None:
        self._broker.notice(self._level, self._event, **{self._key: key}, count=untold.times, **untold.fields)
