"""What a queue is: chosen when it is made, kept in the journal, and never changed by what is in it."""

from __future__ import annotations

import operator
from dataclasses import dataclass, fields
from typing import Any, Final

from mqbroker.base.errors import Refused
from mqbroker.config.slices import AddressSettings
from mqbroker.journal.records import as_json

NAME_SIZE_MAX = 1024
FORWARD = "forward"  # the routing of store-and-forward queues
RETROACTIVE = "retroactive"  # that of the ring in which an address keeps its newest messages
ROUTINGS = ("anycast", "multicast", FORWARD, RETROACTIVE)
TEMPORARY_PREFIX = "temporary."  # of names that the broker gives to temporary queues
INTERNAL_PREFIX = "$."  # of names that no client may use
DUPLICATE_IDS = INTERNAL_PREFIX + "duplicate-ids"  # the address of what takes them to an heir (duplicate_cargo.py)
RING_PREFIX = INTERNAL_PREFIX + "retroactive."  # before an address: the ring of what was published at this node,
RING_OF_PREFIX = INTERNAL_PREFIX + "retroactive-of."  # before a node and an address: of what came of one of its rings
NODE_ID_SIZE: Final = 36  # with which a name in the cluster ends


@dataclass(slots=True)
class QueueKind:
    """What a queue is. `routing` is anycast, multicast, forward or retroactive.

    -1 and the empty text mean: none, or no bound. Nobody changes one: it is not frozen because its many fields would
    then be set one after the other through `object`, which was a twentieth of what a new queue costs.
    """

    name: str
    address: str
    routing: str = "anycast"
    is_durable: bool = True
    max_consumers: int = -1
    exclusive: bool = False
    last_value: bool = False
    last_value_key: str = ""
    non_destructive: bool = False
    ring_size: int = -1
    consumers_before_dispatch: int = 0
    delay_before_dispatch_ms: int = -1
    group_rebalance: bool = False
    group_buckets: int = -1
    group_first_key: str = ""
    purge_on_no_consumers: bool = False
    auto_created: bool = False
    configured: bool = False  # the file of options declared it
    selector: str = ""
    paused: bool = False
    container: str = ""  # whose subscription it is, where its name could be that of another container's as well
    maker: str = ""  # the user that it counts for (quotas.py)
    no_local: str = ""  # takes nothing that this container publishes
    moved_from: str = ""  # takes what was moved to its address from this one, dead or expired, else only what names it
    connection: str = ""  # of a store-and-forward queue: the cluster connection,
    forwards_to: str = ""  # the node that its messages go to,
    route: tuple[str, ...] = ()  # the queues there, by their names in the cluster,
    forwards_shared: bool = False  # and whether they share their messages out
    drains_as: str = ""  # of a queue that drains to its namesake there: the name of its link to that node,
    drain_ends: bool = False  # and whether that is over once what is unanswered is answered

    @property
    def is_forwarding(self) -> bool:
        """Whether its messages are for another node."""
        return self.routing == FORWARD

    @property
    def is_temporary(self) -> bool:
        """Whether it ends with the connection that it was made for, and its messages with it."""
        return self.name.startswith(TEMPORARY_PREFIX) and not self.is_durable

    @property
    def is_draining(self) -> bool:
        """Whether it is a queue of clients whose messages go to its namesake at another node (drains.py)."""
        return bool(self.drains_as)

    @property
    def is_read_by_all(self) -> bool:
        """Whether consumers get copies, and messages stay: not while they go to another node."""
        return self.non_destructive and not self.drains_as

    @property
    def is_outbound(self) -> bool:
        """Whether another node may have its messages, and gets those that it has not."""
        return self.is_forwarding or self.is_draining

    @property
    def owner(self) -> str:
        """The node that a store-and-forward queue was made for: it goes there but while it is handed on."""
        return self.name.rsplit(".", 2)[1]

    @property
    def is_handed_on(self) -> bool:
        """Whether it goes to another node in place of its owner."""
        return self.is_forwarding and self.forwards_to != self.owner

    @property
    def is_owed_beyond(self) -> bool:
        """Whether its messages are for subscriptions that are further on than the node that they are sent to next."""
        return self.is_forwarding and not self.forwards_shared and not self.route[0].endswith(self.forwards_to)

    @property
    def queue_meant(self) -> str:
        """The queue that its messages are for: where it holds them for one of another node, that one. For several they
        are copies, of which no name says all, and so it is its own."""
        is_for_one = self.is_forwarding and len(self.route) == 1 and not self.address.startswith(INTERNAL_PREFIX)
        return self.route[0][:-NODE_ID_SIZE] if is_for_one else self.name

    @property
    def is_shared(self) -> bool:
        """Whether nobody else gets what comes into it: elsewhere queues with a copy each have the same message."""
        return self.routing == "anycast" or self.forwards_shared

    @property
    def is_internal(self) -> bool:
        """Whether clients do not know it: it gets nothing by its binding, and nothing is scheduled in it."""
        return self.routing in (FORWARD, RETROACTIVE)

    @property
    def is_ring(self) -> bool:
        """Whether it keeps messages of an address for queues that are made later."""
        return self.routing == RETROACTIVE

    def name_elsewhere(self, target: str, drain: str = "") -> str:
        """What it is called at the node that it drains to. `drain`: which drain of which node that is, of one that does
        not drain yet. Rings come there under a new name each time, and so each of them is in the order of one ring."""
        if not self.is_ring:
            return self.name
        if self.drains_as:
            end = f".{self.forwards_to}.{self.address}{self.forwards_to}"
            drain = self.route[0].removeprefix(RING_OF_PREFIX).removesuffix(end)
        return f"{RING_OF_PREFIX}{drain}.{target}.{self.address}"

    @property
    def may_page(self) -> bool:
        """Whether messages may be on disk alone: not where they replace or push out each other, or are read by all."""
        return not self.last_value and self.ring_size < 0 and not self.non_destructive

    def attributes(self) -> dict[str, Any]:
        """What differs from the defaults, and always name and address."""
        held = {"name": self.name, "address": self.address, "routing": self.routing}
        values = _optional_of(self)
        if values != _DEFAULTS:
            held |= {name: value for (name, default), value in zip(OPTIONAL, values, strict=True) if value != default}
        return held

    def encoded(self) -> bytes:
        """`attributes` as the journal keeps them. Many queues differ in their names alone; the rest is encoded once."""
        key = (self.routing, _optional_of(self))
        parts = _ENCODED.get(key)
        if parts is None:
            parts = _encoded_around_names(self)
            if sum(map(len, parts)) <= ENCODED_SIZE_MAX:
                if len(_ENCODED) >= ENCODED_MAX:
                    _ENCODED.clear()
                _ENCODED[key] = parts
        between, behind = parts
        text = f'{{"address":{as_json(self.address)}{between}"name":{as_json(self.name)}{behind}}}'
        return text.encode("ascii")

    @classmethod
    def of(cls, attributes: dict[str, Any]) -> QueueKind:
        """The way back of `attributes`."""
        return cls(**(attributes | {"route": tuple(attributes.get("route", ()))}))


