"""One connection as the node sees it: its AMQP machine, its place in time, its links to queues.

`Peer` turns events of the connection into calls of the store and of `Termini`; what must reach the peer goes out with
the step in which it was decided.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mqbroker.amqp import sasl
from mqbroker.amqp.connection import Connection, ConnectionLimits
from mqbroker.amqp.events import (
    Aborted,
    Attaching,
    Began,
    CreditGiven,
    Dead,
    Detached,
    Empty,
    Ended,
    Incoming,
    LoggedIn,
    LoginFailed,
    Opened,
    SaslDerive,
    SenderSettled,
    Settled,
)  # fmt: skip
from mqbroker.amqp.links import ReceiverLink, SenderLink
from mqbroker.amqp.states import Conn
from mqbroker.amqp.unsettled import Taken
from mqbroker.base.errors import Refused
from mqbroker.base.notice import Level
from mqbroker.base.time import NS_PER_MS
from mqbroker.config.slices import ListenerOptions
from mqbroker.core.queue import Filter, Queue, Segment
from mqbroker.node.effects import Close, Derive, PauseReading
from mqbroker.node.inputs import Accepted
from mqbroker.wire.composites import encode_composite
from mqbroker.wire.performatives import Accepted as AcceptedOutcome
from mqbroker.wire.performatives import Error, Modified, Open, Rejected
from mqbroker.wire.run import payload_with_count
from mqbroker.wire.sections import Header, decode_header
from mqbroker.wire.types import Symbol

if TYPE_CHECKING:
    from mqbroker.node.broker import Broker

LINGER_MS = 500
OUT_BYTES_MAX = 4 << 20  # what one step may produce for one connection
CLUSTER_ROLE = "cluster"


class LinkConsumer:
    """A link of ours on which a peer consumes from a queue."""

    __slots__ = ("filter", "is_browser", "link", "peer", "priority", "queue")

    def __init__(self, peer: Peer, link: SenderLink, queue: Queue) -> None:
        self.peer = peer
        self.link = link
        self.queue = queue
        self.priority = 0
        self.filter: Filter | None = None
        self.is_browser = False

    def capacity(self) -> int:
        """Messages that credit, window and the transport let through now."""
        link = self.link
        if not link.is_attached or self.peer.is_blocked:
            return 0
        if self.peer.out_bytes > OUT_BYTES_MAX:
            self.peer.broker.next_turn[self.queue] = None
            return 0
        return min(link.credit, link.session.window)

    def deliver(self, queue: Queue, segment: Segment) -> int:
        """Send them; a redelivery says so in its header (the general path)."""
        peer, link = self.peer, self.link
        run, index, count, deliveries = segment
        is_copy = self.is_browser or queue.kind.non_destructive
        token = None if is_copy else (queue, segment)
        peer.touch()
        if peer.out_bytes > OUT_BYTES_MAX:
            peer.broker.next_turn[queue] = None
            return 0
        if link.max_message_size and run.frame_size_max - run.head_size > link.max_message_size:
            count = self._fitting(segment)
            if not count:
                link.detach("amqp:link:message-size-exceeded", "the next message exceeds the link's max-message-size")
                return 0
        if deliveries:
            segment = Segment(run, index, 1, deliveries)
            payload = payload_with_count(
                run, index, _header_with(run.payload(index), run.section.size_bytes, deliveries)
            )
            went = link.session.send_message(link, payload, None if is_copy else (queue, segment))
        else:
            went = link.session.send_run(link, run, index, count, token)
        if went:
            peer.out_bytes += run.size_bytes(index, went)
            peer.broker.activity.went(link, went, peer.broker.at.monotonic_ns)
        if went and link.send_settled and not is_copy:
            peer.broker.store.settle(queue, Segment(run, index, went, deliveries))
        return went

    def _fitting(self, segment: Segment) -> int:
        """How many of the messages, from the first on, the receiver takes by their size."""
        run, index, count, _ = segment
        sizes = (run.size_bytes(each, 1) - run.head_size for each in range(index, index + count))
        return next((n for n, size in enumerate(sizes) if size > self.link.max_message_size), count)


def _header_with(payload: memoryview, size: int, deliveries: int) -> bytes:
    """The message's header section with this delivery count; `first-acquirer` no longer holds."""
    header = decode_header(bytes(payload[:size]), 0, size)[0] if size else Header()
    return encode_composite(replace(header, first_acquirer=False, delivery_count=deliveries))


