"""Attach: what a peer may send to or consume from, and how it is told no (AMQP 1.0 §2.6.3, §3.5).

An address may be written `address::queue` for one queue of it. The capabilities `queue` and `topic` say what a client
wants where an address could be both; without them the address, and then its settings, decide.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from mqbroker.amqp.events import Attaching
from mqbroker.amqp.links import LinkBase, ReceiverLink, SenderLink
from mqbroker.base.errors import Refused
from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level
from mqbroker.core.address.address import ANYCAST, FULLY_QUALIFIED, MULTICAST
from mqbroker.core.address.fully_qualified import queue_at
from mqbroker.core.address.permissions import BROKER, BROWSE, CONSUME, DELETE, SEND
from mqbroker.core.cluster.cluster_bindings import bindings_at
from mqbroker.core.queue.queue import Client, Queue
from mqbroker.core.selector.source_filters import NO_LOCAL_CODE, NO_LOCAL_NAME, SourceFilter, source_filter
from mqbroker.node.amqp.links.address_end import AddressEnd, bound_runs
from mqbroker.node.amqp.links.consumer import LinkConsumer
from mqbroker.node.amqp.links.ends import MadeEnd, answer_to, consumer_on, set_receiving_end, set_sending_end
from mqbroker.node.amqp.links.slow_consumers import SlowConsumers
from mqbroker.node.amqp.links.terminus_expiry import TerminusExpiry
from mqbroker.node.amqp.listeners.stolen_links import Stealing
from mqbroker.node.broker.end_kinds import RECEIVING, SENDING
from mqbroker.node.cluster.membership.redirects import check_is_here
from mqbroker.node.values.prefixes import QUEUE, TOPIC, Prefixes
from mqbroker.node.values.subscriptions import Subscriptions, is_durable, is_of_subscribers, is_subscription, name_of
from mqbroker.wire.performatives import Attach, Error, Modified, Source, Target
from mqbroker.wire.types import Described, Symbol, ULong

if TYPE_CHECKING:
    from mqbroker.core.store.store import Store
    from mqbroker.node.amqp.links.terminus_expiry import ExpiryScope
    from mqbroker.node.amqp.listeners.accepted_peer import AcceptedPeer
    from mqbroker.node.amqp.listeners.accepting_broker import AcceptingBroker
    from mqbroker.node.amqp.peers.peer import Peer

COPY = "copy"
SHARED = "shared"
OUTCOMES = tuple(Symbol(f"amqp:{name}:list") for name in ("accepted", "rejected", "released", "modified"))
DEFAULT_OUTCOME = Modified(delivery_failed=True)  # where the consumer asks for none
PRIORITY_MAX = 0x7FFFFFFF
# What a temporary queue is, whatever was asked for: it ends with the link that made it (§3.5.10).
NODE_PROPERTIES = {Symbol("lifetime-policy"): Described(ULong(0x2B), [])}
NO_LOCAL = (NO_LOCAL_CODE, NO_LOCAL_NAME)


class Terms(NamedTuple):
    """What a consumer is given: its queue, what it lets through, and whether the queue ends with the link."""

    queue: Queue
    filters: SourceFilter
    is_browser: bool = False
    ends_with_link: bool = False
    is_subscription: bool = False


class Termini:
    """Answers attaches: makes the end of a link that its terminus asks for, or refuses it."""

    def __init__(self, broker: AcceptingBroker) -> None:
        self._broker = broker
        self._subscriptions = Subscriptions(broker.store)
        self._stealing = Stealing()
        self._terminus_expiry = TerminusExpiry(self._end_subscription)
        self.slow_consumers = SlowConsumers(broker)

    def attach(self, peer: AcceptedPeer, event: Attaching) -> None:
        """Accept or refuse the link; a refusal ends the link and nothing else."""
        link, attach, wildcards = event.link, event.attach, self._broker.store.wildcards
        before = wildcards.work
        if self._broker.turns.parting:
            self._broker.turns.part_namesake(peer, link)
        self._stealing.attach(peer, link, attach)
        try:
            if isinstance(link, ReceiverLink):
                self._producer(peer, link, attach)
            else:
                self._consumer(peer, link, attach)
        except Refused as refused:
            link.refuse(attach, refused.condition, refused.description, refused.info)
        peer.connection.allowance -= wildcards.work - before
        peer.touch()

    # -- producers -----------------------------------------------------------------------------------------------------

    def _producer(self, peer: AcceptedPeer, link: ReceiverLink, attach: Attach) -> None:
        if attach.target is None:
            raise Refused("amqp:not-implemented", "a link without a target is not supported")
        made = next((made for kind in RECEIVING if (made := kind(peer, link, attach)) is not None), None)
        end, answer = made or self._at_address(peer, link, attach)
        limits = self._broker.options.limits
        link.accept(attach, answer, end.request_size_max or limits.max_message_size_bytes)
        if not end.request_size_max:
            link.large_size_min = limits.amqp_min_large_message_size_bytes
            link.kept_bytes_max = self._broker.large.kept_bytes_max
            peer.producers[link] = None
        LOOK.has_touched = True
        set_receiving_end(link, end)
        end.attached(peer)
        peer.grant(link)

    def _at_address(self, peer: AcceptedPeer, link: ReceiverLink, attach: Attach) -> MadeEnd:
        target, store = attach.target, self._broker.store
        assert isinstance(target, Target)  # a coordinator is a kind of its own
        if target.dynamic:
            name = self._temporary(peer, link, target, SEND)
            answer = Target(address=name, dynamic=True, dynamic_node_properties=NODE_PROPERTIES,
                            capabilities=target.capabilities)  # fmt: skip
            return MadeEnd(AddressEnd(peer, store.addresses[name]), answer)
        answer, target = answer_to(target), Prefixes.of(peer.listener).meant(target)
        address, _ = _parts(target.address)
        actor = peer.actor
        store.permit(actor, SEND, address)
        self._check_stays(address)
        check_is_here(self._broker, address, str(answer.address))
        routing = _routing(target)
        bound = store.target_for(str(target.address), actor, routing)
        bound_runs(store, link, bound)
        return MadeEnd(AddressEnd(peer, bound, routing), answer)

    # -- consumers -----------------------------------------------------------------------------------------------------

    def _consumer(self, peer: AcceptedPeer, link: SenderLink, attach: Attach) -> None:
        source = attach.source
        if source is None:
            self._look_up(peer, link, attach)
            return
        if any(kind(peer, link, attach) for kind in SENDING):
            return
        answer, source = source, Prefixes.of(peer.listener).meant(source)
        if source.dynamic:
            name = self._temporary(peer, link, source, CONSUME)
            # It ends with its link, whatever durability and expiry were asked for.
            answer = source = Source(
                address=name, dynamic=True, capabilities=source.capabilities, filter=source.filter,
                dynamic_node_properties=NODE_PROPERTIES, default_outcome=source.default_outcome,
                distribution_mode=source.distribution_mode,
            )  # fmt: skip
        terms = self._terms(peer, attach.name, source, str(answer.address))
        self._broker.turns.part_consumers(terms.queue)
        if terms.queue.is_deleted:  # it was to go with them
            terms = self._terms(peer, attach.name, source, str(answer.address))
        store, queue = self._broker.store, terms.queue
        # Who is told that a durable subscription is there must find it after a crash.
        is_held = terms.is_subscription and queue.kind.is_durable
        answer = _answer(answer, terms.filters)
        try:
            store.check_consumers(queue, is_browser=terms.is_browser)
            link.accept(attach, answer, is_held=is_held)
        except Refused:
            if terms.ends_with_link:
                self._end_subscription(queue)  # nobody would end it otherwise
            raise
        LOOK.has_touched = True
        link.holds_farewell = is_held
        consumer = set_sending_end(link, LinkConsumer(peer, link, queue))
        consumer.default_outcome = answer.default_outcome
        consumer.is_browser = terms.is_browser
        consumer.ends_queue, consumer.is_subscription = terms.ends_with_link, terms.is_subscription
        queue.is_ending = queue.is_ending and not terms.is_subscription
        # The filter of a subscription is its queue's: what does not match never gets there.
        consumer.filter = None if terms.is_subscription else terms.filters.selector
        consumer.priority = _priority(attach)
        if terms.ends_with_link and not _wants(source, (SHARED,)):
            consumer.lasts_as = source
        queue.arriving_count += 1
        consumer.is_arriving = True
        store.consume(queue, lambda: self._start(queue, consumer), is_browser=terms.is_browser)

    def _terms(self, peer: AcceptedPeer, link_name: str, source: Source, named: str) -> Terms:
        store, actor = self._broker.store, peer.actor
        address, queue_name = _parts(source.address)
        self._check_owner(peer, address)
        self._check_owner(peer, queue_name)
        is_browser = source.distribution_mode == COPY
        permission = BROWSE if is_browser else CONSUME
        if queue_name:
            store.permit(actor, permission, address)
            check_is_here(self._broker, address, named)
            filters = _filters(source)
            self._check_may_consume([queue_name], is_browser=is_browser)
            queue = queue_at(store, address, queue_name, actor, _routing(source))
            return Terms(queue, filters, is_browser)
        named_queue = store.queues.get(address)
        if _wants(source, TOPIC) or (
            not _wants(source, QUEUE) and named_queue is None and store.is_multicast(address)
        ):  # fmt: skip
            store.permit(actor, CONSUME, address)
            check_is_here(self._broker, address, named)
            filters = _filters(source, knows_no_local=not _wants(source, (SHARED,)))
            self._part_subscribers(name_of(peer.container_id, link_name, source))
            kept = None
            if not is_durable(source) and not _wants(source, (SHARED,)):
                kept = self._terminus_expiry.resume(peer, link_name, source, filters)
            queue = kept or self._subscriptions.queue_for(peer.container_id, link_name, source, filters, actor)
            return Terms(queue, filters, False, not queue.kind.is_durable, True)
        # A queue may have another name than its address, whose permissions hold.
        place = address if named_queue is None else named_queue.kind.address
        store.permit(actor, permission, place, address)
        check_is_here(self._broker, place, named)
        filters = _filters(source)
        self._check_may_consume(_names_at(store, address), is_browser=is_browser)
        return Terms(store.queue_for(address, actor), filters, is_browser)

    def _check_may_consume(self, names: list[str], *, is_browser: bool) -> None:
        """Raises Refused where what is in an exclusive queue of one of these names is still on its way here."""
        if not is_browser:
            self._broker.store.remotes.awaited.check_may_consume(names)

    def _part_subscribers(self, name: str) -> None:
        """Whether a subscription is in use is asked next, and with other terms it begins anew."""
        queue = self._broker.store.queues.get(name)
        if queue is not None:
            self._broker.turns.part_consumers(queue)

    def _look_up(self, peer: AcceptedPeer, link: SenderLink, attach: Attach) -> None:
        """A link without a source asks whether its subscription exists; JMS clients do so to end it."""
        LOOK.has_touched = True
        for source in (Source(durable=2), Source(durable=2, capabilities=(Symbol("shared"), Symbol("global")))):
            name = name_of(peer.container_id, attach.name, source)
            queue = self._broker.store.queues.get(name)
            self._broker.store.remotes.awaited.check_has_come(name)
            if queue is not None and is_subscription(queue.kind, peer.container_id):
                self._broker.store.permit(peer.actor, CONSUME, queue.kind.address, attach.name)
                link.accept(attach, Source(address=queue.kind.address, durable=2, expiry_policy=Symbol("never"),
                                           distribution_mode=Symbol(COPY)))  # fmt: skip
                consumer = set_sending_end(link, LinkConsumer(peer, link, queue))
                consumer.is_subscription = consumer.is_asking = True
                link.holds_farewell = queue.kind.is_durable
                return
        raise Refused("amqp:not-found", f"there is no subscription {attach.name!r} of {peer.container_id!r}")

    def _start(self, queue: Queue, consumer: LinkConsumer) -> None:
        if not consumer.is_arriving:
            return  # it has left meanwhile
        self._arrived(consumer)
        if consumer.link.is_attached and not consumer.peer.connection.is_dead and not queue.is_deleted:
            consumer.link.say()
            consumer.peer.touch()
            self.join(consumer)
        else:
            self._end_consumer(consumer)

    def join(self, client: Client) -> None:
        """It gets messages of its queue from now on, and is watched where the address wants that."""
        self._broker.store.join(client.queue, client)
        self.slow_consumers.watch(client.queue)

    # -- ends ----------------------------------------------------------------------------------------------------------

    def detached(self, peer: Peer, link: LinkBase) -> None:
        """A link is gone, and so is a queue that was made for it."""
        consumer = consumer_on(link)
        if consumer is not None:
            self._consumer_detached(peer, consumer)
        self._stealing.gone(peer, link)
        LOOK.has_touched = True
        name = peer.temporary.pop(link, None)
        if name is not None:
            self._end_temporary(name)

    def _consumer_detached(self, peer: Peer, consumer: LinkConsumer) -> None:
        """A consumer's link is gone, and its queue where that ends with it, or its subscriber closed it for good."""
        link = consumer.link
        LOOK.has_touched = True
        if consumer in consumer.queue.consumers:
            self._broker.store.leave(consumer.queue, consumer)
        elif consumer.is_arriving:
            self._arrived(consumer)
            if not consumer.queue.consumers:
                self._broker.store.auto_delete.drained(consumer.queue)  # it was spared when its time came
        consumer.ends_queue = consumer.ends_queue or self._unsubscribe(peer, consumer)
        if self._terminus_expiry.keep(peer, consumer, is_stolen=self._stealing.is_stolen(link)):
            consumer.ends_queue = False
        is_ended = self._end_consumer(consumer)
        # Who is told that a durable subscription is gone must not find it after a crash.
        if is_ended and link.farewell is not None:
            self._broker.store.decisions.wait(self._part, peer, link)
        elif link.unsaid is not None and link.farewell is not None:
            self._broker.store.decisions.wait_for_earlier(self._part, peer, link)  # nor that it was there
        else:
            self._part(peer, link)

    def _part(self, peer: Peer, link: LinkBase) -> None:
        if link.farewell is not None and not peer.connection.is_dead:
            link.part()
            peer.touch()

    @staticmethod
    def _arrived(consumer: LinkConsumer) -> None:
        LOOK.has_touched = True
        consumer.queue.arriving_count -= 1
        consumer.is_arriving = False

    def _unsubscribe(self, peer: Peer, consumer: LinkConsumer) -> bool:
        """The subscriber closed its link; True: for good, and it may. Where it may not, it is told, and the
        subscription stays.
        """
        link, queue = consumer.link, consumer.queue
        if not consumer.is_subscription or not link.is_closed:
            return False
        kind = queue.kind
        if not is_of_subscribers(kind) and not consumer.is_asking:
            return False  # it was there before, and no subscriber's: it stays, and nothing is wrong
        try:
            if not is_of_subscribers(kind):
                raise Refused("amqp:not-allowed", f"queue {kind.name!r} was not made by subscribers: it stays")
            self._broker.store.permit(peer.actor, DELETE[kind.is_durable], kind.address, kind.name)
            self._broker.turns.part_consumers(queue)
            if consumer.is_asking and (queue.consumers or queue.arriving_count):
                raise Refused("amqp:resource-locked", f"subscription {kind.name!r} has a subscriber")
        except Refused as refused:
            self._broker.notice(Level.WARNING, "unsubscribe-refused", queue=kind.name, why=refused.description)
            if link.farewell is not None:
                error = Error(condition=Symbol(refused.condition), description=refused.description)
                link.farewell = replace(link.farewell, error=error)
            return False
        return True

    def ended(self, peer: Peer, scope: ExpiryScope) -> None:
        """A session or a connection is over, and all of its links."""
        self._terminus_expiry.ended(peer, scope)

    def _end_consumer(self, consumer: LinkConsumer) -> bool:
        """Delete the queue if it ends with its consumer, and nobody else needs it; whether it was deleted."""
        queue = consumer.queue
        is_used = bool(queue.consumers or queue.arriving_count)
        # Whoever consumes from a durable subscription keeps it, whatever another one said.
        LOOK.has_touched = True
        if consumer.ends_queue and is_of_subscribers(queue.kind) and not (is_used and queue.kind.is_durable):
            queue.is_ending = True
        return self._end_if_unused(queue)

    def _end_subscription(self, queue: Queue) -> None:
        """That of a subscriber who does not come back."""
        if is_of_subscribers(queue.kind):
            self.end_queue(queue)

    def end_queue(self, queue: Queue) -> None:
        """It goes as soon as nobody uses it, at once where nobody does."""
        LOOK.has_touched = True
        queue.is_ending = True
        self._end_if_unused(queue)

    def _end_if_unused(self, queue: Queue) -> bool:
        """A transaction or an administrator may still have messages of it: then it ends when these are settled."""
        is_used = queue.consumers or queue.arriving_count or queue.delivering_count
        if not queue.is_ending or is_used or queue.is_deleted:
            return False
        self._broker.store.delete_queue(queue, BROKER)
        return True

    def end_queues(self) -> None:
        """Those that were to go and that nobody holds any more."""
        store = self._broker.store
        ended, store.ended = store.ended, {}
        for queue in ended:
            self._end_if_unused(queue)
            if queue.is_deleted and self._broker.temporary.pop(queue.kind.name, None) is not None:
                store.forget_address(queue.kind.address)

    def _end_temporary(self, name: str) -> None:
        """Whoever uses it is told (§3.5.3, delete-on-close)."""
        store = self._broker.store
        queue = store.queues.get(name)
        if queue is not None and queue.kind.configured:
            queue = None  # the file of options has declared it since: it stays
        if queue is not None:
            for consumer in list(queue.consumers):
                if consumer.client is not None:
                    consumer.client.end("amqp:resource-deleted", f"the temporary queue {name!r} is gone")
            self.end_queue(queue)
            if not queue.is_deleted:
                return  # still nobody else's
        store.forget_address(name)
        self._broker.temporary.pop(name, None)

    # -- temporary queues ----------------------------------------------------------------------------------------------

    def _temporary(self, peer: AcceptedPeer, link: LinkBase, terminus: Source | Target, permission: str) -> str:
        if terminus.address is not None:
            raise Refused("amqp:invalid-field", "a dynamic terminus has no address: the broker chooses it (§3.5.3)")
        name = self._subscriptions.temporary(
            peer.container_id, link.name, peer.actor, multicast=_wants(terminus, TOPIC), permission=permission
        )
        LOOK.has_touched = True
        peer.temporary[link] = name
        self._broker.temporary[name] = peer.conn
        return name

    def _check_owner(self, peer: AcceptedPeer, name: str) -> None:
        """Everybody may send to a temporary queue; only its maker consumes from it (Jakarta Messaging 3.1, 4.4)."""
        if self._broker.temporary.get(name, peer.conn) != peer.conn:
            raise Refused("amqp:not-allowed", f"the temporary queue {name!r} belongs to another connection")

    def _check_stays(self, name: str) -> None:
        """A temporary queue whose maker is gone goes as well, if not in this step."""
        conn = self._broker.temporary.get(name)
        if conn is not None and ((maker := self._broker.peers.get(conn)) is None or maker.is_gone):
            raise Refused("amqp:not-found", f"the temporary queue {name!r} is gone")


