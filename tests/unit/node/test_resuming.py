"""Links that are resumed with unsettled deliveries (§2.6.13): they begin anew, and both ends know it."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.wire.performatives import Accepted, Attach, Detach, Disposition, Received, Source, Target, Transfer
from mqbroker.wire.sections import build_message
from mqbroker.wire.types import Described, ULong

from tests.support import frames
from tests.support.stage import Stage, options_with

GO = frames.anonymous() + frames.opened() + frames.begun()
ACCEPTED, RECEIVED = Described(ULong(0x24), []), Described(ULong(0x23), [1, 7])
UNSETTLED: list[dict[bytes, Any]] = [{b"t": None}, {b"t": ACCEPTED}, {b"t": RECEIVED, b"u": None}]


def attached(role: bool, unsettled: dict[bytes, Any] | None, **fields: Any) -> bytes:
    ends: dict[str, Any] = {"source": Source(address="orders"), "target": Target(address="orders")}
    count = {} if role else {"initial_delivery_count": 0}
    return frames.frame(Attach(name="l", handle=0, role=role, unsettled=unsettled, **ends, **count, **fields))


def suspended() -> bytes:
    """A detach that only ends the link for now."""
    return frames.frame(Detach(handle=0, closed=False))


def again(number: int, body: bytes = b"x", **fields: Any) -> bytes:
    """A resumed delivery."""
    head = Transfer(handle=0, delivery_id=number, delivery_tag=b"t", message_format=0, resume=True, **fields)
    return frames.frame(head, build_message(body) if body else b"")


def got(said: bytes) -> list[tuple[bytes, int]]:
    """Last bytes of bodies, and whether they were resumed."""
    came = [each for each in frames.heard(said) if isinstance(each, tuple)]
    return [(payload[-1:], bool(head.resume)) for head, payload in came]


def accepted(said: bytes) -> list[tuple[int, int | None]]:
    found = frames.of_kind(said, Disposition)
    assert all(isinstance(each.state, Accepted) for each in found)
    return [(each.first, each.last) for each in found]


@pytest.mark.parametrize("unsettled", UNSETTLED)
@pytest.mark.parametrize("role", [False, True])
def test_the_answer_knows_no_unsettled_deliveries(unsettled: dict[bytes, Any], role: bool) -> None:
    stage = Stage()
    conn = stage.accept()
    stage.talk(conn, GO + attached(role, None) + suspended())
    said = stage.talk(conn, attached(role, unsettled, incomplete_unsettled=True))
    (answer,) = frames.of_kind(said, Attach)
    assert (answer.role, answer.unsettled, answer.incomplete_unsettled) == (not role, None, False)
    assert (answer.source.address, answer.target.address) == ("orders", "orders")
    assert frames.errors(said) == []


def test_what_a_receiver_had_is_delivered_anew() -> None:
    stage = Stage()
    stage.admin("send", address="orders", messages=[{"body": "a"}])
    conn = stage.accept()
    assert got(stage.talk(conn, GO + attached(True, None) + frames.flow(0, 10))) == [(b"a", False)]
    stage.talk(conn, suspended())
    queue = stage.broker.store.queues["orders"]
    assert (queue.ready_count, queue.delivering_count) == (1, 0)
    said = stage.talk(conn, attached(True, {b"\0\0\0\0": None}) + frames.flow(0, 10))
    assert got(said) == [(b"a", False)]
    # The delivery of before is nobody's: only the new one can be settled.
    stage.talk(conn, frames.disposition(0, 0, Accepted()))
    assert queue.message_count == 1
    stage.talk(conn, frames.disposition(1, 1, Accepted()))
    assert queue.message_count == 0


def test_what_a_sender_does_not_know_the_outcome_of_is_sent_again_as_new() -> None:
    stage = Stage()
    stage.is_disk_held = True
    conn = stage.accept()
    said = stage.talk(conn, GO + attached(False, None) + frames.transfer(0, b"a", durable=True) + suspended())
    assert accepted(said) == []
    stage.is_disk_held = False
    said = stage.talk(conn, attached(False, {b"\0\0\0\0": None}) + frames.transfer(1, b"a", durable=True))
    assert [first for first, _ in accepted(said)] == [1]
    assert stage.broker.store.queues["orders"].message_count == 2


@pytest.mark.parametrize("is_one_read", [True, False])
@pytest.mark.parametrize(
    "resumed",
    [again(0), again(0, settled=True), again(0, b"", state=Accepted(), settled=True), again(0, state=Accepted()),
     again(0, more=True) + frames.frame(Transfer(handle=0, delivery_id=0), b"rest"), again(0, b"", aborted=True)],
    ids=["whole", "settled", "only a state", "with a state", "in pieces", "aborted"],
)  # fmt: skip
def test_resumed_deliveries_that_nobody_knows_are_passed_over(resumed: bytes, is_one_read: bool) -> None:
    stage = Stage(options_with(limits={"link_credit": 3 if is_one_read else 2}))
    conn = stage.accept()
    stage.talk(conn, GO + attached(False, {b"t": None}))
    new = b"".join(frames.transfer(number, b"new") for number in (1, 2))
    said = b"".join(stage.talk(conn, part) for part in ([resumed + new] if is_one_read else [resumed, new]))
    # Each used one credit, and each made room for the next.
    assert frames.errors(said) == []
    assert accepted(said)[0][0] == 1
    assert stage.broker.store.queues["orders"].message_count == 2
    assert stage.broker.peers[conn].connection.partial_bytes == 0


def test_a_new_delivery_may_have_a_state_of_its_sender() -> None:
    stage = Stage()
    conn = stage.accept()
    said = stage.talk(conn, GO + frames.sender() + frames.transfer(0, state=Received(0, 0)))
    assert (frames.errors(said), len(accepted(said))) == ([], 1)
    assert stage.broker.store.queues["orders"].message_count == 1
