"""What is asked of the node's end of a link: it takes messages in, or gives them out.

A link holds its end and knows nothing of it (`amqp/links.py:LinkBase.end`); link_ends.py finds it there under these
protocols, so mypy checks all that is asked. What an end is told of the connection that its link is of, by whom and in
which room, stays open here (`PeerT`): ends are made a few rooms above, where that is a `Peer`
(`node/amqp/links/ends.py`). What most ends answer stands here. All of it is said by each class that does not derive
from them, as those do that are compiled and that nearly all messages pass.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from mqbroker.node.values.prefixes import TerminusPlace

if TYPE_CHECKING:
    from mqbroker.amqp.events import Detached, Incoming, Posted
    from mqbroker.amqp.links import ReceiverLink, SenderLink
    from mqbroker.core.address.address import Address
    from mqbroker.core.address.permissions import Actor
    from mqbroker.core.queue.meter import Meter
    from mqbroker.core.queue.queue import Client, Segment
    from mqbroker.wire.performatives import Attach, Error
    from mqbroker.wire.run import Run

AddressPart: TypeAlias = "tuple[Address | None, int, int]"  # what of a run goes to one address: from, to before
PeerT = TypeVar("PeerT", contravariant=True)


class ReceivingEndOf(Protocol[PeerT]):
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
    def incoming(self, peer: PeerT, event: Incoming) -> None:
        """Messages came, on a link that is attached."""

    def numbered(self, first_id: int, mark: str | None) -> None:
        """The id of the next message where it comes from, and its mark where that is another one than before."""
        return

    def group_parts(self, peer: PeerT, event: Incoming | Posted) -> list[AddressPart]:
        """Where messages go whose groups may have owners; to None: where no groups are kept together."""
        return [(None, 0, event.run.count)]

    @property
    def checks_forms(self) -> bool:
        """Whether a large message is held against the form of messages while it comes (malformed.py)."""
        return True

    @abstractmethod
    def not_stored(self, peer: PeerT, event: Incoming, why: str) -> None:
        """A large message came, and its file cannot be written."""

    # -- transactions --------------------------------------------------------------------------------------------------

    @property
    def takes_posts(self) -> bool:
        """Whether messages may be part of a transaction."""
        return False

    @property
    def has_one_place(self) -> bool:
        """Whether all that comes goes to one place; else each message may name its own."""
        return False

    def place_of(self, run: Run) -> TerminusPlace:
        """Where messages of a transaction go, one by one unless they have one place; asked of those that take posts."""
        return TerminusPlace("")

    def check_post(self, place: TerminusPlace, run: Run, sender: Actor) -> None:
        """Whether the sender may send it there. Raises Refused."""
        return

    @property
    def can_reject(self) -> bool:
        """Whether what asks for a transaction can be refused by its outcome; else the end of the link says so."""
        return True

    # -- who uses what -------------------------------------------------------------------------------------------------

    @property
    def address_name(self) -> str | None:
        """The address that all messages of a client go to."""
        return None

    def recheck(self, sender: Actor) -> None:
        """Permissions or roles have changed."""
        return

    # -- begin and end -------------------------------------------------------------------------------------------------

    def attached(self, peer: PeerT) -> None:
        """The link stands: both ends have attached."""
        return

    def answered(self, peer: PeerT, link: ReceiverLink, answer: Attach) -> None:
        """The other end has answered the attach of a link that we asked for. A refusal follows as a detach."""
        return

    def detached(self, peer: PeerT, event: Detached) -> None:
        """The link is over: the peer has detached it, or is gone."""
        return


class SendingEndOf(Protocol[PeerT]):
    """Gives out what the peer receives."""

    __slots__ = ()

    @property
    def client(self) -> Client | None:
        """The consumer of a queue that it is."""
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

    def detached(self, peer: PeerT, event: Detached) -> None:
        """The link is over. What was with the peer is back."""
        return

    # -- links that we asked for ---------------------------------------------------------------------------------------

    def answered(self, peer: PeerT, link: SenderLink, answer: Attach) -> None:
        """The other end has answered the attach. A refusal follows as a detach."""
        return

    def told_of(self, segment: Segment) -> None:
        """The other end has given these messages an outcome, which is about to be acted on."""
        return

    def outcomes_taken(self) -> None:
        """It was acted on outcomes of what went out here."""
        return

    def ended(self, error: Error | None) -> None:
        """The link is over, and what was on it is back in its queue."""
        return
