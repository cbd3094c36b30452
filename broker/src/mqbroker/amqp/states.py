"""The state tables of AMQP 1.0: connection (§2.4.6), session (§2.5.5) and link (§2.6.7).

All states live here, and no table knows which side it plays. A pair (state, event) that is missing is a fault: of the
peer where the event begins with GOT, of ours (Bug) where it begins with SENT.
"""

from __future__ import annotations

import enum
from typing import Final

from mqbroker.base.errors import Bug, PeerFault, Scope


class Member(enum.Enum):
    """Each is there once, so its identity does for a hash; that of Enum would be a call in Python for each look-up."""

    __hash__ = object.__hash__


class Conn(Member):
    """Where a connection stands. `PIPE` states have sent ahead of what they have received."""

    START = "start"
    HDR_RCVD = "hdr-rcvd"
    HDR_SENT = "hdr-sent"
    HDR_EXCH = "hdr-exch"
    OPEN_PIPE = "open-pipe"
    OPEN_RCVD = "open-rcvd"
    OPEN_SENT = "open-sent"
    OPENED = "opened"
    CLOSE_RCVD = "close-rcvd"
    CLOSE_SENT = "close-sent"
    DISCARDING = "discarding"
    END = "end"


class ConnEvent(Member):
    """What moves a connection."""

    SENT_HEADER = "sent header"
    GOT_HEADER = "got header"
    SENT_OPEN = "sent open"
    GOT_OPEN = "got open"
    SENT_CLOSE = "sent close"
    SENT_CLOSE_ERROR = "sent close with an error"
    GOT_CLOSE = "got close"
    GOT_FRAME = "got frame"


CONN_NEXT: dict[tuple[Conn, ConnEvent], Conn] = {
    (Conn.START, ConnEvent.SENT_HEADER): Conn.HDR_SENT,
    (Conn.START, ConnEvent.GOT_HEADER): Conn.HDR_RCVD,
    (Conn.HDR_RCVD, ConnEvent.SENT_HEADER): Conn.HDR_EXCH,
    (Conn.HDR_SENT, ConnEvent.GOT_HEADER): Conn.HDR_EXCH,
    (Conn.HDR_SENT, ConnEvent.SENT_OPEN): Conn.OPEN_PIPE,
    (Conn.OPEN_PIPE, ConnEvent.GOT_HEADER): Conn.OPEN_SENT,
    (Conn.HDR_EXCH, ConnEvent.SENT_OPEN): Conn.OPEN_SENT,
    (Conn.HDR_EXCH, ConnEvent.GOT_OPEN): Conn.OPEN_RCVD,
    (Conn.OPEN_RCVD, ConnEvent.SENT_OPEN): Conn.OPENED,
    (Conn.OPEN_RCVD, ConnEvent.GOT_FRAME): Conn.OPEN_RCVD,
    (Conn.OPEN_RCVD, ConnEvent.GOT_CLOSE): Conn.CLOSE_RCVD,
    (Conn.OPEN_SENT, ConnEvent.GOT_OPEN): Conn.OPENED,
    (Conn.OPEN_SENT, ConnEvent.SENT_CLOSE): Conn.CLOSE_SENT,
    (Conn.OPEN_SENT, ConnEvent.SENT_CLOSE_ERROR): Conn.DISCARDING,
    (Conn.OPENED, ConnEvent.GOT_FRAME): Conn.OPENED,
    (Conn.OPENED, ConnEvent.SENT_CLOSE): Conn.CLOSE_SENT,
    (Conn.OPENED, ConnEvent.SENT_CLOSE_ERROR): Conn.DISCARDING,
    (Conn.OPENED, ConnEvent.GOT_CLOSE): Conn.CLOSE_RCVD,
    (Conn.CLOSE_RCVD, ConnEvent.SENT_CLOSE): Conn.END,
    (Conn.CLOSE_RCVD, ConnEvent.SENT_CLOSE_ERROR): Conn.END,
    (Conn.CLOSE_RCVD, ConnEvent.SENT_OPEN): Conn.CLOSE_RCVD,
    (Conn.CLOSE_SENT, ConnEvent.GOT_FRAME): Conn.CLOSE_SENT,
    (Conn.CLOSE_SENT, ConnEvent.GOT_OPEN): Conn.CLOSE_SENT,
    (Conn.CLOSE_SENT, ConnEvent.GOT_CLOSE): Conn.END,
    (Conn.DISCARDING, ConnEvent.GOT_FRAME): Conn.DISCARDING,
    (Conn.DISCARDING, ConnEvent.GOT_OPEN): Conn.DISCARDING,
    (Conn.DISCARDING, ConnEvent.GOT_CLOSE): Conn.END,
}


class Sess(Member):
    """Where a session stands."""

    UNMAPPED = "unmapped"
    BEGIN_SENT = "begin-sent"
    BEGIN_RCVD = "begin-rcvd"
    MAPPED = "mapped"
    END_SENT = "end-sent"
    END_RCVD = "end-rcvd"
    DISCARDING = "discarding"


class SessEvent(Member):
    """What moves a session."""

    SENT_BEGIN = "sent begin"
    GOT_BEGIN = "got begin"
    SENT_END = "sent end"
    SENT_END_ERROR = "sent end with an error"
    GOT_END = "got end"
    GOT_FRAME = "got frame"


