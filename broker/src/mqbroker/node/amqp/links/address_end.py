"""The end of a link on which messages come for one address: nearly all of them pass here.

Artemis asks for the permission to send with each message. Here it is asked for as a link is attached, and once more
when permissions or roles change: a link whose sender may send no more has its permission withdrawn, and then each run
asks again, as it does where the address has lost its queues. So a message of those who may costs nothing more, and who
gets the permission back goes on. Source: Artemis's manual, "Configuration Reload".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mqbroker.amqp.events import Incoming
from mqbroker.amqp.frame_costs import COPIED
from mqbroker.amqp.links import RUN_MAX
from mqbroker.base.errors import NoRoom, Refused
from mqbroker.base.look import LOOK
from mqbroker.core.address.address import ANYCAST, MULTICAST, Address
from mqbroker.core.address.diverts import COPIES_MAX
from mqbroker.core.address.routing_demands import AMONG, FOUND, is_content
from mqbroker.core.store.store import Store
from mqbroker.node.amqp.links.message_admission import admitted
from mqbroker.node.amqp.links.refusals import refuse_run
from mqbroker.node.amqp.peers.malformed import take_before
from mqbroker.node.values.prefixes import TerminusPlace

if TYPE_CHECKING:
    from mqbroker.amqp.events import Detached, Posted
    from mqbroker.amqp.links import ReceiverLink
    from mqbroker.core.address.permissions import Actor
    from mqbroker.core.queue.meter import Meter
    from mqbroker.node.amqp.peers.peer import Peer
    from mqbroker.node.values.ends import AddressPart
    from mqbroker.wire.performatives import Attach
    from mqbroker.wire.run import Run


class AddressEnd:
    """See the module's docstring."""

    __slots__ = ("_had_queue", "_origin", "_routing", "_store", "address", "is_withdrawn")

    fixed_credit = 0
    request_size_max = 0
    checks_forms = True
    takes_posts = True
    has_one_place = True
    can_reject = True

    def __init__(self, peer: Peer, address: Address, routing: str = "") -> None:
        """`routing`: what the sender wants of a new one; where that is empty the address decides."""
        self._routing: Final = routing
        self._store: Final[Store] = peer.broker.store
        self._origin: Final = peer.origin
        self.address = address
        self._had_queue = _has_queue(address)  # as the link was attached, or as a message came
        self.is_withdrawn = False  # the permission, and it is asked for with each run

    def incoming(self, peer: Peer, event: Incoming) -> None:
        """Messages came, on a link that is attached."""
        link, run, first, is_settled = event.link, event.run, event.delivery_id, event.is_settled
        if run.large is None and (malformed := link.forms.malformed(run)) is not None:
            take_before(peer, event, malformed)
            return
        store, address = self._store, self.address
        if store.memory.is_full and not store.takes_when_full(address):
            refuse_run(peer, event, NoRoom(store.memory.why_full))
            return
        if self.is_withdrawn or not self._leads_on:
            if not self._bind_again(peer, event):
                return
            address = self.address
        if not (self._had_queue or self._routing):
            self._look(address)
        if address.meter is not None:
            taken = admitted(peer, event, address, address.meter)
            if taken is None:
                return
            run = taken.run
        broker = peer.broker
        broker.activity.went(link, run.count, broker.at.monotonic_ns)
        before = store.diverts.followed_total
        waits = store.publish(address, run, self._origin)
        link.run_work = len(address.wildcards) * COPIED
        if link.run_max < RUN_MAX or store.diverts.followed_total > before:
            bound_runs(store, link, address, run.count, store.diverts.followed_total - before)
        if is_settled:
            pass  # its sender wants to hear nothing
        elif waits:
            store.decisions.wait(peer.accept, link, first, run.count)
        else:
            link.session.accept(first, run.count)
        peer.replenish(link)

    def _bind_again(self, peer: Peer, event: Incoming) -> bool:
        """Find a way for messages of whom the permission was taken, or at whose address no queue is; whether there is
        one. If not, their sender is told."""
        if self.is_withdrawn:
            try:
                self._store.may_send(self.address.target, peer.actor)
            except Refused as refused:
                refuse_run(peer, event, refused)
                return False
            LOOK.has_touched = True
            self.is_withdrawn = False
            if self._leads_on:
                return True
        return self._find(peer, event.link)

    @property
    def _leads_on(self) -> bool:
        """Whether what comes gets where its sender wants it."""
        address = self.address
        if address.anycast or (self._routing != ANYCAST and address.has_way):
            return True  # as the table says of these to whoever asks; nearly all messages come by here
        return is_content(self._store, self._routing or self._wanted, address)  # AMONG is as content as MULTICAST

    @property
    def _wanted(self) -> str:
        """What the sender wants there, as in core/address/routing_demands.py."""
        if self._routing == MULTICAST:
            return MULTICAST if self._is_alone else AMONG
        return FOUND if self._had_queue and not self._routing else self._routing

    def _look(self, address: Address) -> None:
        """What comes goes to a queue from now on, it may be: one that was made since its sender came."""
        LOOK.has_touched = True
        self._had_queue = self._had_queue or _has_queue(address)

    @property
    def _is_alone(self) -> bool:
        """Whether nobody else sends there."""
        there = self._store.addresses.get(self.address.target, self.address)
        return self.address.producers_count <= 1 and there.producers_count <= (there is self.address)

    def _find(self, peer: Peer, link: ReceiverLink) -> bool:
        """The queues of an address may have been deleted since the link was attached: as if it attached now."""
        store = self._store
        try:
            address = store.target_for(self.address.target, peer.actor, self._wanted)
        except Refused as refused:
            link.detach(refused.condition, refused.description)
            return False
        store.auto_delete.attached(address)
        LOOK.has_touched = True
        self._look(address)
        before, self.address = self.address, address
        store.auto_delete.detached(before)
        return True

    def numbered(self, first_id: int, mark: str | None) -> None:
        """Clients say no ids of their own, so nothing follows from them."""

    def group_parts(self, peer: Peer, event: Incoming | Posted) -> list[AddressPart]:
        """What of the run goes to which address: all of it to that of the link, unless that leads on."""
        address = self.address
        if not self._leads_on and not self.is_withdrawn and isinstance(event, Incoming):
            self._find(peer, event.link)  # its queues were deleted: only what is there can own a group
        return [(self._store.addresses.get(address.target, self.address), 0, event.run.count)]

    def not_stored(self, peer: Peer, event: Incoming, why: str) -> None:
        """A large message came, and its file cannot be written."""
        refuse_run(peer, event, Refused("amqp:internal-error", f"the message cannot be stored: {why}"))

    @property
    def meter(self) -> Meter | None:
        """The meter of its address: what holds senders back."""
        return self.address.meter

    @property
    def takes_when_full(self) -> bool:
        """Whether what comes can stay on disk."""
        return self._store.takes_when_full(self.address)

    @property
    def address_name(self) -> str | None:
        """Also where messages are for one queue of it."""
        return self.address.name

    def place_of(self, run: Run) -> TerminusPlace:
        """Where messages of a transaction go; what is there then is held against what its sender wants now."""
        self._look(self.address)
        return TerminusPlace(self.address.target, self._wanted)

    def check_post(self, place: TerminusPlace, run: Run, sender: Actor) -> None:
        """Whether the sender may send there. Raises Refused."""
        self._store.may_send(place.name, sender)

    def recheck(self, sender: Actor) -> None:
        """Permissions or roles have changed."""
        if not self.is_withdrawn:
            LOOK.has_touched = True
            try:
                self._store.may_send(self.address.target, sender)
            except Refused:
                self.is_withdrawn = True

    def attached(self, peer: Peer) -> None:
        """The address has one producer more, and is not deleted meanwhile."""
        self._store.auto_delete.attached(self.address)

    def answered(self, peer: Peer, link: ReceiverLink, answer: Attach) -> None:
        """Clients ask for their links themselves."""

    def detached(self, peer: Peer, event: Detached) -> None:
        """The address has one producer less."""
        LOOK.has_touched = True
        if self.address.meter is not None:
            self.address.meter.waiting.pop(event.link, None)
        self._store.auto_delete.detached(self.address)


def bound_runs(store: Store, link: ReceiverLink, address: Address, count: int = 1, followed: int = 0) -> None:
    """What comes on a link next follows diverts some COPIES_MAX times in a step, whatever their filters make of each
    message, and also where it does as the last `count` did: dead letters of theirs may have been diverted."""
    each = store.diverts.copies_of(address.target)
    most = max(each * count, followed)
    LOOK.has_touched = True
    link.run_max = min(max(COPIES_MAX * count // most, 1), RUN_MAX) if most else RUN_MAX
    link.run_work = (len(address.wildcards) + max(each, followed)) * COPIED


def _has_queue(address: Address) -> bool:
    """Whether a queue shares out what is sent there: of this node, or of another to which messages go from here."""
    return bool(address.anycast) or address.goes_elsewhere
