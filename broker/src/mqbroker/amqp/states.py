"""The state tables of AMQP 1.0: connection (§2.4.6), session (§2.5.5) and link (§2.6.7).

All states live here, and no table knows which side it plays. A pair (state, event) that is missing is a fault
(base/states.py): of the peer for what we got, of ours for what we sent.
"""

from __future__ import annotations

from typing import Final

from mqbroker.base.errors import Scope
from mqbroker.base.state_table import StateTable
from mqbroker.base.states import OURS, PEERS, StateEvent, StateMember


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


class ConnectionStateEvent(StateEvent):
    """What moves a connection from state to state (AMQP 1.0 §2.4.6)."""

    SENT_HEADER = "sent header", OURS
    GOT_HEADER = "got header", PEERS
    SENT_OPEN = "sent open", OURS
    GOT_OPEN = "got open", PEERS
    SENT_CLOSE = "sent close", OURS
    SENT_CLOSE_ERROR = "sent close with an error", OURS
    GOT_CLOSE = "got close", PEERS
    GOT_FRAME = "got frame", PEERS


CONNECTION_STATES: Final = StateTable(
    {
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
    },
    "{event} while the connection is in state {state}",
)


class SessionState(StateMember):
    """Where a session stands (AMQP 1.0 §2.5.5)."""

    UNMAPPED = "unmapped"
    BEGIN_SENT = "begin-sent"
    BEGIN_RCVD = "begin-rcvd"
    MAPPED = "mapped"
    END_SENT = "end-sent"
    END_RCVD = "end-rcvd"
    DISCARDING = "discarding"


class SessionStateEvent(StateEvent):
    """What moves a session from state to state (AMQP 1.0 §2.5.5)."""

    SENT_BEGIN = "sent begin", OURS
    GOT_BEGIN = "got begin", PEERS
    SENT_END = "sent end", OURS
    SENT_END_ERROR = "sent end with an error", OURS
    GOT_END = "got end", PEERS
    GOT_FRAME = "got frame", PEERS


# Faults of the peer end the connection: the channel itself is in doubt.
SESSION_STATES: Final = StateTable(
    {
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
    },
    "{event} while the session is in state {state}",
)


class LinkState(StateMember):
    """Where a link stands. DETACHED is both its beginning and its end."""

    DETACHED = "detached"
    ATTACH_SENT = "attach-sent"
    ATTACH_RCVD = "attach-rcvd"
    ATTACHED = "attached"
    DETACH_SENT = "detach-sent"
    DETACH_RCVD = "detach-rcvd"


class LinkStateEvent(StateEvent):
    """What moves a link from state to state (AMQP 1.0 §2.6)."""

    SENT_ATTACH = "sent attach", OURS
    GOT_ATTACH = "got attach", PEERS
    SENT_DETACH = "sent detach", OURS
    GOT_DETACH = "got detach", PEERS
    GOT_FRAME = "got frame", PEERS


# Faults of the peer end the session: the handle itself is in doubt.
LINK_STATES: Final = StateTable(
    {
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
    },
    "{event} while the link is in state {state}",
    Scope.SESSION,
)


# What every frame asks for: a member of an Enum by its class costs ten times as much to read.
OPENED: Final = ConnectionState.OPENED
MAPPED: Final = SessionState.MAPPED
ATTACHED: Final = LinkState.ATTACHED
