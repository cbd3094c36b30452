"""The end of a connection or session with very many links: these are handed back by turns, and nobody is confused."""

from __future__ import annotations

import pytest
from mqbroker.amqp import frame_costs
from mqbroker.node.amqp.peers.turns import ALONE_WORK, BESIDE_WORK, TURN_WORK
from mqbroker.node.values import inputs as given
from mqbroker.wire.performatives import Attach, End, Source, Target, Transfer
from mqbroker.wire.types import Symbol

from tests.support import frames
from tests.support.stage import Stage, options_with
from tests.unit.node.test_bystander_work import GO, Site
from tests.unit.node.test_flood_work import TURN_BYTECODES

COUNT = 900  # links of a session
NO_MORE_BYTECODES = 40  # for a link to be none any more, which all are at once
ENDS = {
    "close": frames.close(),
    "end": frames.end(),
    "lost": b"",
}


def temporary(handle: int) -> bytes:
    """An attach that makes a temporary queue."""
    return frames.frame(
        Attach(name=f"t{handle}", handle=handle, role=True, source=Source(dynamic=True), target=Target())
    )


def durable(number: int) -> bytes:
    """An attach of a durable subscription, and credit for it."""
    source = Source(address="news", durable=2, expiry_policy=Symbol("never"), capabilities=(Symbol("topic"),))
    attach = Attach(name=f"s{number}", handle=number, role=True, source=source, target=Target())
    return frames.frame(attach) + frames.flow(number, 10)


def crowd(stage: Stage, links: bytes, container: str = "crowd") -> int:
    """A connection with these links."""
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened(container_id=container) + frames.begun())
    assert not frames.errors(stage.talk(conn, links))
    stage.wait(1000)
    return conn


def begin_end(stage: Stage, conn: int, how: str) -> None:
    """The next step begins to end it."""
    stage.give(given.BytesReceived(conn, ENDS[how]) if ENDS[how] else given.Closed(conn, "reset"))


@pytest.mark.slow
@pytest.mark.parametrize("how", ENDS)
def test_temporary_queues_go_a_few_in_a_step_in_the_order_in_which_they_came(how: str) -> None:
    stage = Stage()
    conn = crowd(stage, b"".join(map(temporary, range(COUNT))))
    names = list(stage.broker.store.queues)
    assert len(names) == COUNT
    begin_end(stage, conn, how)
    left = COUNT
    while True:
        batch = stage.turn()
        queues = list(stage.broker.store.queues)
        assert queues == names[COUNT - len(queues) :]
        assert left - len(queues) <= (ALONE_WORK + TURN_WORK) // frame_costs.PARTED_LINK + 1
        left = len(queues)
        if not batch.more:
            break
    stage.run()
    assert not left
    assert not stage.broker.temporary
    assert not stage.broker.turns.parting
    assert (conn in stage.broker.peers) is (how == "end")
    if how == "end":
        assert len(frames.of_kind(bytes(stage.sent[conn]), End)) == 1
        answer = stage.talk(conn, frames.begun() + temporary(0))
        assert not frames.errors(answer)
        assert len(stage.broker.store.queues) == 1


@pytest.mark.slow
@pytest.mark.parametrize("how", ENDS)
def test_a_bystander_waits_for_a_few_of_them(how: str) -> None:
    site = Site()
    alone = site.work_of_message(is_answered=True)
    conn = crowd(site.stage, b"".join(map(temporary, range(COUNT))))
    begin_end(site.stage, conn, how)
    assert site.work_of_message(is_answered=True) <= alone + 2 * TURN_BYTECODES + NO_MORE_BYTECODES * COUNT
    messages = 0
    while len(site.stage.broker.store.queues) > 1:
        assert site.work_of_message(is_answered=True) <= alone + 2 * TURN_BYTECODES
        messages += 1
    assert messages >= COUNT * frame_costs.PARTED_LINK // (4 * (BESIDE_WORK + TURN_WORK))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["close", "lost"])
