"""What can go wrong for an application, by family: what it may do about it decides where an error stands.

    ClientError
    ├── UriFault            the URI or an option is wrong: nothing was tried
    ├── MessageFault        the message cannot be encoded, or is larger than its receiver takes: it was not sent
    ├── UnreadableMessage   a message came that this client cannot show: `message` is to be settled, `payload` its bytes
    ├── ConnectionFailed    no connection: none could be made, or it was lost and is not coming back
    │   └── LoginRefused    the broker does not let this user in; trying again does not help
    ├── Closed              used after `close`
    │   └── NothingMore     a browser that has seen all there was
    ├── LinkFailed          a sender or receiver was refused, or ended by the broker; `condition` says why
    ├── SendFailed          the message has no good outcome
    │   ├── Rejected        the broker refused it, and will again; `condition` says why
    │   ├── Released        the broker did not take it: it may be sent again
    │   ├── Modified        the same, and it may have been looked at
    │   ├── OutcomeUnknown  the connection ended before the outcome came: it may have been taken, or not
    │   └── ManyFailed      of messages that were sent together, some have no good outcome: `failures` has them
    └── TransactionFailed   the transaction is rolled back; nothing of it happened
        └── TransactionInDoubt  the connection ended during the commit: all of it happened, or nothing

A message says what, where, and what to do. Time that is up is the built-in TimeoutError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mqbroker.base.errors import MqError

if TYPE_CHECKING:
    from mqbroker.amqp.redirect import RedirectPlace
    from mqbroker.client.message import Message


class ClientError(MqError):
    """Base of all errors that the client raises on purpose. `condition`: AMQP's symbol, where the broker gave one."""

    def __init__(self, why: str, condition: str = "") -> None:
        super().__init__(f"{why} ({condition})" if condition else why)
        self.why = why
        self.condition = condition


class UriFault(ClientError, ValueError):
    """The URI or an option is wrong."""


class MessageFault(ClientError, ValueError):
    """The message cannot be sent as it is."""


class UnreadableMessage(ClientError):
    """A message came whose content has no form here. It is not settled: `message` is there for that.

    `payload`: all that came of it, encoded.
    """

    message: Any
    payload: bytes


class ConnectionFailed(ClientError, ConnectionError):
    """There is no connection and there will be none."""


class LoginRefused(ConnectionFailed):
    """The broker does not let this user in."""


class Closed(ClientError):
    """Used after it was closed by the application itself."""


class NothingMore(Closed):
    """A browser that has seen all there was."""


class LinkFailed(ClientError):
    """A sender or receiver that was refused, or that the broker ended. `place`: where the broker sends it instead."""

    place: RedirectPlace | None = None


class SendFailed(ClientError):
    """A message without a good outcome."""


class Rejected(SendFailed):
    """The broker refused the message for good."""


class Released(SendFailed):
    """The broker did not take the message."""


class Modified(SendFailed):
    """The broker did not take the message, and says what is to be remembered of it."""

    def __init__(self, why: str, *, delivery_failed: bool, undeliverable_here: bool) -> None:
        super().__init__(why)
        self.delivery_failed = delivery_failed
        self.undeliverable_here = undeliverable_here


class OutcomeUnknown(SendFailed):
    """Sent, and nobody knows whether it was taken."""


class ManyFailed(SendFailed):
    """`failures` has messages with their errors, as many as are kept; `count` is the number of all."""

    def __init__(self, count: int, failures: list[tuple[Message, ClientError]]) -> None:
        first = failures[0][1] if failures else None
        super().__init__(f"{count} messages were not accepted; the first: {first}", first.condition if first else "")
        self.count = count
        self.failures = failures

    @staticmethod
    def of(errors: list[ManyFailed]) -> ManyFailed:
        """One error for the messages of several."""
        return ManyFailed(sum(each.count for each in errors), [pair for each in errors for pair in each.failures])


class TransactionFailed(ClientError):
    """The transaction was rolled back by the broker, or was lost with its connection."""


class TransactionInDoubt(TransactionFailed):
    """The connection ended while the commit was under way."""