def _names_at(store: Store, address: str) -> list[str]:
    """The name of the queue that `Store.queue_for` finds. Where it would make one: of those that others have there too,
    as one of these comes here where its node leaves to this one."""
    found = store.queues.get(address)
    place = store.addresses.get(address)
    if found is None and place is not None and place.anycast:
        found = place.anycast[0]
    if found is not None:
        return [found.kind.name]
    bindings = None if place is None else bindings_at(place)
    elsewhere = () if bindings is None else bindings.remotes
    return [address, *(each.binding.queue for each in elsewhere if each.binding.routing == ANYCAST)]


def _parts(address: object) -> tuple[str, str]:
    """Address and queue of `address::queue`; the queue is empty where none is named."""
    if not isinstance(address, str) or not address:
        raise Refused("amqp:invalid-field", "the terminus has no address")
    name, mark, queue = address.partition(FULLY_QUALIFIED)
    if mark and (not name or not queue):
        raise Refused("amqp:invalid-field", f"{address!r}: a fully qualified name is address::queue")
    return name, queue


def _wants(terminus: Source | Target, names: tuple[str, ...]) -> bool:
    return any(name in names for name in terminus.capabilities or ())


def _routing(terminus: Source | Target) -> str:
    """What a new queue is to be: what the client says, if it does."""
    return MULTICAST if _wants(terminus, TOPIC) else ANYCAST if _wants(terminus, QUEUE) else ""


