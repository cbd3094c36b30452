"""The state tables of AMQP 1.0: connection (§2.4.6), session (§2.5.5) and link (§2.6.7).

All states live here, and no table knows which side it plays. A pair (state, event) that is missing is a fault: of the
peer where the event begins with GOT, of ours (Bug) where it begins with SENT.
"""

from __future__ import annotations

import enum
from typing import Final

from mqbroker.base.errors import Bug, PeerFault, Scope


class StateMember(enum.Enum):
    """Each is there once, so its identity does for a hash; that of Enum would be a call in Python for each look-up."""

    __hash__ = object.__hash__


class ConnectionState(StateMember):
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


class ConnectionStateEvent(StateMember):
    """What moves a connection."""

    SENT_HEADER = "sent header"
    GOT_HEADER = "got header"
    SENT_OPEN = "sent open"
    GOT_OPEN = "got open"
    SENT_CLOSE = "sent close"
    SENT_CLOSE_ERROR = "sent close with an error"
    GOT_CLOSE = "got close"
    GOT_FRAME = "got frame"


CONN_NEXT: dict[tuple[ConnectionState, ConnectionStateEvent], ConnectionState] = {
    (ConnectionState.START, ConnectionStateEvent.SENT_HEADER): ConnectionState.HDR_SENT,
    (ConnectionState.START, ConnectionStateEvent.GOT_HEADER): ConnectionState.HDR_RCVD,
    (ConnectionState.HDR_RCVD, ConnectionStateEvent.SENT_HEADER): ConnectionState.HDR_EXCH,
    (ConnectionState.HDR_SENT, ConnectionStateEvent.GOT_HEADER): ConnectionState.HDR_EXCH,
    (ConnectionState.HDR_SENT, ConnectionStateEvent.SENT_OPEN): ConnectionState.OPEN_PIPE,
    (ConnectionState.OPEN_PIPE, ConnectionStateEvent.GOT_HEADER): ConnectionState.OPEN_SENT,
    (ConnectionState.HDR_EXCH, ConnectionStateEvent.SENT_OPEN): ConnectionState.OPEN_SENT,
    (ConnectionState.HDR_EXCH, ConnectionStateEvent.GOT_OPEN): ConnectionState.OPEN_RCVD,
    (ConnectionState.OPEN_RCVD, ConnectionStateEvent.SENT_OPEN): ConnectionState.OPENED,
    (ConnectionState.OPEN_RCVD, ConnectionStateEvent.GOT_FRAME): ConnectionState.OPEN_RCVD,
    (ConnectionState.OPEN_RCVD, ConnectionStateEvent.GOT_CLOSE): ConnectionState.CLOSE_RCVD,
    (ConnectionState.OPEN_SENT, ConnectionStateEvent.GOT_OPEN): ConnectionState.OPENED,
    (ConnectionState.OPEN_SENT, ConnectionStateEvent.SENT_CLOSE): ConnectionState.CLOSE_SENT,
    (ConnectionState.OPEN_SENT, ConnectionStateEvent.SENT_CLOSE_ERROR): ConnectionState.DISCARDING,
    (ConnectionState.OPENED, ConnectionStateEvent.GOT_FRAME): ConnectionState.OPENED,
    (ConnectionState.OPENED, ConnectionStateEvent.SENT_CLOSE): ConnectionState.CLOSE_SENT,
    (ConnectionState.OPENED, ConnectionStateEvent.SENT_CLOSE_ERROR): ConnectionState.DISCARDING,
    (ConnectionState.OPENED, ConnectionStateEvent.GOT_CLOSE): ConnectionState.CLOSE_RCVD,
    (ConnectionState.CLOSE_RCVD, ConnectionStateEvent.SENT_CLOSE): ConnectionState.END,
    (ConnectionState.CLOSE_RCVD, ConnectionStateEvent.SENT_CLOSE_ERROR): ConnectionState.END,
    (ConnectionState.CLOSE_RCVD, ConnectionStateEvent.SENT_OPEN): ConnectionState.CLOSE_RCVD,
    (ConnectionState.CLOSE_SENT, ConnectionStateEvent.GOT_FRAME): ConnectionState.CLOSE_SENT,
    (ConnectionState.CLOSE_SENT, ConnectionStateEvent.GOT_OPEN): ConnectionState.CLOSE_SENT,
    (ConnectionState.CLOSE_SENT, ConnectionStateEvent.GOT_CLOSE): ConnectionState.END,
    (ConnectionState.DISCARDING, ConnectionStateEvent.GOT_FRAME): ConnectionState.DISCARDING,
    (ConnectionState.DISCARDING, ConnectionStateEvent.GOT_OPEN): ConnectionState.DISCARDING,
    (ConnectionState.DISCARDING, ConnectionStateEvent.GOT_CLOSE): ConnectionState.END,
}


