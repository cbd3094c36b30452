"""The client library without asyncio: the names of `mqbroker.client`, and calls that wait (docs/CLIENT.md).

    from mqbroker.client import Message, sync

    with sync.connect("amqp://user:password@host:5672") as connection:
        with connection.sender("orders") as sender:
            sender.send(Message("hello", durable=True))
        for message in connection.receiver("orders"):
            message.accept()

A module of its own and not other functions of the same one: a program changes over by its import and by `await`.
"""

from mqbroker.client.io.blocking import Connection, ReceivedMessage, Receiver, Sender, Transaction, connect

__all__ = ["Connection", "ReceivedMessage", "Receiver", "Sender", "Transaction", "connect"]
