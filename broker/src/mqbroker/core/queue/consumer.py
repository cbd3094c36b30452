"""Who takes messages of a queue, and what whoever has to know of them may ask. Nobody asks for a consumer's class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mqbroker.base.errors import Refused
    from mqbroker.core.queue.backlog import Segment
    from mqbroker.core.queue.message_view import Filter
    from mqbroker.core.queue.queue import Queue


class Consumer(Protocol):
    """Whoever takes messages: a link, or an admin session. One that browses gets copies and takes nothing away."""

    priority: int
    filter: Filter | None
    is_browser: bool

    @property
    def client(self) -> Client | None:
        """Itself, where it takes messages for a connection; None: for the broker or an administrator."""

    def capacity(self) -> int:
        """How many messages it would take now."""

    def deliver(self, queue: Queue, segment: Segment) -> int:
        """Take them, or the first so many; says how many."""


class Client(Consumer, Protocol):
    """A consumer that takes messages for a connection, by whatever protocol.

    Other nodes hear of it, it is watched for slowness, and it is ended where its queue goes, or what it may.
    `ends_queue`: the queue ends with the last of such clients.
    """

    ends_queue: bool

    @property
    def may_return(self) -> bool:
        """Whether the queue that ends with it waits for it for a time first, once its connection is gone."""

    @property
    def queue(self) -> Queue:
        """The queue that it takes messages of."""

    @property
    def name(self) -> str:
        """How its connection calls it."""

    @property
    def conn(self) -> int:
        """The id of the connection that it takes messages for."""

    @property
    def far(self) -> str:
        """Where the other end of that is, for people."""

    @property
    def is_there(self) -> bool:
        """Whether its link and its connection are not over."""

    @property
    def has_unsettled(self) -> bool:
        """Whether it has taken messages that are not settled; what a browser has are copies."""

    @property
    def is_departing(self) -> bool:
        """Whether it gets nothing more, as its connection is about to be sent to another node."""

    @property
    def settled_count(self) -> int:
        """Messages that it was sent and has settled, with whatever outcome."""

    def refusal(self) -> Refused | None:
        """Why it would not be let in now, by the permissions of its user."""

    def end(self, condition: str, why: str) -> None:
        """It is told so and gets nothing more, and what it had is in the queue again. Nothing, where it is over."""

    def part(self) -> None:
        """If it is over, and what it had is handed back by turns, that happens now."""

    def close(self, condition: str, why: str) -> None:
        """Close its connection, unless it is over."""
