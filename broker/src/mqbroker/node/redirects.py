"""Addresses that another broker has: who attaches to one is told where (AMQP 1.0 §2.8.18, amqp:link:redirect).

`redirect-to` of address settings says so, for the time in which an address moves. Links that stand go on, and so do
temporary queues, which are where their maker is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqbroker.amqp.redirect import LINK_REDIRECT, place_of, redirect_info
from mqbroker.base.errors import Refused

if TYPE_CHECKING:
    from mqbroker.node.broker import Broker


def check_is_here(broker: Broker, address: str, named: str) -> None:
    """Raises Refused where links to an address are sent on; `named` is how the peer wrote its terminus."""
    place = broker.store.settings.of(address).redirect_to
    if place and address not in broker.temporary:
        info = redirect_info(place_of(place)._replace(address=named))
        raise Refused(LINK_REDIRECT, f"address {address!r} is at {place}", info)
