"""What becomes of messages for an address that is full (core/meter.py), as far as it concerns their senders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqbroker.amqp.events import Incoming
from mqbroker.base.errors import Refused
from mqbroker.core.meter import BLOCK, Meter
from mqbroker.node.refusals import refuse_range
from mqbroker.wire.parts import part_of

if TYPE_CHECKING:
    from mqbroker.core.address import Address
    from mqbroker.node.peer import Peer


def admitted(peer: Peer, event: Incoming, meter: Meter) -> Incoming | None:
    """The messages that the address takes; the rest is refused, or accepted and dropped, at once."""
    link, run, first, is_settled = event.link, event.run, event.delivery_id, event.is_settled
    count = run.count if meter.policy == BLOCK else meter.fitting(run)
    if count == run.count:
        return event
    taken = Incoming(link, part_of(run, 0, count), first, is_settled) if count else None
    why = meter.refused(run.count - count)
    if not meter.drops and is_settled:
        if taken is not None:
            peer.broker.store.publish(link.owner, taken.run, peer.origin)
        refuse_range(event, count, why)
        return None
    if not meter.drops:
        refuse_range(event, count, why)
    elif not is_settled:
        link.session.accept(first + count, run.count - count)
    if taken is None and link.credit * 2 <= link.window:
        peer.grant(link)
    return taken


def is_dropped(address: Address, count: int) -> bool:
    """Whether so many messages are dropped, of those who have no link at the address and cannot be held back by credit.

    Raises Refused where they are refused instead.
    """
    meter = address.meter
    if meter is None or meter.takes(1 if meter.drops else count):
        return False
    why = meter.refused(count)
    if not meter.drops:
        raise Refused("amqp:resource-limit-exceeded", why)
    return True
