"""The load by which a native build learns which way its branches go: what clients and other nodes say to a node.

In the proportions of the loads that are measured (docs/PERFORMANCE.md): from one message in flight on each of many
connections to large reads full of messages. Two trainings of the same sources take the same branches equally often, so
two builds are the same bytes. Whatever does not go as planned raises an exception, which fails the build. Nothing of
this is in the wheel. Source: docs/adr/0013-native-build.md.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import cycle
from typing import Any, cast

import native_clock  # noqa: F401  before all of the broker

# isort: split
from mqbroker.core.selector.source_filters import SELECTOR_NAME
from mqbroker.io.sockets.connections import ListenerOrigin, TcpConnection
from mqbroker.wire import codes
from mqbroker.wire.flat import encode_disposition_accepted
from mqbroker.wire.frames import AMQP_HEADER, SASL_HEADER, encode_frame
from mqbroker.wire.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Declare,
    Detach,
    Discharge,
    Disposition,
    Flow,
    Open,
    SaslInit,
    Source,
    Target,
    TransactionalState,
    Transfer,
    encode,
)
from mqbroker.wire.scan import VALUE
from mqbroker.wire.sections import Properties, build_message
from mqbroker.wire.types import Described, Symbol
from native_world import CLUSTER, PASSWORD, USER, Node, Transport, Unexpected, running

SASL_FRAME = 1
FRAME_SIZE_MAX = 65536
WINDOW = (1 << 31) - 1
CREDIT = 2000
READ_BYTES = 256 << 10  # what asyncio and libuv read at once


def frame(performative: Any, payload: bytes = b"", kind: int = 0) -> bytes:
    return encode_frame(0, encode(performative), payload, kind)


@cache
def message(size: int, durable: bool) -> bytes:
    return build_message(bytes(size), durable=durable)


def transfer(number: int, payload: bytes, settled: bool) -> bytes:
    """A message, in as many frames as it takes."""
    piece = FRAME_SIZE_MAX - 64
    frames = []
    for start in range(0, len(payload), piece):
        more = start + piece < len(payload)
        tag = number.to_bytes(8, "little")
        head = Transfer(0, number, tag, 0, settled, more) if not start else Transfer(handle=0, more=more)
        frames.append(frame(head, payload[start : start + piece]))
    return b"".join(frames)


class Client:
    """A connection of a client, with one session."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.sent = self.taken = self.granted = 0
        self._before = 0
        self._connection: TcpConnection = node.connections.accepted(
            ListenerOrigin("clients", "127.0.0.1:40000", True), lambda: None
        )
        self._transport = Transport(node.world)
        self._connection.connection_made(cast(Any, self._transport))
        node.world.run()
        response = f"\0{USER}\0{PASSWORD}".encode()
        self.say(SASL_HEADER + frame(SaslInit(mechanism=Symbol("PLAIN"), initial_response=response), b"", SASL_FRAME))
        begin = Begin(remote_channel=None, next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW)
        self.say(AMQP_HEADER + frame(Open(container_id="training", max_frame_size=FRAME_SIZE_MAX)) + frame(begin))

    def give(self, data: bytes) -> None:
        """Say something that the node reads in its next turn."""
        self._connection.data_received(data)

    def say(self, data: bytes) -> None:
        """Say something, and wait until the node has done what it makes of it."""
        self._connection.data_received(data)
        self.node.world.run()

    def close(self) -> None:
        self.say(frame(Close()))
        self._connection.connection_lost(None)
        self._transport.close()
        self.node.world.run()

    def attach_sender(self, address: str | None, handle: int = 0, settled: bool = False) -> Client:
        self.say(frame(Attach(
            name=f"sender-{handle}", handle=handle, role=False, snd_settle_mode=int(settled), rcv_settle_mode=0,
            source=Source(), target=Target(address=address), initial_delivery_count=0,
        )))  # fmt: skip
        return self

    def attach_coordinator(self, handle: int = 1) -> Client:
        self.say(frame(Attach(
            name=f"coordinator-{handle}", handle=handle, role=False, snd_settle_mode=0, rcv_settle_mode=0,
            source=Source(), target=Coordinator(), initial_delivery_count=0,
        )))  # fmt: skip
        return self

    def ask(self, what: Declare | Discharge, handle: int = 1) -> None:
        """A request to the coordinator, which has its answer then."""
        payload = bytes((0, codes.SMALLULONG, VALUE)) + encode(what)
        self.say(frame(Transfer(handle, self.sent, self.sent.to_bytes(8, "little"), 0, False), payload))
        self.sent += 1

    def attach_receiver(
        self, address: str, handle: int = 0, settled: bool = False, credit: int = CREDIT, selector: str = ""
    ) -> Client:
        filters = {Symbol("s"): Described(Symbol(SELECTOR_NAME), selector)} if selector else None
        attach = Attach(
            name=f"receiver-{handle}", handle=handle, role=True, snd_settle_mode=int(settled), rcv_settle_mode=0,
            source=Source(address=address, filter=filters), target=Target(),
        )  # fmt: skip
        self._before = self.node.broker.counters.delivered
        self.granted = credit
        self.say(frame(attach) + self._flow(handle, credit))
        return self

    def _flow(self, handle: int, credit: int) -> bytes:
        return frame(Flow(
            next_incoming_id=0, incoming_window=WINDOW, next_outgoing_id=0, outgoing_window=WINDOW, handle=handle,
            delivery_count=self.taken, link_credit=credit,
        ))  # fmt: skip

    def next(self, size: int, durable: bool = False, settled: bool = False) -> bytes:
        """The next message to send."""
        self.sent += 1
        return transfer(self.sent - 1, message(size, durable), settled)

    def take(self, settled: bool = False) -> None:
        """Accept what has come, and give credit again at half of it, as one range and one flow."""
        came = self.node.broker.counters.delivered - self._before
        said = b""
        if came > self.taken:
            if not settled:
                said = encode_disposition_accepted(0, True, self.taken, came - 1, True)
            self.taken = came
            if self.granted - came <= CREDIT // 2:
                self.granted = came + CREDIT
                said += self._flow(0, CREDIT)
        if said:
            self.say(said)

    def took(self, count: int) -> None:
        """All that was sent has come."""
        if self.taken != count:
            raise Unexpected(f"{self.taken} of {count} messages came")


