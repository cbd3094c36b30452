"""Where clients of this node may go when it is gone: what they are told, and which of them hear of changes.

Owns the sorted places of the other members that take clients, made anew when members change, and the links to
`mq:topology`. Nothing is queued for these: each compares what it has told with what is so now. Invariant: a step tells
a link once at most.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from mqbroker.amqp.redirect import RedirectPlace, failover_servers, place_of
from mqbroker.base.look import LOOK
from mqbroker.config.slices import ListenerOptions
from mqbroker.wire.encode import encode_value
from mqbroker.wire.types import Symbol

if TYPE_CHECKING:
    from mqbroker.cluster.notices import Member
    from mqbroker.node.amqp.links.told_links import ToldEnd

ELSEWHERE_MAX: Final = 16  # of which a client is told, so that its open stays small
TOLD_MAX: Final = 1000  # links that one step tells before it lets others have a turn
VALUE: Final = b"\x00\x53\x77"


class FailoverList:
    """See the module's docstring. `others` are the other members, where there can be any."""

    def __init__(self, others: Callable[[], list[Member]], *, is_in_cluster: bool) -> None:
        self._others = others
        self._is_in_cluster = is_in_cluster
        self._is_stale = True
        self._places: dict[bool, tuple[RedirectPlace, ...]] = {False: (), True: ()}  # by whether they have TLS
        self._turn = 0
        self._messages: dict[tuple[bool, int], bytes] = {}  # by the same and who is first, for present places
        self._ends: dict[int, ToldEnd] = {}  # by connection
        self._due: dict[int, ToldEnd] = {}

    def changed(self) -> None:
        """Members of the cluster may be other ones."""
        LOOK.has_touched = True
        self._is_stale = True

    def known(self, listener: ListenerOptions) -> tuple[RedirectPlace, ...]:
        """All that clients of the listener may go to, in the way that they reach this node: what the listener says,
        else the other members.
        """
        if listener.failover_server_list or listener.kind == "cluster":
            return tuple(place_of(each) for each in listener.failover_server_list)
        self._look()
        return self._places[listener.has_tls]

    def may_change(self, listener: ListenerOptions) -> bool:
        """Whether clients of the listener have anything to hear of after their open."""
        return self._is_in_cluster and listener.kind != "cluster" and not listener.failover_server_list

    def servers(self, listener: ListenerOptions) -> list[dict[Symbol, Any]]:
        """The list for one client of the listener.

        Each time another member is first: clients of a node that is lost take the first one, and so they spread.
        """
        places, head = self._next(listener)
        return _servers(places, head, listener)

    def message(self, listener: ListenerOptions) -> bytes:
        """The same list as a message."""
        places, head = self._next(listener)
        if not self.may_change(listener):
            return VALUE + encode_value(_servers(places, head, listener))
        key = listener.has_tls, head
        message = self._messages.get(key)
        LOOK.has_touched = True
        if message is None:
            message = self._messages[key] = VALUE + encode_value(_servers(places, head, listener))
        return message

    def _next(self, listener: ListenerOptions) -> tuple[tuple[RedirectPlace, ...], int]:
        places = self.known(listener)
        if listener.failover_server_list or not places:
            return places, 0  # what a person wrote has the order that the person chose
        LOOK.has_touched = True
        self._turn = (self._turn + 1) % len(places)
        return places, self._turn

    def _look(self) -> None:
        if not self._is_stale:
            return
        LOOK.has_touched = True
        self._is_stale = False
        told = [to for member in self._others() if not member.heir for to in member.clients[:1]]
        for has_tls, scheme in ((False, "amqp"), (True, "amqps")):
            there = [RedirectPlace(to.host, to.port) for to in told if to.scheme == scheme]
            places = tuple(sorted(dict.fromkeys(there)))
            if places != self._places[has_tls]:
                self._places[has_tls] = places
                self._messages.clear()
                self._due.update(self._ends)

    # -- those who hear of changes -------------------------------------------------------------------------------------

    def is_told(self, conn: int) -> bool:
        """Whether a connection has its link already."""
        return conn in self._ends

    def add(self, conn: int, end: ToldEnd) -> None:
        """A connection is to hear of changes from now on."""
        LOOK.has_touched = True
        self._ends[conn] = end

    def remove(self, conn: int) -> None:
        """The link of a connection is gone."""
        LOOK.has_touched = True
        self._ends.pop(conn, None)
        self._due.pop(conn, None)

    def tell(self) -> bool:
        """Near the end of a step; whether others are to be told in the next one."""
        if not self._ends:
            return False
        self._look()
        LOOK.has_touched = True
        for conn in list(islice(self._due, TOLD_MAX)):
            self._due.pop(conn).pump()
        return bool(self._due)


def _servers(places: tuple[RedirectPlace, ...], head: int, listener: ListenerOptions) -> list[dict[Symbol, Any]]:
    turned = places[head:] + places[:head]
    if not listener.failover_server_list:
        turned = turned[:ELSEWHERE_MAX]
    return failover_servers(turned, has_tls=listener.has_tls)
