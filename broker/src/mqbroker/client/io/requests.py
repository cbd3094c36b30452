"""Request and reply over a temporary queue: one for each connection, made with the first request.

Replies find their request by its correlation id. A reconnect ends the temporary queue, so requests that wait then fail:
whether they were worked on is not known.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from mqbroker.client.errors import ClientError, Closed, MessageFault, OutcomeUnknown, UnreadableMessage
from mqbroker.client.io.driver import LOG
from mqbroker.client.io.patience import at_most
from mqbroker.client.io.receiver import Receiver
from mqbroker.client.io.sender import Sender
from mqbroker.client.message import Message

if TYPE_CHECKING:
    from mqbroker.client.io.connection import Connection

SENDERS_MAX = 32
WAITING_MAX = 10_000


class Requests:
    """Requests of one connection and their replies, WAITING_MAX at a time."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: dict[str, asyncio.Future[Message]] = {}
        self._senders: OrderedDict[str, Sender] = OrderedDict()
        self._replies: Receiver | None = None
        self._reader: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._prefix = os.urandom(8).hex()
        self._count = 0

    async def request(self, address: str, message: Message, timeout: float | None) -> Message:
        """The reply. Raises TimeoutError, and what sending raises."""
        if len(self._waiting) >= WAITING_MAX:
            raise ClientError(f"{WAITING_MAX} requests wait for replies; wait for some of them first")
        self._count += 1
        correlation = f"{self._prefix}-{self._count}"
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        try:
            async with at_most(timeout, lambda: f"no reply from {address!r} came"):
                replies, sender = await self._ready(address)
                self._waiting[correlation] = future
                await sender.send(replace(message, reply_to=replies.address, correlation_id=correlation))
                return await future
        finally:
            self._waiting.pop(correlation, None)

    async def reply(self, request: Message, message: Message) -> None:
        """Send a reply to where the request asks for it."""
        if not request.reply_to:
            raise MessageFault("the message has no reply_to: whoever sent it expects no reply")
        sender = await self._sender("")
        correlation = request.id if request.correlation_id is None else request.correlation_id
        await sender.send(replace(message, to=request.reply_to, correlation_id=correlation))

    async def close(self) -> None:
        """End with the connection: no further reply is read."""
        if self._reader is not None:
            self._reader.cancel()
            with suppress(asyncio.CancelledError):
                await self._reader

    async def _ready(self, address: str) -> tuple[Receiver, Sender]:
        async with self._lock:
            if self._replies is None or self._reader is None or self._reader.done():
                self._replies = await self._connection.temporary_queue()
                self._replies._inbox.on_interrupted = self._interrupted
                self._reader = asyncio.get_running_loop().create_task(self._read(self._replies))
        sender = await self._sender(address)
        await self._replies._inbox.attached()
        return self._replies, sender

    async def _sender(self, address: str) -> Sender:
        async with self._lock:
            sender = self._senders.get(address)
            if sender is None or sender._outbox.error is not None:
                sender = self._senders[address] = await self._connection.sender(address)
            self._senders.move_to_end(address)
            idle = [name for name, each in self._senders.items() if each is not sender and not each.pending_count]
            if len(self._senders) > SENDERS_MAX and idle:
                await self._senders.pop(idle[0]).close()
            return sender

    async def _read(self, replies: Receiver) -> None:
        try:
            while True:
                try:
                    reply = await replies.receive()
                except UnreadableMessage as unreadable:  # of one request, which waits in vain
                    LOG.warning("a reply is rejected that cannot be read: %s", unreadable)
                    await unreadable.message.reject(unreadable.why)
                    continue
                await reply.accept()
                future = self._waiting.get(str(reply.correlation_id))
                if future is not None and not future.done():
                    future.set_result(reply)
        except Closed:
            self._give_up("the connection was closed")
        except ClientError as error:
            LOG.warning("replies cannot be received any more: %s", error)
            self._give_up(error.why)
        except asyncio.CancelledError:
            self._give_up("the connection was closed")
            raise

    def _interrupted(self) -> None:
        self._give_up("the connection was lost")

    def _give_up(self, why: str) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(
                    OutcomeUnknown(f"{why} while a reply was due: the request may have been worked on")
                )
