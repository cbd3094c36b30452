"""How bytes are cut into reads changes nothing: one at a time, all at once, anything between."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from mqbroker.amqp import events as told
from mqbroker.wire.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    Rejected,
    Source,
    Target,
    Transfer,
    encode,
)  # fmt: skip
from mqbroker.wire.sections import build_message

from tests.support import frames
from tests.support.stage import Stage, Talker, options_with

HELLO = frames.anonymous() + frames.opened() + frames.begun(0) + frames.begun(1)


@dataclass
class Outcome:
    """What a conversation came to.

    Acceptances are compared with what is in the queues only: one that waits for the disk is not told any more where its
    link has ended meanwhile.
    """

    answers: list[str] = field(default_factory=list)
    accepted: Counter[int] = field(default_factory=Counter, compare=False)
    rejected: Counter[int] = field(default_factory=Counter)
    queues: dict[str, list[str]] = field(default_factory=dict)


def outcome_of(stage: Stage, said: bytes) -> Outcome:
    found = Outcome()
    for each in frames.heard(said):
        if isinstance(each, Disposition):
            counter = found.rejected if isinstance(each.state, Rejected) else found.accepted
            counter.update(range(each.first, (each.first if each.last is None else each.last) + 1))
        elif isinstance(each, Open | Begin | Attach | Detach | End | Close):
            error: Error | None = getattr(each, "error", None)
            found.answers.append(f"{type(each).__name__} {getattr(each, 'handle', '')} {error and error.condition}")
    for row in stage.admin("queues")["queues"]:
        answer = stage.admin("receive", address=row["name"], count_max=1000)
        if answer is None:
            stage.wait(10)
        else:
            found.queues[row["name"]] = [message["body"] for message in answer["messages"]]
    return found


def play(data: bytes, cuts: list[int]) -> Outcome:
    """A fresh node that reads `data` in pieces."""
    stage = Stage(options_with(limits={"max_message_size_bytes": 3000}))
    conn = stage.accept()
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        stage.talk(conn, data[start:end])
    return outcome_of(stage, bytes(stage.sent[conn]))


class Script:
    """A random publisher: links on two sessions, messages of all kinds, ends in any order, now and then a fault."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.parts = [HELLO]
        self.links: dict[tuple[int, int], str] = {}
        self.ended: set[int] = set()
        self.number = 0
        for _ in range(self.rng.randrange(5, 40)):
            self._act()
        if self.rng.random() < 0.5:
            self.parts.append(frames.close())

    @property
    def data(self) -> bytes:
        return b"".join(self.parts)

    def _act(self) -> None:
        rng = self.rng
        channel = rng.choice((0, 0, 1))
        handle = rng.randrange(4)
        if channel in self.ended:
            return
        dice = rng.random()
        if (channel, handle) not in self.links:
            self.links[channel, handle] = rng.choice(("orders", "invoices"))
            address = self.links[channel, handle]
            name = f"s{channel}-{handle}"
            self.parts.append(frames.sender(address, handle, channel, name=name))
        elif dice < 0.75:
            self._messages(channel, handle)
        elif dice < 0.85:
            del self.links[channel, handle]
            self.parts.append(frames.detach(handle) if channel == 0 else frames.frame(Detach(handle, True), channel=1))
        elif dice < 0.9:
            self.ended.add(channel)
            self.links = {key: value for key, value in self.links.items() if key[0] != channel}
            self.parts.append(frames.end(channel))
        elif dice < 0.93:
            self.parts.append(rng.choice((self._too_large, self._without_a_tag))(channel, handle))
        elif dice < 0.95:
            self.parts.append(frames.transfer(self.number, handle=77, channel=channel))
        else:
            self.parts.append(frames.flow(None, 0, channel=channel) + b"\0\0\0\x08\2\0\0\0")

    def _messages(self, channel: int, handle: int) -> None:
        rng = self.rng
        durable, settled = rng.random() < 0.5, rng.random() < 0.3
        if rng.random() < 0.3:
            self.number += 1
            self.parts.append(self._in_pieces(channel, handle, settled))
            return
        size = rng.choice((0, 30, 300))
        for _ in range(rng.choice((1, 3, 20, 40))):
            self.number += 1
            body = b"m%d" % self.number + b"." * rng.choice((size, rng.randrange(size + 1)))
            self.parts.append(frames.transfer(1000 + self.number, body, handle=handle, channel=channel, durable=durable,
                                              settled=settled))  # fmt: skip

    def _in_pieces(self, channel: int, handle: int, settled: bool) -> bytes:
        payload = build_message(b"m%d" % self.number + b"." * self.rng.randrange(2000), durable=True)
        size = self.rng.randrange(100, 900)
        out = []
        for at in range(0, len(payload), size):
            head = Transfer(
                handle=handle, delivery_id=None if at else 1000 + self.number, delivery_tag=None if at else b"t",
                settled=settled, more=at + size < len(payload),
            )  # fmt: skip
            out.append(frames.frame(head, payload[at : at + size], channel))
        return b"".join(out)

    def _too_large(self, channel: int, handle: int) -> bytes:
        self.links.pop((channel, handle))
        self.number += 1
        return frames.transfer(1000 + self.number, b"z" * 3000, handle=handle, channel=channel) + frames.frame(
            Detach(handle, True), channel=channel
        )

    def _without_a_tag(self, channel: int, handle: int) -> bytes:
        self.links.pop((channel, handle))
        body = encode(Transfer(handle=handle, delivery_id=9999))
        whole = (8 + len(body)).to_bytes(4, "big") + b"\2\0" + channel.to_bytes(2, "big") + body
        return whole + frames.frame(Detach(handle, True), channel=channel)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(14))
