"""How this node closes a connection in good order: what it has taken in of it is answered first, and the rest was never
taken in, so whoever sent that may say it again, also to another node, and it is there once.

    hold    nothing more is read of what came, what is on its way in waits at the door, and a commit that has not had
            its turn is rolled back, which its client hears
    wait    until what was taken in before is committed, so that its answers are out
    close   what waited at the door is dropped

Who is owed no answer is closed at once, whatever the disk does: one that only consumes, since what it would settle
until then came again, and another node, which knows by its marks what comes again. The others wait as long as the disk
takes, without a bound, and `connections` says so (`closing`); what they settle in that time does come again.

Until the close a connection may be let go on: then what waited comes in after all. A stop holds in another way, since
what consumers settle and what is sent settled counts until its end (node/broker/stopping.py). What a peer has done
wrong, and what was never open, is closed at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from mqbroker.amqp.links import ReceiverLink
from mqbroker.amqp.states import ConnectionState
from mqbroker.base.look import LOOK
from mqbroker.wire.types import Symbol

if TYPE_CHECKING:
    from mqbroker.amqp.connection import Connection
    from mqbroker.core.address.decisions import Decisions

Said = tuple[str, str, dict[Symbol, Any] | None]  # of a close: condition, description, and what else there is to say


class CommitsUnderWay(Protocol):
    """Those that a connection asks for."""

    def call_off(self, why: str) -> None:
        """Those that have not had their turn are none, and who asked for them hears it, as of each rollback."""


class ComingIn(Protocol):
    """What of a connection is on its way in."""

    @property
    def is_finishing(self) -> bool:
        """Whether the connection is held for a message."""


class Closable(Protocol):
    """A peer, as far as it matters here."""

    connection: Connection

    @property
    def is_known_again(self) -> bool:
        """Whether it is another node."""

    @property
    def transactions(self) -> CommitsUnderWay:
        """The transactions of the peer, of which some may commit."""

    @property
    def uploads(self) -> ComingIn:
        """Its messages that are not taken in yet."""

    def departs(self, is_departing: bool) -> None:
        """Its consumers get nothing from now on, or do so again."""

    def go_on(self) -> None:
        """Take in what came meanwhile."""

    def pause_if_needed(self) -> None:
        """Stop reading from the peer, or go on, as its state now says."""

    def close_at_once(self, condition: str, description: str, info: dict[Symbol, Any] | None = None) -> None:
        """Close it, whatever of it has no answer."""


class Farewell:
    """Of one connection. `is_final`: it is closed for certain, once the disk has what was taken in."""

    __slots__ = ("_at_door", "is_final")

    def __init__(self) -> None:
        self._at_door: list[Callable[[], None]] = []  # one for each message that its connection was held for
        self.is_final = False

    def hold(self, peer: Closable, why: str) -> None:
        """Nothing more of it is taken in."""
        LOOK.has_touched = True
        peer.connection.is_shut = peer.connection.is_held = True
        peer.transactions.call_off(why)
        peer.departs(True)

    def puts_off(self, peer: Closable, action: Callable[[], None]) -> bool:
        """Whether something that would be taken in waits: `action` does it later, or finds the connection dead."""
        if not peer.connection.is_shut or peer.connection.is_dead:
            return False
        LOOK.has_touched = True
        self._at_door.append(action)
        return True

    def let_go_on(self, peer: Closable) -> None:
        """It stays, unless it is closed for certain. What came meanwhile comes in."""
        connection = peer.connection
        if self.is_final or connection.is_dead or not connection.is_shut:
            return
        LOOK.has_touched = True
        connection.is_shut = False
        self.open_door()
        if not peer.uploads.is_finishing:
            peer.go_on()
        peer.pause_if_needed()

    def close(self, peer: Closable, decisions: Decisions, said: Said) -> None:
        """Hold it, wait, close it with what is `said`."""
        if peer.connection.state is not ConnectionState.OPENED or not _is_owed_answers(peer):
            peer.close_at_once(*said)
        elif not self.is_final:
            self._close(peer, decisions, said)

    def _close(self, peer: Closable, decisions: Decisions, said: Said) -> None:
        LOOK.has_touched = True
        self.is_final = True
        self.hold(peer, said[1])
        decisions.wait_for_earlier(peer.close_at_once, *said)
        if not peer.connection.is_dead:
            peer.pause_if_needed()

    def open_door(self) -> None:
        """The connection goes on, or is dead, in which nothing comes in any more."""
        LOOK.has_touched = True
        at_door, self._at_door = self._at_door, []
        for action in at_door:
            action()


def _is_owed_answers(peer: Closable) -> bool:
    """Whether it sends messages, or requests, as to commit."""
    links = (link for session in peer.connection.sessions for link in session.by_handle.values())
    return not peer.is_known_again and any(isinstance(link, ReceiverLink) and link.is_attached for link in links)
