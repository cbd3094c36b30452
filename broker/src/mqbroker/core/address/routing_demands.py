"""Whether a sender is content with what is at its address: what it wants, against what is there, in one table.

All ask here: the end of a link before it takes a message (node/amqp/links/address_end.py), whoever looks for an address
again or attaches, and a transaction as it commits, which says what its sender wanted (`target_at` of
fully_qualified.py). Invariant: a sender that wants a queue, or had found one, never takes a topic that another sender
made for a way. Found is a queue that was there as it came or as it sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mqbroker.core.address.address import ANYCAST, MULTICAST, Address

if TYPE_CHECKING:
    from mqbroker.core.address.address_store import AddressStore

# What a sender wants: ANYCAST a queue, MULTICAST a topic, and
ANY: Final = ""  # what is there; where nothing is, what the settings say
FOUND: Final = "found"  # the same, and its address has had a queue since it came
AMONG: Final = "among"  # a topic, where others send too: nothing becomes one under them

# What is there, from the nearest on:
QUEUE: Final = "queue"  # one that shares its messages out, of this node; or the one queue that is meant
REMOTE: Final = "queue elsewhere"  # the same, of another node, and messages go to it from here
COPIES: Final = "copies"  # subscriptions, here or where messages go to from here
TOPIC: Final = "topic"  # that a person or the settings made, and nobody subscribes
UNRULED: Final = "unruled topic"  # nobody subscribes, and no more than a sender made it one
NOTHING: Final = "nothing"

STAY: Final = "stay"  # what is there takes what comes; all others say what is asked for
WAYS: Final = {
    ANYCAST:   {QUEUE: STAY, REMOTE: STAY, COPIES: ANYCAST, TOPIC: ANYCAST, UNRULED: ANYCAST, NOTHING: ANYCAST},
    MULTICAST: {QUEUE: STAY, REMOTE: STAY, COPIES: STAY,    TOPIC: STAY,    UNRULED: STAY,    NOTHING: MULTICAST},
    AMONG:     {QUEUE: STAY, REMOTE: STAY, COPIES: STAY,    TOPIC: STAY,    UNRULED: STAY,    NOTHING: AMONG},
    FOUND:     {QUEUE: STAY, REMOTE: STAY, COPIES: STAY,    TOPIC: STAY,    UNRULED: ANYCAST, NOTHING: ANY},
    ANY:       {QUEUE: STAY, REMOTE: STAY, COPIES: STAY,    TOPIC: STAY,    UNRULED: STAY,    NOTHING: ANY},
}  # fmt: skip
ROUTINGS: Final = {ANYCAST: ANYCAST, MULTICAST: MULTICAST, AMONG: MULTICAST, FOUND: "", ANY: ""}  # of a new queue


def is_content(store: AddressStore, wanted: str, address: Address) -> bool:
    """Whether what comes to the address as it is now gets where its sender wants it."""
    return WAYS[wanted][there_at(store, address, wanted)] == STAY


def there_at(store: AddressStore, address: Address | None, wanted: str) -> str:
    """What is at an address: one of the above. Who made a topic is asked for those alone to whom it matters."""
    if address is None:
        return NOTHING
    if address.anycast or (address.multicast and address.target != address.name):
        return QUEUE
    if address.goes_elsewhere:
        return REMOTE
    if address.has_way:
        return COPIES
    if not address.is_topic:
        return NOTHING
    return TOPIC if wanted != FOUND or store.is_topic_by_rule(address.name) else UNRULED


def find_aside(store: AddressStore, wanted: str, address: Address) -> bool:
    """Whether all that comes gets to a queue though the address has none, so that who may make none is content.

    Exclusive diverts take all and lead to a queue, which may be made for that; or addresses with wildcards get copies,
    where no filter asks what it is: those are no queue for who asked for one or had found one.
    """
    if store.find_diverted(address.name):
        return True
    return wanted == ANY and any(each.takes_each() for each in address.wildcards)
