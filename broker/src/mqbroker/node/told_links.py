"""Links on which we tell rather than deliver: what goes out is news of the node, of no queue."""

from __future__ import annotations

from abc import ABC, abstractmethod


class ToldEnd(ABC):
    """Owns such a link at our end."""

    __slots__ = ()

    @abstractmethod
    def pump(self) -> None:
        """Send what there is, as credit, window and transport let through."""

    @abstractmethod
    def end(self) -> None:
        """The link is gone."""