def test_who_wants_a_temporary_queue_that_is_going_is_told_that_it_is_gone(how: str) -> None:
    stage = Stage()
    conn = crowd(stage, b"".join(map(temporary, range(COUNT))))
    name = list(stage.broker.store.queues)[-1]
    other = stage.accept()
    stage.talk(other, GO)
    begin_end(stage, conn, how)
    stage.turn()
    assert name in stage.broker.store.queues
    stage.give(given.BytesReceived(other, frames.sender(name) + frames.receiver(name)))
    stage.turn()
    assert name in stage.broker.store.queues
    stage.step()
    conditions = [condition for _, condition in frames.errors(bytes(stage.sent[other]))]
    assert conditions == ["amqp:not-found", "amqp:not-allowed"]
    assert not stage.broker.store.queues


@pytest.mark.slow
@pytest.mark.parametrize("how", ["close", "lost"])
def test_who_is_back_at_once_has_what_it_had(how: str) -> None:
    stage = Stage()
    conn = crowd(stage, b"".join(map(durable, range(COUNT))))
    sender = crowd(stage, frames.sender("news"), "sender")
    stage.talk(sender, frames.transfer(1, b"for everybody"))
    back = stage.accept()
    stage.talk(back, frames.anonymous() + frames.opened(container_id="crowd") + frames.begun())
    begin_end(stage, conn, how)
    stage.turn()
    last = COUNT - 1
    held = stage.broker.store.queues[f"crowd.s{last}"]
    assert (len(held.consumers), held.delivering_count) == (1, 1), "not handed back so far"
    stage.give(given.BytesReceived(back, durable(last)))
    stage.turn()
    assert stage.broker.turns.parting
    stage.run()
    said = bytes(stage.sent[back])
    assert not frames.errors(said)
    (delivered,) = [each for each in frames.heard(said) if isinstance(each, tuple) and isinstance(each[0], Transfer)]
    assert delivered[1].endswith(b"for everybody")
    assert (len(held.consumers), held.delivering_count) == (1, 1)


@pytest.mark.slow
def test_a_queue_with_room_for_one_consumer_has_it_when_the_last_one_is_going() -> None:
    stage = Stage(options_with(address_settings={"#": {"default_max_consumers": 1}}))
    own = b"".join(frames.receiver(f"q{handle}", handle=handle) for handle in range(COUNT))
    conn = crowd(stage, own)
    other = stage.accept()
    stage.talk(other, GO)
    begin_end(stage, conn, "lost")
    stage.turn()
    assert stage.broker.turns.parting
    stage.give(given.BytesReceived(other, frames.receiver(f"q{COUNT - 1}", handle=3)))
    stage.step()
    assert not frames.errors(bytes(stage.sent[other]))


@pytest.mark.slow
def test_what_links_that_are_going_hold_survives_a_crash() -> None:
    stage = Stage()
    own = b"".join(frames.receiver("orders", handle=handle, credit=1) for handle in range(COUNT))
    conn = crowd(stage, own + b"".join(map(temporary, range(COUNT, COUNT + 100))))
    sender = crowd(stage, frames.sender("orders"), "sender")
    stage.talk(sender, b"".join(frames.transfer(each, b"%d" % each, durable=True) for each in range(COUNT)))
    assert stage.broker.store.queues["orders"].delivering_count == COUNT
    begin_end(stage, conn, "lost")
    stage.turn()
    assert 0 < stage.broker.store.queues["orders"].delivering_count < COUNT
    stage.crash()
    stage.start()
    assert list(stage.broker.store.queues) == ["orders"]
    assert stage.broker.store.queues["orders"].message_count == COUNT


def test_a_broker_that_stops_waits_for_none_of_them() -> None:
    stage = Stage()
    conn = crowd(stage, b"".join(map(temporary, range(COUNT))))
    begin_end(stage, conn, "close")
    stage.turn()
    stage.stop()
    assert stage.halted == 0
