"""What a bystander's message waits behind while others send floods of legal frames: one turn of one of them.

Counted in bytecodes, as in test_bystander_work.py, from its read to the step that accepts and delivers it. The flood is
under way already, and more of it comes in the same turn before the message: this lasts as long as the flood does.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from mqbroker.amqp import frame_costs
from mqbroker.node.amqp.peers.turns import BESIDE_WORK, TURN_WORK, UNHEARD_BYTES_MAX, UNREAD_BYTES_MAX
from mqbroker.node.values import inputs as given
from mqbroker.wire import composites
from mqbroker.wire.frames import EMPTY_FRAME
from mqbroker.wire.performatives import Attach, Disposition

from tests.support import frames
from tests.support.floods import CONNECTIONS, CONVERSATION, FLOODED, FLOODS, Flood
from tests.support.stage import Stage, options_with
from tests.unit.node.test_bystander_work import GO, STEADY, Site

ONE_READ_BYTES = 16 << 10
UNIT_BYTECODES = (
    45  # what a unit of amqp/frame_costs.py stands for; some things are cheaper, and some dearer by so much
)
DEARER = 2
DEAREST = Attach  # of the things that are not divided; one of them may begin with the last unit of a turn
TURN_BYTECODES = (BESIDE_WORK + frame_costs.GENERAL[DEAREST]) * UNIT_BYTECODES * DEARER
AT_ONCE = 50
FIRST_FREE = 100  # handle that no flood has
PAIRS = [
    Flood((), lambda at, one=one, other=other: FLOODS[one].piece(at) + FLOODS[other].piece(at),
          FLOODS[one].links + FLOODS[other].links)
    for one, other in combinations(FLOODS, 2) if not (FLOODS[one].links and FLOODS[other].links)
]  # fmt: skip


@pytest.fixture(scope="module")
def site() -> Site:
    """One node for all cases."""
    return Site()


class Flooding:
    """Connections that have been at it for a while."""

    def __init__(self, site: Site, flood: Flood, count: int, *, is_reading: bool = True) -> None:
        self.site, self.flood = site, flood
        self.at = ONE_READ_BYTES // len(flood.piece(0)) + 1
        self.conns = [site.standing(GO + flood.links) for _ in range(count)]
        data = flood.bytes_of(self.at)
        for conn in self.conns:
            if not is_reading:
                site.stage.give(given.WriteBlocked(conn, True))
            site.stage.give(given.BytesReceived(conn, data))
        site.stage.turn()
        site.stage.sync()
        site.stage.turn()

    def more(self) -> given.BytesReceived:
        """The next piece of the first of them."""
        piece = self.flood.piece(self.at)
        self.at += 1
        return given.BytesReceived(self.conns[0], piece)

    def end(self) -> None:
        """They are gone, and what they left is done."""
        for conn in self.conns:
            self.site.stage.give(given.Closed(conn, "gone"))
        self.site.stage.run()
        self.site.stage.wait(1000)


def most_work(site: Site, flooding: Flooding, messages: int) -> int:
    """Bytecodes that the slowest of the bystander's messages waited for, its own among them."""
    return max(site.work_of_message(flooding.more(), is_answered=True) for _ in range(messages))


def test_no_performative_is_forgotten() -> None:
    bodies = {codec.make for code, codec in composites._BY_CODE.items() if 0x10 <= code <= 0x18}
    assert {each for flood in (FLOODS | CONNECTIONS).values() for each in flood.of} == bodies


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, AT_ONCE])
@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_costs_a_bystander_one_turn_of_it(site: Site, kind: str, count: int) -> None:
    alone = site.work_of_message(is_answered=True)
    for is_reading in (True, False):
        flooding = Flooding(site, FLOODS[kind], count, is_reading=is_reading)
        assert most_work(site, flooding, 6) <= alone + TURN_BYTECODES
        flooding.end()
    assert site.work_of_message() < (1 + STEADY) * site.work_of_message(), "nothing of it stays"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["declare, discharge", "transactions of messages"])
def test_how_many_links_stand_is_nothing_to_the_end_of_a_transaction(kind: str) -> None:
    flood, works = FLOODS[kind], []
    for count in (10, 900):
        site = Site()
        links = b"".join(frames.sender("more", handle=FIRST_FREE + each) for each in range(count))
        flooding = Flooding(site, replace(flood, links=flood.links + links), 1)
        works.append(most_work(site, flooding, 4))
    assert works[1] <= works[0] * 1.1


@pytest.mark.slow
def test_floods_of_every_two_kinds_cost_a_bystander_no_more(site: Site) -> None:
    alone = site.work_of_message(is_answered=True)
    for pair in PAIRS:
        flooding = Flooding(site, pair, 1)
        assert most_work(site, flooding, 2) <= alone + TURN_BYTECODES, pair
        flooding.end()