def test_cuts_change_nothing(seed: int) -> None:
    data = Script(seed).data
    whole = play(data, [])
    check_acceptances(whole)
    rng = random.Random(seed)
    cuts = [sorted(rng.sample(range(1, len(data)), min(count, len(data) - 1))) for count in (1, 5, 50)]
    for cut in [*cuts, list(range(1, len(data)))] if len(data) < 12_000 else cuts:
        outcome = play(data, cut)
        assert outcome == whole
        check_acceptances(outcome)


def check_acceptances(outcome: Outcome) -> None:
    """Each at most once, and of messages that are there."""
    there = {int(body[1:].rstrip(".")) + 1000 for bodies in outcome.queues.values() for body in bodies}
    assert set(outcome.accepted) <= there
    assert set(outcome.accepted.values()) <= {1}


@pytest.mark.slow
def test_scripts_contain_what_they_are_meant_to() -> None:
    answers = Counter(answer for seed in range(14) for answer in play(Script(seed).data, []).answers)
    for wanted in ("amqp:link:message-size-exceeded", "amqp:invalid-field", "amqp:session:unattached-handle"):
        assert any(wanted in answer for answer in answers), wanted
    assert sum(sum(map(len, play(Script(seed).data, []).queues.values())) for seed in range(5)) > 100


# -- our own machine at the other end ---------------------------------------------------------------------------------


class SlowStage(Stage):
    """Clients hear one byte at a time."""

    def __init__(self, size: int) -> None:
        self.size = size
        super().__init__()

    def connect(self, *arguments: Any, **named: Any) -> Talker:
        talker = super().connect(*arguments, **named)
        take = talker.receive

        def in_pieces(data: bytes) -> None:
            for at in range(0, len(data), self.size):
                take(data[at : at + self.size])

        talker.receive = in_pieces  # type: ignore[method-assign]
        return talker


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_a_client_that_reads_in_pieces_hears_the_same(size: int) -> None:
    stage = SlowStage(size)
    talker = stage.connect("c")
    assert talker.session is not None
    stage.admin("send", address="orders", messages=[{"body": f"m{n}"} for n in range(50)])
    link = talker.session.attach_receiver(_receiver_attach("orders"))
    stage.run()
    link.grant(100)
    stage.run()
    got = [event for event in talker.events if isinstance(event, told.Incoming)]
    assert sum(event.run.count for event in got) == 50
    assert [event.delivery_id + n for event in got for n in range(event.run.count)] == list(range(50))
    talker.session.accept(0, 50)
    stage.run()
    assert stage.admin("queues")["queues"][0]["message_count"] == 0


