"""Attach: what a peer may send to or consume from, and how it is told no (AMQP 1.0 §2.6.3, §3.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqbroker.amqp.events import Attaching
from mqbroker.amqp.links import ReceiverLink, SenderLink
from mqbroker.base.errors import Refused
from mqbroker.core.queue import Queue
from mqbroker.node.peer import LinkConsumer
from mqbroker.wire.performatives import Attach, Coordinator, Source, Target

if TYPE_CHECKING:
    from mqbroker.node.broker import Broker
    from mqbroker.node.peer import Peer

TOPIC_CAPABILITIES = ("topic", "temporary-topic", "shared", "global")
NAMES_SHOWN_MAX, NAME_SHOWN_MAX = 5, 60


class Termini:
    """Answers attaches."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def attach(self, peer: Peer, event: Attaching) -> None:
        """Accept or refuse the link; a refusal ends the link and nothing else."""
        link, attach = event.link, event.attach
        try:
            if isinstance(link, ReceiverLink):
                self._producer(peer, link, attach)
            else:
                self._consumer(peer, link, attach)
        except Refused as refused:
            link.refuse(attach, refused.condition, refused.description)
        peer.touch()

    def _producer(self, peer: Peer, link: ReceiverLink, attach: Attach) -> None:
        target = attach.target
        if isinstance(target, Coordinator):
            peer.transactions.attach(link, attach)
            return
        if target is None:
            raise Refused("amqp:not-implemented", "a link without a target is not supported")
        if target.dynamic:
            raise Refused("amqp:not-implemented", "dynamic targets (temporary queues) are not supported")
        _refuse_topics(target)
        link.owner = self._broker.store.address_for(_name(target.address))
        limits = self._broker.options.limits
        link.accept(attach, Target(address=target.address, durable=target.durable), limits.max_message_size_bytes)
        peer.producers[link] = None
        peer.grant(link)

    def _consumer(self, peer: Peer, link: SenderLink, attach: Attach) -> None:
        source = attach.source
        if source is None:
            raise Refused("amqp:not-implemented", "a link without a source is not supported")
        if source.dynamic:
            raise Refused("amqp:not-implemented", "dynamic sources (temporary queues) are not supported")
        if source.distribution_mode == "copy":
            raise Refused("amqp:not-implemented", "browsing (distribution-mode copy) is not supported")
        if source.filter:
            # Most clients do not look whether their filter is in the answer, and would take what is not meant for them.
            names = ", ".join(str(name)[:NAME_SHOWN_MAX] for name in list(source.filter)[:NAMES_SHOWN_MAX])
            raise Refused("amqp:not-implemented", f"filters (selectors) are not supported: {names}")
        _refuse_topics(source)
        store = self._broker.store
        queue = store.queue_for(_name(source.address))
        store.check_consumers(queue)
        link.accept(attach, Source(address=source.address, durable=source.durable))
        consumer = link.owner = LinkConsumer(peer, link, queue)
        queue.arriving_count += 1
        store.consume(queue, lambda: self._start(queue, consumer))

    def _start(self, queue: Queue, consumer: LinkConsumer) -> None:
        queue.arriving_count -= 1
        if consumer.link.is_attached and not consumer.peer.connection.is_dead:
            self._broker.store.join(queue, consumer)


def _refuse_topics(terminus: Source | Target) -> None:
    # A subscriber that shares a queue without knowing it would miss what the others take.
    for name in terminus.capabilities or ():
        if name in TOPIC_CAPABILITIES:
            raise Refused("amqp:not-implemented", f"capability {name}: multicast addresses are not supported")


def _name(address: object) -> str:
    if not isinstance(address, str) or not address:
        raise Refused("amqp:invalid-field", "the terminus has no address; anonymous termini are not supported")
    return address
