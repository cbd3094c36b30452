"""Routes to a node that share a queue there take turns: none waits for a turn that is over, whatever has ended it."""

from __future__ import annotations

from typing import Any

from mqbroker.core.queue.queue import Queue
from mqbroker.wire.sections import Header
from mqbroker.wire.types import Described, Symbol

from tests.support.cluster_stage import ClusterNode, ClusterStage, node_id_of
from tests.support.large_messages import Consumer, Producer

SELECTOR = Symbol("apache.org:selector-filter:string")
TOPIC = {"capabilities": ("topic",)}
TTL_MS = 2_000


def pair(options: tuple[dict[str, Any], dict[str, Any]] = ({}, {}), **changes: Any) -> tuple[ClusterStage, Any, Any]:
    """The second node has who takes all, and who takes what is red."""
    cluster = ClusterStage()
    a, b = (
        cluster.node(name, [far], options=own, **changes) for name, far, own in zip("ab", "ba", options, strict=True)
    )
    red = {SELECTOR: Described(SELECTOR, "colour = 'red'")}
    Consumer(b, "all", "news", credit=100, source=TOPIC)
    Consumer(b, "some", "news", credit=100, source=TOPIC, filter=red)
    cluster.run()
    cluster.wait(1_000)
    publish(a, "blue", "red")  # now both routes have a link, the one of blue ones first
    cluster.run()
    assert waiting(a) == {1: 0, 2: 0}
    return cluster, a, b


def publish(node: ClusterNode, *colours: str, size: int = 10, **header: Any) -> None:
    producer = Producer(node, f"p{len(node.batches)}", "news")
    for colour in colours:
        said = Header(**{"durable": True, **header})
        producer.send(b"x" * size, header=said, application_properties={"colour": colour})
    node.run()
    assert len(producer.outcomes) == len(colours)


def routes(node: ClusterNode) -> dict[int, Queue]:
    """Store-and-forward queues for the second node, by how many queues there they are for."""
    return {len(queue.kind.route): queue for queue in node.broker.store.remotes.queues_of(node_id_of("b"))}


def waiting(node: ClusterNode) -> dict[int, int]:
    """Messages for the second node."""
    return {count: queue.message_count for count, queue in routes(node).items()}


def on_their_way(node: ClusterNode) -> dict[int, int]:
    """Those that went, and have no answer."""
    return {count: queue.delivering_count for count, queue in routes(node).items()}


def part(cluster: ClusterStage) -> None:
    cluster.hold_up("a", "b")
    for pipe in cluster.between("a", "b"):
        cluster.cut(pipe)
    cluster.run()


def test_where_a_page_tells_that_it_is_not_the_turn_of_the_other() -> None:
    small = {"address_settings": {"#": {"max_size_messages": 8, "address_full_policy": "PAGE"}}}
    cluster, a, _ = pair((small, {}))
    part(cluster)
    publish(a, *["blue"] * 8)
    publish(a, *["red"] * 3)
    assert waiting(a) == {1: 8, 2: 3}
    cluster.let_through("a", "b")
    cluster.wait(3_000)
    assert waiting(a) == {1: 0, 2: 0}


def test_where_what_they_wait_for_expires() -> None:
    cluster, a, _ = pair(confirmation_window_size=3_000)
    cluster.hold_up("a", "b")
    publish(a, "red", size=3_000)  # its route has no room until this one is answered
    publish(a, "red", ttl=TTL_MS)
    publish(a, "blue")
    assert (waiting(a), on_their_way(a)) == ({1: 1, 2: 2}, {1: 0, 2: 1})
    cluster.wait(TTL_MS + 1_000)
    assert (waiting(a), on_their_way(a)) == ({1: 1, 2: 1}, {1: 1, 2: 1})


def test_where_what_they_wait_for_is_too_large_for_the_other_node() -> None:
    cluster, a, _ = pair(({}, {"limits": {"max_message_size_bytes": 2_000}}))
    part(cluster)
    publish(a, "red", size=3_000)
    publish(a, "blue")
    cluster.let_through("a", "b")
    cluster.wait(3_000)
    assert waiting(a) == {1: 0, 2: 0}
