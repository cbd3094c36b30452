"""The node as its store sees it (core/store/surroundings.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from mqbroker.base.look import LOOK
from mqbroker.core.address.address import MULTICAST
from mqbroker.core.address.permissions import Actor
from mqbroker.core.queue.queue import Queue, Segment
from mqbroker.journal.places import Slice
from mqbroker.node.cluster.grouping.grouping import grouping_of
from mqbroker.node.values.effects import ReadPage

if TYPE_CHECKING:
    from mqbroker.core.cluster.cluster_store import ClusterStore
    from mqbroker.core.cluster.grouping import Grouping
    from mqbroker.node.amqp.peers.amqp_broker import AmqpBroker
    from mqbroker.node.broker.local import LocalSessions


class NodeSurroundings:
    """Asks the broker when it is asked, so its parts need not be there when the store is made."""

    __slots__ = ("_broker", "_local", "node_id", "schedule")

    def __init__(self, broker: AmqpBroker, local: LocalSessions) -> None:
        self._broker: Final = broker
        self._local: Final = local
        self.node_id: Final = broker.node_id
        self.schedule: Final = broker.timers.add

    def permit(self, actor: Actor | None, permission: str, address: str, queue: str = "") -> None:
        """Raises Refused where `actor` may not do this at the address."""
        self._broker.permissions.check(actor, permission, address, queue)

    def in_delivery(self) -> Iterator[tuple[Queue, Segment]]:
        """What is unsettled on links, in transactions, with administrators, or waits for an answer of another node."""
        for peer in self._broker.peers.values():
            yield from peer.in_delivery()
        yield from self._local.in_delivery()
        for held in self._broker.store.remotes.scale_down.held:
            yield from ((held.queue, segment) for segment in held.queue.segments())

    def read_page(self, slices: tuple[Slice, ...], then: Callable[[list[bytes]], None]) -> None:
        """By an effect, whose failure ends the node."""
        effect_id = self._broker.completions.expect(lambda pieces, _why: then(pieces))
        LOOK.has_touched = True
        self._broker.effects.append(ReadPage(effect_id, slices))

    def ends_itself(self, queue: Queue) -> bool:
        """Whether the queue is there for a link: a temporary one, or a subscription that is not durable."""
        kind = queue.kind
        return kind.name in self._broker.temporary or (kind.routing == MULTICAST and not kind.is_durable)

    def grouping_for(self, store: ClusterStore) -> Grouping | None:
        """As the options of the grouping handler say, which loads the owners when it is made; None: there is none."""
        return grouping_of(store, self._broker.options.grouping_handler)
