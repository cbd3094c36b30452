"""Brokers that say anything: the machine goes on or gives up, and never fails by itself."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from mqbroker.client import errors
from mqbroker.client.inputs import OpenReceiver, OpenSender, Received, Start
from mqbroker.client.options import ReceiverTerms, SenderTerms
from mqbroker.client.stages import Stage as At
from mqbroker.wire.frames import encode_frame
from mqbroker.wire.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Rejected,
    Source,
    Target,
    Transfer,
    encode,
)
from mqbroker.wire.types import Symbol, UInt

from tests.support.client_stage import A, App
from tests.support.stage import Stage

NUMBERS = st.sampled_from([0, 1, 2, 5, 0x7FFFFFFF, 0xFFFFFFFE, 0xFFFFFFFF])
ERRORS = st.none() | st.builds(
    Error, condition=st.sampled_from([Symbol("amqp:connection:redirect"), Symbol("amqp:not-found"), Symbol("x")]),
    info=st.none() | st.just({Symbol("network-host"): "a", Symbol("port"): UInt(5672)}),
)  # fmt: skip
STATES = st.sampled_from([None, Accepted(), Rejected(), Modified(), Rejected(Error(Symbol("x")))])
PERFORMATIVES = st.one_of(
    st.builds(Begin, remote_channel=st.none() | st.just(0), next_outgoing_id=NUMBERS, incoming_window=NUMBERS,
              outgoing_window=NUMBERS),
    st.builds(Attach, name=st.sampled_from(["sender-1", "receiver-2", "x"]), handle=NUMBERS, role=st.booleans(),
              source=st.none() | st.just(Source(address="q")), target=st.none() | st.just(Target(address="q")),
              initial_delivery_count=st.none() | NUMBERS),
    st.builds(Flow, next_incoming_id=st.none() | NUMBERS, incoming_window=NUMBERS, next_outgoing_id=NUMBERS,
              outgoing_window=NUMBERS, handle=st.none() | NUMBERS, delivery_count=st.none() | NUMBERS,
              link_credit=st.none() | NUMBERS, drain=st.booleans(), echo=st.booleans()),
    st.builds(Transfer, handle=NUMBERS, delivery_id=st.none() | NUMBERS, delivery_tag=st.none() | st.just(b"t"),
              settled=st.booleans(), more=st.booleans(), aborted=st.booleans()),
    st.builds(Disposition, role=st.booleans(), first=NUMBERS, last=st.none() | NUMBERS, settled=st.booleans(),
              state=STATES),
    st.builds(Detach, handle=NUMBERS, closed=st.booleans(), error=ERRORS),
    st.builds(End, error=ERRORS),
    st.builds(Close, error=ERRORS),
)  # fmt: skip
FRAMES = st.builds(lambda body, payload: encode_frame(0, encode(body), payload), PERFORMATIVES, st.binary(max_size=30))


def app_with_links() -> App:
    app = App({A: Stage()}, "amqp://a?reconnect-attempts=-1&retry-interval=10")
    app.connect()
    app.ask(OpenSender(1, SenderTerms(address="q"), "s"), OpenReceiver(2, ReceiverTerms(address="q", credit=2), "r"))
    app.send(1, "before")
    return app


@given(st.lists(FRAMES | st.binary(min_size=1, max_size=40), max_size=8))
def test_whatever_comes_is_outlived(said: list[bytes]) -> None:
    app = app_with_links()
    for data in said:
        app.ask(Received(app._attempt, data))
    app.send(1, "after")
    app.wait(1000)
    if app.machine.stage is At.UP and "after" not in app.outcomes:
        app.cut()  # a window or a credit may be closed for good: the next connection has others
        app.wait(1000)
    assert app.machine.stage in (At.UP, At.ENDED)
    outcome: Any = app.outcomes["after"]
    assert outcome is None or isinstance(outcome, errors.ClientError)


@given(st.binary(max_size=60))
def test_whatever_comes_before_the_login_is_outlived(data: bytes) -> None:
    app = App({A: Stage()}, "amqp://a?call-timeout=1000")
    app.is_mute = True
    app.ask(Start("up"))
    app.ask(Received(1, data))
    app.stage.now_ns += 2_000_000_000
    app.step()
    assert isinstance(app.errors["up"], errors.ConnectionFailed)
