"""What one step hands out and takes back, where there is much of it: others have their messages in between.

Pieces are counted and bytecodes, as in test_flood_work.py: a message that makes no run with its neighbours is a piece.
"""

from __future__ import annotations

from mqbroker.core.dispatch import PIECES_MAX
from mqbroker.node import inputs as given
from mqbroker.node.broker import DISPATCH_BESIDE_MAX, DISPATCH_MAX, PIECE_COST
from mqbroker.wire.performatives import Transfer

from tests.support import frames
from tests.support.stage import Stage
from tests.unit.node.test_bystander_work import Site

FIRST = 1000  # ids of which all are spelt alike
UNLIKE = 3000
GO = frames.anonymous() + frames.opened() + frames.begun(incoming_window=1 << 30)
PIECE_BYTECODES = 1500  # at most, for a message that makes no run


def fill(stage: Stage, count: int, *, durable: bool = False) -> None:
    """So many messages in `orders`, of which no two make a run."""
    sender = stage.accept()
    stage.talk(sender, GO + frames.sender("orders"))
    for start in range(0, count, 100):
        numbers = range(FIRST + start, FIRST + min(start + 100, count))
        stage.talk(sender, b"".join(frames.transfer(2 * number, b"x", durable=durable) for number in numbers))
    stage.drop_bare(sender)
    assert stage.broker.store.queues["orders"].ready_count == count


def consumer(stage: Stage) -> int:
    """Who has no credit so far."""
    conn = stage.accept()
    stage.talk(conn, GO + frames.receiver("orders"))
    stage.wait(1000)
    return conn


def transfers_in(data: bytes) -> int:
    return sum(isinstance(each, tuple) and isinstance(each[0], Transfer) for each in frames.heard(data))


def test_a_step_hands_out_so_many_pieces_and_all_go_out_in_the_end() -> None:
    stage = Stage()
    fill(stage, UNLIKE)
    conn = consumer(stage)
    stage.give(given.Received(conn, frames.flow(1, UNLIKE, window=1 << 30)))
    went, total = [], 0
    while total < UNLIKE:
        before = len(stage.sent[conn])
        assert stage.turn().more is (total + went[-1] < UNLIKE if went else True)
        went.append(transfers_in(bytes(stage.sent[conn][before:])))
        total += went[-1]
        assert 0 < went[-1] <= DISPATCH_MAX // PIECE_COST + PIECES_MAX
    assert total == UNLIKE


def test_a_bystander_waits_for_a_few_of_what_another_queue_hands_out() -> None:
    site = Site()
    alone = site.work_of_message(is_answered=True)
    fill(site.stage, UNLIKE)
    conn = consumer(site.stage)
    site.stage.give(given.Received(conn, frames.flow(1, UNLIKE, window=1 << 30)))
    site.stage.turn()
    site.work_of_message(is_answered=True)  # until then nobody else had a message
    few = DISPATCH_BESIDE_MAX // PIECE_COST + PIECES_MAX
    for _ in range(6):
        assert site.work_of_message(is_answered=True) <= alone + 2 * few * PIECE_BYTECODES
    assert site.stage.broker.store.queues["orders"].ready_count > UNLIKE // 2, "most of it waits"
    site.stage.run()
    assert site.stage.broker.store.queues["orders"].delivering_count == UNLIKE
