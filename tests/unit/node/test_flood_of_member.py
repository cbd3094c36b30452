"""A node of the cluster that this one has dialled sends a flood: a bystander's message waits for one turn of it.

As in test_flood_work.py, where those who have dialled us flood.
"""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.amqp import frame_costs
from mqbroker.cluster.notices import (
    BindingAdded,
    BindingRemoved,
    ClusterNotice,
    ConsumerClosed,
    ConsumerCreated,
    encode,
)
from mqbroker.node.amqp.peers.turns import CALM_WORK, FEW_WORK
from mqbroker.node.cluster.membership.notice_links import NOTICES, _section
from mqbroker.node.values import inputs as given
from mqbroker.node.values.handshake import Hello
from mqbroker.wire.frames import EMPTY_FRAME
from mqbroker.wire.performatives import Attach, Begin, Open, Source, Target, Transfer

from tests.support import frames
from tests.support.cluster_stage import node_id_of
from tests.support.false_node import FalseNode
from tests.support.floods import FIRST_ID, MESSAGES, Flood
from tests.unit.node.test_bystander_work import WARM, Site
from tests.unit.node.test_flood_work import DEARER, ONE_READ_BYTES, TURN_BYTECODES, UNIT_BYTECODES

FAR = node_id_of("b")
QUEUE = f"told{FAR}"
CHANGES = (ConsumerCreated, ConsumerClosed)
FEED = 0  # handle of the link for notices


def _frame(performative: Any) -> bytes:
    return frames.frame(performative)


def _told(*said: ClusterNotice, first: int = FIRST_ID) -> bytes:
    """Notices, each settled. Those that are alike make a run."""
    return b"".join(
        frames.frame(
            Transfer(handle=FEED, delivery_id=number, delivery_tag=number.to_bytes(4, "big"), message_format=0,
                     settled=True),
            _section(encode(each)),
        )
        for number, each in enumerate(said, first)
    )  # fmt: skip


def _many(at: int) -> bytes:
    """So many consumers more, and then so many less."""
    return _told(*[CHANGES[at % 2](QUEUE, "")] * MESSAGES, first=FIRST_ID + at * MESSAGES)


ADDED = BindingAdded("told", "told", "anycast", "", FAR, 0)
ATTACH = Attach(name="theirs", handle=5, role=True, source=Source(address="x"), target=Target(address="x"))
OPENING = b"".join((
    frames.AMQP_HEADER,
    _frame(Open(container_id="far", max_frame_size=65536, channel_max=10,
                properties=Hello(FAR, "b" * 32, "cluster", None).properties)),
    _frame(Begin(remote_channel=0, next_outgoing_id=0, incoming_window=1000, outgoing_window=1000, handle_max=100)),
    _frame(Attach(name=f"{NOTICES}.cluster", handle=FEED, role=False, source=Source(address=NOTICES),
                  target=Target(address=NOTICES), initial_delivery_count=0)),
    _told(ADDED),
))  # fmt: skip
FLOODS = {
    "consumers": Flood((), lambda _: _told(ConsumerCreated(QUEUE, ""), ConsumerClosed(QUEUE, ""))),
    "consumers in runs": Flood((), _many),
    "consumers with selectors": Flood((), lambda at: _told(*(each(QUEUE, f"a = {at}") for each in CHANGES))),
    "bindings": Flood((), lambda _: _told(BindingRemoved(QUEUE), ADDED)),
    "flows with echo": Flood((), lambda _: frames.flow(None, 0, echo=True)),
    "attaches, which are refused": Flood((), lambda _: _frame(ATTACH) + frames.detach(5)),
    "empty frames": Flood((), lambda _: EMPTY_FRAME),
}  # fmt: skip
# A notice is not divided, and one may begin with the last unit of a turn.
MEMBER_TURN_BYTECODES = TURN_BYTECODES + frame_costs.NOTICE * UNIT_BYTECODES * DEARER


class Linked(Site):
    """A node that has a link to another one, which says what a test has it say, and a bystander beside it."""

    def __init__(self) -> None:
        self.far = FalseNode()
        self.stage = self.far.dialler
        self.bystander = self.stage.accept()
        go = frames.anonymous() + frames.opened() + frames.begun()
        self.stage.talk(self.bystander, go + frames.sender("others") + frames.receiver("others", credit=1000))
        self.count = 0
        for _ in range(WARM):
            self.work_of_message()
        self.far.answers_login()
        self.far.says(OPENING)
        assert self.far.bridge.state.value == "up"


@pytest.mark.slow
@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_of_a_node_that_was_dialled_costs_a_bystander_one_turn_of_it(kind: str) -> None:
    site, flood = Linked(), FLOODS[kind]
    alone = site.work_of_message(is_answered=True)
    at = ONE_READ_BYTES // len(flood.piece(0)) + 1
    site.stage.give(given.BytesReceived(site.far.conn, flood.bytes_of(at)))
    site.stage.turn()
    for each in range(6):
        more = given.BytesReceived(site.far.conn, flood.piece(at + each))
        assert site.work_of_message(more, is_answered=True) <= alone + MEMBER_TURN_BYTECODES
    connection = site.stage.broker.peers[site.far.conn].connection
    assert connection.unread_bytes > ONE_READ_BYTES // 4, "most of it waits"
    site.stage.run()
    assert not connection.unread_bytes
    assert site.far.bridge.state.value == "up"


def test_a_node_that_was_dialled_has_a_message_s_worth_where_others_have_used_up_the_step() -> None:
    site, flow = Linked(), frames.flow(None, 0, echo=True)
    calm = [site.standing(frames.anonymous() + frames.opened() + frames.begun()) for _ in range(2)]
    site.far.wait(500)
    for conn in (*calm, site.far.conn):
        site.stage.talk(conn, flow)  # and are calm
    wanted = CALM_WORK // (frame_costs.FLOW + frame_costs.ECHO) + 1
    for conn in (*calm, site.far.conn):
        site.stage.give(given.BytesReceived(conn, flow * wanted))
    site.stage.turn()
    taken_in = wanted - site.stage.broker.peers[site.far.conn].connection.unread_bytes // len(flow)
    assert taken_in == FEW_WORK // (frame_costs.FLOW + frame_costs.ECHO) + 1 < wanted