class SessionState(StateMember):
    """Where a session stands."""

    UNMAPPED = "unmapped"
    BEGIN_SENT = "begin-sent"
    BEGIN_RCVD = "begin-rcvd"
    MAPPED = "mapped"
    END_SENT = "end-sent"
    END_RCVD = "end-rcvd"
    DISCARDING = "discarding"


class SessionStateEvent(StateMember):
    """What moves a session."""

    SENT_BEGIN = "sent begin"
    GOT_BEGIN = "got begin"
    SENT_END = "sent end"
    SENT_END_ERROR = "sent end with an error"
    GOT_END = "got end"
    GOT_FRAME = "got frame"


SESS_NEXT: dict[tuple[SessionState, SessionStateEvent], SessionState] = {
    (SessionState.UNMAPPED, SessionStateEvent.SENT_BEGIN): SessionState.BEGIN_SENT,
    (SessionState.UNMAPPED, SessionStateEvent.GOT_BEGIN): SessionState.BEGIN_RCVD,
    (SessionState.BEGIN_SENT, SessionStateEvent.GOT_BEGIN): SessionState.MAPPED,
    (SessionState.BEGIN_RCVD, SessionStateEvent.SENT_BEGIN): SessionState.MAPPED,
    (SessionState.MAPPED, SessionStateEvent.GOT_FRAME): SessionState.MAPPED,
    (SessionState.MAPPED, SessionStateEvent.SENT_END): SessionState.END_SENT,
    (SessionState.MAPPED, SessionStateEvent.SENT_END_ERROR): SessionState.DISCARDING,
    (SessionState.MAPPED, SessionStateEvent.GOT_END): SessionState.END_RCVD,
    (SessionState.BEGIN_SENT, SessionStateEvent.SENT_END): SessionState.END_SENT,
    (SessionState.BEGIN_SENT, SessionStateEvent.SENT_END_ERROR): SessionState.DISCARDING,
    (SessionState.END_SENT, SessionStateEvent.GOT_BEGIN): SessionState.END_SENT,
    (SessionState.END_SENT, SessionStateEvent.GOT_FRAME): SessionState.END_SENT,
    (SessionState.END_SENT, SessionStateEvent.GOT_END): SessionState.UNMAPPED,
    (SessionState.DISCARDING, SessionStateEvent.GOT_BEGIN): SessionState.DISCARDING,
    (SessionState.DISCARDING, SessionStateEvent.GOT_FRAME): SessionState.DISCARDING,
    (SessionState.DISCARDING, SessionStateEvent.GOT_END): SessionState.UNMAPPED,
    (SessionState.END_RCVD, SessionStateEvent.SENT_END): SessionState.UNMAPPED,
    (SessionState.END_RCVD, SessionStateEvent.SENT_END_ERROR): SessionState.UNMAPPED,
}


class LinkState(StateMember):
    """Where a link stands. DETACHED is both its beginning and its end."""

    DETACHED = "detached"
    ATTACH_SENT = "attach-sent"
    ATTACH_RCVD = "attach-rcvd"
    ATTACHED = "attached"
    DETACH_SENT = "detach-sent"
    DETACH_RCVD = "detach-rcvd"


