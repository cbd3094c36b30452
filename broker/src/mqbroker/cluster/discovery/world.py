"""What discovery asks of whoever carries it out. The node makes effects and notices of it."""

from __future__ import annotations

from typing import Protocol

from mqbroker.base.notice import Level


class DiscoveryWorld(Protocol):
    """Each `join` and each `send` is answered once, by `joined`, `sent` or `failed` of who asked."""

    def join(self, group: str) -> None:
        """Have the place of this discovery group listened at."""

    def send(self, group: str, data: bytes) -> None:
        """Have a datagram sent to the place of this broadcast group."""

    def relay(self, group: str, node_id: str, data: bytes) -> None:
        """Have this datagram of a node passed on to peers of this discovery group; empty: no more."""

    def tell(self, level: Level, event: str, **fields: str | int) -> None:
        """Have an event logged, with these fields."""
