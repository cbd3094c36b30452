"""What a message says of itself beyond its header section, as far as the broker acts on it."""

from __future__ import annotations

from typing import Final

from mqbroker.base.value import Value


class Traits(Value):
    """What a message says beyond its header section that makes the broker treat it apart (parts.py finds it).

    Times are wall clock, ms since 1970; 0 or empty: the message does not say. `delay_ms` counts from arrival.
    """

    __match_args__ = (
        "expires_ms", "deliver_at_ms", "delay_ms", "group_id", "group_sequence", "duplicate_id", "last_value",
    )  # fmt: skip
    __slots__ = __match_args__

    def __init__(
        self,
        expires_ms: int = 0,
        deliver_at_ms: int = 0,
        delay_ms: int = 0,
        group_id: str = "",
        group_sequence: int = 0,
        duplicate_id: bytes = b"",
        last_value: str = "",
    ) -> None:
        self.expires_ms: Final = expires_ms
        self.deliver_at_ms: Final = deliver_at_ms
        self.delay_ms: Final = delay_ms
        self.group_id: Final = group_id
        self.group_sequence: Final = group_sequence
        self.duplicate_id: Final = duplicate_id
        self.last_value: Final = last_value


PLAIN: Final = Traits()
