"""The test's end of `rhea/client.js` and `go_amqp/main.go`, which are told the same things.

client.connect("c", broker)
client.sender("c", "out", "orders")
client.receiver("c", "in", "orders")
client.send("out", "a", {"body": "b", "priority": 9})
client.bodies("in", 2)
"""

from __future__ import annotations

from typing import Any

from tests.foreign.client import ClientProcess

# How long nothing must come before a test says that nothing comes.
QUIET_MS = 300


class LinkClient(ClientProcess):
    """A client that speaks of links. `link` is the test's name for one, `name` the one that the broker hears."""

    def sender(self, connection: str, link: str, address: str | None, **arguments: Any) -> dict[str, Any]:
        return self.ask("sender", connection=connection, link=link, address=address, **arguments)

    def receiver(self, connection: str, link: str, address: str | None, **arguments: Any) -> dict[str, Any]:
        return self.ask("receiver", connection=connection, link=link, address=address, **arguments)

    def send(self, link: str, *messages: str | dict[str, Any]) -> list[str]:
        """Send texts, or messages as the client describes them; their outcomes."""
        rows = [{"body": each} if isinstance(each, str) else each for each in messages]
        return [row["outcome"] for row in self.ask("send", link=link, messages=rows)["outcomes"]]

    def receive(self, link: str, count: int = 1, **arguments: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("receive", link=link, count=count, **arguments)["messages"]
        return found

    def bodies(self, link: str, count: int = 1, **arguments: Any) -> list[Any]:
        return [row["body"] for row in self.receive(link, count, **arguments)]

    def is_quiet(self, link: str) -> bool:
        """Whether nothing comes for a while."""
        return self.receive(link, wait_ms=QUIET_MS) == []