def test_twice_the_bytes_are_twice_the_steps() -> None:
    used = []
    for count in (1, 2):
        stage = Stage(options_with())
        conn = stage.accept()
        stage.talk(conn, GO)
        before = len(stage.batches)
        stage.talk(conn, FLOODS["begin, end"].bytes_of(300 * count))
        used.append(len(stage.batches) - before)
    assert used[0] > 3
    assert used[1] <= 2.2 * used[0]


def test_who_sends_more_than_is_taken_in_is_not_read_until_half_of_it_is() -> None:
    stage = Stage(options_with())
    conn = stage.accept()
    stage.talk(conn, GO)
    stage.give(given.BytesReceived(conn, EMPTY_FRAME * (2 * UNREAD_BYTES_MAX // len(EMPTY_FRAME))))
    batch = stage.turn()
    assert stage.paused[conn]
    connection = stage.broker.peers[conn].connection
    while stage.paused[conn]:
        assert connection.unread_bytes > UNREAD_BYTES_MAX // 2
        assert batch.more
        batch = stage.turn()
    assert connection.unread_bytes <= UNREAD_BYTES_MAX // 2
    stage.step()
    assert not connection.unread_bytes
    assert conn not in stage.closed


@pytest.mark.slow
def test_who_does_not_read_what_it_is_answered_is_taken_in_no_further() -> None:
    stage = Stage(options_with())
    conn = stage.accept()
    stage.talk(conn, GO)
    asked = FLOODS["flow of the session with echo"]
    stage.give(given.WriteBlocked(conn, True))
    before, rounds = len(stage.sent[conn]), 0
    while not stage.paused.get(conn):
        stage.give(given.BytesReceived(conn, asked.bytes_of(1000)))
        stage.step()
        rounds += 1
        assert rounds < 200
    made = len(stage.sent[conn]) - before
    connection = stage.broker.peers[conn].connection
    assert UNHEARD_BYTES_MAX < made < UNHEARD_BYTES_MAX + TURN_WORK * len(asked.piece(0))
    assert connection.unread_bytes > UNREAD_BYTES_MAX
    stage.give(given.WriteBlocked(conn, False))
    stage.step()
    assert not stage.paused[conn]
    assert not connection.unread_bytes
    assert len(stage.sent[conn]) - before > made


@pytest.mark.parametrize("is_in_order", [True, False])
def test_what_one_that_is_gone_sent_is_taken_in_by_turns_or_up_to_a_bound(is_in_order: bool) -> None:
    stage = Stage(options_with())
    conn = stage.accept()
    stage.talk(conn, GO + frames.sender(FLOODED))
    said = FLOODS["begin, end"].bytes_of(3000) + frames.transfer(5, durable=True)
    stage.give(given.BytesReceived(conn, said + frames.close() if is_in_order else said))
    stage.turn()
    before = len(stage.batches)
    stage.give(given.Closed(conn, "closed by the peer"))
    stage.turn()
    assert (conn in stage.broker.peers) is is_in_order
    stage.step()
    assert conn not in stage.broker.peers
    queue = stage.broker.store.queues.get(FLOODED)
    assert (queue.message_count if queue else 0) == int(is_in_order)
    assert (len(stage.batches) - before > 100) is is_in_order


@pytest.mark.slow
def test_who_has_just_come_and_sends_much_is_soon_taken_in() -> None:
    """It goes through the line as others do: its first messages, whose ids are short, are a run as any others."""
    site = Site()
    flooding = Flooding(site, FLOODS["empty frames"], AT_ONCE)
    conn = site.standing(GO + frames.sender("newcomer"))
    more = [given.BytesReceived(each, flooding.flood.bytes_of(flooding.at)) for each in flooding.conns]
    messages = b"".join(frames.transfer(number, b"x" * 100) for number in range(500))
    given_back = len(site.stage.sent[conn])
    site.stage.give(given.BytesReceived(conn, messages))
    connection = site.stage.broker.peers[conn].connection
    rounds = 0
    while not rounds or connection.unread_bytes:
        assert rounds < 6
        for each in more:
            site.stage.give(each)
        for _ in range(2 * len(more)):  # in every second step the line makes nothing, as somebody calm waits
            site.work_of_message(is_answered=True)
        rounds += 1
    site.stage.run()
    heard = frames.heard(bytes(site.stage.sent[conn][given_back:]))
    answered = [each for each in heard if isinstance(each, Disposition)]
    assert answered[-1].last == 499
    flooding.end()


def test_connections_that_come_and_go_cost_a_bystander_little(site: Site) -> None:
    alone = site.work_of_message(is_answered=True)
    for _ in range(6):
        came = [site.stage.accept() for _ in range(AT_ONCE)]
        said = [given.BytesReceived(conn, CONVERSATION) for conn in came]
        gone = [given.Closed(conn, "closed by the peer") for conn in came]
        assert site.work_of_message(*said, *gone, is_answered=True) <= alone + 2 * TURN_BYTECODES
        site.stage.run()
    assert set(site.stage.broker.peers) == {site.bystander}
