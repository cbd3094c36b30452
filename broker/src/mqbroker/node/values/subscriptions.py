"""Queues that belong to subscribers of multicast addresses, and temporary queues: their names and their ends.

Names are Artemis's, so that a subscription is found again by whoever knows them: `container.link` for a durable one,
up to the first `|` of the link's name for a shared one, with `:shared-volatile` and `:global` behind it. A link name
outlives its connection; what a subscription keeps while nobody is there is decided by the source (AMQP 1.0 §3.5.3).
A subscriber ends, or begins anew, what subscribers made and nothing else: a queue of that name which is somebody
else's, or the file's, is used where it is what was asked for, and else in the way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqbroker.base.errors import Refused
from mqbroker.base.look import LOOK
from mqbroker.core.address.address import ANYCAST, MULTICAST
from mqbroker.core.address.permissions import Actor, may_see
from mqbroker.core.queue.kinds import TEMPORARY_PREFIX, kind_of
from mqbroker.core.queue.queue import Queue, QueueKind

if TYPE_CHECKING:
    from mqbroker.core.selector.source_filters import SourceFilter
    from mqbroker.core.store.store import Store
    from mqbroker.wire.performatives import Source, Target

NEVER = "never"


def is_durable(terminus: Source | Target) -> bool:
    """Whether the subscription outlives its links: terminus durability, or an expiry policy of `never`."""
    return bool(terminus.durable) or terminus.expiry_policy == NEVER


def name_of(container: str, link_name: str, source: Source) -> str:
    """The queue of a durable or shared subscription."""
    capabilities = source.capabilities or ()
    is_shared, is_global = "shared" in capabilities, "global" in capabilities
    name = link_name if is_global or not container else f"{container}.{link_name}"
    if is_shared:
        name = name.partition("|")[0]
        if not is_durable(source):
            name += ":shared-volatile"
        if is_global:
            name += ":global"
    return name


def is_of_subscribers(kind: QueueKind) -> bool:
    """Whether they made the queue, and may end it: no file declares it, and nobody but they had it made."""
    return kind.routing == MULTICAST and not (kind.configured or kind.auto_created or kind.moved_from)


def is_subscription(kind: QueueKind, container: str) -> bool:
    """Whether subscribers of this container find it under its name."""
    return kind.routing == MULTICAST and not kind.moved_from and kind.container in ("", container)


class Subscriptions:
    """Makes and ends these queues."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._count = 0

    def queue_for(self, container: str, link_name: str, source: Source, filters: SourceFilter, actor: Actor) -> Queue:
        """The queue of a subscriber of `source.address`, who acts. Raises Refused."""
        capabilities = source.capabilities or ()
        address = str(source.address)
        wants = {
            "selector": filters.selector.text if filters.selector is not None else "",
            "no_local": container if filters.no_local else "",
        }
        if not is_durable(source) and "shared" not in capabilities:
            return self._make(self._free_name(f"{container}.{link_name}"), address, actor, durable=False, wants=wants)
        name = name_of(container, link_name, source)
        if "global" not in capabilities and "." in container + link_name.partition("|")[0]:
            wants["container"] = container  # a.b and c, or a and b.c
        self._store.remotes.awaited.check_has_come(name)
        queue = self._store.queues.get(name)
        if queue is not None and not self._is_same(queue.kind, address, wants, durable=is_durable(source)):
            self._make_way(queue, container, address, actor)
            queue = None
        if queue is not None and queue.takers_count and "shared" not in capabilities:
            raise Refused("amqp:resource-locked", f"subscription {name!r} has a subscriber")
        return queue or self._make(name, address, actor, durable=is_durable(source), wants=wants)

    def _make_way(self, queue: Queue, container: str, address: str, actor: Actor) -> None:
        """A changed subscription begins anew (Jakarta Messaging 3.1, 8.3.3). Raises Refused where it is none."""
        kind = queue.kind
        is_seen = may_see(self._store.permit, actor, kind.address)
        if not is_of_subscribers(kind) or not is_subscription(kind, container):
            whose = "the file of options declares" if kind.configured else "is there and no subscription of yours:"
            if kind.container and kind.container != container:
                whose = f"container {kind.container!r} subscribes by"
            terms = (
                f", {kind.routing} at address {kind.address!r}, {'' if kind.is_durable else 'not '}durable, with "
                f"selector {kind.selector!r}"
            )
            why = (
                f"{whose} queue {kind.name!r}{terms if is_seen else ', at another address'}; you asked for a "
                f"subscription of that name at address {address!r} with other terms: take them, or another link name"
            )
            raise Refused("amqp:precondition-failed", why)
        if queue.consumers or queue.arriving_count:
            own = f"address {kind.address!r} and " if is_seen else ""
            why = f"subscription {kind.name!r} is in use, with {own}other terms"
            raise Refused("amqp:precondition-failed", why)
        self._store.delete_queue(queue, actor)

    def temporary(self, container: str, link_name: str, actor: Actor, *, multicast: bool, permission: str) -> str:
        """A name that nobody else has; a queue of that name too, unless it is for subscribers."""
        name = self._free_name(f"{TEMPORARY_PREFIX}{container}.{link_name}")
        self._store.permit(actor, permission, name)
        if multicast:
            self._store.make_address(name, actor, is_temporary=True)
        else:
            settings = self._store.settings.of(name)
            self._store.create_queue(kind_of(name, name, settings, is_durable=False, routing=ANYCAST), actor)
        return name

    def _make(self, name: str, address: str, actor: Actor, *, durable: bool, wants: dict[str, str]) -> Queue:
        settings = self._store.settings.of(address)
        is_new = address not in self._store.addresses
        self._store.make_address(address, actor)
        kind = kind_of(name, address, settings, routing=MULTICAST, is_durable=durable, **wants)
        try:
            return self._store.create_queue(kind, actor)
        except Refused:
            if is_new:
                self._store.forget_address(address)  # nobody else has seen it
            raise

    @staticmethod
    def _is_same(kind: QueueKind, address: str, wants: dict[str, str], *, durable: bool) -> bool:
        asked = {name: value for name, value in wants.items() if name != "container" or kind.container}
        is_there = kind.address == address and kind.routing == MULTICAST and not kind.moved_from
        is_enough = kind.is_durable or not durable
        return is_there and is_enough and {name: getattr(kind, name) for name in asked} == asked

    def _free_name(self, wish: str) -> str:
        """Unique in this process; queues of such names end with it."""
        LOOK.has_touched = True
        while True:
            self._count += 1
            name = f"{wish[:200]}.{self._count}"
            if name not in self._store.queues and name not in self._store.addresses:
                return name
