"""Which end a link has, under the protocol of its role (ends.py).

The link keeps it as an object, so mypy lets nobody ask it for anything but by way of these functions, and only
`node/amqp/links/ends.py` gives a link its end. Compiled, as messages pass here: a cast would cost where it is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from mqbroker.amqp.links import LinkBase, ReceiverLink, SenderLink
    from mqbroker.core.queue.queue import Client
    from mqbroker.node.values.ends import ReceivingEndOf, SendingEndOf

P = TypeVar("P")  # what the caller hands on is of the class that it names


def receiving_end(link: ReceiverLink) -> ReceivingEndOf[P]:
    """What takes in what comes. Each link that is attached has one; one that was refused has none."""
    held: Any = link.end
    end: ReceivingEndOf[P] = held
    return end


def sending_end(link: SenderLink) -> SendingEndOf[P] | None:
    """What gives out what goes; None: the link was refused, or is over."""
    held: Any = link.end
    end: SendingEndOf[P] | None = held
    return end


def end_of(link: LinkBase) -> ReceivingEndOf[P] | SendingEndOf[P] | None:
    """Either of them, for what both are told."""
    held: Any = link.end
    end: ReceivingEndOf[P] | SendingEndOf[P] | None = held
    return end


def consumer_of(link: SenderLink) -> Client | None:
    """Whose deliveries those on a link are."""
    held: Any = link.end
    end: SendingEndOf[Any] | None = held
    return None if end is None else end.client


def forget_end(link: SenderLink) -> None:
    """The link is over: each of the two would keep the other one for ever."""
    link.end = None
