"""The Batch that each step returns. Apart from effects.py because it is compiled in a native build."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mqbroker.base.notice import Notice
    from mqbroker.journal.append import Append
    from mqbroker.node.values.effects import Effect


class Batch:
    """What one step decided. `wake_at_ns` is monotonic, the next instant that matters (None: none).

    `more`: the step stopped at its limit; call again at once (other inputs may be added to that call).
    """

    __slots__ = ("append", "effects", "more", "notices", "wake_at_ns")

    def __init__(
        self,
        append: Append | None = None,
        effects: list[Effect] | None = None,
        wake_at_ns: int | None = None,
        notices: list[Notice] | None = None,
        more: bool = False,
    ) -> None:
        self.append = append
        self.effects: list[Effect] = [] if effects is None else effects
        self.wake_at_ns = wake_at_ns
        self.notices: list[Notice] = [] if notices is None else notices
        self.more = more
