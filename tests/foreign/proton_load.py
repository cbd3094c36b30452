"""Producers and consumers under load that live through crashes of their broker and note every fact. System Python.

    proton_load.py '{"role": "produce", "facts": "/tmp/facts", "urls": ["amqp://127.0.0.1:5672"], ...}'

Reconnects by Proton's own means, to the next of the brokers. Ends when stdin ends: a producer after the outcomes of
what is in flight, a consumer at once. A producer that is told `pause_s` waits so long between two messages. Facts are
JSON rows [time, kind, ...], times of the monotonic clock, which all processes of a host share.
"""

from __future__ import annotations

import base64
import json
import sys
import threading
import time
from pathlib import Path

from proton import Delivery, Handler, Link, Message
from proton.reactor import ApplicationEvent, Container, EventInjector

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.support.checker import body_of, id_in

OUTCOMES = {Delivery.ACCEPTED: "accepted", Delivery.REJECTED: "rejected"}


class Load(Handler):
    """What both roles share: the connection, the facts, the end."""

    def __init__(self, options: dict) -> None:
        self.options = options
        self.facts = Path(options["facts"]).open("w")  # noqa: SIM115  # for as long as the process lives
        self.container = Container(self)
        self.bell = EventInjector()
        self.is_ending = False
        self.connection = self.link = None

    def note(self, kind: str, *values) -> None:
        self.facts.write(json.dumps([time.monotonic(), kind, *values]) + "\n")

    def run(self) -> None:
        threading.Thread(target=self._wait_for_end, daemon=True).start()
        self.container.run()
        self.facts.close()

    def _wait_for_end(self) -> None:
        sys.stdin.read()
        self.bell.trigger(ApplicationEvent("end"))

    def on_reactor_init(self, event) -> None:
        options = self.options
        self.container.selectable(self.bell)
        self.connection = self.container.connect(
            urls=options["urls"], user=options["user"], password=options["password"], reconnect=[0.1] * 10_000
        )
        session = self.connection.session()
        session.open()
        self.link = self.attach(session)
        self.link.open()

    def on_end(self, event) -> None:
        self.is_ending = True
        self.finish()

    def end(self) -> None:
        self.bell.close()
        self.connection.close()

    def on_connection_remote_open(self, event) -> None:
        self.note("opened")

    def on_connection_remote_close(self, event) -> None:
        self.note("closed", str(event.connection.remote_condition))

    def on_link_remote_close(self, event) -> None:
        self.note("detached", str(event.link.remote_condition))


class Producer(Load):
    """Keeps `in_flight` messages without an outcome; those that a crash left so are never sent again."""

    def __init__(self, options: dict) -> None:
        super().__init__(options)
        self.number = 0
        self.waiting: dict = {}
        self.is_pausing = False

    def attach(self, session):
        link = session.sender(self.options["name"])
        link.target.address = self.options["queue"]
        link.snd_settle_mode = Link.SND_UNSETTLED
        return link

    def on_link_flow(self, event) -> None:
        self.fill()

    def fill(self) -> None:
        options = self.options
        while self.link.credit > 0 and len(self.waiting) < options["in_flight"] and not self.is_ending:
            if self.is_pausing or self.number >= options["count_max"]:
                return
            self.number += 1
            message_id = f"{options['name']}-{self.number}"
            size = options["sizes"][self.number % len(options["sizes"])]
            self.note("send", message_id, self.number, size)
            delivery = self.link.delivery(message_id)
            self.link.stream(Message(body=body_of(message_id, size), durable=True).encode())
            self.link.advance()
            self.waiting[message_id] = delivery
            if pause_s := options.get("pause_s"):
                self.is_pausing = True
                self.container.schedule(pause_s, self)

    def on_timer_task(self, event) -> None:
        self.is_pausing = False
        self.fill()

    def on_delivery(self, event) -> None:
        delivery = event.delivery
        if delivery.updated and delivery.settled:
            self.note("outcome", delivery.tag, OUTCOMES.get(delivery.remote_state, "unknown"))
            self.waiting.pop(delivery.tag, None)
            delivery.settle()
            self.fill()
            self.finish()

    def on_transport_closed(self, event) -> None:
        self.note("lost", len(self.waiting))
        for delivery in self.waiting.values():
            delivery.settle()
        self.waiting.clear()
        self.finish()

    def finish(self) -> None:
        if self.is_ending and not self.waiting:
            self.end()


class Consumer(Load):
    """Accepts each message and waits for the broker's settlement, which is what makes the acceptance certain."""

    def __init__(self, options: dict) -> None:
        super().__init__(options)
        self.tried: dict = {}

    def attach(self, session):
        link = session.receiver(self.options["name"])
        link.source.address = self.options["queue"]
        link.rcv_settle_mode = Link.RCV_SECOND
        return link

    def on_link_remote_open(self, event) -> None:
        self.link.flow(self.options["credit"] - self.link.credit)

    def on_delivery(self, event) -> None:
        delivery = event.delivery
        if delivery.readable and not delivery.partial:
            message = Message()
            message.decode(self.link.recv(delivery.pending))
            self.link.advance()
            body = bytes(message.body)
            self.note("receive", base64.b64encode(body).decode(), message.delivery_count)
            self.tried[delivery.tag] = id_in(body)
            self.note("tried", id_in(body))
            delivery.update(Delivery.ACCEPTED)
            self.link.flow(1)
        elif delivery.updated and delivery.settled:
            self.note("confirmed", self.tried.pop(delivery.tag, None))
            delivery.settle()

    def on_transport_closed(self, event) -> None:
        self.note("lost", len(self.tried))
        self.tried.clear()

    def finish(self) -> None:
        self.end()


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    {"produce": Producer, "consume": Consumer}[given["role"]](given).run()
