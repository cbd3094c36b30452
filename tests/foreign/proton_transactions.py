"""Transactions by Debian's python3-qpid-proton, with its own `TransactionHandler`. Runs under /usr/bin/python3.

Takes one JSON argument: where to connect, and `steps`, each a transaction {"send": ids, "receive": count, "end": how}
with "commit" or "abort" as end. Writes what happened as one JSON line. Source: the API of Proton 0.37.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from proton import Message
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.support.checker import body_of, id_in

GIVE_UP_S = 20


class Steps(MessagingHandler, TransactionHandler):
    """One transaction after the other."""

    def __init__(self, given: dict) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self.given = given
        self.steps = list(given["steps"])
        self.rows: list = []
        self.row: dict = {}
        self.transaction = None
        self.faults: list = []

    def on_start(self, event) -> None:
        given = self.given
        self.container = event.container
        self.timer = self.container.schedule(GIVE_UP_S, self)
        self.connection = self.container.connect(
            f"amqp://127.0.0.1:{given['port']}", user=given["user"], password=given["password"], reconnect=False
        )
        self.sender = self.container.create_sender(self.connection, given["to"])
        self.receiver = self.container.create_receiver(self.connection, given["from"])
        self.declare()

    def declare(self) -> None:
        self.row = {"received": [], "end": None}
        self.rows.append(self.row)
        self.container.declare_transaction(
            self.connection, handler=self, settle_before_discharge=self.given["settle_before_discharge"]
        )

    def on_transaction_declared(self, event) -> None:
        self.transaction = event.transaction
        self.receiver.flow(self.steps[0].get("receive", 0))
        self.go_on()

    def on_sendable(self, event) -> None:
        self.go_on()

    def on_message(self, event) -> None:
        self.row["received"].append([id_in(bytes(event.message.body)), event.message.delivery_count])
        self.transaction.accept(event.delivery)
        self.go_on()

    def go_on(self) -> None:
        """Send what is left to send; end the transaction once all of it is done."""
        if self.transaction is None:
            return
        step = self.steps[0]
        while step.get("send") and self.sender.credit:
            body = body_of(step["send"].pop(0), 100)
            self.transaction.send(self.sender, Message(body=body, durable=True))
        if not step.get("send") and len(self.row["received"]) == step.get("receive", 0):
            ended, self.transaction = self.transaction, None
            ended.commit() if step["end"] == "commit" else ended.abort()

    def on_transaction_committed(self, event) -> None:
        self.ended("committed")

    def on_transaction_aborted(self, event) -> None:
        self.ended("aborted")

    def on_transaction_commit_failed(self, event) -> None:
        self.ended(f"failed: {event.delivery.remote.condition.name}")

    def on_transaction_declare_failed(self, event) -> None:
        self.stop("a declare failed")

    def ended(self, how: str) -> None:
        self.row["end"] = how
        self.steps.pop(0)
        if self.steps:
            self.declare()
        else:
            self.stop()

    def on_link_error(self, event) -> None:
        self.stop(f"{event.link.name}: {event.link.remote_condition}")

    def on_connection_error(self, event) -> None:
        self.stop(f"connection: {event.connection.remote_condition}")

    def on_transport_error(self, event) -> None:
        self.stop(f"transport: {event.transport.condition}")

    def on_timer_task(self, event) -> None:
        self.stop(f"not after {GIVE_UP_S} s: {self.steps}")

    def stop(self, fault: str = "") -> None:
        if fault:
            self.faults.append(fault)
        self.timer.cancel()
        self.connection.close()


if __name__ == "__main__":
    work = Steps(json.loads(sys.argv[1]))
    Container(work).run()
    print(json.dumps({"rows": work.rows, "faults": work.faults}))
