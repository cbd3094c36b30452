"""A node for tests of operations: what is in its queues, and what it answers."""

from __future__ import annotations

from typing import Any

from tests.support.stage import Stage, options_with


class Site:
    """A stage with short words for what these tests do. `said` are address settings by match."""

    def __init__(self, said: dict[str, dict[str, Any]] | None = None, **tables: Any) -> None:
        self.stage = Stage(options_with(address_settings=said or {}, **tables))

    def do(self, operation: str, /, **arguments: Any) -> Any:
        """A result; an error fails the test."""
        result = self.stage.admin(operation, **arguments)
        assert result is not None, f"{operation}: no answer"
        assert "condition" not in result, result
        return result

    def refused(self, operation: str, /, **arguments: Any) -> tuple[str, str]:
        """Condition and description of a refusal."""
        error = self.stage.admin(operation, **arguments)
        assert isinstance(error, dict), error
        assert set(error) == {"condition", "description"}, error
        return error["condition"], error["description"]

    def send(self, address: str, *bodies: str, **fields: Any) -> None:
        messages = [{"body": body, **fields} for body in bodies]
        assert self.do("send", address=address, messages=messages) == {"accepted": len(bodies)}

    def counts(self) -> dict[str, int]:
        """Messages of each queue."""
        return {row["name"]: row["message_count"] for row in self.do("queues")["queues"]}

    def take(self, queue: str, count: int = 100, session: int = 9) -> list[dict[str, Any]]:
        """Take messages out of a queue; they stay in delivery."""
        request = self.stage.ask("receive", session, address=queue, count_max=count, wait_ms=1)
        self.stage.wait(2)
        messages: list[dict[str, Any]] = self.stage.replies[request].result["messages"]
        return messages

    def bodies(self, queue: str) -> list[str]:
        """Everything deliverable, in order; it is given back."""
        found = [message["body"] for message in self.take(queue, session=77)]
        self.stage.broker.local.withdraw(self.stage.broker.store.queues[queue], "")
        self.stage.run()
        return found

    def kill(self, queue: str, session: int = 8) -> None:
        """Reject all messages of a queue."""
        request = self.stage.ask("receive", session, address=queue, count_max=1000, wait_ms=1)
        self.stage.wait(2)
        tag = self.stage.replies[request].result["tag"]
        assert self.stage.admin("settle", session, tag=tag, outcome="rejected") == {}

    def restart(self) -> None:
        self.stage.crash()
        self.stage.start()
