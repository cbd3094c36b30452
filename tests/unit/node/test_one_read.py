"""Frames that arrive in one read: each is handled as if it had come alone."""

from __future__ import annotations

import random

import pytest
from mqbroker.amqp.links import SenderLink
from mqbroker.node.broker.broker import FEW_BYTES
from mqbroker.node.values.effects import Send
from mqbroker.wire.run import single
from mqbroker.wire.sections import build_message

from tests.sim.clients import Client, Consumer, Producer
from tests.sim.disk import Faults
from tests.sim.world import SimNode, World, options_for
from tests.support import frames
from tests.support.checker import History
from tests.support.stage import Stage, options_with


def _connected_producer(world: World, node: SimNode) -> tuple[Producer, SenderLink]:
    producer = Producer(world, node, "p", History(), "orders", 0)
    world.run(200)
    assert producer.link is not None
    assert producer.link.credit > 0
    return producer, producer.link


@pytest.mark.parametrize("end", ["detach", "end", "close"])
def test_messages_before_the_end_of_their_link_are_kept(end: str) -> None:
    world = World(5)
    node = SimNode(world, "node0", options_for(1 << 20, 1 << 28, 100), Faults())
    node.start()
    producer, link = _connected_producer(world, node)
    session = link.session
    link.send_settled = True
    for number in range(40):
        session.send_run(link, single(build_message(b"m%d" % number)), 0, 1, None)
    {"detach": link.detach, "end": session.end, "close": producer.connection.close}[end]()
    world.rng = random.Random(1)
    producer.is_stopped = True
    data = b"".join(map(bytes, producer.connection.out))
    producer.connection.out = []
    assert producer.pipe is not None
    node._arrive(producer.pipe, data)
    world.run(400)
    assert node.broker.store.queues["orders"].message_count == 40


def test_credit_that_follows_its_attach_in_the_same_read_counts() -> None:
    world = World(6)
    node = SimNode(world, "node0", options_for(1 << 20, 1 << 28, 100), Faults())
    node.start()
    consumer: Client = Consumer(world, node, "c", History(), "orders", is_drain=True)
    world.run(200)
    queue = node.broker.store.queues["orders"]
    assert len(queue.consumers) == 1
    assert queue.consumers[0].capacity() == consumer.window  # type: ignore[attr-defined]


@pytest.mark.parametrize(("size_bytes", "is_message_first"), [(100, True), (FEW_BYTES // 2, False)])
def test_a_few_messages_leave_before_their_answer_and_many_after_it(size_bytes: int, is_message_first: bool) -> None:
    """What one step sends to the producer and to the consumer of three messages."""
    stage = Stage(options_with())
    producer, consumer = stage.accept(), stage.accept()
    stage.talk(producer, frames.anonymous() + frames.opened() + frames.begun() + frames.sender())
    stage.talk(consumer, frames.anonymous() + frames.opened() + frames.begun() + frames.receiver(credit=10))
    steps = len(stage.batches)
    stage.talk(producer, b"".join(frames.transfer(number, bytes(size_bytes)) for number in range(3)))
    sent = [effect.conn for batch in stage.batches[steps:] for effect in batch.effects if isinstance(effect, Send)]
    assert sent == ([consumer, producer] if is_message_first else [producer, consumer])
