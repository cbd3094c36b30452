"""What is said on the attach of a link over which a queue's messages go to another node, by either of the two.

Source: docs/adr/0012-cluster-connections.md, docs/adr/0025-drain.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from mqbroker.core.address.address import ANYCAST, MULTICAST
from mqbroker.core.address.address_records import check_attributes as check_address
from mqbroker.core.cluster.id_digest import PACKED_SIZE_BYTES, IdDigest
from mqbroker.core.queue.kinds import DRAIN, RING_OF_PREFIX, QueueKind, check_attributes
from mqbroker.core.queue.queue import Queue
from mqbroker.journal.records import as_json
from mqbroker.wire.performatives import Attach, Source, Target
from mqbroker.wire.types import Symbol

STORE_AND_FORWARD: Final = Symbol("mq:store-and-forward")
SOURCE: Final = Symbol("mq:source")
ROUTE: Final = Symbol("mq:route")
NUMBERED: Final = Symbol("mq:numbered")  # whether flows say ids, so that what comes again is dropped
CLOSES_FOR_GOOD: Final = Symbol("mq:closes-for-good")  # whether a link is closed only when nothing of it comes again
QUEUE: Final = Symbol("mq:queue")  # attributes of a queue that drains: the other node makes one where it has none,
ADDRESS: Final = Symbol("mq:address")  # what was said of its address, as AddressRecords keeps it,
MAKES_QUEUES: Final = Symbol("mq:makes-queues")  # and says by a capability that it knows what that means
HAS_COME: Final = Symbol("mq:has-come")  # whether all that waited in it is there
CAME_BEFORE: Final = Symbol("mq:came-before")  # and whether it was told so once: no queue is made any more then
DRAIN_ENDS: Final = Symbol("mq:drain-ends")  # whether nothing comes of it but what the other node may have
ARRIVED: Final = Symbol("mq:arrived")  # and how much has come of it, by the numbers that flows say
NOT_FOUND: Final = "amqp:not-found"
ENDED: Final = "mq:ended"  # of a subscription that all had come of, and that its subscriber has ended or changed there
OLDER: Final = "the other node is of a release that does not know what drains there: upgrade it first"
PAUSED: Final = Symbol("mq:paused")  # and whether the queue there hands out nothing
ATTRIBUTES_SIZE_MAX: Final = 64 << 10
OF_HERE: Final = (*DRAIN, "maker", "configured")  # what a queue is not at the other node


def attach_for(
    kind: QueueKind, node_id: str, *, is_numbered: bool, has_come: bool = False, came_before: bool = False
) -> Attach:
    """What a node says that has such a queue; `has_come`: nothing that drains is in it, or without an answer.
    `came_before`: that was so once, and was heard."""
    said: dict[Symbol, Any] = {SOURCE: node_id, ROUTE: list(kind.route), NUMBERED: is_numbered, CLOSES_FOR_GOOD: True}
    if kind.is_draining:
        attributes = kind.attributes() | {"name": kind.route[0].removesuffix(kind.forwards_to)}
        said[QUEUE] = as_json({name: value for name, value in attributes.items() if name not in OF_HERE})
        said[HAS_COME], said[CAME_BEFORE], said[DRAIN_ENDS] = has_come, came_before, kind.drain_ends
    return Attach(
        name=kind.drains_as or kind.name, handle=0, role=False, snd_settle_mode=0, source=Source(address=kind.name),
        target=Target(address=kind.address, capabilities=(STORE_AND_FORWARD,)), initial_delivery_count=0,
        properties=said,
    )  # fmt: skip


def has_come(queue: Queue, apart_count: int = 0) -> bool:
    """Whether the node to which a queue drains has all of it that is due; `apart_count`: so many messages wait for the
    answer of another one, which may have them."""
    handed_over = queue.handed_over
    return queue.message_count == queue.scheduled_count + apart_count and (
        handed_over is None or not handed_over.ids.count
    )


def queue_wanted(said: Any, address: str) -> QueueKind | None:
    """The way back, None where it cannot be one of this address that drains."""
    if not isinstance(said, str) or len(said) > ATTRIBUTES_SIZE_MAX:
        return None
    try:
        attributes = json.loads(said)
        if not isinstance(attributes, dict) or set(attributes) & set(OF_HERE):
            return None
        check_attributes(attributes)
    except (ValueError, RecursionError):
        return None
    kind = QueueKind.of(attributes)
    is_moving = kind.routing in (ANYCAST, MULTICAST) or (kind.is_ring and kind.name.startswith(RING_OF_PREFIX))
    return kind if kind.address == address and is_moving and kind.is_durable else None


def address_wanted(said: Any) -> dict[str, Any]:
    """What is said of the address of such a queue; nothing by earlier releases. Raises ValueError."""
    if said is None:
        return {}
    if not isinstance(said, str) or len(said) > ATTRIBUTES_SIZE_MAX:
        raise ValueError("mq:address is no text of a reasonable size")
    attributes = json.loads(said)
    if not isinstance(attributes, dict):
        raise ValueError("mq:address is no object")
    known = {name: attributes[name] for name in ("routing_types",) if name in attributes}
    check_address(known)
    return known


def makes_queues(answer: Target, arrived: IdDigest, *, is_paused: bool) -> Target:
    """The answer of a node that has the queue, or has made it; `arrived`: what came of it under the link's name;
    `is_paused`: it hands out nothing."""
    capabilities = (*(answer.capabilities or ()), MAKES_QUEUES)
    return replace(
        answer, capabilities=capabilities, dynamic_node_properties={ARRIVED: arrived.packed(), PAUSED: is_paused}
    )


def arrived_in(answer: Attach) -> IdDigest | None:
    """What an answer says of that, None where it does not."""
    packed = _said_in(answer).get(ARRIVED)
    return IdDigest.of(packed) if isinstance(packed, bytes) and len(packed) == PACKED_SIZE_BYTES else None


def paused_in(answer: Attach) -> bool | None:
    """What an answer says of whether the queue there hands out nothing, None where it does not, as in earlier
    releases."""
    said = _said_in(answer).get(PAUSED)
    return said if isinstance(said, bool) else None


def _said_in(answer: Attach) -> Mapping[Any, Any]:
    return (answer.target.dynamic_node_properties if isinstance(answer.target, Target) else None) or {}


def has_made(answer: Attach) -> bool:
    """Whether an answer is that of such a node."""
    return isinstance(answer.target, Target) and MAKES_QUEUES in (answer.target.capabilities or ())
