"""A reload gives a queue other terms: whoever sends at another node finds it after each notice of that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from mqbroker.config.slices import AddressOptions, BrokerOptions, QueueOptions
from mqbroker.node.values import inputs as given

from tests.support.cluster_stage import ClusterNode, ClusterStage
from tests.support.large_messages import Consumer, Producer
from tests.unit.node.test_reloads_by_turns import reloading

LIMITS = {
    "limits": {"link_credit": 1000},
    "address_settings": {"topic": {"default_address_routing_type": "MULTICAST"}},
}
TERMS = [{"exclusive": True}, {"filter": "NOT a = 1 OR a IS NULL"}]


def declaring(options: BrokerOptions, address: str, **queue: Any) -> BrokerOptions:
    """One queue `sub`: at `topic` for subscribers, else at its own address."""
    unsaid: dict[str, Any] = dict.fromkeys(QueueOptions.__slots__) | {"name": "sub", "durable": True, "filter": ""}
    sub = (QueueOptions(**{**unsaid, **queue}),)
    routing, queues = (("MULTICAST",), ((), sub)) if address == "topic" else (("ANYCAST",), (sub, ()))
    return replace(options, addresses=(AddressOptions(address, routing, *queues),))


def frames_between(cluster: ClusterStage, one: str, other: str) -> Iterator[bytes]:
    """What was held up between two nodes arrives frame by frame."""
    cluster.held_up.discard(frozenset((one, other)))
    held = [(pipe, node, item) for pipe in cluster.between(one, other) for node, item in pipe.held]
    for pipe in cluster.between(one, other):
        pipe.held = []
    for pipe, node, item in held:
        assert isinstance(item, given.BytesReceived)
        data, at = bytes(item.data), 0
        while at < len(data):
            frame = data[at : at + int.from_bytes(data[at : at + 4], "big")]
            at += len(frame)
            pipe.deliver(node, given.BytesReceived(item.conn, frame))
            node.run()
            yield frame


def line_of(count: int) -> tuple[ClusterStage, list[ClusterNode]]:
    """So many nodes, each linked to the next one."""
    cluster = ClusterStage()
    names = "abc"[:count]
    nodes = [
        cluster.node(
            name, [names[other] for other in (at - 1, at + 1) if 0 <= other < count],
            options=LIMITS, message_load_balancing="ON_DEMAND", max_hops=count - 1,
        )
        for at, name in enumerate(names)
    ]  # fmt: skip
    if count == 3:
        cluster.hold_up("a", "c")
    cluster.run()
    cluster.wait(600)
    return cluster, nodes


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("address", ["topic", "sub"])
@pytest.mark.parametrize("count", [2, 3])
def test_what_is_sent_after_each_notice_comes_to_the_queue(count: int, address: str, terms: dict[str, object]) -> None:
    cluster, nodes = line_of(count)
    first, last = nodes[0], nodes[-1]
    options = first.broker.options
    reloading(first, declaring(options, address))
    cluster.run()
    reader = Consumer(first, "reader", f"{address}::sub", 100)
    cluster.run()
    producer = Producer(last, "producer", address)
    producer.send(b"before")
    cluster.run()
    assert reader.bodies == [b"before"]
    before_last = nodes[-2].name
    cluster.hold_up(before_last, last.name)
    reloading(first, declaring(options, address, **terms))
    cluster.run()
    sent = [b"before"]
    for frame in frames_between(cluster, before_last, last.name):
        if b"cluster_name" in frame or b"binding-added" in frame:
            sent.append(b"%d" % len(sent))
            producer.send(sent[-1])
            last.run()
    assert len(sent) > 2, "its terms and its consumer were told"
    cluster.run()
    cluster.wait(2_000)
    assert reader.bodies == sent
