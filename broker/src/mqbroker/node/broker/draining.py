"""Consumers that asked for what there is: those who have it are told that this was all (AMQP 1.0 §2.6.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mqbroker.node.broker.broker import Broker


def end_drains(broker: Broker) -> None:
    """Look at all who wait for that, behind the deliveries of a step."""
    draining = broker.draining
    for link in list(draining):
        if not link.is_attached or not link.is_draining:
            del draining[link]
        elif link.end.is_drained:
            peer = draining.pop(link)
            link.drained()
            peer.touch()  # in a step in which only the disk had something to say