def _receiver_attach(address: str) -> Attach:
    return Attach(name="r", handle=0, role=True, source=Source(address=address), target=Target())


ORDERS = [
    ("detach", "end", "close"), ("end", "close"), ("close",), ("detach", "close"), ("detach", "detach", "end", "close"),
    ("end", "end", "close"), ("close", "close"),
]  # fmt: skip


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: "-".join(order))
@pytest.mark.parametrize("is_at_once", [False, True])
def test_ends_in_all_orders(order: tuple[str, ...], is_at_once: bool) -> None:
    """Each end is heard once, from the inside out, and everything under way comes back."""
    stage = Stage()
    talker = stage.connect("c")
    session = talker.session
    assert session is not None
    stage.admin("send", address="orders", messages=[{"body": "m"}] * 3)
    link = session.attach_receiver(_receiver_attach("orders"))
    stage.run()
    link.grant(2)
    stage.run()
    for what in order:
        if what == "detach" and link.is_attached:
            link.detach()
        elif what == "end" and session.state.value == "mapped":
            session.end()
        elif what == "close":
            talker.connection.close()
        if not is_at_once:
            stage.run()
    stage.run()
    ends = [type(event) for event in talker.events if isinstance(event, told.Detached | told.Ended | told.Dead)]
    assert ends == [told.Detached, told.Ended, told.Dead]
    row = stage.admin("queues")["queues"][0]
    assert (row["message_count"], row["delivering_count"], row["consumer_count"]) == (3, 0, 0)
    assert stage.broker.peers == {}
    assert {notice.event for notice in stage.notices} <= {"admin"}


@pytest.mark.parametrize("is_sender", [False, True])
def test_a_link_can_be_attached_again_under_its_name(is_sender: bool) -> None:
    stage = Stage()
    talker = stage.connect("c")
    session = talker.session
    assert session is not None
    for _ in range(5):
        attach = _receiver_attach("orders")
        link = session.attach_sender(_sender_attach("orders")) if is_sender else session.attach_receiver(attach)
        stage.run()
        assert link.is_attached
        link.detach()
        stage.run()
        assert session.by_handle == {}
        (ours,) = stage.broker.peers[talker.conn].connection.sessions
        assert (ours.by_handle, ours.by_peer_handle, ours.by_name) == ({}, {}, {})


def _sender_attach(address: str) -> Attach:
    return Attach(name="s", handle=0, role=False, source=Source(), target=Target(address=address),
                  initial_delivery_count=0)  # fmt: skip


def test_a_client_can_have_many_sessions_and_end_them() -> None:
    stage = Stage()
    talker = stage.connect("c")
    assert talker.session is not None
    more = [talker.connection.begin() for _ in range(5)]
    stage.run()
    assert sorted(session.channel for session in talker.connection.sessions) == list(range(6))
    for session in more:
        session.end()
    stage.run()
    assert [session.channel for session in talker.connection.sessions] == [0]
    assert len(stage.broker.peers[talker.conn].connection.sessions) == 1


def test_a_client_is_told_by_a_refused_link_and_goes_on() -> None:
    stage = Stage(options_with(address_settings={"#": {"auto_create_queues": False}}))
    talker = stage.connect("c")
    assert talker.session is not None
    talker.session.attach_sender(_sender_attach("nowhere"))
    stage.run()
    heard = [event for event in talker.events if isinstance(event, told.Attached | told.Detached)]
    assert [type(event) for event in heard] == [told.Attached, told.Detached]
    assert isinstance(heard[1], told.Detached)
    assert heard[1].error is not None
    assert heard[1].error.condition == "amqp:not-found"
    assert talker.session.by_handle == {}
    assert not talker.is_closed


def test_flow_frames_of_ours_are_understood_by_ours() -> None:
    stage = Stage(options_with(limits={"link_credit": 6}))
    talker = stage.connect("c")
    assert talker.session is not None
    link = talker.session.attach_sender(_sender_attach("orders"))
    stage.run()
    assert (link.credit, link.max_message_size) == (6, stage.options.limits.max_message_size_bytes)
    said = frames.frame(Flow(next_incoming_id=0, incoming_window=5, next_outgoing_id=0, outgoing_window=5))
    talker.receive(said)
    assert link.session.peer_window == 5
