"""The client library for AMQP 1.0 brokers: asyncio here, blocking in `mqbroker.client.sync` (docs/CLIENT.md).

import mqbroker.client as mq

async with mq.connect("amqp://user:password@host:5672") as connection:
    sender = await connection.sender("orders")
    await sender.send(mq.Message("hello", durable=True))
    async for message in connection.receiver("orders"):
        await message.accept()
"""

from mqbroker.client.errors import (
    ClientError,
    Closed,
    ConnectionFailed,
    LinkFailed,
    LoginRefused,
    ManyFailed,
    MessageFault,
    Modified,
    NothingMore,
    OutcomeUnknown,
    Rejected,
    Released,
    SendFailed,
    TransactionFailed,
    TransactionInDoubt,
    UnreadableMessage,
    UriFault,
)
from mqbroker.client.io.connection import Connection, connect
from mqbroker.client.io.receiver import ReceivedMessage, Receiver
from mqbroker.client.io.sender import Sender
from mqbroker.client.io.transaction import Transaction
from mqbroker.client.message import Message

__all__ = [
    "ClientError",
    "Closed",
    "Connection",
    "ConnectionFailed",
    "LinkFailed",
    "LoginRefused",
    "ManyFailed",
    "Message",
    "MessageFault",
    "Modified",
    "NothingMore",
    "OutcomeUnknown",
    "ReceivedMessage",
    "Receiver",
    "Rejected",
    "Released",
    "SendFailed",
    "Sender",
    "Transaction",
    "TransactionFailed",
    "TransactionInDoubt",
    "UnreadableMessage",
    "UriFault",
    "connect",
]
