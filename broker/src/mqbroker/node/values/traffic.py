"""What a message makes of the inputs (inputs.py) and effects (effects.py), and the Batch that each step returns.

Apart from the others because these are compiled in a native build.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mqbroker.base.value import Value

if TYPE_CHECKING:
    from mqbroker.base.notice import Notice
    from mqbroker.journal.append import Append
    from mqbroker.node.values.effects import Effect


class BytesReceived(Value):
    """Bytes of a connection, in order. The buffer is given away: nobody writes into it afterwards."""

    __match_args__ = ("conn", "data")
    __slots__ = __match_args__

    def __init__(self, conn: int, data: bytes) -> None:
        self.conn: Final = conn
        self.data: Final = data


class Synced(Value):
    """All appends up to and including `position` are on disk."""

    __match_args__ = ("position",)
    __slots__ = __match_args__

    def __init__(self, position: int) -> None:
        self.position: Final = position


class Send(Value):
    """Bytes for a connection; at most one Send per connection and Batch, chunks in order."""

    __match_args__ = ("conn", "chunks")
    __slots__ = __match_args__

    def __init__(self, conn: int, chunks: list[bytes | bytearray | memoryview]) -> None:
        self.conn: Final = conn
        self.chunks: Final = chunks


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