def _filters(source: Source, *, knows_no_local: bool = False) -> SourceFilter:
    """Filters that hold. One that is not known is refused: most clients do not look whether theirs is in the answer,
    and would take what is not meant for them. No-local alone is passed over where it has no meaning: at queues, as in
    Artemis, and at shared subscriptions, which have no container of their own."""
    filters = source_filter(source.filter, knows_no_local=knows_no_local)
    unknown = [str(name)[:60] for name, value in (source.filter or {}).items()
               if name not in filters.accepted and getattr(value, "descriptor", None) not in NO_LOCAL]  # fmt: skip
    if unknown:
        raise Refused("amqp:not-implemented", f"filters that are not supported: {', '.join(unknown[:5])}")
    return filters


def _priority(attach: Attach) -> int:
    """Consumers of higher priority come first; Artemis's link property."""
    value = (attach.properties or {}).get(Symbol("priority"), 0)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return max(-PRIORITY_MAX, min(int(value), PRIORITY_MAX)) if is_number else 0


def _answer(source: Source, filters: SourceFilter) -> Source:
    return Source(
        address=source.address, durable=source.durable, expiry_policy=source.expiry_policy, timeout=source.timeout,
        dynamic=source.dynamic, dynamic_node_properties=source.dynamic_node_properties,
        distribution_mode=source.distribution_mode, filter=filters.accepted or None,
        default_outcome=source.default_outcome or DEFAULT_OUTCOME, outcomes=OUTCOMES, capabilities=source.capabilities,
    )  # fmt: skip
