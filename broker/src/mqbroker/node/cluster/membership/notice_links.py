"""Links of notices: one node tells another of members, queues and consumers, in one stream of settled messages.

The one that has dialled asks for it with a receiver (`follow`), the other takes what its announcer has as credit
lets it (`ClusterNoticeEnd`). Each message is a Data section with one notice.
Source: docs/adr/0012-cluster-connections.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mqbroker.amqp.events import Incoming
from mqbroker.amqp.frame_costs import NOTICE
from mqbroker.amqp.links import FEW_MAX, SETTLE_SETTLED, ReceiverLink, SenderLink
from mqbroker.amqp.session import Session
from mqbroker.base.errors import PeerFault, Refused
from mqbroker.base.look import LOOK
from mqbroker.cluster import notices
from mqbroker.cluster.address_match import AddressPrefixes
from mqbroker.cluster.announcer import Announcer, Subscriber, SubscriberWish
from mqbroker.config.slices import ClusterConnectionOptions
from mqbroker.node.amqp.links.ends import ReceivingEnd, set_receiving_end, set_sending_end
from mqbroker.node.amqp.links.told_links import FRAME_HEAD_BYTES, ToldEnd
from mqbroker.wire.performatives import Attach, Source, Target
from mqbroker.wire.types import Symbol, UInt, decode_value

if TYPE_CHECKING:
    from mqbroker.node.amqp.listeners.accepted_peer import AcceptedPeer
    from mqbroker.node.amqp.peers.peer import Peer

NOTICES: Final = "mq:notices"
MAX_HOPS: Final = Symbol("mq:max-hops")
ADDRESSES: Final = Symbol("mq:addresses")
MOVED_FROM: Final = Symbol("mq:moved-from")  # whoever says so knows that field; earlier releases do not
ADDRESSES_SIZE_MAX: Final = 4096
HOPS_MAX: Final = 64
CREDIT: Final = 1000
DATA: Final = b"\x00\x53\x75"


class ClusterNoticeEnd(ToldEnd):
    """What we tell another node."""

    __slots__ = ("_announcer", "_link", "_peer", "_subscriber")

    def __init__(self, peer: Peer, link: SenderLink, announcer: Announcer) -> None:
        self._peer = peer
        self._link = link
        self._announcer = announcer
        self._subscriber: Subscriber | None = None

    def begin(self, node_id: str, wish: SubscriberWish) -> None:
        """Tell a node what it asks for."""
        LOOK.has_touched = True
        self._subscriber = self._announcer.subscribe(node_id, wish, self.pump)

    def pump(self) -> None:
        """Send what there is, as credit, window and transport let through."""
        link, peer, subscriber = self._link, self._peer, self._subscriber
        if subscriber is None or not link.is_attached or peer.is_blocked or peer.connection.is_dead:
            return
        room = min(link.credit, link.session.window)
        taken = subscriber.take(room) if room > 0 and subscriber.has_more else []
        if not taken:
            return
        payloads = [_section(text) for text in taken]
        longest = max(map(len, payloads)) + FRAME_HEAD_BYTES
        if longest <= peer.connection.peer_frame_size:
            link.session.send_payloads(link, payloads, None)
        else:
            for payload in payloads:
                link.session.send_message(link, [payload], None)
        peer.touch()

    def end(self) -> None:
        """The link is gone: its subscription ends."""
        LOOK.has_touched = True
        subscriber, self._subscriber = self._subscriber, None  # it knows our `pump`
        if subscriber is not None:
            self._announcer.unsubscribe(subscriber)


def _section(text: bytes) -> bytes:
    if len(text) < 256:
        return DATA + b"\xa0" + len(text).to_bytes(1, "big") + text
    return DATA + b"\xb0" + len(text).to_bytes(4, "big") + text


def attach(peer: AcceptedPeer, link: SenderLink, attach: Attach) -> bool:
    """Another node asks for our notices, or for what is of another kind. Raises Refused."""
    if attach.source is None or attach.source.address != NOTICES:
        return False
    hello = peer.hello
    announcer = None if hello is None else peer.acceptor.announcer_for(hello.connection)
    if peer.listener.kind != "cluster" or hello is None or announcer is None:
        raise Refused("amqp:unauthorized-access", "notices are for nodes of the cluster, on listeners of kind cluster")
    if attach.snd_settle_mode != SETTLE_SETTLED:
        raise Refused("amqp:not-implemented", "notices are sent settled: snd-settle-mode must be 1")
    said = attach.properties or {}
    hops, addresses = said.get(MAX_HOPS), said.get(ADDRESSES, "")
    if not isinstance(hops, int) or not 0 <= hops <= HOPS_MAX:
        raise Refused("amqp:invalid-field", f"mq:max-hops must be 0 to {HOPS_MAX}")
    if not isinstance(addresses, str) or len(addresses) > ADDRESSES_SIZE_MAX:
        raise Refused("amqp:invalid-field", f"mq:addresses must be a text of at most {ADDRESSES_SIZE_MAX} characters")
    link.accept(attach, Source(address=NOTICES))
    LOOK.has_touched = True
    end = set_sending_end(link, ClusterNoticeEnd(peer, link, announcer))
    end.begin(hello.node_id, SubscriberWish(hops, AddressPrefixes(addresses), said.get(MOVED_FROM) is True))
    return True


class ClusterNoticeFeed(ReceivingEnd):
    """What another node tells us."""

    __slots__ = ("_heard",)

    fixed_credit = CREDIT

    def __init__(self, heard: Callable[[notices.ClusterNotice], None]) -> None:
        self._heard = heard

    def answered(self, peer: Peer, link: ReceiverLink, answer: Attach) -> None:
        """The other node has answered the attach. A refusal follows as a detach."""
        if link.is_attached:
            LOOK.has_touched = True
            link.run_max = FEW_MAX  # each of them is much work
            link.grant(CREDIT)
            peer.touch()

    def incoming(self, peer: Peer, event: Incoming) -> None:
        """Notices came; a malformed one is the fault of the link."""
        link, run = event.link, event.run
        LOOK.has_touched = True
        peer.connection.allowance -= run.count * NOTICE
        try:
            for index in range(run.count):
                notice = notices.decode(_content(bytes(run.payload(index))))
                if notice is not None:
                    self._heard(notice)
        except PeerFault as fault:
            peer.close_at_once(fault.condition, fault.description)
            return
        peer.replenish(link)


def follow(
    peer: Peer,
    session: Session,
    options: ClusterConnectionOptions,
    heard: Callable[[notices.ClusterNotice], None],
) -> None:
    """Ask for what another node tells. `heard` gets it, and may raise PeerFault."""
    link = session.attach_receiver(
        Attach(
            name=f"{NOTICES}.{options.name}", handle=0, role=True, snd_settle_mode=SETTLE_SETTLED,
            source=Source(address=NOTICES), target=Target(address=NOTICES),
            properties={MAX_HOPS: UInt(options.max_hops), ADDRESSES: options.address, MOVED_FROM: True},
        )
    )  # fmt: skip
    LOOK.has_touched = True
    set_receiving_end(link, ClusterNoticeFeed(heard))
    peer.touch()


def _content(payload: bytes) -> bytes:
    """What is in the Data section. Raises PeerFault."""
    if payload.startswith(DATA):
        value, end = decode_value(payload, len(DATA), len(payload))
        if isinstance(value, bytes) and end == len(payload):
            return value
    raise PeerFault("amqp:decode-error", "a notice of the cluster is one Data section")
