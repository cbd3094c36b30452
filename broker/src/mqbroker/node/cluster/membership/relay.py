"""The anonymous terminus: a link without an address, whose messages say in `to` where they go.

Each message is looked up by itself; neighbours that go to one address stay one run. Source: AMQP 1.0 Anonymous
Terminus for Message Routing, ANONYMOUS-RELAY.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mqbroker.amqp.frame_costs import NAMED
from mqbroker.amqp.links import FEW_MAX
from mqbroker.base.errors import NoRoom, PeerFault, Refused
from mqbroker.core.address.address import FULLY_QUALIFIED, Address, Origin
from mqbroker.node.amqp.links.ends import MadeEnd, ReceivingEnd, answer_to
from mqbroker.node.amqp.links.message_admission import is_dropped
from mqbroker.node.amqp.links.refusals import FULL, refuse_range
from mqbroker.node.amqp.peers.malformed import take_before
from mqbroker.node.cluster.membership.redirects import check_is_here
from mqbroker.node.values.prefixes import Prefixes, TerminusPlace
from mqbroker.wire.parts import part_of
from mqbroker.wire.performatives import Target
from mqbroker.wire.run import Run
from mqbroker.wire.scan import scan_sections
from mqbroker.wire.sections import decode_properties

if TYPE_CHECKING:
    from mqbroker.amqp.events import Incoming, Posted
    from mqbroker.amqp.links import ReceiverLink
    from mqbroker.core.address.permissions import Actor
    from mqbroker.node.amqp.listeners.accepted_peer import AcceptedPeer
    from mqbroker.node.amqp.peers.peer import Peer
    from mqbroker.node.values.base_broker import BaseBroker
    from mqbroker.node.values.ends import AddressPart
    from mqbroker.wire.performatives import Attach

NO_PREFIXES = Prefixes()


class Relay(ReceivingEnd):
    """Takes messages in, each for its own address, and so it has no meter: each meets that of its address."""

    takes_posts = True

    def __init__(
        self,
        broker: BaseBroker,
        sender: Callable[[], Actor],
        prefixes: Prefixes = NO_PREFIXES,
    ) -> None:
        self._broker = broker
        self._store = broker.store
        self._sender = sender  # as users and their roles are now
        self._prefixes = prefixes  # of the listener that it came to

    @property
    def takes_when_full(self) -> bool:
        """Who has no address cannot be held back for one: what does not fit is refused message by message."""
        return not self._store.memory.is_shut

    def incoming(self, peer: Peer, event: Incoming) -> None:
        """Messages came, on a link that is attached."""
        malformed = event.link.forms.malformed(event.run) if event.run.large is None else None
        if malformed is not None:
            take_before(peer, event, malformed)
            return
        wildcards = self._store.wildcards
        before = wildcards.work
        tell_outcomes(peer, event, self.publish(event.run, peer.origin))
        peer.connection.allowance -= event.run.count * NAMED + wildcards.work - before

    def publish(self, run: Run, origin: Origin) -> list[tuple[int, int, bool, Refused | None]]:
        """Route all messages: (index, count, whether acceptance must wait, why not) for each part."""
        targets = [target_of(run, index) for index in range(run.count)]
        parts: list[tuple[int, int, bool, Refused | None]] = []
        begin = 0
        for index in range(1, run.count + 1):
            if index < run.count and targets[index] == targets[begin]:
                continue
            parts.append((begin, index - begin, *self._publish(part_of(run, begin, index), targets[begin], origin)))
            begin = index
        return parts

    def _publish(self, run: Run, target: str | None, origin: Origin) -> tuple[bool, Refused | None]:
        if not target:
            why = "the message has no `to`, which a link without an address needs"
            return False, Refused("amqp:invalid-field", why)
        try:
            address = self._address_of(target)
            memory = self._store.memory
            if memory.is_full and not self._store.takes_when_full(address):
                raise NoRoom(memory.why_full)
            if is_dropped(self._store, address, [run]):
                return False, None
        except Refused as refused:
            return False, refused
        return self._store.publish(address, run, origin), None

    def _address_of(self, target: str) -> Address:
        (name, routing), sender = self._prefixes.place_of(target), self._sender()
        self.check(name, target, sender)
        return self._store.target_for(name, sender, routing)

    def group_parts(self, peer: Peer, event: Incoming | Posted) -> list[AddressPart]:
        """Message by message, with neighbours that go to one address as one part."""
        parts: list[AddressPart] = []
        for index in range(event.run.count):
            address = self.address_of(event.run, index)
            begin = parts.pop()[1] if parts and parts[-1][0] is address else index
            parts.append((address, begin, index + 1))
        return parts

    def address_of(self, run: Run, index: int) -> Address | None:
        """Where a message of the run goes; None where it goes nowhere."""
        try:
            return self._address_of(target_of(run, index) or "")
        except Refused:
            return None

    def place_of(self, run: Run) -> TerminusPlace:
        """What the message of a transaction names as its target."""
        return self._prefixes.place_of(target_of(run, 0) or "")

    def check_post(self, place: TerminusPlace, run: Run, sender: Actor) -> None:
        """Whether the sender may send it there. Raises Refused."""
        self.check(place.name, target_of(run, 0) or "", sender)

    def check(self, target: str, named: str, sender: Actor) -> None:
        """Whether the sender may send there, and here is the place for it. Raises Refused.

        `named`: how the sender wrote it.
        """
        self._store.may_send(target, sender)
        check_is_here(self._broker, target.partition(FULLY_QUALIFIED)[0], named)


def end_for(peer: AcceptedPeer, link: ReceiverLink, attach: Attach) -> MadeEnd | None:
    """A peer asks for a link without an address."""
    target = attach.target
    if not isinstance(target, Target) or target.dynamic or target.address is not None:
        return None
    link.run_max = FEW_MAX
    end = Relay(peer.broker, lambda: peer.actor, Prefixes.of(peer.listener))
    return MadeEnd(end, answer_to(target))


def target_of(run: Run, index: int) -> str | None:
    """Where the message wants to go, None where it does not say."""
    payload = bytes(run.payload(index))
    try:
        sections = scan_sections(payload, 0, len(payload))
        if sections.properties < 0:
            return None
        return decode_properties(payload, sections.properties, sections.end)[0].to
    except PeerFault:
        return None


def tell_outcomes(peer: Peer, event: Incoming, parts: list[tuple[int, int, bool, Refused | None]]) -> None:
    """Outcomes of messages that went each to its own address, as `Relay.publish` says."""
    link = event.link
    for index, count, waits, refused in parts:
        first = event.delivery_id + index
        if refused is not None:
            peer.broker.counters.count_refused(refused, count)
            # Who sends settled hears of want of room, not of one place that is gone: its link is for all others too.
            if not event.is_settled or (refused.condition == FULL and link.is_attached):
                refuse_range(event, index, refused.description, refused.condition, count=count)
        elif event.is_settled:
            pass  # its sender wants to hear nothing
        elif waits:
            peer.broker.store.decisions.wait(peer.accept, link, first, count)
        else:
            link.session.accept(first, count)
    peer.replenish(link)
