"""What a message makes of the inputs (inputs.py) and effects (effects.py).

Apart from the others because these are compiled in a native build.
"""

from __future__ import annotations

from typing import Final

from mqbroker.base.value import Value


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
