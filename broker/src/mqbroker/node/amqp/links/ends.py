"""What the node has at its end of a link: something that takes messages in, or something that gives them out.

The end says what becomes of each event of its link, and answers what others ask of it (node/values/ends.py). So nobody
asks for its class, and a new kind of end is a module that `termini` finds through end_kinds.py. A link that was refused
has no end. `AddressEnd` and `LinkConsumer`, which nearly all messages pass, are compiled: they have these protocols
without deriving from them, and say all of it themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from mqbroker.amqp.links import LinkBase, ReceiverLink, SenderLink
from mqbroker.base.errors import Refused
from mqbroker.node.amqp.links.refusals import refuse_run
from mqbroker.node.values.ends import ReceivingEndOf, SendingEndOf
from mqbroker.wire.performatives import Coordinator, Target

if TYPE_CHECKING:
    from mqbroker.amqp.events import Incoming
    from mqbroker.node.amqp.links.consumer import LinkConsumer
    from mqbroker.node.amqp.peers.peer import Peer


class ReceivingEnd(ReceivingEndOf["Peer"], Protocol):
    """Takes in what the peer sends."""

    __slots__ = ()

    def not_stored(self, peer: Peer, event: Incoming, why: str) -> None:
        """A large message came, and its file cannot be written."""
        refuse_run(peer, event, Refused("amqp:internal-error", f"the message cannot be stored: {why}"))


class SendingEnd(SendingEndOf["Peer"], Protocol):
    """Gives out what the peer receives."""

    __slots__ = ()

    @property
    def consumer(self) -> LinkConsumer | None:
        """Its client, for those who attached its link."""
        return None


Receiving = TypeVar("Receiving", bound=ReceivingEnd)
Sending = TypeVar("Sending", bound=SendingEnd)


def set_receiving_end(link: ReceiverLink, end: Receiving) -> Receiving:
    """What comes on a link is this end's from now on."""
    link.end = end
    return end


def set_sending_end(link: SenderLink, end: Sending) -> Sending:
    """What goes out on a link is this end's from now on."""
    link.end = end
    return end


def consumer_on(link: LinkBase) -> LinkConsumer | None:
    """Who consumes over a link, or did until it was detached, for those who attached it."""
    if not isinstance(link, SenderLink):
        return None
    held: Any = link.end
    end: SendingEnd | None = held
    return None if end is None else end.consumer


class MadeEnd(NamedTuple):
    """An end for a link that is being attached, and how its target is answered."""

    end: ReceivingEnd
    answer: Target | Coordinator


def answer_to(target: Target) -> Target:
    """A target that is as it was asked for."""
    return Target(address=target.address, durable=target.durable, expiry_policy=target.expiry_policy,
                  timeout=target.timeout, capabilities=target.capabilities)  # fmt: skip
