"""Brokers that send floods: what one step works for them is bounded, and nothing is lost or put in another order.

Work is counted in bytecodes, as in tests/unit/node/test_flood_work.py, of the steps that take a flood in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mqbroker.amqp import frame_costs
from mqbroker.amqp.events import Incoming
from mqbroker.amqp.states import ATTACHED
from mqbroker.base.time import At
from mqbroker.client import effects, inputs
from mqbroker.client.intake import TURN_WORK, UNHEARD_BYTES_MAX, UNREAD_BYTES_MAX
from mqbroker.client.message import Message, encode_message
from mqbroker.client.options import SenderTerms
from mqbroker.wire.frames import EMPTY_FRAME
from mqbroker.wire.performatives import (
    Accepted,
    Attach,
    Close,
    Detach,
    Disposition,
    Error,
    Flow,
    Source,
    Target,
    Transfer,
)
from mqbroker.wire.run import single
from mqbroker.wire.types import Symbol

from tests.support import frames
from tests.support.bytecodes import Bytecodes
from tests.support.client_stage import A, App
from tests.support.stage import Stage, options_with
from tests.unit.client.test_odd_brokers import Odd, with_receiver

UNIT_BYTECODES = 45
DEARER = 2  # some things cost so much more than a unit says
TURN_BYTECODES = (TURN_WORK + frame_costs.GENERAL[Attach]) * UNIT_BYTECODES * DEARER
STEPS_MAX = 100_000
FIRST = 1 << 16


def flow(handle: int | None, **fields: Any) -> bytes:
    link = {} if handle is None else {"delivery_count": 0, "link_credit": 10}
    return frames.frame(Flow(next_incoming_id=0, incoming_window=2048, next_outgoing_id=0, outgoing_window=2048,
                             handle=handle, **link, **fields))  # fmt: skip


def transfer(number: int, payload: bytes = b"x", **fields: Any) -> bytes:
    return frames.frame(Transfer(handle=0, delivery_id=number, delivery_tag=b"t", message_format=0, **fields), payload)


def attached(number: int) -> bytes:
    name = f"of-theirs-{number}"
    return frames.frame(Attach(name=name, handle=1, role=False, source=Source(), target=Target(),
                               initial_delivery_count=0)) + frames.frame(Detach(handle=1, closed=True))  # fmt: skip


FLOODS: dict[str, Callable[[int], bytes]] = {
    "empty frames": lambda _: EMPTY_FRAME * 10,
    "flows of the session with echo": lambda _: flow(None, echo=True),
    "flows of the link with echo": lambda _: flow(0, echo=True),
    "messages without a section": lambda n: transfer(FIRST + 2 * n),
    "tiny pieces of a message": lambda n: transfer(FIRST, more=True) if not n else frames.frame(
        Transfer(handle=0, more=True), b"x"),
    "deliveries that come to nothing": lambda n: transfer(FIRST + n, b"", more=True) + frames.frame(
        Transfer(handle=0, aborted=True)),
    "settlements of what was not sent": lambda n: frames.frame(
        Disposition(role=False, first=n, last=n, settled=True, state=Accepted())),
    "links of the broker's making": attached,
}  # fmt: skip


def steps_of(odd: Odd, *given: inputs.Input) -> list[effects.Batch]:
    """Steps until none wants another, without a word of the other end."""
    batches = [odd.machine.step(list(given), At(1, 1))]
    while batches[-1].more:
        assert len(batches) < STEPS_MAX
        batches.append(odd.machine.step([], At(1, 1)))
    odd.effects += [each for batch in batches for each in batch.effects]
    return batches


def flooded(odd: Odd, data: bytes) -> list[int]:
    """Bytecodes of each step that takes it in."""
    counter, given, spent = Bytecodes(), [inputs.Received(1, data)], []
    while True:
        before = counter.count
        batch = counter.of(lambda given=given: odd.machine.step(given, At(1, 1)))  # type: ignore[misc]  # of this round
        spent.append(counter.count - before)
        odd.effects += batch.effects
        given = []
        if not batch.more:
            return spent
        assert len(spent) < STEPS_MAX


@pytest.mark.slow
@pytest.mark.parametrize("kind", FLOODS)
def test_a_step_works_for_a_flood_within_its_bound(kind: str) -> None:
    odd, _ = with_receiver(credit=1 << 20)
    spent = flooded(odd, b"".join(map(FLOODS[kind], range(120))))
    assert len(spent) > 1
    assert max(spent) <= TURN_BYTECODES


def test_lists_of_other_brokers_are_read_by_turns() -> None:
    """A list is looked through as a whole, so its bytes are work."""
    stage = Stage(options_with())
    app = App({A: stage})
    app.connect()
    feed = app.machine._topology
    attach = Attach(name="feed", handle=0, role=True, source=Source(address="feed"), target=Target(address="feed"))
    feed_link = app.machine.session.attach_receiver(attach)
    feed_link.end, feed_link.state = feed, ATTACHED
    before = app.machine._connection.allowance = TURN_WORK  # type: ignore[union-attr]  # it stands
    payload = encode_message(Message([None] * 20_000))
    feed.incoming(Incoming(feed_link, single(payload), 0, True))
    assert before - app.machine._connection.allowance >= len(payload) // 4  # type: ignore[union-attr]  # as above


def test_many_reads_in_one_turn_are_no_more_than_one() -> None:
    odd, _ = with_receiver()
    data = flow(None, echo=True) * 10
    counter = Bytecodes()
    counter.of(lambda: odd.machine.step([inputs.Received(1, data)] * 40, At(1, 1)))
    assert counter.count <= TURN_BYTECODES


def test_what_waits_stops_the_reading_until_half_of_it_is_taken_in() -> None:
    odd, _ = with_receiver()
    batches = steps_of(odd, inputs.Received(1, EMPTY_FRAME * (2 * UNREAD_BYTES_MAX // len(EMPTY_FRAME))))
    told = [each for each in odd.effects if isinstance(each, effects.PauseReading)]
    assert told == [effects.PauseReading(1, True), effects.PauseReading(1, False)]
    assert told[0] in batches[0].effects
    assert len(batches) > 100


def test_a_frame_that_is_larger_than_what_may_wait_is_read_to_its_end() -> None:
    odd, _ = with_receiver()
    odd.machine.step([inputs.Received(1, (UNREAD_BYTES_MAX * 2).to_bytes(4, "big") + bytes(UNREAD_BYTES_MAX))],
                     At(1, 1))  # fmt: skip
    assert not odd.of(effects.PauseReading)


@pytest.mark.slow
def test_who_does_not_read_is_answered_up_to_a_bound() -> None:
    odd, _ = with_receiver()
    asked = flow(None, echo=True)
    odd.machine.step([inputs.Blocked(1, True)], At(1, 1))
    for _ in range(60):
        steps_of(odd, inputs.Received(1, asked * 1000))
    written = sum(len(chunk) for each in odd.of(effects.Write) for chunk in each.chunks)
    assert UNHEARD_BYTES_MAX < written < UNHEARD_BYTES_MAX + (128 << 10)
    assert odd.of(effects.PauseReading) == [effects.PauseReading(1, True)]
    steps_of(odd, inputs.Blocked(1, False))
    assert odd.of(effects.PauseReading)[-1] == effects.PauseReading(1, False)
    assert sum(len(chunk) for each in odd.of(effects.Write) for chunk in each.chunks) > 60_000 * 20


def test_a_transport_that_ends_is_told_behind_all_that_came_on_it() -> None:
    """What was sent before a close, and why it was closed, count although the transport is gone meanwhile."""
    odd, _ = with_receiver(credit=1000, settled=True)
    data = b"".join(frames.transfer(FIRST + 2 * n, settled=True) for n in range(500))
    close = frames.frame(Close(error=Error(Symbol("amqp:connection:forced"), "maintenance")))
    batches = steps_of(odd, inputs.Received(1, data + close), inputs.Lost(1, "reset"))
    assert len(batches) > 3
    assert sum(each.run.count for each in odd.of(effects.Arrived)) == 500
    told = "".join(each.text for each in odd.of(effects.Told))
    assert "maintenance" in told
    assert "reset" not in told
    late = [each for batch in batches[1:] for each in batch.effects if isinstance(each, effects.Write)]
    assert late == [], "nothing is written to a transport that is gone"


def test_what_was_left_on_a_transport_that_ends_without_a_close_is_taken_in() -> None:
    odd, _ = with_receiver(credit=1000)
    data = b"".join(frames.transfer(FIRST + 2 * n) for n in range(500))
    steps_of(odd, inputs.Received(1, data), inputs.Lost(1, "reset"))
    assert sum(each.run.count for each in odd.of(effects.Arrived)) == 500
    assert odd.of(effects.Interrupted)
    assert odd.effects.index(odd.of(effects.Interrupted)[0]) > odd.effects.index(odd.of(effects.Arrived)[-1])


def test_a_session_with_links_is_over_at_once_also_where_a_turn_ends() -> None:
    odd = Odd()
    for handle in range(1, 4):
        odd.step(inputs.OpenSender(handle, SenderTerms(address="q"), handle))
    batches = steps_of(odd, inputs.Received(1, flow(None) * 67 + frames.end() + EMPTY_FRAME * 5000))
    over = next(batch for batch in batches if any(isinstance(each, effects.Gone) for each in batch.effects))
    assert [each.handle for each in over.effects if isinstance(each, effects.Gone)] == [1, 2, 3]
