"""Who waits for what became of an effect: the one mechanism for all that `io/` answers with `Done` or `Failed`.

Invariant: each that waits is told once, with the result, or with None and the reason. That an effect has failed for
which nobody waits is for the log. Bounded by whoever has effects carried out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from mqbroker.base.look import LOOK

UNSAID: Final = "no reason was given"

# Called with the result and no reason, or with None and why it failed.
Completion = Callable[[Any, str], None]


class Completions:
    """See the module's docstring. Ids of effects ascend, and none comes twice."""

    def __init__(self) -> None:
        self._last_id = 0
        self._expected: dict[int, Completion] = {}

    def next_id(self) -> int:
        """An id for an effect of which nobody has to know when it is done."""
        self._last_id += 1
        return self._last_id

    def expect(self, then: Completion) -> int:
        """An id for an effect; `then` is told what became of it."""
        LOOK.has_touched = True
        effect_id = self.next_id()
        self._expected[effect_id] = then
        return effect_id

    def done(self, effect_id: int, result: Any = None) -> bool:
        """An effect is done; whether anybody waited for it."""
        return self._tell(effect_id, result, "")

    def failed(self, effect_id: int, why: str) -> bool:
        """An effect has failed, also where nobody says why; whether anybody waited for it."""
        return self._tell(effect_id, None, why or UNSAID)

    def _tell(self, effect_id: int, result: Any, why: str) -> bool:
        LOOK.has_touched = True
        then = self._expected.pop(effect_id, None)
        if then is not None:
            then(result, why)
        return then is not None
