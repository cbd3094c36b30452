"""Which kinds of ends a terminus may ask for, besides an address and a queue: a new one is a module, and its line here.

Each function looks whether the terminus of an attach is of its kind. For what a peer sends it makes the end, and says
how the target is answered; for what a peer receives it answers the attach and begins. All raise Refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from mqbroker.node.amqp.links import coordinator_end
from mqbroker.node.amqp.listeners import topology_links
from mqbroker.node.cluster.membership import arrival_links, notice_links, relay

if TYPE_CHECKING:
    from mqbroker.amqp.links import ReceiverLink, SenderLink
    from mqbroker.node.amqp.links.ends import MadeEnd
    from mqbroker.node.amqp.listeners.accepted_peer import AcceptedPeer
    from mqbroker.wire.performatives import Attach

    ReceivingKind: TypeAlias = Callable[[AcceptedPeer, ReceiverLink, Attach], MadeEnd | None]
    SendingKind: TypeAlias = Callable[[AcceptedPeer, SenderLink, Attach], bool]

RECEIVING: Final[tuple[ReceivingKind, ...]] = (
    coordinator_end.end_for,
    arrival_links.end_for,
    relay.end_for,
)
SENDING: Final[tuple[SendingKind, ...]] = (
    notice_links.attach,
    topology_links.attach,
)