SESS_NEXT: dict[tuple[Sess, SessEvent], Sess] = {
    (Sess.UNMAPPED, SessEvent.SENT_BEGIN): Sess.BEGIN_SENT,
    (Sess.UNMAPPED, SessEvent.GOT_BEGIN): Sess.BEGIN_RCVD,
    (Sess.BEGIN_SENT, SessEvent.GOT_BEGIN): Sess.MAPPED,
    (Sess.BEGIN_RCVD, SessEvent.SENT_BEGIN): Sess.MAPPED,
    (Sess.MAPPED, SessEvent.GOT_FRAME): Sess.MAPPED,
    (Sess.MAPPED, SessEvent.SENT_END): Sess.END_SENT,
    (Sess.MAPPED, SessEvent.SENT_END_ERROR): Sess.DISCARDING,
    (Sess.MAPPED, SessEvent.GOT_END): Sess.END_RCVD,
    (Sess.BEGIN_SENT, SessEvent.SENT_END): Sess.END_SENT,
    (Sess.BEGIN_SENT, SessEvent.SENT_END_ERROR): Sess.DISCARDING,
    (Sess.END_SENT, SessEvent.GOT_BEGIN): Sess.END_SENT,
    (Sess.END_SENT, SessEvent.GOT_FRAME): Sess.END_SENT,
    (Sess.END_SENT, SessEvent.GOT_END): Sess.UNMAPPED,
    (Sess.DISCARDING, SessEvent.GOT_BEGIN): Sess.DISCARDING,
    (Sess.DISCARDING, SessEvent.GOT_FRAME): Sess.DISCARDING,
    (Sess.DISCARDING, SessEvent.GOT_END): Sess.UNMAPPED,
    (Sess.END_RCVD, SessEvent.SENT_END): Sess.UNMAPPED,
    (Sess.END_RCVD, SessEvent.SENT_END_ERROR): Sess.UNMAPPED,
}


class Link(Member):
    """Where a link stands. DETACHED is both its beginning and its end."""

    DETACHED = "detached"
    ATTACH_SENT = "attach-sent"
    ATTACH_RCVD = "attach-rcvd"
    ATTACHED = "attached"
    DETACH_SENT = "detach-sent"
    DETACH_RCVD = "detach-rcvd"


class LinkEvent(Member):
    """What moves a link."""

    SENT_ATTACH = "sent attach"
    GOT_ATTACH = "got attach"
    SENT_DETACH = "sent detach"
    GOT_DETACH = "got detach"
    GOT_FRAME = "got frame"


LINK_NEXT: dict[tuple[Link, LinkEvent], Link] = {
    (Link.DETACHED, LinkEvent.SENT_ATTACH): Link.ATTACH_SENT,
    (Link.DETACHED, LinkEvent.GOT_ATTACH): Link.ATTACH_RCVD,
    (Link.ATTACH_SENT, LinkEvent.GOT_ATTACH): Link.ATTACHED,
    (Link.ATTACH_SENT, LinkEvent.SENT_DETACH): Link.DETACH_SENT,
    (Link.ATTACH_RCVD, LinkEvent.SENT_ATTACH): Link.ATTACHED,
    (Link.ATTACH_RCVD, LinkEvent.GOT_FRAME): Link.ATTACH_RCVD,
    (Link.ATTACH_RCVD, LinkEvent.GOT_DETACH): Link.DETACH_RCVD,
    (Link.ATTACHED, LinkEvent.GOT_FRAME): Link.ATTACHED,
    (Link.ATTACHED, LinkEvent.SENT_DETACH): Link.DETACH_SENT,
    (Link.ATTACHED, LinkEvent.GOT_DETACH): Link.DETACH_RCVD,
    (Link.DETACH_SENT, LinkEvent.GOT_FRAME): Link.DETACH_SENT,
    (Link.DETACH_SENT, LinkEvent.GOT_ATTACH): Link.DETACH_SENT,
    (Link.DETACH_SENT, LinkEvent.GOT_DETACH): Link.DETACHED,
    (Link.DETACH_RCVD, LinkEvent.SENT_ATTACH): Link.DETACH_RCVD,
    (Link.DETACH_RCVD, LinkEvent.SENT_DETACH): Link.DETACHED,
}


# What every frame asks for: a member of an Enum by its class costs ten times as much to read.
OPENED: Final = Conn.OPENED
MAPPED: Final = Sess.MAPPED
ATTACHED: Final = Link.ATTACHED


def next_conn(state: Conn, event: ConnEvent) -> Conn:
    """The state after `event`. Raises PeerFault (connection scope) or Bug, by who made the event."""
    found = CONN_NEXT.get((state, event))
    if found is None:
        if event.value.startswith("sent"):
            raise Bug(f"connection in state {state.value}: {event.value}")
        raise PeerFault("amqp:not-allowed", f"{event.value} while the connection is in state {state.value}")
    return found


def next_sess(state: Sess, event: SessEvent) -> Sess:
    """The state after `event`. Raises PeerFault (connection scope: the channel itself is in doubt) or Bug."""
    found = SESS_NEXT.get((state, event))
    if found is None:
        if event.value.startswith("sent"):
            raise Bug(f"session in state {state.value}: {event.value}")
        raise PeerFault("amqp:not-allowed", f"{event.value} while the session is in state {state.value}")
    return found


def next_link(state: Link, event: LinkEvent) -> Link:
    """The state after `event`. Raises PeerFault (session scope: the handle itself is in doubt) or Bug."""
    found = LINK_NEXT.get((state, event))
    if found is None:
        if event.value.startswith("sent"):
            raise Bug(f"link in state {state.value}: {event.value}")
        raise PeerFault("amqp:not-allowed", f"{event.value} while the link is in state {state.value}", Scope.SESSION)
    return found
