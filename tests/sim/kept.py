"""What an address keeps for later queues, in histories in which nodes leave: each message of it is in one ring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from mqbroker.amqp.session import Session
from mqbroker.config.slices import AddressMatch, BrokerOptions
from mqbroker.wire.performatives import Attach, Source, Target
from mqbroker.wire.scan import scan_sections
from mqbroker.wire.sections import body_values

from tests.sim.clients import Producer
from tests.sim.topics import TOPIC
from tests.sim.world import SimNode
from tests.support.checker import History, id_in

ADDRESS: Final = "kept"
COUNT: Final = 10_000  # more than there ever are


class KeptPublisher(Producer):
    """Sends to an address to which nobody has subscribed."""

    def attach(self, session: Session) -> None:
        self.attached_ns = self.world.now_ns
        self.link = session.attach_sender(
            Attach(name=self.name, handle=0, role=False, snd_settle_mode=1 if self.is_settled else 0, source=Source(),
                   target=Target(address=ADDRESS, capabilities=(TOPIC,)), initial_delivery_count=0)
        )  # fmt: skip
        self.link.send_settled = self.is_settled


def keeping(options: BrokerOptions) -> BrokerOptions:
    """A node that keeps all that comes to the address."""
    settings = options.address_settings
    matches = (*settings.matches, AddressMatch(ADDRESS, {"retroactive_message_count": COUNT}))
    return replace(options, address_settings=replace(settings, matches=matches))


def lost_or_twice(history: History, nodes: Iterable[SimNode]) -> list[str]:
    """What of the kept ones is in no ring of any node, or in several."""
    found = Counter(each for node in nodes for each in _ids_at(node))
    lost = [
        name for name, sent in history.sent.items()
        if sent.is_durable and sent.outcome == "accepted" and not found[name]
    ]  # fmt: skip
    twice = [name for name, count in found.items() if count > 1]
    return [f"kept for later queues, and lost: {lost}"] * bool(lost) + [
        f"kept for later queues, and there twice: {twice}"
    ] * bool(twice)


def _ids_at(node: SimNode) -> Iterator[str | None]:
    for queue in node.broker.store.queues.values() if node.is_up else ():
        for segment in queue.segments() if queue.kind.is_ring else ():
            for place in range(segment.start, segment.start + segment.n):
                payload = bytes(segment.run.payload(place))
                yield id_in(b"".join(body_values(payload, scan_sections(payload, 0, len(payload)))[1]))