def _cause(outcome: Rejected) -> str:
    error = outcome.error
    return f"rejected: {error.condition} {error.description or ''}".strip() if error is not None else "rejected"


def segment_of(taken: Taken) -> tuple[Queue, Segment]:
    """Queue and messages of a settled range."""
    queue, segment = taken.token
    return queue, Segment(segment.run, segment.start + taken.skip, taken.n, segment.deliveries)


class Peer:
    """See the module's docstring."""

    __slots__ = (
        "_deadline_ns", "_heard_ns", "accepted", "broker", "conn", "connection", "due_ns", "is_blocked", "is_paused",
        "is_told_empty", "listener", "out_bytes", "producers", "scheduled_ns", "spoke_ns", "user",
    )  # fmt: skip

    def __init__(self, broker: Broker, accepted: Accepted, listener: ListenerOptions) -> None:
        self.broker = broker
        self.accepted = accepted
        self.conn = accepted.conn
        self.listener = listener
        self.user: str | None = None
        self.is_blocked = False
        self.is_paused = False
        self.is_told_empty = False
        self.out_bytes = 0
        self.producers: dict[ReceiverLink, None] = {}
        now_ns = broker.at.monotonic_ns
        self._heard_ns = self.spoke_ns = now_ns
        self._deadline_ns = now_ns + listener.login_timeout_ms * NS_PER_MS
        self.due_ns = self._deadline_ns
        self.scheduled_ns = 0
        limits = broker.options.limits
        self.connection = Connection(
            ConnectionLimits(
                listener.max_frame_size_bytes, listener.frame_size_before_open_bytes, listener.idle_timeout_ms,
                limits.sessions_per_connection_max, limits.links_per_session_max,
                limits.max_message_size_bytes + listener.max_frame_size_bytes,
            ),
            server=sasl.Server(self._mechanisms(), self._users(), accepted.entropy, broker.node_secret),
        )  # fmt: skip
        broker.timers.add(self)

    def _mechanisms(self) -> tuple[str, ...]:
        """PLAIN shows the password, so it is offered only where nobody can listen, or where that was allowed."""
        is_safe = self.accepted.is_loopback or self.accepted.is_tls or self.listener.allow_plaintext
        return tuple(name for name in self.listener.sasl_mechanisms if is_safe or name != "PLAIN")

    def _users(self) -> dict[str, Any]:
        """Cluster users log in on cluster listeners only, and nobody else does there."""
        is_cluster = self.listener.kind == "cluster"
        return {name: user for name, user in self.broker.users.items() if (CLUSTER_ROLE in user.roles) == is_cluster}

    # -- inputs --------------------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """Bytes of the peer."""
        self._heard_ns = self.broker.at.monotonic_ns
        self.connection.receive(data, self.handle_events)
        self.touch()
        self.handle_events()

    def lost(self, why: str) -> None:
        """The transport is gone."""
        self.connection.lost()
        self.handle_events()
        self.due_ns = 0

    def blocked(self, is_blocked: bool) -> None:
        """The transport's buffer is full, or empty enough again."""
        self.is_blocked = is_blocked
        if not is_blocked:
            for session in self.connection.sessions:
                for link in session.by_handle.values():
                    if isinstance(link.owner, LinkConsumer):
                        self.broker.store.dirty[link.owner.queue] = None

    def derived(self, key: bytes) -> None:
        """PBKDF2 is done."""
        self.connection.derived(key, self.handle_events)
        self.touch()
        self.handle_events()

    def touch(self) -> None:
        """Something may have to go out at the end of this step."""
        self.broker.touched[self.conn] = self

    def close(self, condition: str | None, description: str) -> None:
        """Close from our side."""
        self.connection.close(condition, description)
        self.touch()
        self.handle_events()

    def pause(self, is_paused: bool) -> None:
        """Stop or resume reading."""
        if is_paused != self.is_paused:
            self.is_paused = is_paused
            # The peer was not silent while nobody listened.
            self._heard_ns = self.broker.at.monotonic_ns
            self.broker.effects.append(PauseReading(self.conn, is_paused))

    # -- time ----------------------------------------------------------------------------------------------------------

    def on_time(self, now_ns: int) -> None:
        """Login deadline, then both idle timeouts."""
        connection = self.connection
        if connection.is_dead:
            self.due_ns = 0
            return
        if self._deadline_ns:
            if now_ns >= self._deadline_ns:
                self._deadline_ns = 0
                self.close("amqp:resource-limit-exceeded", f"not opened within {self.listener.login_timeout_ms} ms")
            return
        idle_ns = self.listener.idle_timeout_ms * NS_PER_MS
        if idle_ns and not self.is_paused and now_ns >= self._heard_ns + idle_ns:
            self.close("amqp:resource-limit-exceeded", f"nothing was heard for {self.listener.idle_timeout_ms} ms")
            return
        beat_ns = connection.peer_idle_timeout_ms * NS_PER_MS // 2
        if beat_ns and now_ns >= self.spoke_ns + beat_ns:
            connection.heartbeat()
            self.touch()
            self.spoke_ns = now_ns
        self._set_due()

    def _set_due(self) -> None:
        idle_ns = self.listener.idle_timeout_ms * NS_PER_MS
        beat_ns = self.connection.peer_idle_timeout_ms * NS_PER_MS // 2
        heard_ns = max(self._heard_ns, self.broker.at.monotonic_ns) if self.is_paused else self._heard_ns
        dues = [at for at in (idle_ns and heard_ns + idle_ns, beat_ns and self.spoke_ns + beat_ns) if at]
        self.due_ns = min(dues, default=0)

    # -- events --------------------------------------------------------------------------------------------------------

    def handle_events(self) -> None:
        """Act on everything that the connection told."""
        events = self.connection.events
        while events:
            self.connection.events = []
            for event in events:
                HANDLERS[type(event)](self, event)
            events = self.connection.events

    def _incoming(self, event: Incoming) -> None:
        link, run, first, is_settled = event
        broker = self.broker
        if not link.is_attached:
            return  # the same read brought more after what made us detach the link
        if broker.store.memory.is_full:
            self._refuse_run(event)
            return
        if link.owner.is_empty and not self._bind_again(link):
            return
        broker.activity.went(link, run.count, broker.at.monotonic_ns)
        waits = broker.store.publish(link.owner, run)
        if waits and not is_settled:
            broker.store.decisions.wait(self._accept, link, first, run.count)
        elif not is_settled:
            link.session.accept(first, run.count)
        if link.credit * 2 <= link.window:
            self.grant(link)

    def _bind_again(self, link: ReceiverLink) -> bool:
        """The queues of an address may have been deleted since the link was attached: as if it attached now."""
        try:
            link.owner = self.broker.store.address_for(link.owner.name)
        except Refused as refused:
            link.detach(refused.condition, refused.description)
            return False
        return True

    def _aborted(self, event: Aborted) -> None:
        if event.link.is_attached and event.link.credit * 2 <= event.link.window:
            self.grant(event.link)

    def _empty(self, event: Empty) -> None:
        """Not a message (§3.2): it goes to nobody. A settled one is passed over, because its sender cannot be told."""
        link, delivery_id, is_settled = event
        if not self.is_told_empty:
            self.is_told_empty = True  # once a connection: peers do not decide how much is logged
            self.broker.notice(Level.WARNING, "message-empty", conn=self.conn, peer=self.accepted.peer)
        if not link.is_attached:
            return
        if not is_settled:
            error = Error(condition=Symbol("amqp:decode-error"), description="the delivery holds no message")
            link.session.dispose(delivery_id, delivery_id, Rejected(error=error), as_receiver=True)
        if link.credit * 2 <= link.window:
            self.grant(link)

    def _accept(self, link: ReceiverLink, first: int, count: int) -> None:
        if link.is_attached and not self.connection.is_dead:
            link.session.accept(first, count)
            self.touch()

    def grant(self, link: ReceiverLink) -> None:
        """Credit, or a place among those who wait for room."""
        if self.broker.may_grant:
            link.grant(self.broker.options.limits.link_credit)
            self.touch()
        else:
            link.is_starved = True
            self.broker.starved[link] = self

    def _refuse_run(self, event: Incoming) -> None:
        self.broker.counters.refused += event.run.count
        why = f"the broker holds {self.broker.store.memory.held_bytes} bytes of messages, which is global-max-size"
        if event.is_settled:
            event.link.detach("amqp:resource-limit-exceeded", why)
            return
        error = Error(condition=Symbol("amqp:resource-limit-exceeded"), description=why)
        last = event.delivery_id + event.run.count - 1
        event.link.session.dispose(event.delivery_id, last, Rejected(error=error), as_receiver=True)
        if event.link.credit * 2 <= event.link.window:
            self.grant(event.link)

    def _settled(self, event: Settled) -> None:
        store = self.broker.store
        outcome = event.outcome
        is_done = isinstance(outcome, AcceptedOutcome | Rejected) or outcome is None
        counts = isinstance(outcome, Modified) and bool(outcome.delivery_failed)
        is_durable = False
        for taken in event.taken:
            if taken.token is None:
                continue  # a copy: the message itself never left
            queue, segment = segment_of(taken)
            is_durable = is_durable or (is_done and segment.run.section.is_durable and queue.journal_id != 0)
            if isinstance(outcome, Rejected):
                store.reject(queue, segment, _cause(outcome))
            elif is_done:
                store.settle(queue, segment)
            else:
                store.give_back(queue, segment, was_delivered=counts)
            store.dirty[queue] = None
        if isinstance(outcome, Rejected):
            count = sum(taken.n for taken in event.taken)
            self.broker.counters.rejected += count
            self.broker.notice(Level.WARNING, "message-rejected", conn=self.conn, count=count)
        if event.owes_settlement and is_durable:
            store.decisions.wait(self._settle, event)
        elif event.owes_settlement:
            self._settle(event)

    def _settle(self, event: Settled) -> None:
        """The receiver asked for our settlement: it may forget the delivery only when we cannot send it again."""
        if not self.connection.is_dead:
            event.session.dispose(event.first, event.last, event.outcome, as_receiver=False)
            self.touch()

    def _credit_given(self, event: CreditGiven) -> None:
        consumer = event.link.owner
        if isinstance(consumer, LinkConsumer):
            self.broker.store.dirty[consumer.queue] = None
            if event.link.is_draining:
                self.broker.draining[event.link] = self

    def _derive(self, event: SaslDerive) -> None:
        self.broker.effects.append(
            Derive(self.broker.expect(self), "sha256", event.password, event.salt, event.iterations)
        )

    def _logged_in(self, event: LoggedIn) -> None:
        self.user = event.user
        self.broker.counters.logins += 1

    def _login_failed(self, event: LoginFailed) -> None:
        self.broker.counters.logins_failed += 1
        self.broker.notice(Level.WARNING, "login-failed", conn=self.conn, peer=self.accepted.peer, user=event.user,
                           mechanism=event.mechanism)  # fmt: skip

    def _opened(self, event: Opened) -> None:
        if self.connection.state is not Conn.OPEN_RCVD:
            return
        self._deadline_ns = 0
        limits, listener = self.broker.options.limits, self.listener
        self.connection.open(
            Open(
                container_id=self.broker.container_id, max_frame_size=listener.max_frame_size_bytes,
                channel_max=limits.sessions_per_connection_max - 1,
                idle_time_out=listener.idle_timeout_ms // 2 or None, properties=self.broker.open_properties,
            )
        )  # fmt: skip
        self._set_due()
        self.broker.timers.add(self)

    def _attaching(self, event: Attaching) -> None:
        self.broker.termini.attach(self, event)

    def _detached(self, event: Detached) -> None:
        link = event.link
        self.broker.activity.gone(link)
        consumer = link.owner
        for taken in event.returned:
            if taken.token is not None:
                self.broker.store.give_back(*segment_of(taken), was_delivered=True)
        if isinstance(link, ReceiverLink):
            self.producers.pop(link, None)
            self.broker.starved.pop(link, None)
        elif isinstance(consumer, LinkConsumer) and consumer in consumer.queue.consumers:
            self.broker.store.leave(consumer.queue, consumer)

    def _ended(self, event: Began | Ended | SenderSettled) -> None:
        """Nothing to do: links bring their own events, and what we owe goes out by itself."""

    def _dead(self, event: Dead) -> None:
        if event.condition is not None:
            self.broker.notice(Level.INFO, "connection-failed", conn=self.conn, peer=self.accepted.peer,
                               condition=event.condition, why=event.description[:200])  # fmt: skip
        self.due_ns = 0
        self.touch()
        if self.conn in self.broker.peers:
            self.broker.closing[self.conn] = Close(self.conn, LINGER_MS)


HANDLERS: dict[type, Any] = {
    Incoming: Peer._incoming,
    Aborted: Peer._aborted,
    Empty: Peer._empty,
    Settled: Peer._settled,
    CreditGiven: Peer._credit_given,
    SaslDerive: Peer._derive,
    LoggedIn: Peer._logged_in,
    LoginFailed: Peer._login_failed,
    Opened: Peer._opened,
    SenderSettled: Peer._ended,
    Began: Peer._ended,
    Attaching: Peer._attaching,
    Detached: Peer._detached,
    Ended: Peer._ended,
    Dead: Peer._dead,
}
"""One handler for each kind of event; a server never asks for links, so `Attached` is not among them."""
