"""An error is told in a frame that the peer takes, however small its frames are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from mqbroker.wire.frames import frame_at
from mqbroker.wire.performatives import (
    Attach,
    Close,
    Declare,
    Detach,
    Discharge,
    Disposition,
    End,
    Error,
    Modified,
    Open,
    Rejected,
    Source,
    Target,
    TransactionalState,
    Transfer,
    decode_frame,
)
from mqbroker.wire.sections import Properties, build_message
from mqbroker.wire.types import Described, Symbol

from tests.support import frames, transactions
from tests.support.stage import Stage, options_with

LONG = "ä" * 600


def within(data: bytes, kind: type) -> int:
    """Bytes of the frame of that kind."""
    offset = 0
    while offset < len(data):
        frame = frame_at(data, offset, len(data), 1 << 31)
        assert frame is not None
        if isinstance(decode_frame(data, frame)[0], kind):
            return frame.end - offset
        offset = frame.end
    raise AssertionError(f"there is no {kind.__name__}")


@pytest.mark.parametrize(
    ("said", "kind", "condition"),
    [
        (frames.receiver(LONG, handle=0), Detach, "amqp:not-found"),
        (frames.sender(name=LONG[:220]) + frames.sender(handle=1, name=LONG[:220]), End, "amqp:session:errant-link"),
        (b"", Close, "amqp:connection:forced"),
    ],
    ids=["detach", "end", "close"],
)
def test_its_words_are_cut_and_its_condition_is_whole(said: bytes, kind: type, condition: str) -> None:
    stage = Stage(options_with(address_settings={LONG: {"auto_create_queues": False, "auto_create_addresses": False}}))
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened(512) + frames.begun())
    stage.sent[conn].clear()
    if kind is Close:
        stage.broker.peers[conn].close(condition, LONG)
    stage.talk(conn, said)
    answer = bytes(stage.sent[conn])
    error = frames.of_kind(answer, kind)[0].error
    assert str(error.condition) == condition
    assert len(error.description) > 100
    assert within(answer, kind) <= 512


@pytest.mark.parametrize("is_producer", [False, True], ids=["consumer", "producer"])
@pytest.mark.parametrize("size", [100, 300])
def test_a_link_whose_answer_does_not_fit_is_refused(size: int, is_producer: bool) -> None:
    """Its name fits, and with the address twice it does not; the connection must not end for it."""
    address = "ä" * size
    make = frames.sender if is_producer else frames.receiver
    stage = Stage()
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened(512) + frames.begun())
    answer = stage.talk(conn, make(address, handle=0))
    assert within(answer, Attach) <= 512
    (attach,) = frames.of_kind(answer, Attach)
    terminus = attach.target if is_producer else attach.source
    assert (terminus is None) == (size == 300)
    found = [str(detach.error.condition) for detach in frames.of_kind(answer, Detach)]
    assert found == ["amqp:frame-size-too-small"] * (size == 300)


def test_where_frames_are_larger_they_are_whole() -> None:
    stage = Stage(options_with(address_settings={LONG: {"auto_create_queues": False, "auto_create_addresses": False}}))
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened(65536) + frames.begun())
    answer = stage.talk(conn, frames.receiver(LONG, handle=0))
    assert LONG in frames.of_kind(answer, Detach)[0].error.description
    assert frames.of_kind(answer, Attach), "a refusal is an attach and a detach"


LONG_NAME, LONG_SELECTOR = "n" * 600, "a = '" + "x" * 400 + "'"
SELECTING = {Symbol("s"): Described(Symbol("apache.org:selector-filter:string"), LONG_SELECTOR)}


def asked(**source: Any) -> bytes:
    """A receiver for a topic."""
    terms = Source(address="news", capabilities=(Symbol("topic"),), **source)
    return frames.frame(Attach(name="news", handle=0, role=True, source=terms, target=Target()))


@pytest.mark.parametrize(
    ("said", "ends"),
    [
        (frames.sender("q" * 455), Detach),
        (asked(filter=SELECTING), Detach),
        (asked(filter=SELECTING, durable=2), Detach),
        (frames.sender(name=LONG_NAME), End),
        (frames.frame(Attach(name=LONG_NAME, handle=0, role=True, source=Source(address="orders"))), End),
    ],
    ids=["target", "filter", "durable", "name of a sender", "name of a receiver"],
)
def test_an_attach_whose_answer_does_not_fit_is_refused_in_frames_that_do(said: bytes, ends: type) -> None:
    stage = Stage()
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened(512) + frames.begun())
    answer = stage.talk(conn, said)
    assert frames.errors(answer) == [(ends.__name__, "amqp:frame-size-too-small")]
    assert max(len(frames.frame(each)) for each in frames.heard(answer)) <= 512
    assert conn not in stage.closed
    assert not [row for row in stage.admin("queues")["queues"] if not row["durable"]], "a queue without an end"
    assert (stage.admin("consumers")["consumers"], stage.admin("producers")["producers"]) == ([], [])
    if ends is Detach:
        assert frames.of_kind(stage.talk(conn, frames.detach() + frames.sender("orders", handle=1)), Attach)


def test_what_came_before_the_end_of_the_session_is_accepted_first() -> None:
    stage = Stage()
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened(512) + frames.begun() + frames.sender())
    answer = stage.talk(conn, frames.transfer(0) + frames.sender(handle=1, name=LONG_NAME) + frames.transfer(1))
    assert [type(each) for each in frames.heard(answer)] == [Disposition, End]
    assert stage.admin("queues")["queues"][0]["message_count"] == 1


def test_the_words_of_a_rejected_message_are_cut() -> None:
    stage = Stage(options_with(address_settings={LONG: {"auto_create_queues": False, "auto_create_addresses": False}}))
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened(512) + frames.begun())
    anonymous = Attach(name="any", handle=0, role=False, source=Source(), target=Target(), initial_delivery_count=0)
    message = build_message(b"x", properties=Properties(to=LONG))
    transfer = Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0)
    answer = stage.talk(conn, frames.frame(anonymous) + frames.frame(transfer, message))
    (told,) = frames.of_kind(answer, Disposition)
    assert str(told.state.error.condition) == "amqp:not-found"
    assert len(told.state.error.description) > 100
    assert within(answer, Disposition) <= 512


@pytest.mark.parametrize("in_transaction", [False, True])
@pytest.mark.parametrize(
    "outcome",
    [
        Rejected(error=Error(condition=Symbol("app:no"), description=LONG)),
        Modified(delivery_failed=True, message_annotations={Symbol("x-why"): LONG}),
    ],
    ids=["rejected", "modified"],
)
def test_what_a_receiver_says_is_repeated_in_a_frame_that_it_takes(outcome: Any, in_transaction: bool) -> None:
    stage = Stage()
    conn = stage.accept()
    asked = Attach(name="r", handle=0, role=True, rcv_settle_mode=1, source=Source(address="orders"), target=Target())
    stage.talk(conn, frames.anonymous() + frames.opened(512) + frames.begun() + frames.frame(asked))
    control = transactions.coordinator_attach()
    stage.talk(conn, frames.frame(replace(control, handle=1)))
    stage.admin("send", address="orders", messages=[{"body": "m", "durable": False}])
    stage.talk(conn, frames.flow(0, 1))
    state, end = outcome, b""
    if in_transaction:
        declared = stage.talk(conn, transactions.request(0, Declare(), 1))
        txn_id = frames.of_kind(declared, Disposition)[0].state.txn_id
        state = TransactionalState(txn_id=txn_id, outcome=outcome)
        end = transactions.request(1, Discharge(txn_id=txn_id), 1)
    answer = stage.talk(conn, frames.disposition(0, 0, state, settled=False) + end)
    told = next(each for each in frames.of_kind(answer, Disposition) if not each.role)
    assert isinstance(told.state.outcome if in_transaction else told.state, type(outcome))
    assert max(len(frames.frame(each)) for each in frames.heard(answer) if not isinstance(each, tuple)) <= 512


def test_an_open_names_as_many_other_brokers_as_fit() -> None:
    places = tuple(f"broker-{number}.example.org:5672" for number in range(16))
    stage = Stage(options_with({"failover_server_list": places}))
    said = {size: stage.talk(stage.accept(), frames.anonymous() + frames.opened(size)) for size in (512, 65536)}
    assert len(frames.frame(frames.of_kind(said[512], Open)[0])) <= 512
    named = {size: frames.of_kind(data, Open)[0].properties["failover-server-list"] for size, data in said.items()}
    assert len(named[65536]) == 16
    assert 0 < len(named[512]) < 16
    assert named[512] == named[65536][: len(named[512])]
