"""The end of a link to the coordinator: what is asked there goes to the transactions of the connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqbroker.amqp.events import Detached, Incoming
from mqbroker.amqp.links import FEW_MAX, ReceiverLink
from mqbroker.base.look import LOOK
from mqbroker.node.amqp.links.ends import MadeEnd, ReceivingEnd
from mqbroker.wire.performatives import Attach, Coordinator
from mqbroker.wire.types import Symbol

if TYPE_CHECKING:
    from mqbroker.node.amqp.peers.peer import Peer

CREDIT = 100  # declares and discharges; granted whatever the memory holds, because discharges make room
REQUEST_SIZE_MAX = 16 * 1024  # bytes of a message to the coordinator
CAPABILITIES = tuple(
    map(Symbol, ("amqp:local-transactions", "amqp:multi-txns-per-ssn", "amqp:multi-ssns-per-txn"))
)  # fmt: skip
REJECTED_NAME = "amqp:rejected:list"


class CoordinatorEnd(ReceivingEnd):
    """Takes in what is asked of the coordinator."""

    __slots__ = ("_can_reject",)

    fixed_credit = CREDIT
    request_size_max = REQUEST_SIZE_MAX

    def __init__(self, attach: Attach) -> None:
        outcomes = attach.source.outcomes if attach.source is not None else None
        self._can_reject = outcomes is None or REJECTED_NAME in outcomes

    @property
    def can_reject(self) -> bool:
        """Whether the source of the link supports the outcome rejected."""
        return self._can_reject

    def incoming(self, peer: Peer, event: Incoming) -> None:
        """Requests to declare or discharge a transaction came (AMQP 1.0 §4.1)."""
        peer.transactions.requested(event)

    def detached(self, peer: Peer, event: Detached) -> None:
        """The transactions that were declared on the link go with it."""
        peer.transactions.coordinator_detached(event.link)


def end_for(peer: Peer, link: ReceiverLink, attach: Attach) -> MadeEnd | None:
    """A peer asks for a link to the coordinator."""
    if not isinstance(attach.target, Coordinator):
        return None
    LOOK.has_touched = True
    link.run_max = FEW_MAX
    peer.connection.is_transactional = True
    return MadeEnd(CoordinatorEnd(attach), Coordinator(capabilities=CAPABILITIES))
