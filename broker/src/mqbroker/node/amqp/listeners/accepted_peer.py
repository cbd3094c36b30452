"""A connection that a peer opened to one of our listeners: it logs in, says who it is, and asks for links."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from mqbroker.amqp import sasl
from mqbroker.amqp.certificate import CertificateIdentity, identity_in
from mqbroker.amqp.connection import Connection
from mqbroker.amqp.events import Attaching, Dead, LoggedIn, LoginDecided, Opened, SaslDerive
from mqbroker.amqp.limits import ConnectionLimits
from mqbroker.amqp.states import ConnectionState
from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level
from mqbroker.base.time import NS_PER_MS
from mqbroker.config.slices import ListenerOptions
from mqbroker.core.address.permissions import Actor
from mqbroker.node.amqp.listeners import open_answer
from mqbroker.node.amqp.listeners.logins import login_key
from mqbroker.node.amqp.peers.event_handlers import HANDLERS
from mqbroker.node.amqp.peers.large_messages import kept_bytes_max
from mqbroker.node.amqp.peers.patience import Patience
from mqbroker.node.amqp.peers.peer import Peer
from mqbroker.node.amqp.peers.turns import CALM_WORK
from mqbroker.node.values.handshake import Hello
from mqbroker.node.values.inputs import ConnectionAccepted
from mqbroker.node.values.login_delays import LoginOrigin

if TYPE_CHECKING:
    from mqbroker.node.amqp.listeners.accepting_broker import AcceptingBroker

LATE_NS: Final = 1000 * NS_PER_MS  # that a peer still has to open when its turn has come


class AcceptedPeer(Peer):
    """See the module's docstring. `acceptor`: the node, as those see it who come to its listeners."""

    __slots__ = ("_held", "accepted", "acceptor", "hello", "listener")

    def __init__(self, broker: AcceptingBroker, accepted: ConnectionAccepted, listener: ListenerOptions) -> None:
        self.acceptor = broker
        self.accepted = accepted
        self.listener = listener
        self.hello: Hello | None = None  # of a node of our cluster
        self._held: tuple[LoginOrigin, bool, int] | None = (
            None  # a login whose outcome waits: of whom, which, until when
        )
        patience = Patience(listener.login_timeout_ms, listener.idle_timeout_ms)
        super().__init__(broker, accepted.conn, accepted.peer, patience)
        self.in_turns = self.is_new = True  # until it is open

    def _connect(self) -> Connection:
        broker, listener, limits = self.broker, self.listener, self.broker.options.limits
        links_max = limits.links_per_session_max
        if listener.kind == "cluster":  # other nodes have a link for each queue that waits for this one
            links_max = max(links_max, limits.queues_max)
        server = sasl.SaslServer(
            self._mechanisms(), broker.accounts.of(listener.kind), self.accepted.entropy,
            broker.accounts.passwords,
            self._external(),
        )  # fmt: skip
        server.latest = lambda: (broker.accounts.of(listener.kind), broker.accounts.passwords)
        connection = Connection(
            ConnectionLimits(
                listener.max_frame_size_bytes, listener.frame_size_before_open_bytes, listener.idle_timeout_ms,
                limits.sessions_per_connection_max, links_max,
                limits.max_message_size_bytes + listener.max_frame_size_bytes + kept_bytes_max(limits),
            ),
            server=server,
        )  # fmt: skip
        connection.is_gradual = True
        connection.allowance = CALM_WORK
        return connection

    def _mechanisms(self) -> tuple[str, ...]:
        """PLAIN shows the password, so it is offered only where nobody can listen, or where that was allowed."""
        may_offer = {
            "PLAIN": self.accepted.is_loopback or self.accepted.is_tls or self.listener.allow_plaintext,
            "EXTERNAL": self.accepted.certificate is not None,
            "SCRAM-SHA-512": self.broker.accounts.may_offer_sha512(self.listener.kind),
        }
        return tuple(name for name in self.listener.sasl_mechanisms if may_offer.get(name, True))

    def _external(self) -> CertificateIdentity | None:
        certificate = self.accepted.certificate
        return None if certificate is None else identity_in(certificate, self.listener.tls_user_from)

    @property
    def actor(self) -> Actor:
        """Whose permissions hold here, as users and their roles are now."""
        conn = 0 if self.listener.kind == "cluster" else self.conn  # what nodes make counts for nobody
        if self.user is None:
            role = self.listener.anonymous_role
            return Actor(None, (role,) if role else (), conn)
        user = self.broker.accounts.of(self.listener.kind).get(self.user)
        return Actor(self.user, user.roles if user is not None else (), conn)

    @property
    def handlers(self) -> Mapping[type, Callable[[Any, Any], None]]:
        """What is done about each kind of event."""
        return ACCEPTED_HANDLERS

    @property
    def is_accepted(self) -> bool:
        """Whether it came to a listener."""
        return True

    @property
    def is_client(self) -> bool:
        """Whether it came to a listener for clients, not to one for nodes of the cluster."""
        return self.listener.kind != "cluster"

    @property
    def is_known_again(self) -> bool:
        """Whether it is another node of our cluster."""
        return self.hello is not None

    @property
    def listener_name(self) -> str:
        """The name of the listener at which it came in."""
        return self.listener.name

    # -- login ---------------------------------------------------------------------------------------------------------

    def on_time(self, now_ns: int) -> None:
        """The outcome of a login that waits, then what holds for every connection."""
        if self._held is not None and now_ns >= self._held[2]:
            self._conclude()
        if self._deadline_ns and self.broker.turns.is_waiting(self):
            LOOK.has_touched = True
            self._deadline_ns = max(self._deadline_ns, now_ns + LATE_NS)  # not it is late but we are
        super().on_time(now_ns)

    def _derive(self, event: SaslDerive) -> None:
        self.acceptor.logins.check(self, event)

    def _logged_in(self, event: LoggedIn) -> None:
        self.user = event.user
        self.broker.counters.logins += 1
        self.close_if_gone()  # users may have been read again since the login began

    def close_if_gone(self) -> bool:
        """Close the connection of a user who may not log in here any more; whether that was so."""
        if self.user is None or self.user in self.broker.accounts.of(self.listener.kind):
            return False
        self.close("amqp:unauthorized-access", f"user {self.user!r} was removed, or may not log in here any more")
        return True

    def _login_decided(self, event: LoginDecided) -> None:
        """Log a failure at once, also of a peer that does not wait for it; tell the outcome when its time has come."""
        LOOK.has_touched = True
        if not event.is_good:
            self.broker.counters.logins_failed += 1
            why = {"why": event.why} if event.why else {}
            self.broker.notice(Level.WARNING, "login-failed", conn=self.conn, peer=self.far, user=event.user,
                               mechanism=event.mechanism, **why)  # fmt: skip
        key, now_ns = login_key(self, event.user), self.broker.at.monotonic_ns
        delay_ns = self.broker.login_delays.decided(key, event.is_good, now_ns)
        if not delay_ns:
            self.connection.conclude(self.handle_events, is_busy=delay_ns is None)
            return
        # A short time to log in must not keep a user out who knows the password in the end.
        delay_ns = min(delay_ns, self.listener.login_timeout_ms * NS_PER_MS // 2)
        self._held = (key, event.is_good, now_ns + delay_ns)
        self.due_ns = min(self._deadline_ns, now_ns + delay_ns)
        self.broker.timers.add(self)

    def _conclude(self) -> None:
        self._release_held(is_told=True)
        self.connection.conclude(self.handle_events)
        self.touch()
        self.handle_events()

    def _release_held(self, *, is_told: bool) -> None:
        LOOK.has_touched = True
        if self._held is not None:
            key, is_good, _ = self._held
            self._held = None
            self.broker.login_delays.told(key, is_good and is_told)

    def _opened(self, event: Opened) -> None:
        if self.connection.state is not ConnectionState.OPEN_RCVD:
            return
        self._deadline_ns = 0
        open_answer.answer(self)

    def _attaching(self, event: Attaching) -> None:
        self.acceptor.attach(self, event)

    def tell_failure(self, condition: str, why: str) -> None:
        """Nodes dial again and again, so that of those is told once in a while, with how often it was."""
        if self.listener.kind == "cluster":
            host = self.far.rpartition(":")[0]
            self.acceptor.failures.tell(host, 1, condition=condition, why=why)
        else:
            super().tell_failure(condition, why)

    def _dead(self, event: Dead) -> None:
        self._release_held(is_told=False)
        self.acceptor.containers.release(self)
        super()._dead(event)
        self.broker.store.quotas.parted(self.conn)


ACCEPTED_HANDLERS: Final[dict[type, Callable[[Any, Any], None]]] = HANDLERS | {
    SaslDerive: AcceptedPeer._derive,
    LoggedIn: AcceptedPeer._logged_in,
    LoginDecided: AcceptedPeer._login_decided,
    Opened: AcceptedPeer._opened,
    Attaching: AcceptedPeer._attaching,
    Dead: AcceptedPeer._dead,
}
"""A server never asks for links, so `Attached` is not among them."""


def accepted_among(peers: Iterable[Peer]) -> list[AcceptedPeer]:
    """Connections that came to a listener, of all of this node."""
    return [cast("AcceptedPeer", each) for each in peers if each.is_accepted]


def nodes_among(peers: Iterable[Peer]) -> Iterator[tuple[AcceptedPeer, Hello]]:
    """Connections of other nodes that stand, of all of this node, and what each said of itself. They may be ended
    meanwhile."""
    for peer in accepted_among(peers):
        if peer.hello is not None and not peer.is_gone:
            yield peer, peer.hello
