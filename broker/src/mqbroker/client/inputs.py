"""What the machine is told: what happened to its transport, and what the application wants.

`token` is whatever the shell wants back with the answer. Each request with a token is answered exactly once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mqbroker.client.options import ReceiverTerms, SenderTerms
from mqbroker.client.uri import Endpoint
from mqbroker.wire.performatives import DeliveryState


class Start(NamedTuple):
    """Connect. Answered when the first connection stands, or when none is to be had."""

    token: Any


class Discovered(NamedTuple):
    """These brokers announce themselves now."""

    endpoints: tuple[Endpoint, ...]


class Dialled(NamedTuple):
    """The transport of that attempt is there. `is_private`: nobody listens in (TLS, loopback)."""

    attempt: int
    entropy: bytes
    is_private: bool
    has_certificate: bool


class DialFailed(NamedTuple):
    """The transport that was dialled could not be made, and why."""

    attempt: int
    why: str


class Received(NamedTuple):
    """The peer has sent these bytes."""

    attempt: int
    data: bytes


class Derived(NamedTuple):
    """The key for the login of that attempt."""

    attempt: int
    key: bytes


class Lost(NamedTuple):
    """The transport is gone, and why."""

    attempt: int
    why: str


class Blocked(NamedTuple):
    """The transport takes no more, or does again."""

    attempt: int
    is_blocked: bool


class OpenSender(NamedTuple):
    """A sender under a handle of the shell's choice."""

    handle: int
    terms: SenderTerms
    token: Any


class OpenReceiver(NamedTuple):
    """A receiver is wanted, on terms as a sender is."""

    handle: int
    terms: ReceiverTerms
    token: Any


class Txn(NamedTuple):
    """A transaction of one connection."""

    epoch: int
    id: bytes


class Sending:
    """One message on its way out, from the request to its outcome."""

    __slots__ = ("payload", "token", "txn")

    def __init__(self, payload: bytes, token: Any, txn: Txn | None = None) -> None:
        self.payload = payload
        self.token = token
        self.txn = txn


class Post(NamedTuple):
    """The application sends a message."""

    handle: int
    sending: Sending


class Took(NamedTuple):
    """The application took so many of the messages that waited for it on that connection."""

    handle: int
    epoch: int
    messages: int


class Settle(NamedTuple):
    """An outcome of so many `messages`, one where a transaction or a token is named. Without a token it goes out if its
    connection still stands, and is not answered.
    """

    handle: int
    epoch: int
    delivery_id: int
    state: DeliveryState
    txn: Txn | None
    token: Any
    messages: int = 1


class Drain(NamedTuple):
    """Have the broker send a receiver nothing more; answered when all has come that was on its way.

    `is_leaving`: it only stands for what is to be settled, and makes room for another one of its name.
    """

    handle: int
    is_leaving: bool
    token: Any


class CloseEnd(NamedTuple):
    """End a sender or receiver. Without `is_closed` a durable subscription lives on."""

    handle: int
    is_closed: bool
    token: Any


class Begin(NamedTuple):
    """Begin a transaction; answered with its Txn."""

    token: Any


class Finish(NamedTuple):
    """Commit a transaction, or roll it back."""

    txn: Txn
    is_commit: bool
    token: Any


class Shut(NamedTuple):
    """Close the connection; answered when it is closed, or at once if nobody `waits` for the broker's answer."""

    token: Any
    waits: bool = True


Input = (
    Start | Discovered | Dialled | DialFailed | Received | Derived | Lost | Blocked | OpenSender | OpenReceiver | Post
    | Took | Settle | Drain | CloseEnd | Begin | Finish | Shut
)  # fmt: skip
