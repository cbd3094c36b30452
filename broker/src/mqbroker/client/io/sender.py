"""Senders for asyncio: `send` waits for the outcome, `post` only for room, `flush` for outcomes of what was posted."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from typing import TYPE_CHECKING

from mqbroker.client.errors import Closed
from mqbroker.client.io.outbox import Outbox, Posted, Sendable
from mqbroker.client.io.patience import at_most

if TYPE_CHECKING:
    from mqbroker.client.io.transaction import Transaction


class Sender:
    """Sends to one address. Made by `Connection.sender`; for the tasks of its loop.

    A `timeout` in seconds bounds how long a call waits, and then raises TimeoutError; neither that nor cancelling takes
    back what was sent. Without one it waits as long as it takes, and while the connection is away for as long as
    call-failover-timeout says.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def __repr__(self) -> str:
        error = self._outbox.error
        ended = "" if error is None else ", closed" if isinstance(error, Closed) else f", ended: {error.why}"
        return f"<Sender to {self.address!r}: {self.pending_count} without an outcome{ended}>"

    @property
    def address(self) -> str:
        """Where messages go; empty where each says that itself."""
        return self._outbox.address

    @property
    def pending_count(self) -> int:
        """Messages without an outcome."""
        return self._outbox.pending_count

    async def send(
        self, message: Sendable, *, transaction: Transaction | None = None, timeout: float | None = None
    ) -> None:
        """Send a message and wait until the broker accepted it; a durable one is on its disk then.

        Raises MessageFault, Rejected, Released, Modified or OutcomeUnknown for this message; LinkFailed or
        ConnectionFailed if nothing can be sent any more; TransactionFailed; TimeoutError.
        """
        await self._outbox.send(message, transaction, timeout)

    async def post(
        self, message: Sendable, *, transaction: Transaction | None = None, timeout: float | None = None
    ) -> None:
        """Send a message without waiting for its outcome, which `flush` tells. Waits while too many have none."""
        await self._outbox.post(message, transaction, timeout)

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until everything that was posted has its outcome. Raises ManyFailed if any was not accepted."""
        await self._outbox.flush(timeout)

    async def send_many(
        self, messages: Iterable[Sendable] | AsyncIterable[Sendable], *, transaction: Transaction | None = None,
        timeout: float | None = None,
    ) -> int:  # fmt: skip
        """Send all of them, many at a time and in their order, and wait until all are accepted; says how many.

        Raises ManyFailed, which has the messages that were not. The iterable is read as fast as the broker takes them.
        """
        together = Posted()
        async with at_most(timeout, lambda: f"{together.count} messages to {self.address!r} got no outcome"):
            sent = await self._outbox.post_many(messages, together, transaction, None)
            await together.wait()
        return sent

    async def close(self, timeout: float | None = None) -> None:
        """Wait for what is under way, then end. Raises ManyFailed if something posted was not accepted."""
        count = self.pending_count
        async with at_most(timeout, lambda: f"the sender to {self.address!r} was closed with {count} messages under "
                                            "way, which may have been taken: they got no outcome"):  # fmt: skip
            await self._outbox.close()

    async def abandon(self) -> None:
        """End without waiting; what has no outcome gets OutcomeUnknown."""
        await self._outbox.end()
