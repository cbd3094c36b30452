"""Brokers that do what ours does not: the other half is our protocol machine, told by the test what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from mqbroker.amqp import sasl
from mqbroker.amqp.connection import Connection
from mqbroker.amqp.events import Attaching, Detached, Incoming, Opened
from mqbroker.amqp.limits import ConnectionLimits
from mqbroker.amqp.links import ReceiverLink, SenderLink
from mqbroker.base.time import At
from mqbroker.client import effects, errors, inputs
from mqbroker.client.inputs import Begin, Finish, OpenReceiver, OpenSender, Took
from mqbroker.client.machine import Machine
from mqbroker.client.options import ReceiverTerms, SenderTerms
from mqbroker.client.places import Places
from mqbroker.client.policies import first_element
from mqbroker.client.uri import parse_uri
from mqbroker.wire.performatives import (
    Attach,
    Close,
    Coordinator,
    Error,
    Flow,
    Modified,
    Open,
    Rejected,
    Released,
    Source,
    Target,
    Transfer,
)
from mqbroker.wire.run import single
from mqbroker.wire.sections import build_message
from mqbroker.wire.types import Symbol

from tests.support.client_stage import App
from tests.support.frames import frame

LIMITS = ConnectionLimits(65536, 65536, 0, 1, 3, 1 << 20)
S, R = 1, 2


class Odd:
    """A machine and a broker that says what it is told to say."""

    def __init__(self, uri: str = "amqp://a?reconnect-attempts=-1") -> None:
        target = parse_uri(uri)
        settings = replace(target.settings, container_id="app")
        self.machine = Machine(settings, Places(target.endpoints, first_element, settings))
        self.broker = Connection(LIMITS, server=sasl.SaslServer(("ANONYMOUS",), {}, b"e" * 32))
        self.links: dict[str, Any] = {}
        self.got: list[Any] = []
        self.effects: list[effects.Effect] = []
        self.step(inputs.Start("up"), inputs.Dialled(1, b"e" * 32, True, False))

    def step(self, *given: inputs.Input) -> None:
        """One step, and whatever follows."""
        pending = list(given)
        while pending:
            batch = self.machine.step(pending, At(1, 1))
            self.effects += batch.effects
            for effect in batch.effects:
                if isinstance(effect, effects.Write):
                    self.broker.receive(b"".join(bytes(chunk) for chunk in effect.chunks), self._handle)
                    self._handle()
            pending = self._said()

    def say(self) -> None:
        """What the broker was made to say goes to the machine."""
        self.step(*self._said())

    def _said(self) -> list[inputs.Input]:
        self.broker.flush()
        said, self.broker.out = b"".join(bytes(chunk) for chunk in self.broker.out), []
        return [inputs.Received(1, said)] if said else []

    def _handle(self) -> None:
        while self.broker.events:
            events, self.broker.events = self.broker.events, []
            for event in events:
                self._on(event)

    def _on(self, event: Any) -> None:
        if hasattr(event, "is_good"):
            self.broker.conclude(self._handle)
        elif isinstance(event, Opened):
            self.broker.open(Open(container_id="odd", max_frame_size=65536))
        elif isinstance(event, Attaching):
            link, attach = event.link, event.attach
            self.links[attach.name] = link
            if isinstance(link, ReceiverLink):
                target = attach.target if isinstance(attach.target, Coordinator) else Target(address="q")
                link.accept(attach, target, 0)
                link.grant(10)
            else:
                link.accept(attach, Source(address="q"))
        elif isinstance(event, Incoming | Detached):
            self.got.append(event)

    def of(self, kind: type) -> list[Any]:
        """Effects of one kind."""
        return [each for each in self.effects if isinstance(each, kind)]

    def outcome(self, state: Any) -> Any:
        """What a message becomes for which the broker says this."""
        self.step(inputs.Post(S, App.sending(b"m")))
        event = self.got.pop()
        event.link.session.dispose(event.delivery_id, event.delivery_id, state, as_receiver=True)
        self.say()
        failure = self.of(effects.Outcomes)[-1].failure
        return None if failure is None else failure()


def with_sender() -> Odd:
    odd = Odd()
    odd.step(OpenSender(S, SenderTerms(address="q"), "s"))
    return odd


def with_receiver(**terms: Any) -> tuple[Odd, SenderLink]:
    odd = Odd()
    odd.step(OpenReceiver(R, ReceiverTerms(address="q", **terms), "r"))
    link = odd.links["receiver-2"]
    assert isinstance(link, SenderLink)
    return odd, link


def test_outcomes_that_are_not_acceptance() -> None:
    odd = with_sender()
    assert isinstance(odd.outcome(Released()), errors.Released)
    modified = odd.outcome(Modified(delivery_failed=True))
    assert isinstance(modified, errors.Modified)
    assert (modified.delivery_failed, modified.undeliverable_here) == (True, False)
    assert isinstance(odd.outcome(Rejected()), errors.Rejected)
    assert isinstance(odd.outcome(None), errors.OutcomeUnknown)


def test_a_drain_is_answered() -> None:
    odd = with_sender()
    link = odd.links["sender-1"]
    session = link.session
    session.send(
        Flow(next_incoming_id=session.next_incoming_id, incoming_window=100, next_outgoing_id=0, outgoing_window=100,
             handle=link.handle, delivery_count=link.delivery_count, link_credit=10, drain=True)
    )  # fmt: skip
    odd.say()
    assert (link.credit, link.delivery_count) == (0, 10)


def test_deliveries_that_come_to_nothing_give_their_credit_back() -> None:
    odd, link = with_receiver(credit=2)
    for number, fields in enumerate(({"more": True, "aborted": True}, {})):
        first = Transfer(handle=link.handle, delivery_id=number, delivery_tag=b"t", message_format=0, more=True)
        link.session.send(first if fields else replace(first, more=False))
        if fields:
            link.session.send(Transfer(handle=link.handle, **fields))
        link.credit -= 1
        link.delivery_count += 1
    link.session.next_delivery_id = link.session.next_outgoing_id = 3
    odd.say()
    assert link.credit == 2
    assert odd.of(effects.Arrived) == []
    link.session.send_run(link, single(build_message(b"real")), 0, 1, "token")
    odd.say()
    assert len(odd.of(effects.Arrived)) == 1


def test_what_was_taken_on_an_earlier_connection_gives_no_credit() -> None:
    odd, link = with_receiver(credit=4)
    odd.step(Took(R, odd.machine.epoch - 1, 4))
    assert link.credit == 4
    link.session.send_run(link, single(build_message(b"x")), 0, 1, "token")
    link.session.send_run(link, single(build_message(b"x")), 0, 1, "token")
    odd.say()
    odd.step(Took(R, odd.machine.epoch, 2))
    assert link.credit == 4


def test_a_session_that_the_broker_ends() -> None:
    odd = with_sender()
    session = odd.links["sender-1"].session
    session.end("amqp:internal-error", "of its own making")
    session.release(None)
    odd.say()
    gone = odd.of(effects.Gone)
    assert [each.handle for each in gone] == [S]
    assert "of its own making" in str(gone[0].error)
    odd.step(OpenSender(3, SenderTerms(address="q"), "again"))
    assert [each.token for each in odd.of(effects.Answer)][-1] == "again"


def test_who_is_to_blame_is_said() -> None:
    """What the broker did wrong, what it said itself, and what it did without a word."""
    odd, link = with_receiver(credit=1)
    link.credit = 9
    for _ in range(2):
        link.session.send_run(link, single(build_message(b"x")), 0, 1, "token")
    odd.say()
    (gone,) = odd.of(effects.Gone)
    assert "what the broker sent breaks the protocol, so we ended it: transfer without credit" in str(gone.error)
    assert gone.error.condition == "amqp:link:transfer-limit-exceeded"
    odd, link = with_receiver()
    link.detach()
    odd.say()
    assert "the broker ended it without a reason" in str(odd.of(effects.Gone)[0].error)
    odd = with_sender()
    odd.step(
        inputs.Received(
            1,
            frame(
                Flow(
                    next_incoming_id=0,
                    incoming_window=1,
                    next_outgoing_id=0,
                    outgoing_window=1,
                    handle=77,
                    delivery_count=0,
                    link_credit=1,
                )
            ),
        )
    )
    assert "breaks the protocol, so we ended it: handle 77 is not attached" in str(odd.of(effects.Gone)[0].error)


@pytest.mark.parametrize(
    ("said", "told", "condition"),
    [
        (frame(Close(error=Error(Symbol("amqp:connection:forced"), "maintenance"))),
         "amqp://a:5672 closed the connection: maintenance", "amqp:connection:forced"),
        (frame(Close()), "amqp://a:5672 closed the connection without a reason", ""),
        (frame(Flow(next_incoming_id=0, incoming_window=1, next_outgoing_id=0, outgoing_window=1), channel=5),
         "we closed the connection to amqp://a:5672: a frame on channel 5, on which no session began",
         "amqp:not-allowed"),
        (b"garbage!", "we closed the connection to amqp://a:5672: ", "amqp:connection:framing-error"),
    ],
    ids=["told", "silent", "protocol", "garbage"],
)  # fmt: skip
def test_why_a_connection_ended_reaches_who_waits(said: bytes, told: str, condition: str) -> None:
    odd = Odd("amqp://a")
    odd.step(OpenSender(S, SenderTerms(address="q"), "s"))
    odd.step(inputs.Received(1, said))
    (gone,) = odd.of(effects.Gone)
    assert told in str(gone.error)
    assert gone.error.condition == condition
    assert ("we closed" in str(gone.error)) == ("we closed" in told)


def test_links_of_the_brokers_making_are_refused() -> None:
    odd = with_sender()
    session = odd.links["sender-1"].session
    session.attach_sender(Attach(name="mine", handle=0, role=False, source=Source(), target=Target(address="x"),
                                 initial_delivery_count=0))  # fmt: skip
    odd.say()
    refused = [each for each in odd.got if isinstance(each, Detached)]
    assert str(refused[-1].error.condition) == "amqp:not-implemented"


def test_no_more_links_than_the_broker_allows() -> None:
    odd = Odd()
    for handle in range(1, 5):
        odd.step(OpenSender(handle, SenderTerms(address="q"), handle))
    assert [each.token for each in odd.of(effects.Answer)] == ["up", 1, 2, 3]
    (failure,) = odd.of(effects.Failure)
    assert (failure.token, failure.error.condition) == (4, "amqp:resource-limit-exceeded")


def test_a_coordinator_that_refuses_or_leaves() -> None:
    odd = Odd()
    odd.step(Begin("tx"))
    event = odd.got.pop()
    event.link.session.dispose(event.delivery_id, event.delivery_id, Rejected(), as_receiver=True)
    odd.say()
    odd.step(Begin("next"), Finish(inputs.Txn(odd.machine.epoch, b"x"), True, "commit"))
    odd.links["coordinator-0"].detach("amqp:internal-error", "no more transactions")
    odd.say()
    told = {each.token: each.error for each in odd.of(effects.Failure)}
    assert {type(told[each]) for each in ("tx", "next")} == {errors.TransactionFailed}
    assert isinstance(told["commit"], errors.TransactionInDoubt)


def test_a_link_that_ends_leaves_doubt_about_what_was_sent() -> None:
    odd = with_sender()
    odd.step(inputs.Post(S, App.sending(b"m")))
    odd.links["sender-1"].detach("amqp:resource-deleted", "gone")
    odd.say()
    failure = odd.of(effects.Outcomes)[-1].failure
    assert isinstance(failure(), errors.OutcomeUnknown)
    assert odd.machine.outstanding() == []
