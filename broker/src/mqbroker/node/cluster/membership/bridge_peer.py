"""The connection of a bridge: we dial, log in as the cluster's user, and open one session.

On it come the notices of the other node, and on it go the messages that are for its queues
(node/cluster/membership/forwards.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from mqbroker.amqp import sasl
from mqbroker.amqp.connection import Connection
from mqbroker.amqp.events import (
    Attached,
    Attaching,
    Began,
    Dead,
    Detached,
    Ended,
    LoggedIn,
    Opened,
    SaslDerive,
    Settled,
)
from mqbroker.amqp.limits import ConnectionLimits
from mqbroker.amqp.links import ROLE_SENDER, ReceiverLink, SenderLink
from mqbroker.amqp.session import Session
from mqbroker.amqp.states import ConnectionState
from mqbroker.base.look import LOOK
from mqbroker.base.time import NS_PER_MS
from mqbroker.core.address.permissions import Actor
from mqbroker.node.amqp.listeners.open_answer import ESTABLISHMENT_FAILED
from mqbroker.node.amqp.peers.event_handlers import HANDLERS
from mqbroker.node.amqp.peers.patience import Patience
from mqbroker.node.amqp.peers.peer import Peer
from mqbroker.node.amqp.peers.settlements import take_outcomes
from mqbroker.node.cluster.membership import notice_links
from mqbroker.node.cluster.membership.forwards import Forwards
from mqbroker.node.values.credentials import CLUSTER_USER, password_of
from mqbroker.node.values.handshake import hello_of
from mqbroker.node.values.inputs import Connected
from mqbroker.node.values.link_ends import receiving_end, sending_end
from mqbroker.wire.performatives import Open

if TYPE_CHECKING:
    from mqbroker.node.cluster.membership.bridge import Bridge
    from mqbroker.node.cluster.membership.cluster_broker import ClusterBroker
    from mqbroker.node.values.ends import ReceivingEndOf, SendingEndOf

FRAME_BYTES: Final = 1 << 20  # one notice fits
FRAME_BEFORE_OPEN_BYTES: Final = 16 << 10
FORCED: Final = "amqp:connection:forced"


class BridgePeer(Peer):
    """See the module's docstring. `why`: what the transport said of its end."""

    __slots__ = ("_entropy", "bridge", "forwards", "session", "why")

    def __init__(self, broker: ClusterBroker, given: Connected, bridge: Bridge) -> None:
        options = bridge.of.options
        self._entropy = given.entropy
        self.bridge: Bridge = bridge
        self.session: Session | None = None
        self.why = ""
        super().__init__(broker, given.conn, bridge.connector.uri, Patience(options.call_timeout, options.check_period))
        self.user = CLUSTER_USER
        self.forwards = Forwards(self)
        self.touch()

    def _connect(self) -> Connection:
        limits = self.broker.options.limits  # a link for each queue that waits for that node, or drains to it
        idle_ms, links_max = self.patience.idle_ms, max(limits.links_per_session_max, limits.queues_max)
        login = sasl.SaslClient(CLUSTER_USER, password_of(self.bridge.of.cluster.key), self._entropy, allow_plain=False)
        return Connection(
            ConnectionLimits(FRAME_BYTES, FRAME_BEFORE_OPEN_BYTES, idle_ms, 1, links_max, FRAME_BYTES),
            client=login,
        )

    @property
    def actor(self) -> Actor:
        """Nobody acts here: the other end asks for nothing."""
        return Actor(CLUSTER_USER, ())

    @property
    def is_known_again(self) -> bool:
        """It is another node of our cluster."""
        return True

    @property
    def handlers(self) -> Mapping[type, Callable[[Any, Any], None]]:
        """What is done about each kind of event."""
        return BRIDGE_HANDLERS

    def lost(self, why: str) -> None:
        """The transport of the bridge is gone, and why."""
        LOOK.has_touched = True
        self.why = why
        super().lost(why)

    def tell_failure(self, condition: str, why: str) -> None:
        """Its bridge does, which dials again and again, and tells of each reason once."""

    # -- opening -------------------------------------------------------------------------------------------------------

    def _derive(self, event: SaslDerive) -> None:
        self.bridge.of.broker.logins.derive(self, event)

    def _logged_in(self, event: LoggedIn) -> None:
        self.connection.open(
            Open(
                container_id=self.broker.container_id, hostname=self.bridge.connector.host, max_frame_size=FRAME_BYTES,
                channel_max=0, idle_time_out=self.patience.idle_ms // 2 or None,
                properties=self.broker.open_properties | self.bridge.of.hello.properties,
            )
        )  # fmt: skip

    def _opened(self, event: Opened) -> None:
        hello = hello_of(event.open)
        has_failed = ESTABLISHMENT_FAILED in (event.open.properties or {})
        if has_failed and hello is not None and hello.node_id == self.broker.node_id:
            self.bridge.answered(hello)  # it refuses because it has our id
        if self.connection.state is not ConnectionState.OPENED or has_failed:
            return  # who says so closes next, and only then says why
        LOOK.has_touched = True
        if self.bridge.answered(hello):
            self.session = self.connection.begin()

    def _began(self, event: Began) -> None:
        if event.session is not self.session:
            return
        LOOK.has_touched = True
        self._deadline_ns = 0
        self.set_due()
        self.broker.timers.add(self)
        self.bridge.up()
        of = self.bridge.of
        notice_links.follow(self, event.session, of.options, partial(of.heard, self.bridge))

    def beat_ns(self) -> int:
        """We speak at least twice within connection-ttl, whatever the other end wants."""
        ours_ns = self.bridge.of.options.connection_ttl * NS_PER_MS // 2
        return min(super().beat_ns() or ours_ns, ours_ns)

    def hang_up(self) -> None:
        """End it in order, without waiting for what the other end says to that."""
        self.connection.close()
        self.connection.lost()
        self.touch()
        self.handle_events()

    # -- links ---------------------------------------------------------------------------------------------------------

    def _attaching(self, event: Attaching) -> None:
        event.link.refuse(event.attach, "amqp:not-allowed", "on a bridge, the one that dialled asks for links")

    def _attached(self, event: Attached) -> None:
        link = event.link
        if isinstance(link, ReceiverLink):
            taking: ReceivingEndOf[Peer] = receiving_end(link)
            taking.answered(self, link, event.attach)
        else:
            giving: SendingEndOf[Peer] | None = sending_end(link)
            assert giving is not None  # it is forgotten when the link is over
            giving.answered(self, link, event.attach)

    def _detached(self, event: Detached) -> None:
        # What is with the other node was not delivered in vain: it is sent again, and counted there.
        link = event.link
        end: SendingEndOf[Peer] | None = sending_end(link) if isinstance(link, SenderLink) else None
        super()._detached(replace(event, is_orderly=True))
        if link.role is ROLE_SENDER:
            if end is not None:
                end.ended(event.error)
        elif not self.connection.is_dead:
            why = "without a reason" if event.error is None else str(event.error.condition)
            self.close_at_once("amqp:illegal-state", f"the link for notices ended: {why}")

    def _settled(self, event: Settled) -> None:
        if not self.forwards.settled(event):
            take_outcomes(self, event)
        ends: Iterable[SendingEndOf[Peer] | None] = (sending_end(taken.link) for taken in event.taken)
        for end in dict.fromkeys(ends):
            if end is not None:
                end.outcomes_taken()

    def _ended(self, event: Ended) -> None:
        if not self.connection.is_dead:
            self.close_at_once("amqp:illegal-state", "the session ended")

    def _dead(self, event: Dead) -> None:
        super()._dead(event)
        self.forwards.end()
        is_stopped = event.error is not None and event.condition == FORCED
        said = f"{event.condition}: {event.description}" if event.condition else event.description
        self.bridge.lost(self, self.why or said or "closed by the other node", is_stopped=is_stopped)


BRIDGE_HANDLERS: Final[dict[type, Callable[[Any, Any], None]]] = HANDLERS | {
    SaslDerive: BridgePeer._derive,
    LoggedIn: BridgePeer._logged_in,
    Opened: BridgePeer._opened,
    Began: BridgePeer._began,
    Attaching: BridgePeer._attaching,
    Attached: BridgePeer._attached,
    Detached: BridgePeer._detached,
    Settled: BridgePeer._settled,
    Ended: BridgePeer._ended,
    Dead: BridgePeer._dead,
}
"""A client hears no `LoginDecided`."""