DRAIN = ("connection", "forwards_to", "route", "drains_as", "drain_ends")
"""What says of a queue of clients that it drains, and where to."""
OPTIONAL = tuple((one.name, one.default) for one in fields(QueueKind) if one.name not in ("name", "address", "routing"))
"""What is kept only where it differs from its default."""
# Kinds of which what is common is remembered, and its characters: selectors and routes may be long.
ENCODED_MAX: Final = 1_000
ENCODED_SIZE_MAX: Final = 1_000
_ENCODED: Final[dict[tuple[str, tuple[Any, ...]], tuple[str, str]]] = {}
_DEFAULTS: Final = tuple(default for _, default in OPTIONAL)
_optional_of: Final = operator.attrgetter(*(name for name, _ in OPTIONAL))


def _encoded_around_names(kind: QueueKind) -> tuple[str, str]:
    """What stands between the address, which is the first of all by the alphabet, and the name, and what behind it."""
    said = {name: f'"{name}":{as_json(value)}' for name, value in sorted(kind.attributes().items())}
    between = "".join(f"{each}," for name, each in said.items() if "address" < name < "name")
    return f",{between}", "".join(f",{each}" for name, each in said.items() if name > "name")


_TYPES: Final[dict[str, type]] = {"name": str, "address": str, "routing": str} | {
    name: list if name == "route" else type(default) for name, default in OPTIONAL
}


