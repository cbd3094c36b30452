"""What one step hands out and takes back, where there is much of it: others have their messages in between.

Pieces are counted and bytecodes, as in test_flood_work.py: a message that makes no run with its neighbours is a piece.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from mqbroker.amqp.settling import MOVED
from mqbroker.core.queue.dispatch import PIECES_MAX
from mqbroker.node.broker.broker import DISPATCH_BESIDE_MAX, DISPATCH_MAX, PIECE_COST
from mqbroker.node.values import inputs as given
from mqbroker.wire.performatives import Accepted, Disposition, Flow, Modified, Rejected, Released, Transfer

from tests.support import frames
from tests.support.bytecodes import Bytecodes
from tests.support.stage import Stage, options_with
from tests.unit.core.address.test_diverts import divert
from tests.unit.node.test_bystander_work import WARM, Site
from tests.unit.node.test_flood_work import TURN_BYTECODES

FIRST = 1000  # ids of which all are spelt alike
UNLIKE = 3000
GO = frames.anonymous() + frames.opened() + frames.begun(incoming_window=1 << 30)
PIECE_BYTECODES = 1500  # at most, for a message that makes no run


def fill(stage: Stage, count: int, *, durable: bool = False, step: int = 2) -> None:
    """So many messages in `orders`. With a step other than 1 no two of them make a run."""
    sender = stage.accept()
    stage.talk(sender, GO + frames.sender("orders"))
    for start in range(0, count, 100):
        numbers = range(FIRST + start, FIRST + min(start + 100, count))
        stage.talk(sender, b"".join(frames.transfer(step * number, b"x", durable=durable) for number in numbers))
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
    stage.give(given.BytesReceived(conn, frames.flow(1, UNLIKE, window=1 << 30)))
    went, total = [], 0
    while total < UNLIKE:
        before = len(stage.sent[conn])
        assert stage.turn().more is (total + went[-1] < UNLIKE if went else True)
        went.append(transfers_in(bytes(stage.sent[conn][before:])))
        total += went[-1]
        assert 0 < went[-1] <= DISPATCH_MAX // PIECE_COST + PIECES_MAX
    assert total == UNLIKE


@pytest.mark.slow
def test_a_bystander_waits_for_a_few_of_what_another_queue_hands_out() -> None:
    site = Site()
    alone = site.work_of_message(is_answered=True)
    fill(site.stage, UNLIKE)
    conn = consumer(site.stage)
    site.stage.give(given.BytesReceived(conn, frames.flow(1, UNLIKE, window=1 << 30)))
    site.stage.turn()
    site.work_of_message(is_answered=True)  # until then nobody else had a message
    few = DISPATCH_BESIDE_MAX // PIECE_COST + PIECES_MAX
    for _ in range(6):
        assert site.work_of_message(is_answered=True) <= alone + 2 * few * PIECE_BYTECODES
    assert site.stage.broker.store.queues["orders"].ready_count > UNLIKE // 2, "most of it waits"
    site.stage.run()
    assert site.stage.broker.store.queues["orders"].delivering_count == UNLIKE


MANY = 600  # deliveries that are not settled
LAST = MANY - 1
DEAD = {"#": {"dead_letter_address": "dead", "max_delivery_attempts": 1}}
FAILED = Modified(delivery_failed=True)
# What is said of all of them at once, and how many are in `orders` and in `dead` then.
SAID: dict[str, tuple[bytes, tuple[int, int]]] = {
    "accepted": (frames.disposition(0, LAST, Accepted()), (0, 0)),
    "settled without an outcome": (frames.disposition(0, LAST, None), (0, MANY)),
    "accepted, and the end of the connection": (frames.disposition(0, LAST, Accepted()) + frames.close(), (0, 0)),
    "released": (frames.disposition(0, LAST, Released()), (MANY, 0)),
    "not for this consumer": (frames.disposition(0, LAST, Modified(undeliverable_here=True)), (MANY, 0)),
    "failed once too often": (frames.disposition(0, LAST, FAILED), (0, MANY)),
    "rejected": (frames.disposition(0, LAST, Rejected()), (0, MANY)),
    "the end of the link": (frames.detach(1), (MANY, 0)),
    "the end of the session": (frames.end(), (MANY, 0)),
    "the end of the connection": (frames.close(), (MANY, 0)),
    "nothing any more": (b"", (0, MANY)),
}


class Loaded(Site):
    """A node of which a consumer has very many deliveries that are not settled, and a bystander beside it."""

    def __init__(self, *, durable: bool = False, run: int = 1, **tables: Any) -> None:
        self.stage = Stage(options_with(address_settings=DEAD, **tables))
        self.bystander = self.stage.accept()
        self.stage.talk(self.bystander, GO + frames.sender("others") + frames.receiver("others", credit=1000))
        self.count = 0
        for _ in range(WARM):
            self.work_of_message()
        fill(self.stage, MANY, durable=durable, step=1 if run > 1 else 2)
        self.conn = consumer(self.stage)
        self.stage.talk(self.conn, frames.flow(1, MANY, window=1 << 30))
        self.stage.wait(1000)
        assert self.queues == {"orders": MANY}

    @property
    def queues(self) -> dict[str, int]:
        """Messages of each, but for the bystander's."""
        queues = self.stage.broker.store.queues
        return {name: queue.message_count for name, queue in queues.items() if name != "others"}

    def said(self, data: bytes) -> given.Input:
        """The consumer says this; nothing: it is gone."""
        return given.BytesReceived(self.conn, data) if data else given.Closed(self.conn, "reset")


