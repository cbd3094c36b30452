"""Names that are no addresses here: of what the broker tells, and of addresses that another broker has.

Who attaches to one of those is told where it is (AMQP 1.0 §2.8.18, amqp:link:redirect). `redirect-to` of address
settings says so, for the time in which an address moves. Links that stand go on, and so do temporary queues, which are
where their maker is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqbroker.amqp.redirect import LINK_REDIRECT, TOPOLOGY, place_of, redirect_info
from mqbroker.base.errors import Refused
from mqbroker.node.cluster.membership.notice_links import NOTICES

if TYPE_CHECKING:
    from mqbroker.node.values.base_broker import BaseBroker


TOLD = (NOTICES, str(TOPOLOGY))


def check_is_here(broker: BaseBroker, address: str, named: str) -> None:
    """Raises Refused where a name is no address here; `named` is how the peer wrote its terminus."""
    if address in TOLD:
        raise Refused("amqp:not-allowed", f"{address} tells and takes nothing: attach a receiver to it")
    place = broker.store.settings.of(address).redirect_to
    if place and address not in broker.temporary:
        info = redirect_info(place_of(place)._replace(address=named))
        raise Refused(LINK_REDIRECT, f"address {address!r} is at {place}", info)
