"""Every frame broken in every way, as the last bytes of a read, in every state and from both ends.

The contract: an answer of the protocol to that connection, and nothing else. Whatever escapes a step fails the test.
"""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.config.users import make_verifier
from mqbroker.wire.performatives import (
    Accepted,
    Attach,
    Begin,
    Coordinator,
    Declare,
    Discharge,
    Disposition,
    End,
    Modified,
    Open,
    Rejected,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    Source,
    Target,
    TransactionalState,
    Transfer,
    encode,
)  # fmt: skip
from mqbroker.wire.types import Symbol

from tests.fuzz import frame_ends
from tests.support import frames
from tests.support.stage import Stage, options_with

USERS = {"app": make_verifier("right", b"salt" * 4, ("client",))}
FIELDS = {Symbol("x"): 1}


def sasl_init(mechanism: str, response: bytes | None) -> bytes:
    return frames.sasl(SaslInit(mechanism=Symbol(mechanism), initial_response=response, hostname="h"))


def attach(name: str, handle: int, role: bool, **fields: Any) -> bytes:
    said: dict[str, Any] = {"source": Source(address="orders"), "target": Target(address="orders"),
                            "initial_delivery_count": None if role else 0, "properties": FIELDS} | fields  # fmt: skip
    return frames.frame(Attach(name=name, handle=handle, role=role, unsettled={}, incomplete_unsettled=False,
                               max_message_size=0, **said))  # fmt: skip


OPEN = frames.frame(Open(container_id="fuzz", hostname="h", max_frame_size=65536, channel_max=10, idle_time_out=0,
                         properties=FIELDS))  # fmt: skip
BEGIN = frames.frame(Begin(remote_channel=None, next_outgoing_id=0, incoming_window=100, outgoing_window=100,
                           handle_max=100, properties=FIELDS))  # fmt: skip
TXN = TransactionalState(txn_id=b"none", outcome=Accepted())
LIVES = [
    frames.AMQP_HEADER, OPEN, BEGIN,
    attach("s", 0, False), attach("r", 1, True),
    attach("t", 2, False, target=Coordinator(capabilities=(Symbol("amqp:local-transactions"),))),
    frames.transfer(0, b"body", durable=True), frames.transfer(1, b"body", settled=True),
    frames.transfer(2, b"body", more=True), frames.transfer(3, b"body", state=TXN),
    frames.frame(Transfer(handle=2, delivery_id=4, delivery_tag=b"t"), b"\0\x53\x77" + encode(Declare())),
    frames.frame(Transfer(handle=2, delivery_id=5, delivery_tag=b"u"), b"\0\x53\x77" + encode(Discharge(txn_id=b"x"))),
    frames.flow(1, 1, drain=True, echo=True, available=0, properties=FIELDS), frames.flow(None, 0),
    frames.disposition(0, 0, Accepted()), frames.disposition(0, 0, Modified(message_annotations=FIELDS)),
    frames.frame(Disposition(role=False, first=0, last=1, settled=True, state=Rejected(), batchable=True)),
    frames.disposition(0, 0, TXN),
    frames.detach(0), frames.detach(1), frames.frame(End()), frames.close(),
]  # fmt: skip
ANONYMOUS = [frames.SASL_HEADER, sasl_init("ANONYMOUS", b"x")]
LOGINS = {
    "anonymous": ANONYMOUS,
    "plain": [frames.SASL_HEADER, sasl_init("PLAIN", b"\0app\0right")],
    "plain later": [frames.SASL_HEADER, sasl_init("PLAIN", None), frames.sasl(SaslResponse(response=b"\0app\0right"))],
    "scram": [frames.SASL_HEADER, sasl_init("SCRAM-SHA-256", b"n,,n=app,r=abc"),
              frames.sasl(SaslResponse(response=b"c=biws,r=abcd,p=AAAA"))],
    "external": [frames.SASL_HEADER, sasl_init("EXTERNAL", None), frames.sasl(SaslResponse(response=b""))],
    "a server's": [frames.SASL_HEADER, frames.sasl(SaslMechanisms(sasl_server_mechanisms=(Symbol("PLAIN"),))),
                   frames.sasl(SaslOutcome(code=0, additional_data=b"x"))],
}  # fmt: skip


def tape_after(count: int) -> bytes:
    """What has come before the frame with this number: the state in which it comes."""
    kept = LIVES[:count]
    return b"".join(ANONYMOUS + kept)


@pytest.fixture(scope="module")
def stage() -> Stage:
    mechanisms = ("SCRAM-SHA-256", "PLAIN", "ANONYMOUS", "EXTERNAL")
    return Stage(options_with({"sasl_mechanisms": mechanisms}, limits={"link_credit": 10}), USERS)


def is_served(stage: Stage) -> bool:
    """Whether a bystander still comes in and gets its session."""
    said = stage.talk(conn := stage.accept(), b"".join(ANONYMOUS) + frames.AMQP_HEADER + OPEN + BEGIN)
    stage.drop_bare(conn)
    return bool(frames.of_kind(said, Begin)) and stage.halted is None


def feed(stage: Stage, before: bytes, last: bytes) -> None:
    conn = stage.accept()
    try:
        if before:
            stage.talk(conn, before)
        stage.talk(conn, last)
        stage.drop_bare(conn)
        assert stage.broker.counters.bugs_contained == 0, "what ends only one connection is a bug all the same"
    except BaseException as error:
        error.add_note(f"before: {before.hex()}\nlast: {last.hex()}")
        raise
    finally:
        stage.batches.clear()
        stage.appends.clear()
        stage.notices.clear()
        stage.derives.clear()
        stage.sent.pop(conn, None)
        stage.closed.pop(conn, None)


@pytest.mark.parametrize("login", LOGINS)
def test_logins(stage: Stage, login: str) -> None:
    said = LOGINS[login]
    for number, frame in enumerate(said):
        for last in frame_ends.broken(frame):
            feed(stage, b"".join(said[:number]), last)
    assert is_served(stage)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(LIVES)))
def test_each_frame_where_it_belongs(stage: Stage, number: int) -> None:
    before = tape_after(min(number, 6))
    for last in frame_ends.broken(LIVES[number]):
        feed(stage, before, last)
    assert is_served(stage)


@pytest.mark.slow
@pytest.mark.parametrize("state", range(7))
def test_each_frame_in_each_state(stage: Stage, state: int) -> None:
    """Whole, and cut off at each byte with a size that fits."""
    before = tape_after(state)
    for frame in LIVES[1:]:
        for last in (frame, *(frame_ends.sized(frame[:end]) for end in range(8, len(frame), 1 if state < 3 else 3))):
            feed(stage, before, last)
    assert is_served(stage)