@pytest.mark.slow
@pytest.mark.parametrize("run", [1, 100])
@pytest.mark.parametrize("said", SAID)
def test_an_outcome_of_very_many_deliveries_costs_a_bystander_a_turn_of_it(said: str, run: int) -> None:
    data, (here, dead) = SAID[said]
    site = Loaded(run=run)
    alone = site.work_of_message(is_answered=True)
    steps = [site.work_of_message(site.said(data), is_answered=True)]
    while site.stage.broker.turns.is_due:
        steps.append(site.work_of_message(is_answered=True))
    assert max(steps[1:], default=0) <= alone + 2 * TURN_BYTECODES
    assert steps[0] <= alone + 6 * TURN_BYTECODES, "who is gone has a bound of its own"
    assert site.queues == {"orders": here} | ({"dead": dead} if dead else {})
    assert site.stage.broker.store.queues["orders"].delivering_count == 0
    if run == 1:
        assert len(steps) > 3, "it was divided"


@pytest.mark.parametrize("said", ["rejected", "failed once too often", "nothing any more", "what ends its session"])
def test_few_die_in_a_step_where_diverts_make_many_copies_of_each(said: str) -> None:
    site = Loaded()
    ways = [divert(f"{one}-{other}", one, other) for one, other in permutations(("dead", "b", "c"), 2)]
    site.stage.give(given.OptionsChanged(replace(site.stage.options, diverts=tuple(ways))))
    site.stage.run()
    for name in ("dead", "b", "c"):
        site.stage.admin("queue-create", name=name)
    diverts, most, is_due = site.stage.broker.store.diverts, 0, True
    site.stage.give(site.said(SAID[said][0] if said in SAID else frames.flow(9, 1)))
    while is_due:
        before = diverts.followed_total
        is_due = site.stage.turn().more
        most = max(most, diverts.followed_total - before)
    assert 0 < most <= 2 * MOVED.messages_max * diverts.copies_of("dead")
    assert diverts.followed_total >= MANY * diverts.copies_of("dead")


@pytest.mark.parametrize("by", ["queues", "wildcards behind a divert"])
@pytest.mark.parametrize("said", ["rejected", "failed once too often", "nothing any more", "what ends its session"])
def test_few_die_in_a_step_where_very_many_queues_get_each(said: str, by: str) -> None:
    site = Loaded()
    if by != "queues":
        options = replace(site.stage.options, diverts=(divert("d", "dead", "b"),))
        site.stage.give(given.OptionsChanged(options))
        site.stage.run()
    site.stage.admin("queue-create", name="dead")
    for number in range(400 if by == "queues" else 60):
        address = "dead" if by == "queues" else "b" + ".#" * (number + 1)
        site.stage.admin("queue-create", name=f"s{number}", address=address, routing_type="multicast")
    queue, most, is_due = site.stage.broker.store.queues["s0"], 0, True
    site.stage.give(site.said(SAID[said][0] if said in SAID else frames.flow(9, 1)))
    while is_due:
        before = queue.message_count
        is_due = site.stage.turn().more
        most = max(most, queue.message_count - before)
    assert 0 < most <= 2 * MOVED.messages_max
    assert queue.message_count == MANY


@pytest.mark.parametrize("outcome", [Rejected(), FAILED])
def test_a_crash_in_the_middle_finds_each_message_here_or_there(outcome: Rejected | Modified) -> None:
    site = Loaded(durable=True)
    site.stage.give(site.said(frames.disposition(0, LAST, outcome)))
    for _ in range(5):
        site.stage.turn()
    site.stage.sync()
    before = site.queues
    assert 0 < before["dead"] < MANY
    site.stage.crash()
    site.stage.start()
    assert site.queues == before
    assert sum(before.values()) == MANY


def test_who_accepted_and_was_lost_has_accepted() -> None:
    site = Loaded()
    site.stage.give(site.said(frames.disposition(0, LAST, Accepted())))
    site.stage.turn()
    assert site.queues["orders"] > MANY // 2
    site.stage.give(site.said(b""))
    site.stage.run()
    assert site.queues == {"orders": 0}
    assert site.conn not in site.stage.broker.peers


def test_very_many_that_are_rejected_are_told_of_once() -> None:
    site = Loaded()
    site.stage.talk(site.conn, frames.disposition(0, LAST, Rejected()))
    told = [notice.fields["count"] for notice in site.stage.notices if notice.event == "message-rejected"]
    assert told == [MANY]
    assert site.stage.broker.counters.rejected == MANY


def test_our_own_settlement_covers_all_that_the_peer_told_an_outcome_of() -> None:
    site = Loaded()
    said = site.stage.talk(site.conn, frames.disposition(0, LAST, Accepted(), settled=False))
    settled = [range(each.first, (each.last or each.first) + 1) for each in frames.of_kind(said, Disposition)]
    assert len(settled) > 1
    assert [number for numbers in settled for number in numbers] == list(range(MANY))


def test_what_comes_behind_an_outcome_waits_for_it() -> None:
    site = Loaded()
    site.stage.give(site.said(frames.disposition(0, LAST, Released()) + frames.flow(None, 0, echo=True)))
    before, has_more = len(site.stage.sent[site.conn]), True
    while not frames.of_kind(bytes(site.stage.sent[site.conn][before:]), Flow):
        assert has_more
        has_more = site.stage.turn().more
    assert site.stage.broker.store.queues["orders"].delivering_count == 0


def test_ids_of_which_nothing_is_known_cost_nothing() -> None:
    site = Loaded()
    site.stage.talk(site.conn, frames.disposition(1, LAST - 1, Accepted()))
    work = Bytecodes()
    site.stage.give(site.said(frames.disposition(1, LAST - 1, Rejected()) * 10))
    work.of(site.stage.turn)
    assert work.count < 50_000
    site.stage.run()
    assert site.queues == {"orders": 2}
