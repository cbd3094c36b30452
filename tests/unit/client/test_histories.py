"""Random histories of an application, its connection and a node that crashes: each from a seed, all in memory.

Invariants: every message has one outcome, and in the end each is accepted; what the broker confirmed never comes again;
nothing is lost, and with ids against duplicates nothing is there twice; the waiting messages never exceed the credit.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from mqbroker.client.inputs import OpenReceiver, OpenSender, Took
from mqbroker.client.options import ReceiverTerms, SenderTerms
from mqbroker.wire.performatives import Accepted, Released

from tests.support.client_stage import A, App
from tests.support.stage import Stage, options_with

S, R = 1, 2
CREDIT = 6
SEEDS = range(40)


class History:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.app = App({A: Stage(options_with(limits={"link_credit": 4}))},
                       "amqp://a?reconnect-attempts=-1&retry-interval=20")  # fmt: skip
        self.app.connect()
        self.app.ask(OpenSender(S, SenderTerms(address="q"), "s"),
                     OpenReceiver(R, ReceiverTerms(address="q", credit=CREDIT, confirm=True), "r"))  # fmt: skip
        self.sent = 0
        self.settled = 0
        self.waiting: dict[Any, int] = {}
        self.confirmed: set[int] = set()

    def send(self) -> None:
        count = self.rng.randint(1, 8)
        for number in range(self.sent, self.sent + count):
            self.app.send(S, number, durable=True, application_properties={"_AMQ_DUPL_ID": number})
        self.sent += count

    def take(self) -> None:
        """Some of what arrived, with an outcome; what came on a connection that is gone as well."""
        app = self.app
        assert sum(each.epoch == app.machine.epoch for _, each, _, _ in app.arrived) <= CREDIT
        count = self.rng.randint(0, len(app.arrived))
        requests: list[Any] = []
        for index in range(count):
            _, block, _, message = app.arrived[index]
            assert message.body not in self.confirmed, "confirmed, and came again"
            self.settled += 1
            state = Accepted() if self.rng.random() < 0.9 else Released()
            if isinstance(state, Accepted):
                self.waiting[self.settled] = message.body
            requests += [app.settlement(index, state, self.settled), Took(R, block.epoch, 1)]
        app.arrived = app.arrived[count:]
        app.ask(*requests)
        self.hear()

    def hear(self) -> None:
        for token, body in list(self.waiting.items()):
            if token in self.app.answers:
                del self.waiting[token]
                if self.app.answers[token]:
                    self.confirmed.add(body)

    def cut(self) -> None:
        if self.app._broker is not None:
            self.app.cut()

    def crash(self) -> None:
        if self.app.stage.is_up:
            self.app.stage.crash()
            self.app.run()

    def start(self) -> None:
        if not self.app.stage.is_up:
            self.app.stage.start()
            self.app.run()

    def hold(self) -> None:
        self.app.stage.is_disk_held = not self.app.stage.is_disk_held
        self.app.run()

    def wait(self) -> None:
        self.app.wait(self.rng.randint(1, 100))

    def run(self) -> None:
        for _ in range(60):
            step = self.rng.choice([self.send, self.send, self.take, self.take, self.cut, self.crash, self.start,
                                    self.start, self.hold, self.wait])  # fmt: skip
            step()
            self.hear()
        self.app.stage.is_disk_held = False
        self.start()
        self.app.wait(1000)
        for _ in range(self.sent * 3):
            if not self.app.arrived and len(self.confirmed) == self.sent:
                break
            self.take()
            self.app.wait(10)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_and_nothing_is_doubled(seed: int) -> None:
    history = History(seed)
    history.run()
    assert history.app.outcomes == dict.fromkeys(range(history.sent))
    assert history.confirmed | set(history.waiting.values()) <= set(range(history.sent))
    queue = history.app.stage.broker.store.queues.get("q")
    assert queue is None or queue.message_count == 0
    assert history.app.errors == {}
