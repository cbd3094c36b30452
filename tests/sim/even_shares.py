"""Equal shares: in calm, with a consumer that has credit at each node, messages that come one by one go to all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mqbroker.core.cluster.cluster_bindings import bindings_at

from tests.sim.clients import Consumer, Producer
from tests.sim.world import SimNode, World
from tests.support.checker import History

EACH: Final = 10  # messages for each node
TOLERANCE: Final = 0.1
KNOWN_MS: Final = 30_000  # within which all nodes have to be known again
QUEUE: Final = "node0-q9"


class _OneByOne(Producer):
    """Sends the next one when the last was answered."""

    def __init__(self, world: World, node: SimNode, history: History, count: int) -> None:
        super().__init__(world, node, f"{QUEUE}-p0", history, QUEUE, count)
        self.size_max = 40

    def _send(self) -> None:
        link, session = self.link, self.session
        is_answered = self.is_settled or all(each.outcome != "unknown" for each in self.history.sent.values())
        if link is not None and session is not None and link.is_attached and link.credit and is_answered:
            self._send_one(session, link)


def _is_known(node: SimNode, count: int) -> bool:
    """Whether a node knows a consumer of the queue at so many others."""
    address = node.broker.store.addresses.get(QUEUE)
    queue = node.broker.store.queues.get(QUEUE)
    bindings = None if address is None else bindings_at(address)
    if queue is None or not queue.consumers or bindings is None:
        return False
    group = bindings.group_of(queue)
    willing = (
        [each for each in group.remotes if each.binding.is_connected and each.binding.accepts_all] if group else []
    )
    return len(willing) == count


def check_shares(world: World, nodes: Sequence[SimNode]) -> list[str]:
    """What is wrong with the shares; takes some time of the history."""
    history = History(is_several_nodes=True)
    consumers = [Consumer(world, node, f"even-{node.name}", history, QUEUE, is_drain=True) for node in nodes]
    for each in consumers:
        each.window = 100
    source = world.rng.choice(list(nodes))
    until_ms = world.now_ns // 1_000_000 + KNOWN_MS
    world.run(until_ms, lambda: _is_known(source, len(nodes) - 1))
    if not _is_known(source, len(nodes) - 1):
        return [f"unknown: {source.name} does not know the consumers of all nodes after {KNOWN_MS} ms of calm"]
    got = dict.fromkeys((node.name for node in nodes), 0)
    producer = _OneByOne(world, source, history, EACH * len(nodes))
    world.run(world.now_ns // 1_000_000 + KNOWN_MS, lambda: history.received.total() >= EACH * len(nodes))
    for each in consumers:
        got[each.node.name] = each.taken
    for client in (producer, *consumers):
        client.stop()
    found = history.check_drained(EACH * len(nodes) - history.received.total())
    if any(abs(count - EACH) > EACH * TOLERANCE for count in got.values()):
        found.append(f"shares: of {EACH * len(nodes)} messages sent one by one at {source.name}, {got}")
    return found
