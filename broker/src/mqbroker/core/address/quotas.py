"""How many queues and addresses users and connections have, and how many they may.

A queue counts for who made it: for the user, whose name the journal keeps with it (`QueueKind.maker`), and for the
connection as long as both are there. An address counts for who made the first of its queues, and where it has none
for who made the address itself; that is nobody where a person or the file said something of it since. So all of it
follows from what there is: a start counts what was counted before it, and whatever goes is given back, however it
goes. What the broker makes by itself, the file of options declares, or an administrator or another node wants counts
for nobody. Bounds are those in force now; what is there already stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from mqbroker.base.errors import Refused
from mqbroker.base.look import LOOK
from mqbroker.config.slices import LimitOptions
from mqbroker.core.address.permissions import Actor

if TYPE_CHECKING:
    from mqbroker.core.address.address import Address
    from mqbroker.core.queue.kinds import QueueKind

_Key = TypeVar("_Key", str, int)
QUEUES: Final = "queues"
ADDRESSES: Final = "addresses"


class Share:
    """What a user has of what is bounded: queues and addresses, counted."""

    __slots__ = ("addresses", "queues")

    def __init__(self) -> None:
        self.queues = 0
        self.addresses = 0

    def of(self, what: str) -> int:
        """How many of one of the two."""
        return self.queues if what == QUEUES else self.addresses


NOTHING: Final = Share()
NOBODY: Final = ("", 0)  # what is made counts for no user and no connection


def maker_for(actor: Actor | None) -> tuple[str, int]:
    """The user and the connection that what the actor makes counts for."""
    return NOBODY if actor is None else (actor.maker, actor.conn)


class Quotas:
    """See the module's docstring."""

    def __init__(self, limits: LimitOptions) -> None:
        self.users: dict[str, Share] = {}
        self.connections: dict[int, Share] = {}  # those that made something, until they are gone
        self.refused_total = 0
        self.on_refusal: Callable[[Actor, str], None] = lambda actor, why: None
        self.change(limits)

    def change(self, limits: LimitOptions) -> None:
        """These bounds hold from now on."""
        LOOK.has_touched = True
        self.per_user = {QUEUES: limits.queues_per_user_max, ADDRESSES: limits.addresses_per_user_max}
        self.per_connection = {
            QUEUES: limits.queues_per_connection_max, ADDRESSES: limits.addresses_per_connection_max,
        }  # fmt: skip

    def check(self, what: str, actor: Actor | None) -> None:
        """Whether the actor may have one more of these. Raises Refused."""
        if actor is None or not actor.conn:
            return
        for whose, share, most, option in (
            ("this connection", self.connections.get(actor.conn), self.per_connection[what], "connection"),
            (f"user {actor.maker!r}", self.users.get(actor.maker), self.per_user[what], "user"),
        ):
            count = (share or NOTHING).of(what)
            if 0 <= most <= count:
                LOOK.has_touched = True
                self.refused_total += 1
                why = f"{whose} has made {count} {what} that are there, and {what}-per-{option}-max is {most}"
                self.on_refusal(actor, why)
                raise Refused("amqp:resource-limit-exceeded", why)

    # -- what comes and goes -------------------------------------------------------------------------------------------

    def queue_made(self, kind: QueueKind, conn: int) -> None:
        """A queue is there, and counts for its maker and, where it is temporary, its connection."""
        self._add(QUEUES, kind.maker, conn, 1, is_new=True)

    def queue_gone(self, kind: QueueKind, conn: int) -> None:
        """A queue was deleted, or belongs to nobody from now on."""
        self._add(QUEUES, kind.maker, conn, -1)

    def address_made(self, address: Address, maker: tuple[str, int]) -> None:
        """An address is there, and counts for whoever made it."""
        LOOK.has_touched = True
        address.founder = address.maker, address.made_on = maker
        self._add(ADDRESSES, address.maker, address.made_on, 1, is_new=True)

    def address_gone(self, address: Address) -> None:
        """An address was deleted, and counts for its maker no more."""
        self._add(ADDRESSES, address.maker, address.made_on, -1)

    def look(self, address: Address) -> None:
        """A queue came to an address, or went: it counts for who made the first one."""
        first = next(iter(address.anycast or address.multicast), None)
        maker = address.founder if first is None else (first.kind.maker, first.made_on)
        if maker != (address.maker, address.made_on):
            self.address_gone(address)
            LOOK.has_touched = True
            address.maker, address.made_on = maker
            self._add(ADDRESSES, address.maker, address.made_on, 1)

    def disown(self, address: Address) -> None:
        """Somebody wants an address to be there, whoever made it."""
        LOOK.has_touched = True
        address.founder = NOBODY
        self.look(address)

    def parted(self, conn: int) -> None:
        """A connection is gone; what it made stays its user's."""
        LOOK.has_touched = True
        self.connections.pop(conn, None)

    def _add(self, what: str, maker: str, conn: int, count: int, *, is_new: bool = False) -> None:
        if maker:
            LOOK.has_touched = True
            share = _count(self.users, maker, what, count)
            if not share.queues and not share.addresses:
                del self.users[maker]
        if (is_new and conn) or conn in self.connections:  # else it is gone
            _count(self.connections, conn, what, count)


def _count(shares: dict[_Key, Share], key: _Key, what: str, count: int) -> Share:
    LOOK.has_touched = True
    share = shares.setdefault(key, Share())
    if what == QUEUES:
        share.queues += count
    else:
        share.addresses += count
    return share
