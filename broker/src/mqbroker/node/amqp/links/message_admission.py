"""What becomes of messages for an address that is full (core/queue/meter.py), as far as it concerns their senders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqbroker.amqp.events import Incoming
from mqbroker.base.errors import Refused
from mqbroker.core.queue.meter import BLOCK, Meter
from mqbroker.node.amqp.links.refusals import refuse_range
from mqbroker.wire.parts import part_of, parts_of

if TYPE_CHECKING:
    from mqbroker.core.address.address import Address
    from mqbroker.core.store.store import Store
    from mqbroker.node.amqp.peers.peer import Peer
    from mqbroker.wire.run import Run


def admitted(peer: Peer, event: Incoming, address: Address, meter: Meter) -> Incoming | None:
    """The messages that the address takes; the rest is refused, or accepted and dropped, at once."""
    link, run, first, is_settled = event.link, event.run, event.delivery_id, event.is_settled
    count = run.count if meter.policy == BLOCK else meter.fitting(run)
    if count == run.count:
        return event
    taken = Incoming(link, part_of(run, 0, count), first, is_settled) if count else None
    if not meter.drops and is_settled:
        if taken is not None:
            peer.broker.store.publish(address, taken.run, peer.origin)
        refuse_range(event, count, meter.refused(run.count - count))
        return None
    if not meter.drops:
        _refuse(peer, event, count, address, meter)
    else:
        meter.refused(run.count - count)
        if not is_settled:
            link.session.accept(first + count, run.count - count)
    if taken is None:
        peer.replenish(link)
    return taken


def _refuse(peer: Peer, event: Incoming, begin: int, address: Address, meter: Meter) -> None:
    """Those from one on; but what was seen before needs no room, and is accepted and dropped as always."""
    store, link = peer.broker.store, event.link
    at = begin
    for part in parts_of(part_of(event.run, begin, event.run.count)):
        if not store.duplicates.knows(address.name, part):
            refuse_range(event, at, meter.refused(part.count), count=part.count)
        elif store.publish(address, part, peer.origin):
            store.decisions.wait(peer.accept, link, event.delivery_id + at, part.count)
        else:
            link.session.accept(event.delivery_id + at, part.count)
        at += part.count


def is_dropped(store: Store, address: Address, runs: list[Run]) -> bool:
    """Whether messages are dropped, of those who have no link at the address and cannot be held back by credit.

    Raises Refused where they are refused instead. Those that were seen before are left to duplicate detection.
    """
    meter = address.meter
    count = sum(run.count for run in runs)
    if meter is None or meter.takes(1 if meter.drops else count):
        return False
    known = sum(store.duplicates.knows(address.name, part) for run in runs for part in parts_of(run))
    if known == count or (known and not meter.drops and meter.takes(count - known)):
        return False
    why = meter.refused(count)
    if not meter.drops:
        raise Refused("amqp:resource-limit-exceeded", why)
    return True
