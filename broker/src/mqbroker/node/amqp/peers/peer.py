"""One connection as the node sees it: its AMQP machine, its place in time, its links to queues.

`Peer` turns events of the connection into calls of the store and of `Termini`; what must reach the peer goes out with
the step in which it was decided. Who logs in to whom is said by its subclasses: `AcceptedPeer`, `BridgePeer`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from mqbroker.amqp.connection import Connection
from mqbroker.amqp.events import (
    Aborted,
    ConnectionEvent,
    CreditGiven,
    CreditUsed,
    Dead,
    Detached,
    Empty,
    Incoming,
    Posted,
)  # fmt: skip
from mqbroker.amqp.frame_costs import NO_BOUND
from mqbroker.amqp.links import LinkBase, ReceiverLink, SenderLink
from mqbroker.base.errors import Refused
from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level
from mqbroker.base.time import NS_PER_MS
from mqbroker.core.address.address import Origin
from mqbroker.core.address.permissions import Actor
from mqbroker.node.amqp.peers.clients import clients_in
from mqbroker.node.amqp.peers.coordinator import Transactions
from mqbroker.node.amqp.peers.farewell import Farewell
from mqbroker.node.amqp.peers.patience import Patience
from mqbroker.node.amqp.peers.settlements import take_back
from mqbroker.node.amqp.peers.uploads import Uploads
from mqbroker.node.values.effects import CloseConnection, PauseReading
from mqbroker.node.values.link_ends import end_of, forget_end, receiving_end, sending_end
from mqbroker.node.values.open_transaction import segment_of
from mqbroker.wire.performatives import Error, Rejected
from mqbroker.wire.types import Symbol

if TYPE_CHECKING:
    from mqbroker.amqp.session import Session
    from mqbroker.core.queue.queue import Client, Queue, Segment
    from mqbroker.node.amqp.peers.amqp_broker import AmqpBroker
    from mqbroker.node.values.effects import Send
    from mqbroker.node.values.ends import ReceivingEndOf, SendingEndOf

LINGER_MS: Final = 500
# What one step may produce for one connection: little at first, and more the faster its peer reads. A thousand peers
# that do not read at all must not cost a thousand times what a fast one needs.
OUT_BYTES_MIN: Final = 256 << 10
OUT_BYTES_MAX: Final = 4 << 20


class Peer(ABC):
    """See the module's docstring."""

    __slots__ = (
        "_deadline_ns", "_heard_ns", "broker", "calm_ns", "conn", "connection", "due_ns", "far", "farewell",
        "in_turns", "is_blocked", "is_departing", "is_full", "is_new", "is_paused", "is_told_empty",
        "is_told_malformed", "is_unhearing", "out_bytes", "out_bytes_max", "patience", "producers",
        "rejected_count", "scheduled_ns", "spoke_ns", "temporary", "transactions", "unheard_bytes", "uploads", "user",
    )  # fmt: skip

    judges_others: ClassVar[bool] = True

    def __init__(self, broker: AmqpBroker, conn: int, far: str, patience: Patience) -> None:
        """`far`: where the other end is, for people."""
        self.broker = broker
        self.conn = conn
        self.far = far
        self.user: str | None = None
        self.is_blocked = False
        self.is_departing = False  # it is about to be closed: what it took it may settle, it gets no more
        self.in_turns = False  # what comes from it goes through the line (turns.py)
        self.calm_ns = 0  # at least until then
        self.is_new = False  # and it is about to open
        self.is_full = False  # much of what came waits there
        self.is_unhearing = False  # and all of it does until it reads what it was answered
        self.unheard_bytes = 0  # made for it since its transport is full
        self.is_paused = False
        self.is_told_empty = self.is_told_malformed = False
        self.rejected_count = 0  # by an outcome that is not taken in as a whole
        self.out_bytes = 0
        self.out_bytes_max = OUT_BYTES_MIN
        self.producers: dict[ReceiverLink, None] = {}
        self.temporary: dict[LinkBase, str] = {}  # names of temporary queues that end with these links
        self.transactions, self.farewell, self.uploads = Transactions(self), Farewell(), Uploads(self)
        self.patience = patience
        now_ns = broker.at.monotonic_ns
        self._heard_ns = self.spoke_ns = now_ns
        self._deadline_ns = self.due_ns = now_ns + patience.opened_ms * NS_PER_MS
        self.scheduled_ns = 0
        self.connection = self._connect()
        LOOK.has_touched = True
        self.connection.partials = broker.large.partials
        broker.timers.add(self)

    @abstractmethod
    def _connect(self) -> Connection:
        """Its AMQP machine, about to log in."""

    @property
    @abstractmethod
    def actor(self) -> Actor:
        """Whose permissions hold here, as users and their roles are now."""

    @property
    @abstractmethod
    def handlers(self) -> Mapping[type, Callable[[Any, Any], None]]:
        """What is done about each kind of event."""

    # -- for those who ask of all peers --------------------------------------------------------------------------------

    @property
    def is_accepted(self) -> bool:
        """Whether it came to a listener, with AMQP. Departures and what nodes tell pass over all others."""
        return False

    def close_if_gone(self) -> bool:
        """Close the connection of a user who may not log in here any more; whether that was so."""
        return False

    @property
    def sessions(self) -> Sequence[Session]:
        """Those that have its links. One of another protocol has none, and its clients are without links."""
        return self.connection.sessions

    @property
    def is_gone(self) -> bool:
        """Whether it is closed, or lost."""
        return self.connection.is_dead

    def clients(self) -> Iterator[Client]:
        """Who consumes over it, or is about to. They may end meanwhile."""
        return clients_in(self.connection.sessions)

    def in_delivery(self) -> Iterator[tuple[Queue, Segment]]:
        """What is unsettled on its links and in its transactions."""
        for session in self.connection.sessions:
            for taken in session.unsettled:
                if taken.token is not None:
                    yield segment_of(taken)
        yield from self.transactions.in_delivery()

    @property
    def owes(self) -> bool:
        """Whether the end of this step brings it an answer or messages."""
        return self.connection.owes

    def collect(self) -> Send | None:
        """What goes out at the end of this step; None: nothing, or it goes with what else there will be to say."""
        return self.broker.turns.collect(self)

    def admits(self) -> bool:
        """Whether what comes from it is taken in at once although this step has done enough; else it goes through the
        line."""
        return self.broker.turns.admits(self)

    def transport_gone(self, why: str) -> None:
        """The transport is gone, and why: what the peer sent before may still be taken in."""
        self.broker.turns.gone(self.conn, why)

    def call_off(self, why: str) -> None:
        """The node stops: what was asked for and has not had its turn is not done, and whoever asked hears that."""
        self.transactions.call_off(why)
        self.handle_events()

    def stop(self, why: str) -> None:
        """The node stops: close, and hand back at once what it had."""
        LOOK.has_touched = True
        self.connection.allowance = NO_BOUND  # nothing of it may come behind the journal's end
        self.close_at_once("amqp:connection:forced", why)
        self.received(b"")

    # -- inputs --------------------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> int:
        """Bytes of the peer; none: what is kept of them. The work that they made, in units of amqp/frame_costs.py."""
        allowance = self.connection.allowance
        self.broker.containment.look(self, self._take_in, data)
        return max(allowance - self.connection.allowance, 0)  # one that a bug has ended has no bound any more

    def _take_in(self, data: bytes) -> None:
        if data:
            self._heard_ns = self.broker.at.monotonic_ns
        self.connection.receive(data, self._handle_before_more)
        self.touch()
        self.handle_events()
        self.uploads.flush()

    def derived(self, key: bytes) -> None:
        """The key that the login asked for is there: it goes on, with what the peer has sent ahead."""
        self.broker.containment.look(self, self._derived, key)

    def _derived(self, key: bytes) -> None:
        self.connection.derived(key, self.handle_events)
        self.touch()
        self.handle_events()

    def _handle_before_more(self) -> None:
        """Between two frames: what came before is done in whole, and what follows is looked at afresh."""
        self.handle_events()
        LOOK.has_touched = False

    def go_on(self) -> None:
        """What the connection was held for is done: take in what came meanwhile."""
        self.broker.containment.look(self, self._go_on, b"")

    def _go_on(self, _: bytes) -> None:
        self.connection.go_on(self._handle_before_more)
        self.touch()
        self.handle_events()

    def keep(self, data: bytes) -> None:
        """Bytes of the peer that are taken in later."""
        self._heard_ns = self.broker.at.monotonic_ns
        self.connection.keep(data)

    def lost(self, why: str) -> None:
        """The transport is gone, and why: nothing more is sent to the peer."""
        self.connection.lost()
        if self.broker.gate is not None:
            self.broker.gate.lost(self)
        self.handle_events()
        LOOK.has_touched = True
        self.due_ns = 0

    def blocked(self, is_blocked: bool) -> None:
        """The transport's buffer is full, or empty enough again."""
        self.is_blocked = is_blocked
        if not is_blocked:
            self.out_bytes_max = min(self.out_bytes_max * 2, OUT_BYTES_MAX)  # it reads
            self.touch()
            self.broker.turns.heard(self)
            self.connection.wake()
            self.handle_events()

    def departs(self, is_departing: bool) -> None:
        """Its consumers get nothing from now on, or do so again."""
        LOOK.has_touched = True
        if self.is_departing and not is_departing and not self.farewell.is_final:
            self.connection.wake()
        self.is_departing = is_departing or self.farewell.is_final
        self.touch()
        self.handle_events()

    @property
    def container_id(self) -> str:
        """How the peer calls itself; empty where it has not said."""
        opened = self.connection.peer_open
        return opened.container_id if opened is not None else ""

    @property
    def said_container_id(self) -> str | None:
        """The same; None where it has not said, which is not the same as a name that is empty."""
        return self.container_id if self.connection.peer_open is not None else None

    @property
    def origin(self) -> Origin:
        """Where messages of the peer come from."""
        return Origin(publisher=self.container_id)

    @property
    def is_known_again(self) -> bool:
        """Whether it is another node, of which this one knows by a mark what comes again."""
        return False

    @property
    def listener_name(self) -> str:
        """Where it came in; empty for a connection that we opened."""
        return ""

    def touch(self) -> None:
        """Something may have to go out at the end of this step."""
        self.broker.touched[self.conn] = self

    def close(self, condition: str, description: str, info: dict[Symbol, Any] | None = None) -> None:
        """Close from our side in good order (farewell.py): perhaps later, when what it has sent is answered."""
        self.farewell.close(self, self.broker.store.decisions, (condition, description, info))

    def close_at_once(self, condition: str, description: str, info: dict[Symbol, Any] | None = None) -> None:
        """Close from our side, whatever of it has no answer."""
        self.connection.close(condition, description, info)
        self.touch()
        self.handle_events()
        self.broker.turns.depart(self)

    def detach(self, link: LinkBase, condition: str | None = None, why: str = "", *, is_closed: bool = True) -> None:
        """End a link from our side, outside of its events; what it had goes back at once."""
        link.detach(condition, why, is_closed=is_closed)
        self.touch()
        self.handle_events()

    def part_with(self, link: LinkBase) -> None:
        """A link of this name that is over hands back what it had before its turn comes."""
        self.connection.part_with(link.name, link.role)
        self.touch()
        self.handle_events()

    def pause(self, is_paused: bool) -> None:
        """Stop or resume reading from the peer's socket."""
        LOOK.has_touched = True
        if is_paused != self.is_paused:
            self.is_paused = is_paused
            # The peer was not silent while nobody listened.
            self._heard_ns = self.broker.at.monotonic_ns
            self.broker.effects.append(PauseReading(self.conn, is_paused))

    def pause_if_needed(self) -> None:
        """Read or not, by what is on its way to the disk, or waits."""
        is_journal_full = self.broker.is_disk_full and bool(self.producers or self.is_paused)
        is_behind = self.is_full or self.uploads.is_behind or self.connection.is_shut
        self.pause(is_journal_full or is_behind or self.broker.holds_back(self))

    # -- time ----------------------------------------------------------------------------------------------------------

    def on_time(self, now_ns: int) -> None:
        """The deadline of the open, then both idle timeouts."""
        connection = self.connection
        LOOK.has_touched = True
        if connection.is_dead:
            self.due_ns = 0
            return
        if self._deadline_ns:
            self.due_ns = self._deadline_ns
            if now_ns >= self._deadline_ns:
                self._deadline_ns = 0
                self.close_at_once("amqp:resource-limit-exceeded", f"not opened within {self.patience.opened_ms} ms")
            return
        idle_ns = self.patience.idle_ms * NS_PER_MS
        if idle_ns and not self.is_paused and now_ns >= self._heard_ns + idle_ns:
            self.close("amqp:resource-limit-exceeded", f"nothing was heard for {self.patience.idle_ms} ms")
            return
        beat_ns = self.beat_ns()
        if beat_ns and now_ns >= self.spoke_ns + beat_ns:
            connection.heartbeat()
            self.touch()
            self.spoke_ns = now_ns
        self.set_due()

    def beat_ns(self) -> int:
        """Time after which we say something, if only to be heard; 0: never."""
        return self.connection.peer_idle_timeout_ms * NS_PER_MS // 2

    def set_due(self) -> None:
        idle_ns = self.patience.idle_ms * NS_PER_MS
        beat_ns = self.beat_ns()
        heard_ns = max(self._heard_ns, self.broker.at.monotonic_ns) if self.is_paused else self._heard_ns
        dues = [at for at in (idle_ns and heard_ns + idle_ns, beat_ns and self.spoke_ns + beat_ns) if at]
        LOOK.has_touched = True
        self.due_ns = min(dues, default=0)

    # -- events --------------------------------------------------------------------------------------------------------

    def handle_events(self) -> None:
        """Act on everything that the connection told."""
        while events := self.connection.events:
            self.connection.events = []
            self.act(events)

    def act(self, events: Sequence[ConnectionEvent]) -> None:
        """Act on what the connection told."""
        if self.broker.gate is not None:
            self.broker.gate.act(self, events)
            return
        handlers = self.handlers
        for event in events:
            handlers[type(event)](self, event)

    def incoming(self, event: Incoming) -> None:
        """Messages of the peer came in on a link."""
        link = event.link
        if self.broker.is_answering and (link.is_passed_over or not event.is_settled):
            # No answer would come in time, so who sent them sends them again, to whomever: what comes behind would be
            # before them.
            LOOK.has_touched = True
            link.is_passed_over = True
            return
        if link.is_attached:  # else the same read brought more after what made us detach the link
            end: ReceivingEndOf[Peer] = receiving_end(link)
            end.incoming(self, event)

    def _posted(self, event: Posted) -> None:
        self.transactions.post(event)
        self.replenish(event.link)

    def _aborted(self, event: Aborted) -> None:
        self.uploads.drop(event.link)
        self._credit_used(event)

    def _credit_used(self, event: Aborted | CreditUsed) -> None:
        self.replenish(event.link)

    def _came_empty(self, event: Empty) -> None:
        """Not a message (§3.2): it goes to nobody. A settled one is passed over, because its sender cannot be told,
        except by the end of its transaction: what cannot be posted fails that, as everywhere."""
        link, delivery_id, is_settled, txn_id = event
        refused = Refused("amqp:decode-error", "the delivery holds no message")
        LOOK.has_touched = True
        if not self.is_told_empty:
            self.is_told_empty = True  # once a connection: peers do not decide how much is logged
            self.broker.notice(Level.WARNING, "message-empty", conn=self.conn, peer=self.far)
        if txn_id is not None:
            self.transactions.fail(txn_id, refused)
        if not link.is_attached:
            return
        if not is_settled:
            error = Error(condition=Symbol(refused.condition), description=refused.description)
            link.session.dispose(delivery_id, delivery_id, Rejected(error=error), as_receiver=True)
        self.replenish(link)

    def accept(self, link: ReceiverLink, first: int, count: int) -> None:
        """What a link brought is on disk."""
        if link.is_attached and not self.connection.is_dead:
            link.session.accept(first, count)
            self.touch()

    def replenish(self, link: ReceiverLink) -> None:
        """Grant again once half is used: one flow for many messages, and the sender never runs dry."""
        if link.credit * 2 <= link.window and link.is_attached:
            self.grant(link)

    def grant(self, link: ReceiverLink) -> None:
        """Credit, or a place among those who wait for room."""
        end: ReceivingEndOf[Peer] = receiving_end(link)
        if end.fixed_credit:
            link.grant(end.fixed_credit)
            self.touch()
            return
        meter = end.meter
        LOOK.has_touched = True
        if meter is not None and meter.is_blocking:
            link.is_starved = True
            meter.waiting[link] = self
        elif self.broker.may_grant or (end.takes_when_full and self.broker.takes_in):
            credit = self.broker.options.limits.link_credit
            link.grant(credit if meter is None else meter.credit(credit))
            self.touch()
        else:
            link.is_starved = True
            self.broker.starved[link] = self

    def _credit_given(self, event: CreditGiven) -> None:
        LOOK.has_touched = True
        end: SendingEndOf[Peer] | None = sending_end(event.link)
        if end is not None:
            end.credit_given()

    def _detached(self, event: Detached) -> None:
        """A link is over, and so is what it had."""
        link = event.link
        self.broker.activity.gone(link)
        take_back(self, event)
        LOOK.has_touched = True
        if isinstance(link, ReceiverLink):
            self.producers.pop(link, None)
            self.uploads.drop(link)
            self.broker.starved.pop(link, None)
        end: ReceivingEndOf[Peer] | SendingEndOf[Peer] | None = end_of(link)
        if end is not None:
            end.detached(self, event)
        self.broker.link_detached(self, link)
        if isinstance(link, SenderLink):
            forget_end(link)

    def tell_failure(self, condition: str, why: str) -> None:
        """The connection ends by a fault: log that."""
        self.broker.notice(Level.INFO, "connection-failed", conn=self.conn, peer=self.far, condition=condition, why=why)

    def _dead(self, event: Dead) -> None:
        if event.condition is not None:
            self.tell_failure(event.condition, event.description[:200])
        LOOK.has_touched = True
        self.due_ns = 0
        self.farewell.open_door()
        self.broker.scope_ended(self, self.connection)
        self.touch()
        if self.conn in self.broker.peers:
            self.broker.closing[self.conn] = CloseConnection(self.conn, LINGER_MS)