def check_attributes(attributes: dict[str, Any]) -> None:
    """Whether a broker could load this, which was JSON. Raises ValueError."""
    wrong = [name for name, value in attributes.items() if type(value) is not _TYPES.get(name)]
    wrong += [name for name in ("name", "address") if not attributes.get(name)]
    if wrong:
        raise ValueError(f"attributes of a queue, {', '.join(dict.fromkeys(wrong))}: {attributes}")
    if not all(_is_text(value) for value in attributes.values() if isinstance(value, str)):
        raise ValueError(f"attributes of a queue, half of a surrogate pair: {attributes}")
    routing = attributes.get("routing", "anycast")
    if routing not in ROUTINGS or (routing == FORWARD and not _forwards(attributes)):
        raise ValueError(f"attributes of a queue, routing: {attributes}")
    if attributes.get("drains_as") and (routing == FORWARD or not _forwards(attributes)):
        raise ValueError(f"attributes of a queue, drains_as: {attributes}")


def _is_text(value: str) -> bool:
    """Whether anything could hold it: JSON may name halves of surrogate pairs."""
    return value.isascii() or not any(0xD800 <= ord(each) <= 0xDFFF for each in value)


def _forwards(attributes: dict[str, Any]) -> bool:
    """Whether it is said where messages go, and the name of its link, mostly its own, ends in a number."""
    link = attributes.get("drains_as") or attributes["name"]
    names, number = attributes.get("route") or (), link.rpartition(".")[2]
    are_texts = bool(names) and all(isinstance(name, str) and _is_text(name) for name in names)
    return are_texts and bool(attributes.get("forwards_to")) and number.isascii() and number.isdecimal()


def kind_of(name: str, address: str, settings: AddressSettings, **changes: Any) -> QueueKind:
    """A queue as the settings of its address want it."""
    kind = QueueKind(
        name,
        address,
        max_consumers=settings.default_max_consumers,
        exclusive=settings.default_exclusive_queue,
        last_value=settings.default_last_value_queue or bool(settings.default_last_value_key),
        last_value_key=settings.default_last_value_key,
        non_destructive=settings.default_non_destructive,
        ring_size=settings.default_ring_size,
        consumers_before_dispatch=settings.default_consumers_before_dispatch,
        delay_before_dispatch_ms=settings.default_delay_before_dispatch,
        group_rebalance=settings.default_group_rebalance,
        group_buckets=settings.default_group_buckets,
        group_first_key=settings.default_group_first_key,
        purge_on_no_consumers=settings.default_purge_on_no_consumers,
    )
    for change, value in changes.items():
        setattr(kind, change, value)
    return kind


def check_name(what: str, name: str) -> None:
    """Raises Refused where a name of a queue or address is empty, too long, or the broker's own."""
    if not name or len(name) > NAME_SIZE_MAX:
        raise Refused("amqp:invalid-field", f"a queue's {what} has 1 to {NAME_SIZE_MAX} characters")
    if name.startswith(INTERNAL_PREFIX):
        raise Refused("amqp:not-allowed", f"a queue's {what} does not begin with {INTERNAL_PREFIX}: such are internal")


def check_is_public(kind: QueueKind) -> None:
    """Raises Refused where a queue is not for clients."""
    if kind.is_forwarding:
        raise Refused("amqp:not-allowed", f"queue {kind.name!r} holds messages for another node of the cluster")
    if kind.is_internal:
        raise Refused("amqp:not-allowed", f"queue {kind.name!r} holds messages for queues that are made later")