class LinkStateEvent(StateMember):
    """What moves a link."""

    SENT_ATTACH = "sent attach"
    GOT_ATTACH = "got attach"
    SENT_DETACH = "sent detach"
    GOT_DETACH = "got detach"
    GOT_FRAME = "got frame"


LINK_NEXT: dict[tuple[LinkState, LinkStateEvent], LinkState] = {
    (LinkState.DETACHED, LinkStateEvent.SENT_ATTACH): LinkState.ATTACH_SENT,
    (LinkState.DETACHED, LinkStateEvent.GOT_ATTACH): LinkState.ATTACH_RCVD,
    (LinkState.ATTACH_SENT, LinkStateEvent.GOT_ATTACH): LinkState.ATTACHED,
    (LinkState.ATTACH_SENT, LinkStateEvent.SENT_DETACH): LinkState.DETACH_SENT,
    (LinkState.ATTACH_RCVD, LinkStateEvent.SENT_ATTACH): LinkState.ATTACHED,
    (LinkState.ATTACH_RCVD, LinkStateEvent.GOT_FRAME): LinkState.ATTACH_RCVD,
    (LinkState.ATTACH_RCVD, LinkStateEvent.GOT_DETACH): LinkState.DETACH_RCVD,
    (LinkState.ATTACHED, LinkStateEvent.GOT_FRAME): LinkState.ATTACHED,
    (LinkState.ATTACHED, LinkStateEvent.SENT_DETACH): LinkState.DETACH_SENT,
    (LinkState.ATTACHED, LinkStateEvent.GOT_DETACH): LinkState.DETACH_RCVD,
    (LinkState.DETACH_SENT, LinkStateEvent.GOT_FRAME): LinkState.DETACH_SENT,
    (LinkState.DETACH_SENT, LinkStateEvent.GOT_ATTACH): LinkState.DETACH_SENT,
    (LinkState.DETACH_SENT, LinkStateEvent.GOT_DETACH): LinkState.DETACHED,
    (LinkState.DETACH_RCVD, LinkStateEvent.SENT_ATTACH): LinkState.DETACH_RCVD,
    (LinkState.DETACH_RCVD, LinkStateEvent.SENT_DETACH): LinkState.DETACHED,
}


# What every frame asks for: a member of an Enum by its class costs ten times as much to read.
OPENED: Final = ConnectionState.OPENED
MAPPED: Final = SessionState.MAPPED
ATTACHED: Final = LinkState.ATTACHED


def next_conn(state: ConnectionState, event: ConnectionStateEvent) -> ConnectionState:
    """The state after `event`. Raises PeerFault (connection scope) or Bug, by who made the event."""
    found = CONN_NEXT.get((state, event))
    if found is None:
        if event.value.startswith("sent"):
            raise Bug(f"connection in state {state.value}: {event.value}")
        raise PeerFault("amqp:not-allowed", f"{event.value} while the connection is in state {state.value}")
    return found


def next_sess(state: SessionState, event: SessionStateEvent) -> SessionState:
    """The state after `event`. Raises PeerFault (connection scope: the channel itself is in doubt) or Bug."""
    found = SESS_NEXT.get((state, event))
    if found is None:
        if event.value.startswith("sent"):
            raise Bug(f"session in state {state.value}: {event.value}")
        raise PeerFault("amqp:not-allowed", f"{event.value} while the session is in state {state.value}")
    return found


def next_link(state: LinkState, event: LinkStateEvent) -> LinkState:
    """The state after `event`. Raises PeerFault (session scope: the handle itself is in doubt) or Bug."""
    found = LINK_NEXT.get((state, event))
    if found is None:
        if event.value.startswith("sent"):
            raise Bug(f"link in state {state.value}: {event.value}")
        raise PeerFault("amqp:not-allowed", f"{event.value} while the link is in state {state.value}", Scope.SESSION)
    return found
