"""What a peer may not do, and what it is told: the condition, the scope that ends, and what goes on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from mqbroker.amqp import frame_costs
from mqbroker.config.users import make_verifier
from mqbroker.node.values import inputs as given
from mqbroker.node.values.login_delays import DELAY_MS
from mqbroker.wire.frames import EMPTY_FRAME
from mqbroker.wire.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Received,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    Source,
    Target,
    Transfer,
    encode,
)  # fmt: skip
from mqbroker.wire.sections import build_message
from mqbroker.wire.types import Symbol

from tests.support import frames
from tests.support.stage import Stage, options_with

GO = frames.anonymous() + frames.opened() + frames.begun()


@pytest.fixture
def stage() -> Stage:
    return Stage(options_with(limits={"link_credit": 10, "max_message_size_bytes": 2000, "links_per_session_max": 8,
                                      "sessions_per_connection_max": 4}))  # fmt: skip


def bodies(stage: Stage, queue: str = "orders") -> list[str]:
    """What is in a queue, in order; it is taken out."""
    answer = stage.admin("receive", address=queue, count_max=100, wait_ms=1)
    if answer is None:
        stage.wait(10)
        return []
    return [message["body"] for message in answer["messages"]]


def huge_frame(size: int) -> bytes:
    return size.to_bytes(4, "big") + b"\x02\x00\x00\x00"


# -- the connection ends ----------------------------------------------------------------------------------------------

OPENED = frames.anonymous() + frames.opened()
LETHAL: dict[str, tuple[bytes, str]] = {
    "frame size 0": (OPENED + huge_frame(0), "amqp:connection:framing-error"),
    "frame size 7": (OPENED + huge_frame(7), "amqp:connection:framing-error"),
    "frame size 2^32-1": (OPENED + huge_frame(0xFFFFFFFF), "amqp:connection:framing-error"),
    "frame above the negotiated size": (OPENED + huge_frame(65537), "amqp:connection:framing-error"),
    "doff 1": (OPENED + b"\0\0\0\x08\1\0\0\0", "amqp:connection:framing-error"),
    "doff past the end": (OPENED + b"\0\0\0\x08\3\0\0\0", "amqp:connection:framing-error"),
    "half a descriptor": (OPENED + b"\0\0\0\x0a\2\0\0\0\0\x53", "amqp:decode-error"),
    "half a descriptor before open": (
        frames.anonymous() + frames.AMQP_HEADER + b"\0\0\0\x0a\2\0\0\0\0\x53",
        "amqp:decode-error",
    ),
    # What follows in the buffer does not say what a frame is: neither a transfer nor a disposition.
    "half a descriptor, the rest behind it": (OPENED + b"\0\0\0\x0a\2\0\0\0\0\x53\x14", "amqp:decode-error"),
    "half a descriptor, a code behind it": (OPENED + b"\0\0\0\x0a\2\0\0\0\0\x53\x15", "amqp:decode-error"),
    "SASL frame after login": (OPENED + frames.sasl(SaslResponse(response=b"")), "amqp:connection:framing-error"),
    "SASL performative in an AMQP frame": (OPENED + frames.frame(SaslResponse(response=b"")), "amqp:not-allowed"),
    "second open": (OPENED + frames.frame(Open(container_id="x")), "amqp:not-allowed"),
    "begin before open": (frames.anonymous() + frames.AMQP_HEADER + frames.begun(), "amqp:not-allowed"),
    "attach before open": (frames.anonymous() + frames.AMQP_HEADER + frames.sender(), "amqp:not-allowed"),
    "close before open": (frames.anonymous() + frames.AMQP_HEADER + frames.close(), "amqp:not-allowed"),
    "attach without a session": (OPENED + frames.sender(), "amqp:not-allowed"),
    "transfer without a session": (OPENED + frames.transfer(0), "amqp:not-allowed"),
    "disposition without a session": (OPENED + frames.disposition(0, 0, Accepted()), "amqp:not-allowed"),
    "flow without a session": (OPENED + frames.flow(None, 0), "amqp:not-allowed"),
    "end without a session": (OPENED + frames.end(), "amqp:not-allowed"),
    "second begin on a channel": (GO + frames.begun(), "amqp:not-allowed"),
    "channel above channel-max": (OPENED + frames.begun(channel=4), "amqp:connection:framing-error"),
    "answer to a begin that was not sent": (
        OPENED + frames.frame(Begin(remote_channel=3, next_outgoing_id=0, incoming_window=1, outgoing_window=1)),
        "amqp:not-allowed",
    ),
    "answer to a begin that is answered": (
        GO + frames.frame(Begin(remote_channel=0, next_outgoing_id=0, incoming_window=1, outgoing_window=1), channel=1),
        "amqp:not-allowed",
    ),
    "handle above handle-max": (GO + frames.sender(handle=8), "amqp:connection:framing-error"),
}


def open_with_frame_size(size: int) -> bytes:
    raw = bytearray(frames.frame(Open(container_id="x", max_frame_size=70000)))
    at = raw.index((70000).to_bytes(4, "big"))
    raw[at : at + 4] = size.to_bytes(4, "big")
    return frames.anonymous() + frames.AMQP_HEADER + bytes(raw)


LETHAL |= {f"max-frame-size {size}": (open_with_frame_size(size), "amqp:invalid-field") for size in (0, 511)}


@pytest.mark.parametrize("case", LETHAL)
def test_the_connection_ends_with_its_condition(stage: Stage, case: str) -> None:
    data, condition = LETHAL[case]
    bystander = stage.connect("bystander")
    conn = stage.accept()
    said = stage.talk(conn, data)
    assert frames.errors(said) == [("Close", condition)]
    assert isinstance(frames.heard(said)[-1], Close), "nothing follows a close"
    assert conn in stage.closed
    assert stage.talk(conn, frames.transfer(0) + b"\xff" * 100) == b"", "nothing is answered any more"
    assert not bystander.is_closed
    assert [notice.fields["condition"] for notice in stage.notices] == [condition]


@pytest.mark.parametrize("case", LETHAL)
def test_the_same_byte_by_byte(case: str) -> None:
    data, condition = LETHAL[case]
    stage = Stage(options_with(limits={"links_per_session_max": 8, "sessions_per_connection_max": 4}))
    conn = stage.accept()
    for place in range(len(data)):
        stage.talk(conn, data[place : place + 1])
    assert frames.errors(bytes(stage.sent[conn])) == [("Close", condition)]


GREETINGS = {
    "http": b"GET / HTTP/1.1\r\n\r\n", "AMQP 0-9-1": b"AMQP\x00\x00\x09\x01", "AMQP 0-9-1 old": b"AMQP\x01\x01\x09\x01",
    "mqtt": b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04abcd", "tls": b"\x16\x03\x01\x02\x00\x01",
    "stomp": b"CONNECT\n\n\0",
    "AMQP 2.0": b"AMQP\x00\x02\x00\x00", "AMQP TLS layer": b"AMQP\x02\x01\x00\x00", "no login": frames.AMQP_HEADER,
}  # fmt: skip


@pytest.mark.parametrize("greeting", GREETINGS.values(), ids=GREETINGS)
def test_another_protocol_is_answered_with_our_header(greeting: bytes) -> None:
    stage = Stage(options_with({"sasl_mechanisms": ("SCRAM-SHA-256",)}))
    conn = stage.accept()
    assert stage.talk(conn, greeting) == frames.SASL_HEADER
    assert conn in stage.closed


def test_a_layer_that_is_anonymous_may_be_left_out() -> None:
    stage = Stage()
    said = frames.heard(stage.talk(stage.accept(), frames.opened() + frames.begun()))
    assert said[0] == frames.AMQP_HEADER
    assert [type(each) for each in said[1:]] == [Open, Begin]


LOGIN_NONSENSE = {
    "AMQP frame": EMPTY_FRAME, "open": frames.frame(Open(container_id="x")), "empty frame": b"\0\0\0\x08\2\1\0\0",
    "mechanisms": frames.sasl(SaslMechanisms(sasl_server_mechanisms=(Symbol("PLAIN"),))),
    "outcome": frames.sasl(SaslOutcome(code=0)), "response first": frames.sasl(SaslResponse(response=b"")),
    "not a performative": b"\0\0\0\x09\2\1\0\0\x40", "transfer in a SASL frame": frames.sasl(Transfer(handle=0)),
    "frame above the bound before open": huge_frame(4097).replace(b"\2\0", b"\2\1"),
    "malformed SCRAM": frames.sasl(SaslInit(mechanism=Symbol("SCRAM-SHA-256"), initial_response=b"junk")),
    "half a descriptor": b"\0\0\0\x0a\2\1\0\0\0\x53",
    "malformed SCRAM behind a good init": frames.sasl(SaslInit(mechanism=Symbol("SCRAM-SHA-256")))
    + frames.sasl(SaslResponse(response=b"junk")),
    "init without a mechanism": b"\0\0\0\x0c\2\1\0\0\0\x53\x41\x45",
}  # fmt: skip


@pytest.mark.parametrize("case", LOGIN_NONSENSE)
def test_nonsense_during_the_login_ends_the_connection(case: str) -> None:
    stage = Stage(options_with({"sasl_mechanisms": ("SCRAM-SHA-256", "PLAIN")}))
    conn = stage.accept()
    said = frames.heard(stage.talk(conn, frames.SASL_HEADER + LOGIN_NONSENSE[case]))
    assert said[0] == frames.SASL_HEADER
    assert isinstance(said[1], SaslMechanisms)
    challenges = [each for each in said if isinstance(each, SaslChallenge)]
    assert said[2 + len(challenges) :] == [SaslOutcome(code=1)], (
        "who waits for an outcome is told, and nothing follows it"
    )
    assert conn in stage.closed
    assert stage.broker.peers == {}


# -- the session ends -------------------------------------------------------------------------------------------------

SESSION: dict[str, tuple[bytes, str]] = {
    "transfer on an unknown handle": (frames.transfer(0, handle=5), "amqp:session:unattached-handle"),
    "flow on an unknown handle": (frames.flow(5, 1), "amqp:session:unattached-handle"),
    "detach of an unknown handle": (frames.detach(5), "amqp:session:unattached-handle"),
    "handle in use": (frames.sender() + frames.sender(name="other"), "amqp:session:handle-in-use"),
    "name in use": (frames.sender(name="a") + frames.sender(name="a", handle=1), "amqp:session:errant-link"),
    "outcome of what was not sent": (frames.disposition(0, 0, Accepted()), "amqp:invalid-field"),
    "outcome of a backward range": (frames.disposition(5, 3, Accepted()), "amqp:invalid-field"),
}


@pytest.mark.parametrize("case", SESSION)
def test_the_session_ends_and_the_connection_goes_on(stage: Stage, case: str) -> None:
    data, condition = SESSION[case]
    conn = stage.accept()
    said = stage.talk(conn, GO + frames.begun(1) + data)
    assert frames.errors(said) == [("End", condition)]
    # What was sent before the peer knew is passed over; the channel is free after its end.
    assert stage.talk(conn, frames.sender(handle=6) + frames.transfer(1, handle=6)) == b""
    assert stage.talk(conn, frames.end()) == b""
    assert frames.of_kind(stage.talk(conn, frames.begun()), Begin)
    assert frames.of_kind(stage.talk(conn, frames.sender(channel=1)), Attach)
    assert conn not in stage.closed


def test_links_over_the_bound_end_the_session() -> None:
    stage = Stage(options_with(limits={"links_per_session_max": 2}))
    conn = stage.accept()
    said = stage.talk(conn, GO + frames.sender(handle=0) + frames.sender(handle=1))
    assert frames.errors(said) == []
    assert frames.errors(stage.talk(conn, frames.sender(handle=2))) == [("Close", "amqp:connection:framing-error")]


def test_who_ends_a_session_by_its_own_handle_max_is_told_that_it_was_its_own(stage: Stage) -> None:
    conn = stage.accept()
    begin = Begin(remote_channel=None, next_outgoing_id=0, incoming_window=9, outgoing_window=9, handle_max=1)
    stage.talk(conn, frames.anonymous() + frames.opened() + frames.frame(begin))
    said = b"".join(stage.talk(conn, frames.sender(handle=handle)) for handle in range(3))
    (end,) = frames.of_kind(said, End)
    assert end.error.description == "over 2 links in a session, by its handle-max"


# -- the link ends ----------------------------------------------------------------------------------------------------

MESSAGE = build_message(b"x")


def loose(payload: bytes = MESSAGE, **fields: Any) -> bytes:
    """A transfer as wrong as one likes."""
    return frames.frame(Transfer(handle=0, **fields), payload)


LINK: dict[str, tuple[bytes, str]] = {
    "no delivery id": (loose(delivery_tag=b"t"), "amqp:invalid-field"),
    "no delivery tag": (loose(delivery_id=0), "amqp:invalid-field"),
    "message format": (loose(delivery_id=0, delivery_tag=b"t", message_format=7), "amqp:not-implemented"),
    "malformed header section": (
        loose(b"\0\x53\x70\xc0\xff\xff", delivery_id=0, delivery_tag=b"t"),
        "amqp:decode-error",
    ),
    "message too large in one frame": (frames.transfer(0, b"x" * 2000), "amqp:link:message-size-exceeded"),
    "message too large in pieces": (
        loose(b"x" * 1500, delivery_id=0, delivery_tag=b"t", more=True) + loose(b"x" * 1500, more=True),
        "amqp:link:message-size-exceeded",
    ),
    "another delivery in the middle of one": (
        loose(delivery_id=0, delivery_tag=b"t", more=True) + loose(delivery_id=1, delivery_tag=b"u"),
        "amqp:invalid-field",
    ),
    "another tag in the middle of a delivery": (
        loose(MESSAGE[:4], delivery_id=0, delivery_tag=b"t", more=True) + loose(MESSAGE[4:], delivery_tag=b"u"),
        "amqp:invalid-field",
    ),
    "another message format in the middle of a delivery": (
        loose(MESSAGE[:4], delivery_id=0, delivery_tag=b"t", more=True) + loose(MESSAGE[4:], message_format=7),
        "amqp:invalid-field",
    ),
    "without credit": (
        b"".join(frames.transfer(n, durable=True) for n in range(2, 12)) + frames.transfer(12),
        "amqp:link:transfer-limit-exceeded",
    ),
}


# Byte by byte, and by turns, a sender is given new credit before it can run out.
@pytest.mark.parametrize(("case", "is_cut"), [(case, cut) for case in LINK for cut in (False, True)
                                              if not (cut and case == "without credit")])  # fmt: skip
def test_the_link_ends_and_what_was_good_before_stays(
    stage: Stage, case: str, is_cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, condition = LINK[case]
    stage.is_disk_held = True
    conn = stage.accept()
    stage.talk(conn, GO + frames.sender() + frames.begun(1) + frames.receiver("other", handle=2, channel=1))
    for cost in ("RUN", "TRANSFER"):
        monkeypatch.setattr(frame_costs, cost, 0)
    before = b"" if case == "without credit" else frames.transfer(100, b"good") + frames.transfer(101, b"good")
    if is_cut:
        said = b"".join(stage.talk(conn, bytes([byte])) for byte in before + data)
    else:
        said = stage.talk(conn, before + data)
    assert frames.errors(said) == [("Detach", condition)]
    assert stage.talk(conn, frames.transfer(102) + frames.transfer(103, b"y" * 3000)) == b"", "passed over"
    stage.is_disk_held = False
    stage.run()
    again = frames.heard(stage.talk(conn, frames.detach() + frames.sender(handle=0) + frames.transfer(104, b"after")))
    assert any(isinstance(each, Attach) for each in again)
    assert conn not in stage.closed
    good = ["x"] * 10 if case == "without credit" else ["good", "good"]
    assert bodies(stage) == [*good, "after"]


def test_acceptances_go_out_before_the_detach_that_follows_them(stage: Stage) -> None:
    conn = stage.accept()
    stage.talk(conn, GO + frames.sender())
    said = frames.heard(stage.talk(conn, frames.transfer(0) + frames.transfer(1) + loose(delivery_id=2)))
    assert [type(each) for each in said] == [Disposition, Detach]


def test_a_transfer_on_a_link_that_we_send_on_is_a_fault_of_that_link(stage: Stage) -> None:
    conn = stage.accept()
    stage.talk(conn, GO + frames.receiver(handle=0))
    assert frames.errors(stage.talk(conn, frames.transfer(0))) == [("Detach", "amqp:not-allowed")]


ATTACHES: dict[str, tuple[Attach, str]] = {
    "dynamic source": (
        Attach(name="a", handle=0, role=True, source=Source(address="mine", dynamic=True)),
        "amqp:invalid-field",
    ),
    "dynamic target": (
        Attach(name="a", handle=0, role=False, target=Target(address="mine", dynamic=True)),
        "amqp:invalid-field",
    ),
    "no source, no subscription": (Attach(name="a", handle=0, role=True), "amqp:not-found"),
    "no target": (Attach(name="a", handle=0, role=False), "amqp:not-implemented"),
    "source without an address": (Attach(name="a", handle=0, role=True, source=Source()), "amqp:invalid-field"),
    "half a name": (Attach(name="a", handle=0, role=False, target=Target(address="a::")), "amqp:invalid-field"),
    "long name": (Attach(name="a", handle=0, role=False, target=Target(address="x" * 1025)), "amqp:invalid-field"),
    "unknown filter": (
        Attach(name="a", handle=0, role=True, source=Source(address="a", filter={Symbol("colour"): "blue"})),
        "amqp:not-implemented",
    ),
}


@pytest.mark.parametrize("case", ATTACHES)
def test_a_refused_attach_has_a_null_terminus_and_a_reason(stage: Stage, case: str) -> None:
    attach, condition = ATTACHES[case]
    conn = stage.accept()
    said = stage.talk(conn, GO + frames.frame(attach))
    answers = frames.of_kind(said, Attach)
    assert [(answer.source if attach.role else answer.target) for answer in answers] == [None]
    assert frames.errors(said) == [("Detach", condition)]
    # The name and the handle are free again once the peer has answered.
    assert frames.of_kind(stage.talk(conn, frames.detach() + frames.sender(name="a")), Attach)


# -- bounds of a login ------------------------------------------------------------------------------------------------


def waiting_stage() -> tuple[Stage, int]:
    users = {"app": make_verifier("right", b"0123456789abcdef", ("client",))}
    stage = Stage(options_with({"sasl_mechanisms": ("PLAIN",)}), users)
    return stage, stage.accept()


def derive_key(stage: Stage) -> bytes:
    """The key that the node asked for, wherever it was made."""
    asked = stage.derives.pop()
    key = hashlib.pbkdf2_hmac(asked.hash_name, asked.password, asked.salt, asked.iterations)
    stage.give(given.Done(asked.id, key))
    return key


def test_what_is_sent_ahead_of_the_outcome_waits_for_it() -> None:
    stage, conn = waiting_stage()
    said = stage.talk(conn, frames.plain("app", "right") + frames.opened() + frames.begun() + frames.sender())
    assert [type(each) for each in frames.heard(said)] == [bytes, SaslMechanisms]
    before = len(stage.sent[conn])
    derive_key(stage)
    stage.run()
    kinds = [type(each) for each in frames.heard(bytes(stage.sent[conn][before:]))]
    assert kinds == [SaslOutcome, bytes, Open, Begin, Attach, Flow]


def test_more_responses_ask_for_no_more_keys() -> None:
    stage, conn = waiting_stage()
    stage.talk(conn, frames.plain("app", "wrong") + frames.sasl(SaslResponse(response=b"\0app\0right")) * 100)
    assert len(stage.derives) == 1
    derive_key(stage)
    stage.run()
    stage.wait(DELAY_MS)
    assert frames.of_kind(bytes(stage.sent[conn]), SaslOutcome) == [SaslOutcome(code=1)]
    assert conn in stage.closed


def test_what_waits_for_the_outcome_is_bounded() -> None:
    stage, conn = waiting_stage()
    stage.talk(conn, frames.plain("app", "right"))
    for _ in range(70):
        stage.talk(conn, b"x" * 1000)
    assert conn in stage.closed
    derive_key(stage)
    stage.run()
    assert frames.of_kind(bytes(stage.sent[conn]), SaslOutcome) == [SaslOutcome(code=4)]


# -- frame sizes ------------------------------------------------------------------------------------------------------


@pytest.mark.option("listeners.frame-size-before-open-bytes")
@pytest.mark.parametrize("bound", [512, 4096])
def test_frames_before_open_are_small(bound: int) -> None:
    stage = Stage(options_with({"frame_size_before_open_bytes": bound}))
    for size, is_fine in ((bound, True), (bound + 1, False)):
        conn = stage.accept()
        stage.talk(conn, frames.anonymous() + frames.AMQP_HEADER)
        body = encode(Open(container_id="", hostname="x" * 100))
        padded = encode(Open(container_id="", hostname="x" * (100 + size - 8 - len(body))))
        host = "x" * (100 + size - 8 - len(body) - (len(padded) - (size - 8)))
        raw = frames.frame(Open(container_id="", hostname=host))
        assert len(raw) == size
        said = stage.talk(conn, raw[:8]) + stage.talk(conn, raw[8:])
        assert bool(frames.errors(said)) != is_fine
        assert (conn in stage.closed) != is_fine


@pytest.mark.option("listeners.max-frame-size-bytes")
@pytest.mark.parametrize("bound", [512, 8192])
def test_the_largest_frame_is_announced_and_held_to(bound: int) -> None:
    stage = Stage(options_with({"max_frame_size_bytes": bound}))
    conn = stage.accept()
    said = stage.talk(conn, GO + frames.sender())
    assert [each.max_frame_size for each in frames.of_kind(said, Open)] == [bound]
    overhead = len(frames.transfer(0, b"x" * 256)) - 256
    assert frames.errors(stage.talk(conn, frames.transfer(0, b"x" * (bound - overhead)))) == []
    said = stage.talk(conn, frames.transfer(1, b"x" * (bound - overhead + 1)))
    assert frames.errors(said) == [("Close", "amqp:connection:framing-error")]


# -- pieces of messages -----------------------------------------------------------------------------------------------


def pieces(body: bytes, cut: int, number: int = 0) -> bytes:
    payload = build_message(body)
    parts = [payload[at : at + cut] for at in range(0, len(payload), cut)]
    out = []
    for place, part in enumerate(parts):
        fields: dict[str, Any] = {"delivery_id": number, "delivery_tag": b"t"} if place == 0 else {}
        out.append(loose(part, more=place < len(parts) - 1, **fields))
    return b"".join(out)


def test_pieces_become_one_message(stage: Stage) -> None:
    conn = stage.accept()
    said = stage.talk(conn, GO + frames.sender() + pieces(b"y" * 1900, 100) + pieces(b"z", 1, 1))
    assert [(each.first, each.last) for each in frames.of_kind(said, Disposition)] in ([(0, 1)], [(0, None), (1, None)])
    assert bodies(stage) == ["y" * 1900, "z"]
    assert stage.broker.peers[conn].connection.partial_bytes == 0


def test_settled_may_be_said_in_any_piece(stage: Stage) -> None:
    conn = stage.accept()
    stage.talk(conn, GO + frames.sender())
    first = loose(MESSAGE[:4], delivery_id=0, delivery_tag=b"t", more=True)
    assert stage.talk(conn, first + loose(MESSAGE[4:], settled=True)) == b""
    assert bodies(stage) == ["x"]


def test_an_aborted_message_is_nothing_and_gives_its_credit_back(stage: Stage) -> None:
    conn = stage.accept()
    stage.talk(conn, GO + frames.sender())
    for number in range(50):
        said = stage.talk(
            conn, loose(b"abc", delivery_id=number, delivery_tag=b"t", more=True) + loose(b"", aborted=True)
        )
        assert frames.errors(said) == []
    stage.talk(conn, frames.transfer(50, b"whole"))
    assert bodies(stage) == ["whole"]
    assert stage.broker.peers[conn].connection.partial_bytes == 0


def test_unfinished_messages_of_all_links_are_bounded_together(stage: Stage) -> None:
    """The bound is one message of the largest size and one frame, whatever the number of links."""
    stage = Stage(options_with({"max_frame_size_bytes": 512}, limits={"max_message_size_bytes": 2000}))
    conn = stage.accept()
    stage.talk(conn, GO + b"".join(frames.sender(handle=n) for n in range(8)))
    told: list[tuple[str, str]] = []
    for number in range(8):
        head = Transfer(handle=number, delivery_id=number, delivery_tag=b"t", more=True)
        told += frames.errors(stage.talk(conn, frames.frame(head, b"x" * 400)))
    assert told == [("Detach", "amqp:resource-limit-exceeded")] * 2
    connection = stage.broker.peers[conn].connection
    assert connection.partial_bytes == 2400
    stage.talk(conn, frames.end())
    assert connection.partial_bytes == 0


@pytest.mark.slow
def test_many_empty_pieces_are_bounded(stage: Stage) -> None:
    conn = stage.accept()
    stage.talk(conn, GO + frames.sender() + loose(b"", delivery_id=0, delivery_tag=b"t", more=True))
    said = stage.talk(conn, loose(b"", more=True) * 65_535)
    assert frames.errors(said) == [("Detach", "amqp:resource-limit-exceeded")]


def test_a_state_that_is_no_outcome_changes_nothing(stage: Stage) -> None:
    conn = stage.accept()
    stage.talk(conn, GO + frames.sender() + frames.transfer(0) + frames.receiver(credit=1))
    assert stage.talk(conn, frames.disposition(0, 0, Received(0, 0), settled=False)) == b""
    assert stage.admin("queues")["queues"][0]["delivering_count"] == 1


@pytest.mark.parametrize("end", [frames.detach, frames.end, frames.close])
def test_messages_before_the_end_of_their_link_in_one_read_are_kept(stage: Stage, end: Callable[[], bytes]) -> None:
    conn = stage.accept()
    messages = b"".join(frames.transfer(n, b"m%d" % n, settled=True) for n in range(10))
    stage.talk(conn, GO + frames.sender(mode=1) + messages + end())
    assert bodies(stage) == [f"m{n}" for n in range(10)]


def test_a_detach_and_an_end_answer_in_kind(stage: Stage) -> None:
    conn = stage.accept()
    said = stage.talk(conn, GO + frames.sender() + frames.detach() + frames.end() + frames.close())
    ends = [each for each in frames.heard(said) if isinstance(each, Detach | End | Close)]
    assert ends == [Detach(handle=0, closed=True), End(), Close()]
    assert conn in stage.closed


def test_a_detach_that_does_not_close_is_answered_as_such(stage: Stage) -> None:
    conn = stage.accept()
    said = stage.talk(conn, GO + frames.sender() + frames.frame(Detach(handle=0, closed=False)))
    assert frames.of_kind(said, Detach) == [Detach(handle=0, closed=False)]
