"""Senders whose address is not what it was when their link was attached: its queues are gone, or their permission is.

Artemis asks for the permission with each message. Here it is asked for as a link is attached, and once more when
permissions or roles change: a link whose sender may send no more gets an address that leads nowhere in the place of its
own. At such an address each run asks again, as it does where queues were deleted. So a message of those who may costs
nothing more, and who gets the permission back goes on. Source: Artemis's manual, "Configuration Reload".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mqbroker.amqp import work
from mqbroker.amqp.events import Incoming
from mqbroker.base.errors import Refused
from mqbroker.base.look import LOOK
from mqbroker.core.address import Address
from mqbroker.node.refusals import refuse_run

if TYPE_CHECKING:
    from mqbroker.node.peer import Peer


class Withdrawn(Address):
    """Stands where the address of a link stood. It has what decides about credit, and no queue."""

    __slots__ = ("place",)

    def __init__(self, place: Address) -> None:
        super().__init__(place.name, place.meter, pages=place.can_page)
        self.target = place.target
        self.place = place


def withdraw(peer: Peer) -> Iterator[int]:
    """Permissions or roles have changed: look at all links on which messages may come.

    Each is a piece, and yields what it cost, in units of amqp/work.py.
    """
    for link in list(peer.producers):
        if link in peer.producers and isinstance(link.owner, Address) and not isinstance(link.owner, Withdrawn):
            try:
                with peer.broker.permissions.acting(peer.actor):
                    peer.broker.store.may_send(link.owner.target)
            except Refused:
                LOOK.has_touched = True
                link.owner = Withdrawn(link.owner)
        yield work.LOOKED_AT


def place_of(owner: Address) -> Address:
    """The address at which the producer was counted."""
    return owner.place if isinstance(owner, Withdrawn) else owner


def bind_again(peer: Peer, event: Incoming) -> bool:
    """Find a way for messages at whose address no queue is; whether there is one. If not, their sender is told."""
    owner: Address = event.link.owner
    if not isinstance(owner, Withdrawn):
        return _find(peer, event)
    try:
        with peer.broker.permissions.acting(peer.actor):
            peer.broker.store.may_send(owner.target)
    except Refused as refused:
        refuse_run(peer, event, refused.description, refused.condition)
        return False
    LOOK.has_touched = True
    event.link.owner = owner.place
    return not owner.place.is_empty or owner.place.is_topic or _find(peer, event)


def _find(peer: Peer, event: Incoming) -> bool:
    """The queues of an address may have been deleted since the link was attached: as if it attached now."""
    link, store = event.link, peer.broker.store
    try:
        with peer.broker.permissions.acting(peer.actor):
            found = store.target_for(link.owner.target)
    except Refused as refused:
        link.detach(refused.condition, refused.description)
        return False
    store.idle.attached(found)
    LOOK.has_touched = True
    before, link.owner = link.owner, found
    store.idle.detached(before)
    return True
