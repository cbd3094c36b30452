"""Whom a node dials need not be a node: what a login may cost it, and what it takes for a proof."""

from __future__ import annotations

import pytest
from mqbroker.amqp.login import WAITING_BYTES_MAX
from mqbroker.node.values import inputs as given
from mqbroker.wire.frames import SASL_HEADER
from mqbroker.wire.performatives import SaslChallenge, SaslMechanisms, SaslOutcome, SaslResponse
from mqbroker.wire.types import Symbol

from tests.support import frames
from tests.support.false_node import FalseNode


def challenge(nonce: bytes, iterations: int = 4096) -> bytes:
    return frames.sasl(SaslChallenge(challenge=b"r=%sfar,s=c2FsdHNhbHQ=,i=%d" % (nonce, iterations)))


@pytest.fixture
def far() -> FalseNode:
    return FalseNode(retry_interval=500, retry_interval_multiplier=2.0, max_retry_interval=60_000)


@pytest.mark.parametrize("iterations", [1, 4095, 65_537, 1_000_000])
def test_how_much_work_a_login_may_cost(far: FalseNode, iterations: int) -> None:
    assert far.says(challenge(far.offers(), iterations)) == b""
    assert far.dialler.derives == []
    assert far.bridge.state.value == "resting"
    assert f"asks for {iterations} SCRAM iterations; 4096 to 65536 are accepted" in far.bridge.why
    dials = len(far.dialler.dials)
    for delay_ms in (500, 1000, 2000):
        far.wait(delay_ms)
        far.says(challenge(far.offers(), iterations))
        dials += 1
        assert len(far.dialler.dials) == dials, "it is tried again, after a time that grows"


def test_one_key_for_a_login_however_often_it_is_asked_for(far: FalseNode) -> None:
    nonce = far.offers()
    said = far.says(challenge(nonce, 65_536) * 20)
    assert len(frames.of_kind(said, SaslResponse)) == 1
    assert len(far.dialler.derives) == 1
    assert "a SASL challenge that is not due" in far.bridge.why


def test_nothing_is_taken_in_while_a_key_is_derived_and_little_is_kept(far: FalseNode) -> None:
    far.dialler.are_derives_held = True
    nonce = far.offers()
    assert far.says(challenge(nonce)) == b""
    assert far.says(frames.sasl(SaslOutcome(code=0)) + b"x" * (WAITING_BYTES_MAX - 100)) == b""
    assert far.bridge.state.value == "opening"
    far.says(b"x" * 200)
    assert far.bridge.state.value == "resting"
    assert "too much was sent ahead" in far.bridge.why
    far.dialler.give(given.Done(far.dialler.derives[0].id, b"late"))
    far.run()
    assert far.bridge.state.value == "resting"


def test_a_key_that_cannot_be_derived_is_tried_again(far: FalseNode) -> None:
    far.dialler.are_derives_held = True
    far.says(challenge(far.offers()))
    far.dialler.give(given.Failed(far.dialler.derives[0].id, "too many logins are being checked at once"))
    far.run()
    assert far.bridge.state.value == "resting"
    far.wait(500)
    assert far.bridge.state.value == "opening"


SASL_OFFER = frames.sasl(SaslMechanisms(sasl_server_mechanisms=(Symbol("SCRAM-SHA-256"),)))
BEFORE_THE_CHALLENGE = {
    "an outcome at once": frames.sasl(SaslOutcome(code=0)),
    "an outcome instead of a challenge": SASL_OFFER + frames.sasl(SaslOutcome(code=0)),
    "the same with a proof": SASL_OFFER + frames.sasl(SaslOutcome(code=0, additional_data=b"v=AAAA")),
    "two offers": SASL_OFFER * 2,
    "another mechanism": frames.sasl(SaslMechanisms(sasl_server_mechanisms=(Symbol("PLAIN"),))),
    "a challenge at once": challenge(b"x"),
    "half a descriptor": b"\0\0\0\x0a\2\1\0\0\0\x53",
}


@pytest.mark.parametrize("case", BEFORE_THE_CHALLENGE)
def test_nobody_is_a_node_without_a_proof(far: FalseNode, case: str) -> None:
    assert frames.AMQP_HEADER not in far.says(SASL_HEADER + BEFORE_THE_CHALLENGE[case])
    assert far.bridge.state.value == "resting"
    assert far.dialler.is_up


@pytest.mark.parametrize("proof", [None, b"", b"v=", b"v=AAAA", b"v=!", b"\xff", b"e=other-error", b"x" * 5000])
def test_a_wrong_proof_is_none(far: FalseNode, proof: bytes | None) -> None:
    far.says(challenge(far.offers()))
    assert far.says(frames.sasl(SaslOutcome(code=0, additional_data=proof))) == b""
    assert far.bridge.state.value == "resting"


def test_who_is_no_node_is_told_of_once_however_often_it_is_dialled(far: FalseNode) -> None:
    for number in range(5):
        assert far.bridge.attempts == number
        far.says(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        far.wait(500 * 2**number + 100)
    (told,) = [notice for notice in far.dialler.notices if "failed" in notice.event]
    assert told.event == "bridge-failed"
    assert "not the protocol header" in str(told.fields["why"])