# -- loads -------------------------------------------------------------------------------------------------------------


def bulk(node: Node, size: int, count: int, settled: bool = False) -> None:
    """As fast as it goes, to a consumer: large reads, which cut frames anywhere."""
    consumer = Client(node).attach_receiver("bulk", settled=settled)
    producer = Client(node).attach_sender("bulk", settled=settled)
    for data in reads(producer, size, count, settled=settled):
        producer.say(data)
        consumer.take(settled)
    consumer.took(count)
    producer.close()
    consumer.close()


def reads(producer: Client, size: int, count: int, durable: bool = False, settled: bool = False) -> Iterator[bytes]:
    """What `count` messages are read in, at most half of the credit at once."""
    gathered, messages = bytearray(), 0
    for left in reversed(range(count)):
        gathered += producer.next(size, durable, settled)
        messages += 1
        while len(gathered) >= READ_BYTES or (gathered and (not left or messages >= CREDIT // 4)):
            yield bytes(gathered[:READ_BYTES])
            del gathered[:READ_BYTES]
            messages = 0


def one_in_flight(node: Node, producers: int, rounds: int, consumed: bool = False) -> None:
    """Durable messages, each of which waits for the disk: what came in one turn is committed in it."""
    consumer = Client(node).attach_receiver("single") if consumed else None
    senders = [Client(node).attach_sender("single") for _ in range(producers)]
    sizes = cycle(range(1, producers // 2 + 2))  # how many the selector finds at once
    for _ in range(rounds):
        waiting = deque(senders)
        while waiting:
            for _ in range(min(next(sizes), len(waiting))):
                sender = waiting.popleft()
                sender.give(sender.next(1024, durable=True))
            node.world.run()
            if consumer is not None:
                consumer.take()
    for sender in senders:
        sender.close()
    if consumer is not None:
        consumer.took(producers * rounds)
        consumer.close()
    else:
        drain(node, "single", producers * rounds)


def drain(node: Node, address: str, count: int) -> None:
    """A queue that was filled before is read."""
    consumer = Client(node).attach_receiver(address)
    for _ in range(count):
        if consumer.taken == count:
            break
        consumer.take()
    consumer.took(count)
    consumer.close()


def selected(node: Node, count: int) -> None:
    """Consumers find some of a backlog by selectors: by properties that are often the same, and by fields."""
    producer = Client(node).attach_sender("selected")
    for number in range(count):
        properties = {"kind": "rare" if number % 100 == 0 else "common", "number": number}
        payload = build_message(bytes(100), properties=Properties(subject="goods"), application_properties=properties)
        producer.give(transfer(number, payload, False))
    node.world.run()
    producer.close()
    left = count
    rare = (count + 99) // 100
    for selector, found in (("kind = 'rare'", rare), ("number < 4 AND kind LIKE 'com%'", 3), ("JMSType <> 'goods'", 0)):
        consumer = Client(node).attach_receiver("selected", selector=selector)
        if found:
            consumer.say(encode_disposition_accepted(0, True, 0, found - 1, True))
        consumer.close()
        left -= found
        there = node.broker.store.queues["selected"].ready_count
        if there != left:
            raise Unexpected(f"{selector}: {there} messages are left, not {left}")
    drain(node, "selected", left)


def many_in_flight(node: Node, count: int, consumed: bool) -> None:
    """Durable messages of one producer: the disk thread is told of what came, and answers in a later turn."""
    node.disk.is_inline = False
    consumer = Client(node).attach_receiver("many") if consumed else None
    producer = Client(node).attach_sender("many")
    for data in reads(producer, 1024, count, durable=True):
        producer.give(data)
        node.disk.sync()
        node.world.run()
        if consumer is not None:
            consumer.take()
    node.disk.sync()
    node.world.run()
    node.disk.is_inline = True
    producer.close()
    if consumer is not None:
        consumer.take()
        consumer.took(count)
        consumer.close()
    else:
        drain(node, "many", count)


def transactions(node: Node, rounds: int) -> None:
    """Ten durable messages in a transaction at both ends, message by message, as clients of JMS do."""
    consumer = Client(node).attach_receiver("worked").attach_coordinator()
    producer = Client(node).attach_sender("worked").attach_coordinator()
    for number in range(1, rounds + 1):
        txn_id = number.to_bytes(8, "big")
        state = TransactionalState(txn_id=txn_id)
        producer.ask(Declare())
        for _ in range(10):
            head = Transfer(0, producer.sent, producer.sent.to_bytes(8, "little"), 0, state=state)
            producer.give(frame(head, message(1024, True)))
            producer.sent += 1
        producer.ask(Discharge(txn_id=txn_id))
        consumer.ask(Declare())
        state = TransactionalState(txn_id=txn_id, outcome=Accepted())
        for delivery in range(consumer.taken, consumer.taken + 10):
            consumer.give(frame(Disposition(role=True, first=delivery, settled=True, state=state)))
        consumer.ask(Discharge(txn_id=txn_id))
        consumer.take(settled=True)
    consumer.took(10 * rounds)
    there = node.broker.store.queues["worked"].message_count
    if there:
        raise Unexpected(f"{there} messages are left of those that were committed")
    producer.close()
    consumer.close()


def answered(node: Node, count: int) -> None:
    """Requests, each of which is answered over a link without an address."""
    server = Client(node).attach_receiver("asked").attach_sender(None, 1)
    client = Client(node).attach_receiver("answer").attach_sender("asked", 1)
    payload = build_message(bytes(100), properties=Properties(to="answer", correlation_id="request"))
    before = node.broker.counters.delivered
    for number in range(count):
        for one, other in ((client, server), (server, client)):
            one.say(frame(Transfer(1, number, number.to_bytes(8, "little"), 0, False), payload))
            other.say(encode_disposition_accepted(0, True, number, number, True))
    came = node.broker.counters.delivered - before
    if came != 2 * count:
        raise Unexpected(f"{came} of {2 * count} messages came")
    client.close()
    server.close()


def singly(node: Node, count: int, size: int = 100) -> None:
    """One message after the other, each delivered, accepted and settled before the next one."""
    consumer = Client(node).attach_receiver("singly")
    producer = Client(node).attach_sender("singly")
    for _ in range(count):
        producer.say(producer.next(size))
        consumer.take()
    consumer.took(count)
    producer.close()
    consumer.close()


def connections(node: Node, count: int) -> None:
    """Connections that come, attach a receiver each to a queue of their own, and go."""
    for number in range(count):
        Client(node).attach_receiver(f"own-{number % 10}", credit=10).close()


def queues(node: Node, count: int) -> None:
    """New queues with a message in each, all of one connection; then they are read."""
    client = Client(node)
    for number in range(count):
        client.attach_sender(f"queue-{number}")
        client.say(client.next(100))
        client.say(frame(Detach(handle=0, closed=True)))
    client.close()
    for number in range(count):
        drain(node, f"queue-{number}", 1)


def link(count: int) -> None:
    """Two nodes: what one gets is consumed at the other, in bulk and singly."""
    with running() as world:
        one = Node(world, "a", CLUSTER.format(name="a", other="b"))
        other = Node(world, "b", CLUSTER.format(name="b", other="a"))
        world.wait(1000)
        consumer = Client(other).attach_receiver("far")
        world.wait(1000)
        producer = Client(one).attach_sender("far")
        for durable in (False, True):
            for data in reads(producer, 1024, count, durable):
                producer.say(data)
                consumer.take()
        for _ in range(count // 4):
            producer.say(producer.next(1024, durable=True))
            consumer.take()
        consumer.took(producer.sent)


def train(divisor: int = 1) -> None:
    """All loads. A `divisor` makes them shorter."""

    def n(count: int) -> int:
        return max(count // divisor, 4)

    with running() as world:
        node = Node(world, "alone")
        connections(node, n(200))
        for producers, rounds in ((1, 4000), (16, 250), (64, 100)):
            one_in_flight(node, producers, n(rounds))
        one_in_flight(node, 16, n(100), consumed=True)
        singly(node, n(5000))
        bulk(node, 100, n(20_000), settled=True)
        bulk(node, 100, n(20_000))
        bulk(node, 1024, n(10_000), settled=True)
        bulk(node, 1024, n(10_000))
        bulk(node, 10 << 10, n(1000))
        bulk(node, 100 << 10, n(200))
        bulk(node, 1 << 20, n(20))
        many_in_flight(node, n(10_000), consumed=False)
        many_in_flight(node, n(10_000), consumed=True)
        transactions(node, n(1000))
        answered(node, n(1500))
        queues(node, n(200))
        selected(node, n(10_000))
    link(n(2000))


def main(modules: Sequence[str]) -> None:
    """Train the modules of these names: all are imported, so that each has a profile, be it empty."""
    # When the collector runs depends on what was imported how.
    gc.disable()
    for name in modules:
        importlib.import_module(name)
    train()


if __name__ == "__main__":
    main(sys.argv[1:])
