"""Connections that do anything at random and end anyhow: when all are gone, nothing of them is left or counted."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from mqbroker.base.time import NS_PER_MS
from mqbroker.node.broker.broker import Broker
from mqbroker.node.values import inputs as given
from mqbroker.wire.frames import AMQP_FRAME, frame_at
from mqbroker.wire.performatives import (
    Accepted,
    Attach,
    Coordinator,
    Declare,
    Detach,
    Discharge,
    Disposition,
    End,
    Modified,
    Rejected,
    Released,
    Source,
    Target,
    TransactionalState,
    Transfer,
    decode_frame,
    encode,
)
from mqbroker.wire.types import Symbol

from tests.support import frames
from tests.support.stage import Stage, options_with

STEPS = 150
HANDLES = 200
CHANNELS = (0, 1)
OUTCOMES = (Accepted(), Released(), Modified(delivery_failed=True), Rejected())
SENDING = ("to a queue", "to none", "to a temporary queue", "coordinator")
RECEIVING = ("of a queue", "of a temporary queue", "shared", "durable")
TOPIC, SHARED = Symbol("topic"), Symbol("shared")
SOURCES: dict[str, dict[str, Any]] = {
    "of a temporary queue": {"dynamic": True},
    "shared": {"address": "news", "capabilities": (TOPIC, SHARED)},
    "durable": {"address": "news", "capabilities": (TOPIC,), "durable": 2, "expiry_policy": Symbol("never")},
}


class Client:
    """What it says is well-formed, and seldom wise."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._count = 0
        self._links: dict[int, dict[int, str]] = {channel: {} for channel in CHANNELS}
        self._delivered: dict[int, list[int]] = {channel: [] for channel in CHANNELS}

    def hears(self, data: bytes) -> None:
        """What it was sent and may settle. The node counts channels as we do."""
        offset = 0
        while offset < len(data):
            at = None if data.startswith(b"AMQP", offset) else frame_at(data, offset, len(data), 1 << 31)
            if at is not None and at.type == AMQP_FRAME and at.body_offset < at.end:
                self._hear(at.channel, decode_frame(data, at)[0])
            offset = offset + 8 if at is None else at.end

    def _hear(self, channel: int, body: Any) -> None:
        if isinstance(body, Transfer) and body.delivery_id is not None:
            self._delivered[channel].append(body.delivery_id)
        elif isinstance(body, End):
            self._delivered[channel] = []

    def greeting(self) -> bytes:
        container = self._chance.choice("abc")
        return frames.anonymous() + frames.opened(container_id=container) + frames.begun(0) + frames.begun(1)

    def says(self) -> bytes:
        """Some frames."""
        acts = [self._attach] * 3 + [self._send] * 3 + [self._settle] * 2 + [self._detach, self._ask]
        said = b"".join(self._chance.choice(acts)() for _ in range(self._chance.randrange(1, 25)))
        ends = {0.03: self._end(), 0.06: frames.flow(777, 1), 0.12: frames.close(), 1.0: b""}
        drawn = self._chance.random()
        return said + next(end for bound, end in ends.items() if drawn < bound)

    def _attach(self) -> bytes:
        chance = self._chance
        channel, handle = chance.choice(CHANNELS), chance.randrange(HANDLES)
        if handle in self._links[channel]:
            return b""
        kind = self._links[channel][handle] = chance.choice(SENDING + RECEIVING)
        name = f"x{chance.randrange(3)}|{handle}" if kind == "shared" else f"{kind}-{channel}-{handle}"
        queue = f"q{chance.randrange(6)}"
        if kind in SENDING:
            targets: dict[str, Target | Coordinator] = {
                "to a queue": Target(address=queue), "to none": Target(),
                "to a temporary queue": Target(dynamic=True), "coordinator": Coordinator(),
            }  # fmt: skip
            return frames.frame(Attach(name=name, handle=handle, role=False, source=Source(), target=targets[kind],
                                       initial_delivery_count=0), channel=channel)  # fmt: skip
        source = Source(**SOURCES.get(kind, {"address": queue}))
        said = frames.frame(Attach(name=name, handle=handle, role=True, source=source, target=Target()), b"", channel)
        credit = chance.randrange(50)
        how = {"drain": chance.random() < 0.2, "echo": chance.random() < 0.2}
        return said + (frames.flow(handle, credit, channel=channel, **how) if credit else b"")

    def _send(self) -> bytes:
        chance, channel = self._chance, self._chance.choice(CHANNELS)
        senders = [handle for handle, kind in self._links[channel].items() if kind in SENDING]
        if not senders:
            return b""
        handle = chance.choice(senders)
        self._count += 1
        txn_id = chance.randrange(1, 4).to_bytes(8, "big")
        if self._links[channel][handle] == "coordinator":
            value = Declare() if chance.random() < 0.6 else Discharge(txn_id=txn_id, fail=chance.random() < 0.5)
            head = Transfer(handle=handle, delivery_id=self._count, delivery_tag=b"c", message_format=0, settled=False)
            return frames.frame(head, b"\x00\x53\x77" + encode(value), channel)
        state = TransactionalState(txn_id=txn_id) if chance.random() < 0.2 else None
        how = {"durable": chance.random() < 0.5, "settled": chance.random() < 0.3, "more": chance.random() < 0.1}
        body = b"m" * chance.choice((1, 1, 10, 3000))
        return frames.transfer(self._count, body, handle=handle, channel=channel, state=state, **how)

    def _settle(self) -> bytes:
        chance = self._chance
        channel = chance.choice(CHANNELS)
        delivered = self._delivered[channel]
        if not delivered and chance.random() < 0.98:
            return b""  # of what was never sent: the end of the session
        first = chance.choice(delivered) if delivered else chance.randrange(30)
        retired = TransactionalState(txn_id=(1).to_bytes(8, "big"), outcome=Accepted())
        last = min(first + chance.randrange(4), max(delivered, default=first))
        told = Disposition(role=True, first=first, last=last, settled=chance.random() < 0.7,
                           state=chance.choice((*OUTCOMES, retired)))  # fmt: skip
        return frames.frame(told, channel=channel)

    def _detach(self) -> bytes:
        channel = self._chance.choice(CHANNELS)
        if not self._links[channel]:
            return b""
        handle = self._chance.choice(list(self._links[channel]))
        del self._links[channel][handle]
        return frames.frame(Detach(handle=handle, closed=self._chance.random() < 0.5), channel=channel)

    def _ask(self) -> bytes:
        return frames.flow(None, 0, echo=True) * self._chance.randrange(1, 200)

    def _end(self) -> bytes:
        channel = self._chance.choice(CHANNELS)
        self._links[channel], self._delivered[channel] = {}, []
        return frames.end(channel) + frames.begun(channel)


