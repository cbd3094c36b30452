"""What the node has at its end of a link: something that takes messages in, or something that gives them out.

The end says what becomes of each event of its link (`link.end`), and answers what others ask of it. So nobody asks for
its class, and a new kind of end is a module that `termini` finds through end_kinds.py. A link that was refused has no
end. What most ends answer stands here. `AddressEnd` and `LinkConsumer`, which nearly all messages pass, are compiled:
they have these protocols without deriving from them, and say all of it themselves.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from mqbroker.node.amqp.links.refusals import refuse_run
from mqbroker.node.values.prefixes import TerminusPlace
from mqbroker.wire.performatives import Coordinator, Target

if TYPE_CHECKING:
    from mqbroker.amqp.events import Detached, Incoming, Posted
    from mqbroker.core.address.address import Address
    from mqbroker.core.address.permissions import Actor
    from mqbroker.core.queue.meter import Meter
    from mqbroker.core.queue.queue import Client
    from mqbroker.node.amqp.links.consumer import LinkConsumer
    from mqbroker.node.amqp.peers.peer import Peer
    from mqbroker.wire.run import Run

AddressPart: TypeAlias = "tuple[Address | None, int, int]"  # what of a run goes to one address: from, to before


class ReceivingEnd(Protocol):
    """Takes in what the peer sends."""

    __slots__ = ()

    # -- credit --------------------------------------------------------------------------------------------------------

    @property
    def fixed_credit(self) -> int:
        """Credit that is given whatever the memory holds; 0: as room and limits say."""
        return 0

    @property
    def meter(self) -> Meter | None:
        """Counts what waits where the messages go, and may hold their sender back."""
        return None

    @property
    def takes_when_full(self) -> bool:
        """Whether what comes has a place while the memory is full."""
        return True

    # -- messages ------------------------------------------------------------------------------------------------------

    @property
    def request_size_max(self) -> int:
        """Bytes of what is asked of the broker itself, and is no message; 0: messages come."""
        return 0

    @abstractmethod
    def incoming(self, peer: Peer, event: Incoming) -> None:
        """Messages came, on a link that is attached."""

    def numbered(self, first_id: int, mark: str | None) -> None:
        """The id of the next message where it comes from, and its mark where that is another one than before."""
        return

    def group_parts(self, peer: Peer, event: Incoming | Posted) -> list[AddressPart]:
        """Where messages go whose groups may have owners; to None: where no groups are kept together."""
        return [(None, 0, event.run.count)]

    @property
    def checks_forms(self) -> bool:
        """Whether a large message is held against the form of messages while it comes (malformed.py)."""
        return True

    def not_stored(self, peer: Peer, event: Incoming, why: str) -> None:
        """A large message came, and its file cannot be written."""
        refuse_run(peer, event, f"the message cannot be stored: {why}", "amqp:internal-error")

    # -- transactions --------------------------------------------------------------------------------------------------

    @property
    def takes_posts(self) -> bool:
        """Whether messages may be part of a transaction."""
        return False

    def place_of(self, run: Run) -> TerminusPlace:
        """Where the one message of a transaction goes; asked of those that take posts."""
        return TerminusPlace("")

    def check_post(self, place: TerminusPlace, run: Run, sender: Actor) -> None:
        """Whether the sender may send it there. Raises Refused."""
        return

    # -- who uses what -------------------------------------------------------------------------------------------------

    @property
    def address_name(self) -> str | None:
        """The address that all messages of a client go to."""
        return None

    def recheck(self, sender: Actor) -> None:
        """Permissions or roles have changed."""
        return

    # -- begin and end -------------------------------------------------------------------------------------------------

    def attached(self, peer: Peer) -> None:
        """The link stands: both ends have attached."""
        return

    def detached(self, peer: Peer, event: Detached) -> None:
        """The link is over: the peer has detached it, or is gone."""
        return


class SendingEnd(Protocol):
    """Gives out what the peer receives."""

    __slots__ = ()

    @property
    def client(self) -> Client | None:
        """The consumer of a queue that it is."""
        return None

    @property
    def consumer(self) -> LinkConsumer | None:
        """The same, for those who attached its link."""
        return None

    @property
    def default_outcome(self) -> Any:
        """What is settled without an outcome has this one (AMQP 1.0 §3.5.3); None: accepted."""
        return None

    def credit_given(self) -> None:
        """Credit, drain or window of the link have changed, or the transport takes something again."""
        return

    @property
    def is_drained(self) -> bool:
        """Whether all that the link may have was sent, so that a drain that waits for it is answered."""
        return False

    @property
    def is_shown(self) -> bool:
        """Whether administrators see a consumer in it."""
        return True

    def detached(self, peer: Peer, event: Detached) -> None:
        """The link is over. What was with the peer is back."""
        return


class MadeEnd(NamedTuple):
    """An end for a link that is being attached, and how its target is answered."""

    end: ReceivingEnd
    answer: Target | Coordinator


def answer_to(target: Target) -> Target:
    """A target that is as it was asked for."""
    return Target(address=target.address, durable=target.durable, expiry_policy=target.expiry_policy,
                  timeout=target.timeout, capabilities=target.capabilities)  # fmt: skip
