"""What an address asks of the bindings that other nodes have for it.

The cluster's room keeps them (core/cluster/cluster_bindings.py). Not compiled, as who derives from it is not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mqbroker.core.address.address import Address, Origin, RoutedPart
    from mqbroker.core.queue.message_view import MessageView
    from mqbroker.core.queue.queue import Queue
    from mqbroker.wire.run import Run


class BindingsElsewhere(ABC):
    """See the module's docstring."""

    __slots__ = ()

    @abstractmethod
    def __bool__(self) -> bool:
        """Whether there are any."""

    @abstractmethod
    def of(self, routing: str) -> BindingsElsewhere | None:
        """Those of this routing type alone, if there are any."""

    @abstractmethod
    def has(self, routing: str) -> bool:
        """Whether there is one of this routing type."""

    @abstractmethod
    def keeps_apart(self, origin: str) -> bool:
        """Whether there is one that takes only what is moved from this address."""

    @abstractmethod
    def origin_of(self, name: str) -> str:
        """The one address from which all queues of this name take what is moved; empty: there is no such."""

    @abstractmethod
    def copied_beyond(self, queues: list[Queue]) -> int:
        """How many queues of the cluster get a copy each of what is sent here, but for these, which are here."""

    @abstractmethod
    def takes(self, routing: str) -> bool:
        """Whether what is sent at this node goes to one of this routing type, as far as nobody nearer has it.

        What is sent is not moved, so those that take only what is from one address are none of these.
        """

    @abstractmethod
    def takes_each(self, routing: str) -> bool:
        """Whether one of them does that has no filter, so that every message gets there."""

    @abstractmethod
    def reaches(self, view: MessageView, only: str) -> bool:
        """Whether one of them gets this message if nobody here does; `only` one of this routing type, empty: of any."""

    @abstractmethod
    def looks_at_each(self, queues: list[Queue]) -> bool:
        """Whether messages go one by one where these queues are here."""

    @abstractmethod
    def route(self, address: Address, run: Run, origin: Origin, only: str) -> list[RoutedPart]:
        """As `Address.route`, which asks for this."""
