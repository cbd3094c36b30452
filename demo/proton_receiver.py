"""A foreign client: Debian's python3-qpid-proton. Runs under /usr/bin/python3 and prints the bodies that it accepted.

Reads one line of JSON from its standard input, so that the password is in no list of processes: {"url", "user",
"password", "address", "count"}.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from proton import ConnectionException
from proton.handlers import MessagingHandler
from proton.reactor import Container

TIME_S_MAX = 60


class Receiver(MessagingHandler):  # type: ignore[misc] # its base is untyped
    """Takes exactly `count` messages: it grants no more credit than that, so none is on its way when it leaves."""

    def __init__(self, task: dict[str, Any]) -> None:
        super().__init__(prefetch=0, auto_accept=True)
        self.task = task
        self.bodies: list[str] = []
        self.fault = ""
        self.receiver: Any = None
        self.timer: Any = None

    def on_start(self, event: Any) -> None:
        self.timer = event.container.schedule(TIME_S_MAX, self)
        connection = event.container.connect(
            self.task["url"],
            user=self.task["user"],
            password=self.task["password"],
            # The demo's inventory allows unencrypted logins, and nothing leaves the machine.
            allow_insecure_mechs=True,
            allowed_mechs="PLAIN",
            reconnect=False,
        )
        self.receiver = event.container.create_receiver(connection, self.task["address"])
        self.receiver.flow(self.task["count"])

    def on_message(self, event: Any) -> None:
        body = event.message.body
        self.bodies.append(bytes(body).decode() if isinstance(body, (bytes, memoryview)) else str(body))
        if len(self.bodies) == self.task["count"]:
            self.timer.cancel()
            event.receiver.close()
            event.connection.close()

    def on_timer_task(self, event: Any) -> None:
        self.stop(event, f"only {len(self.bodies)} messages came within {TIME_S_MAX} s")

    def on_transport_error(self, event: Any) -> None:
        self.stop(event, str(event.transport.condition))

    def on_connection_error(self, event: Any) -> None:
        self.stop(event, str(event.connection.remote_condition))

    def on_link_error(self, event: Any) -> None:
        self.stop(event, str(event.link.remote_condition))

    def stop(self, event: Any, why: str) -> None:
        self.fault = self.fault or why
        self.timer.cancel()
        event.container.stop()


def main() -> int:
    handler = Receiver(json.loads(sys.stdin.readline()))
    try:
        Container(handler).run()
    except ConnectionException as fault:
        handler.fault = str(fault)
    for body in handler.bodies:
        print(body)
    if handler.fault:
        print(f"proton: {handler.fault}", file=sys.stderr)
    return 1 if handler.fault else 0


if __name__ == "__main__":
    sys.exit(main())