class Walk:
    """One history of many of them."""

    def __init__(self, seed: int) -> None:
        chance = self._chance = Random(seed)
        limits: dict[str, Any] = {"amqp_min_large_message_size_bytes": 2000, "link_credit": 20}
        if chance.random() < 0.4:
            limits |= {"global_max_size_bytes": 200_000, "max_message_size_bytes": 100_000}
        settings = {"max_delivery_attempts": 3, "dead_letter_address": "dead",
                    "default_max_consumers": chance.choice((-1, 1, 3))}  # fmt: skip
        listener = {"link_stealing": chance.choice(("all", "durable", "none"))}
        self.stage = Stage(options_with(listener, limits=limits, address_settings={"#": settings}))
        self._clients: dict[int, Client] = {}

    def step(self) -> None:
        """Somebody says something, something happens, and perhaps the disk has its turn."""
        chance, stage = self._chance, self.stage
        if chance.random() < 0.06 or not self._clients:
            conn, client = stage.accept(), Client(chance)
            self._clients[conn] = client
            stage.give(given.BytesReceived(conn, client.greeting()))
        conn = chance.choice(list(self._clients))
        if conn in stage.closed:
            del self._clients[conn]
            return
        self._clients[conn].hears(bytes(stage.sent[conn]))
        stage.sent[conn].clear()
        if not stage.paused.get(conn):
            stage.give(given.BytesReceived(conn, self._clients[conn].says()))
        self._disturb(conn)
        stage.is_disk_held, stage.is_large_held = chance.random() < 0.3, chance.random() < 0.3
        stage.turn()
        if chance.random() < 0.5:
            stage.run()
        stage.now_ns += chance.choice((0, 1, 10, 200)) * NS_PER_MS
        assert stage.is_up, stage.notices[-3:]

    def _disturb(self, conn: int) -> None:
        drawn = self._chance.random()
        if drawn < 0.05:
            self.stage.give(given.Closed(conn, "reset"))
            del self._clients[conn]
        elif drawn < 0.2:
            self.stage.give(given.WriteBlocked(conn, is_blocked=drawn < 0.1))
        elif drawn < 0.26:
            self.stage.give(given.UnsyncedBytes(1 << 40 if drawn < 0.22 else 0))
        elif drawn < 0.28:
            self.stage.ask("queue-delete", name=f"q{self._chance.randrange(6)}", force=drawn < 0.27)
        elif drawn < 0.29:
            self.stage.ask("connection-close", container_id="a")

    def end(self) -> Broker:
        """All are gone, and what they left has had its time."""
        stage = self.stage
        stage.is_disk_held = stage.is_large_held = False
        for conn in self._clients:
            if conn not in stage.closed:
                stage.give(given.Closed(conn, "reset"))
        stage.give(given.UnsyncedBytes(0))
        stage.run()
        stage.wait(70_000)
        return stage.broker


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_left_of_those_that_are_gone(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()
    broker = walk.end()
    store, turns = broker.store, broker.turns
    assert not broker.peers
    for left in (turns.parting, turns._line, turns._gone, turns._coming, broker.starved, broker.draining,
                 broker.next_turn, broker.closing, broker.touched, broker.temporary, broker.large.downloads,
                 store.quotas.connections, broker.termini._stealing._owners):  # fmt: skip
        assert not left
    assert broker.large.partials.size_bytes == 0
    for queue in store.queues.values():
        assert (queue.consumers, queue.arriving_count, queue.delivering_count) == ([], 0, 0), queue.kind.name
    assert not any(address.producers_count for address in store.addresses.values())
    for name in list(store.queues):
        walk.stage.admin("queue-delete", name=name)
    assert store.memory.held_bytes == 0
    assert broker.counters.bugs_contained == 0
