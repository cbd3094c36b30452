"""The test's end of `jms/JmsClient.java`.

jms.connect("c", broker)
jms.session("c", "s")
jms.put("s", "queue:orders", "a", "b")
jms.consumer("s", "in", "queue:orders")
jms.bodies("in", 2)
"""

from __future__ import annotations

from typing import Any

from tests.foreign.client import ClientProcess

# How long nothing must come before a test says that nothing comes.
QUIET_MS = 300


class JmsClient(ClientProcess):
    """Qpid JMS. Destinations are written `queue:NAME`, `topic:NAME`, `temporary:NAME`, `reply:CONSUMER`."""

    def session(self, connection: str, name: str, mode: str = "auto") -> None:
        self.ask("session", connection=connection, name=name, mode=mode)

    def producer(self, session: str, name: str, destination: str = "") -> None:
        self.ask("producer", session=session, name=name, destination=destination)

    def consumer(self, session: str, name: str, destination: str, **arguments: Any) -> None:
        self.ask("consumer", session=session, name=name, destination=destination, **arguments)

    def send(self, producer: str, *messages: str | dict[str, Any], **arguments: Any) -> list[str]:
        """Send texts, or messages as the client describes them; their ids."""
        rows = [{"body": each} if isinstance(each, str) else each for each in messages]
        found: list[str] = self.ask("send", producer=producer, messages=rows, **arguments)["ids"]
        return found

    def put(self, session: str, destination: str, *messages: str | dict[str, Any], **arguments: Any) -> list[str]:
        """Send by a producer that lives no longer."""
        self.producer(session, "put", destination)
        found = self.send("put", *messages, **arguments)
        self.ask("close", name="put")
        return found

    def receive(self, consumer: str, count: int = 1, **arguments: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("receive", consumer=consumer, count=count, **arguments)["messages"]
        return found

    def bodies(self, consumer: str, count: int = 1, **arguments: Any) -> list[Any]:
        return [row["body"] for row in self.receive(consumer, count, **arguments)]

    def is_quiet(self, consumer: str) -> bool:
        """Whether nothing comes for a while."""
        return self.receive(consumer, wait_ms=QUIET_MS) == []

    def events(self, connection: str) -> list[str]:
        found: list[str] = self.ask("events", name=connection)["events"]
        return found
