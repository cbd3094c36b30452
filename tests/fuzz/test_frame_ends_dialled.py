"""The same for whoever dials: a node at what is no node, or a hostile one, and an application at a hostile broker.

The contract: the node goes on and dials again, and the application connects again, as was asked for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from mqbroker.base.time import At as Time
from mqbroker.client import inputs
from mqbroker.client.machine import Machine
from mqbroker.client.options import ReceiverTerms, SenderTerms
from mqbroker.client.places import Places
from mqbroker.client.policies import first_element
from mqbroker.client.stages import Stage as At
from mqbroker.client.uri import parse_uri
from mqbroker.cluster import notices
from mqbroker.node.cluster.membership.notice_links import NOTICES, _section
from mqbroker.node.values.handshake import Hello
from mqbroker.wire.performatives import (
    Accepted,
    Attach,
    Begin,
    Coordinator,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    Rejected,
    SaslChallenge,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    TransactionalState,
    Transfer,
)  # fmt: skip
from mqbroker.wire.types import Symbol

from tests.fuzz import frame_ends
from tests.support import frames
from tests.support.cluster_stage import node_id_of
from tests.support.false_node import FalseNode

B_ID = node_id_of("b")
HELLO = Hello(B_ID, "b" * 32, "cluster", None)
FIELDS = {Symbol("x"): 1}


def sasl_offer(mechanism: str) -> bytes:
    return frames.sasl(SaslMechanisms(sasl_server_mechanisms=(Symbol(mechanism),)))


def opened(properties: dict[Symbol, Any]) -> bytes:
    return frames.frame(Open(container_id="far", hostname="h", max_frame_size=65536, channel_max=10, idle_time_out=0,
                             properties=properties))  # fmt: skip


def attached(name: str, handle: int, role: bool, address: str) -> bytes:
    return frames.frame(Attach(name=name, handle=handle, role=role, source=Source(address=address),
                               target=Target(address=address), initial_delivery_count=None if role else 0,
                               properties=FIELDS))  # fmt: skip


def transfer(number: int, payload: bytes, *, handle: int = 0, **fields: Any) -> bytes:
    return frames.frame(Transfer(handle=handle, delivery_id=number, delivery_tag=b"t%d" % number, **fields), payload)


BEGUN = frames.frame(Begin(remote_channel=0, next_outgoing_id=0, incoming_window=100, outgoing_window=100,
                           handle_max=100, properties=FIELDS))  # fmt: skip
ERROR = Error(Symbol("amqp:connection:redirect"), "there", {Symbol("network-host"): "a", Symbol("port"): 5672})
TOLD = [
    notices.Reset(), notices.BindingAdded("orders", "orders", "anycast", "", B_ID, 0),
    notices.ConsumerCreated(f"orders{B_ID}", ""), notices.ResetComplete(),
]  # fmt: skip
TELLINGS = [transfer(n, _section(notices.encode(each)), settled=True) for n, each in enumerate(TOLD)]
ENDS = [
    frames.flow(0, 10, drain=True, echo=True, available=0, properties=FIELDS), frames.flow(None, 0),
    frames.disposition(0, 0, Accepted()), frames.disposition(0, 0, Rejected(ERROR)),
    frames.frame(Disposition(role=False, first=0, last=1, settled=True, state=Rejected(), batchable=True)),
    frames.detach(0), frames.frame(End(error=ERROR)), frames.close(),
]  # fmt: skip
NODE_TAPE = [
    frames.AMQP_HEADER, opened(HELLO.properties), BEGUN, attached(f"{NOTICES}.cluster", 0, False, NOTICES), *TELLINGS,
    transfer(9, b"", settled=False), transfer(10, b"x", more=True), frames.transfer(11, b"body"),
    attached("theirs", 5, True, "orders"), attached("theirs", 6, False, "orders"), *ENDS,
]  # fmt: skip
STATES = 8  # of the tape, after which all is told


@pytest.fixture(scope="module")
def far() -> FalseNode:
    return FalseNode(retry_interval=1, retry_interval_multiplier=1.0, max_retry_interval=1, reconnect_attempts=-1)


def against(far: FalseNode, before: list[bytes], last: bytes) -> None:
    far.dialled_again()
    try:
        far.answers_login()
        if before:
            far.says(b"".join(before))
        if far.conn in far.dialler.sent:
            far.says(last)
        assert far.dialler.halted is None
        assert far.dialler.broker.counters.bugs_contained == 0
    except BaseException as error:
        error.add_note(f"before: {b''.join(before).hex()}\nlast: {last.hex()}")
        raise
    finally:
        for kept in (far.dialler.batches, far.dialler.appends, far.dialler.notices, far.dialler.derives,
                     far.dialler.dials):  # fmt: skip
            kept.clear()


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(NODE_TAPE)))
def test_a_node_outlives_each_frame_of_the_one_it_dialled(far: FalseNode, number: int) -> None:
    frame = NODE_TAPE[number]
    lasts = [frame]
    if number:
        lasts += [*frame_ends.cut(frame), *frame_ends.some(frame_ends.retyped(frame))]
        lasts += frame_ends.some(frame_ends.nested(frame))
    for last in lasts:
        against(far, NODE_TAPE[: min(number, STATES)], last)
    against(far, NODE_TAPE[:STATES], b"")
    assert far.bridge.state.value == "up"


@pytest.mark.slow
@pytest.mark.parametrize("state", range(STATES))
def test_a_node_outlives_each_frame_in_each_state(far: FalseNode, state: int) -> None:
    for frame in NODE_TAPE[1:]:
        against(far, NODE_TAPE[:state], frame)
        against(far, NODE_TAPE[:state], b"\0\0\0\x0a\2\0\0\0\0\x53")


MANY = 600  # more than half of the credit for notices
FLOODS = {
    "empty": b"".join(transfer(n, b"") for n in range(MANY)),
    "empty and settled": b"".join(transfer(n, b"", settled=True) for n in range(MANY)),
    "aborted": b"".join(transfer(n, b"x", more=True) + transfer(n, b"", aborted=True) for n in range(MANY)),
    "resumed": b"".join(transfer(n, b"", resume=True) for n in range(MANY)),
    "in a transaction": b"".join(
        transfer(n, b"\0\x53\x75\xa0\x01x", state=TransactionalState(txn_id=b"x")) for n in range(MANY)
    ),
    "empty in a transaction": b"".join(transfer(n, b"", state=TransactionalState(txn_id=b"x")) for n in range(MANY)),
    "credit that is used up": frames.frame(Flow(next_incoming_id=0, incoming_window=9, next_outgoing_id=0,
                                                outgoing_window=9, handle=0, delivery_count=900, link_credit=0)),
}  # fmt: skip


@pytest.mark.parametrize("flood", FLOODS)
def test_a_node_outlives_deliveries_that_are_no_notices(far: FalseNode, flood: str) -> None:
    against(far, NODE_TAPE[:4], FLOODS[flood])
    against(far, NODE_TAPE[:STATES], b"")
    assert far.bridge.state.value == "up"


LOGIN = [frames.SASL_HEADER, sasl_offer("SCRAM-SHA-256"), frames.sasl(SaslChallenge(challenge=b"r=x,s=AAAA,i=4096")),
         frames.sasl(SaslOutcome(code=0, additional_data=b"v=AAAA"))]  # fmt: skip


@pytest.mark.parametrize("number", range(len(LOGIN)))
def test_a_node_outlives_each_frame_of_a_login(far: FalseNode, number: int) -> None:
    for last in frame_ends.broken(LOGIN[number]):
        far.dialled_again()
        far.says(b"".join(LOGIN[:number]) + last)
        assert far.dialler.broker.counters.bugs_contained == 0
    against(far, NODE_TAPE[:STATES], b"")
    assert far.bridge.state.value == "up"


# -- applications -----------------------------------------------------------------------------------------------------

APP_LOGIN = [frames.SASL_HEADER, sasl_offer("ANONYMOUS"), frames.sasl(SaslOutcome(code=0, additional_data=b"x"))]
APP_TAPE = [
    *APP_LOGIN, frames.AMQP_HEADER, opened({Symbol("product"): "x"}), BEGUN, attached("sender-1", 0, True, "q"),
    attached("receiver-2", 1, False, "q"), frames.flow(0, 10), transfer(0, b"\0\x53\x75\xa0\x01x", handle=1),
    transfer(1, b"", handle=1), transfer(2, b"x", handle=1, more=True),
    frames.frame(Attach(name="coordinator-0", handle=2, role=True, target=Coordinator())), *ENDS,
]  # fmt: skip
APP_STATES = 9
URI = "amqp://a?initial-connect-attempts=-1&reconnect-attempts=-1&retry-interval=1"


def machine_of(uri: str) -> Machine:
    target = parse_uri(uri)
    settings = replace(target.settings, container_id="app")
    return Machine(settings, Places(target.endpoints, first_element, settings))


class Alone:
    """An application's machine, without a broker: it hears what the test says."""

    def __init__(self, before: list[bytes]) -> None:
        self.machine = machine_of(URI)
        self.now_ns = 1_000_000
        self.attempt = 1
        self.step(inputs.Start("up"), inputs.OpenSender(1, SenderTerms(address="q"), "s"),
                  inputs.OpenReceiver(2, ReceiverTerms(address="q", credit=5), "r"), inputs.Begin("t"))  # fmt: skip
        self.step(inputs.Dialled(1, b"e" * 32, True, False))
        if before:
            self.step(inputs.Received(1, b"".join(before)))

    def step(self, *given: inputs.Input) -> None:
        self.machine.step(list(given), Time(self.now_ns, 1))


@pytest.mark.slow
def test_an_application_connects_again() -> None:
    """Whatever a broker says but that the login is refused."""
    for number, frame in enumerate(APP_TAPE):
        for last in frame_ends.broken(frame):
            app = Alone(APP_TAPE[: min(number, APP_STATES)])
            try:
                app.step(inputs.Received(1, last))
                app.step(inputs.Lost(1, "reset"))
                is_over = app.machine.stage is At.ENDED and app.machine._reason.condition != "amqp:unauthorized-access"
                assert not is_over, app.machine._reason
            except BaseException as error:
                error.add_note(f"frame {number}, last: {last.hex()}")
                raise


@pytest.mark.parametrize("state", range(APP_STATES))
def test_an_application_outlives_each_frame_in_each_state(state: int) -> None:
    for frame in (*APP_TAPE, b"\0\0\0\x0a\2\0\0\0\0\x53", b"\0\0\0\x0a\2\1\0\0\0\x53"):
        app = Alone(APP_TAPE[:state])
        app.step(inputs.Received(1, frame))
        app.step(inputs.Lost(1, "reset"))
        assert app.machine.stage is not At.ENDED or "redirect" in app.machine._reason.why, app.machine._reason
