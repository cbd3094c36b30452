"""Durable messages in and out of one queue, through whatever happens to its broker. Runs under /usr/bin/python3.

A producer keeps many messages in flight and a consumer takes them more slowly, so a backlog grows. Both connect again,
with new links, whenever their connection is lost; no message is ever sent twice. What they learn goes into a history
that the checker judges. The first line on standard input is {"address", "port", "user", "password", "queue"}; each
further one is a request that is answered by one line of JSON:

    progress      counts so far
    drain         send no more; counts as soon as nothing came for a while
    verdict LEFT  all violations, with so many messages left in the queue; the program ends

Source: the API of Proton 0.37.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from proton import Link, Message
from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, Container, EventInjector, Handler, LinkOption

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.support.checker import History, Sent, body_of

IN_FLIGHT_MAX = 500
MESSAGES_MAX = 200_000
SIZES_BYTES = (60, 200, 1024, 5000)
CONSUMER_CREDIT = 20
# A cut host says nothing any more: without a frame for this time a connection counts as lost.
HEARTBEAT_S = 2.0
RECONNECT_S = 0.2
QUIET_S = 2.0
PRODUCER, CONSUMER = "producer", "consumer"


class SettledBySecond(LinkOption):
    """The broker confirms each settlement, so that the history knows which messages may never come back."""

    def apply(self, link: Link) -> None:
        link.rcv_settle_mode = Link.RCV_SECOND


class Later(Handler):
    """Something to do when its time has come."""

    def __init__(self, action: Any) -> None:
        super().__init__()
        self.on_timer_task = lambda event: action()


class Load(MessagingHandler):
    """Producer and consumer, a connection each."""

    def __init__(self, task: dict[str, Any], requests: SimpleQueue[str], bell: EventInjector) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self.task = task
        self.requests = requests
        self.bell = bell
        self.history = History()
        self.in_flight: dict[str, str] = {}
        self.unconfirmed: dict[str, str] = {}
        self.counts = {"sent": 0, "accepted": 0, "received": 0, "in_doubt": 0, "links": 0}
        self.is_draining = False
        self.arrived_s = 0.0
        self.container: Container = None

    # -- connections ---------------------------------------------------------------------------------------------------

    def on_start(self, event: Any) -> None:
        self.container = event.container
        self.container.selectable(self.bell)
        self.connect(PRODUCER)
        self.connect(CONSUMER)

    def connect(self, role: str) -> None:
        task = self.task
        connection = self.container.connect(
            f"amqp://{task['address']}:{task['port']}", user=task["user"], password=task["password"],
            allowed_mechs="PLAIN", allow_insecure_mechs=True, heartbeat=HEARTBEAT_S, reconnect=False,
        )  # fmt: skip
        connection.role = role
        if role == PRODUCER:
            self.container.create_sender(connection, task["queue"])
        else:
            self.container.create_receiver(connection, task["queue"], options=SettledBySecond())

    def on_link_opened(self, event: Any) -> None:
        self.counts["links"] += 1
        if event.link.is_receiver:
            event.link.flow(CONSUMER_CREDIT)

    def on_transport_closed(self, event: Any) -> None:
        """What was not answered on this connection never will be."""
        role = event.connection.role
        if role == PRODUCER:
            self.counts["in_doubt"] += len(self.in_flight)
            self.in_flight.clear()
        else:
            self.unconfirmed.clear()
        self.container.schedule(RECONNECT_S, Later(lambda: self.connect(role)))

    def on_transport_error(self, event: Any) -> None:
        """A broker that is away is no fault here: the next attempt follows from the end of the transport."""

    # -- messages ------------------------------------------------------------------------------------------------------

    def on_sendable(self, event: Any) -> None:
        self.send(event.sender)

    def send(self, sender: Any) -> None:
        while sender.credit and len(self.in_flight) < IN_FLIGHT_MAX and self.counts["sent"] < MESSAGES_MAX:
            if self.is_draining:
                return
            number = self.counts["sent"] = self.counts["sent"] + 1
            message_id, size = f"m-{number}", SIZES_BYTES[number % len(SIZES_BYTES)]
            self.history.send(message_id, Sent(PRODUCER, number, self.task["queue"], True, size))
            delivery = sender.send(Message(body=body_of(message_id, size), durable=True))
            self.in_flight[delivery.tag] = message_id

    def on_accepted(self, event: Any) -> None:
        self.outcome(event, "accepted")

    def on_rejected(self, event: Any) -> None:
        self.outcome(event, "rejected")

    def on_released(self, event: Any) -> None:
        self.outcome(event, "released")

    def outcome(self, event: Any, name: str) -> None:
        message_id = self.in_flight.pop(event.delivery.tag, None)
        if message_id is not None:
            self.history.outcome(message_id, name)
            self.counts["accepted"] += name == "accepted"
            self.send(event.sender)

    def on_message(self, event: Any) -> None:
        self.arrived_s = time.monotonic()
        self.counts["received"] += 1
        message, delivery = event.message, event.delivery
        message_id = self.history.receive(CONSUMER, self.task["queue"], bytes(message.body), message.delivery_count)
        if message_id is not None:
            self.history.settle_tried.add(message_id)
            self.unconfirmed[delivery.tag] = message_id
        delivery.update(delivery.ACCEPTED)
        event.receiver.flow(1)

    def on_settled(self, event: Any) -> None:
        if event.link.is_receiver:
            message_id = self.unconfirmed.pop(event.delivery.tag, None)
            if message_id is not None:
                self.history.settle_confirmed.add(message_id)
            event.delivery.settle()

    # -- requests ------------------------------------------------------------------------------------------------------

    def on_request(self, event: Any) -> None:
        word, _, argument = self.requests.get().partition(" ")
        if word == "progress":
            answer(self.counts)
        elif word == "drain":
            self.is_draining = True
            self.arrived_s = time.monotonic()
            self.drained()
        else:
            settled = len(self.history.settle_confirmed)
            answer({**self.counts, "settled": settled, "violations": self.history.check_drained(int(argument or 0))})
            self.container.stop()

    def drained(self) -> None:
        if not self.in_flight and time.monotonic() - self.arrived_s > QUIET_S:
            answer(self.counts)
        else:
            self.container.schedule(0.1, Later(self.drained))


def answer(row: dict[str, Any]) -> None:
    print(json.dumps(row), flush=True)


def main() -> None:
    task = json.loads(sys.stdin.readline())
    requests: SimpleQueue[str] = SimpleQueue()
    bell = EventInjector()

    def read() -> None:
        for line in sys.stdin:
            requests.put(line.strip())
            bell.trigger(ApplicationEvent("request"))
        # Whoever asked is gone: a verdict that nobody reads ends the program.
        requests.put("verdict")
        bell.trigger(ApplicationEvent("request"))

    threading.Thread(target=read, daemon=True).start()
    Container(Load(task, requests, bell)).run()


if __name__ == "__main__":
    main()
