"""Connection routers of a node, wired to listeners, discovery, the cluster, probes and time.

A connection is routed when its open has come. Where its router has too few brokers it is held, unread, until there are
enough or its time is over; then it is routed as it would have been.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level
from mqbroker.base.time import NS_PER_MS
from mqbroker.cluster.notices import Member
from mqbroker.cluster.routing.policies import RoutingTarget
from mqbroker.cluster.routing.router import STAY, Pool, Router, RoutingTargets, RoutingVerdict
from mqbroker.config.slices import ConnectionRouterOptions
from mqbroker.core.address import routes
from mqbroker.journal.recovered import Recovered
from mqbroker.node.amqp.listeners import open_answer
from mqbroker.node.values.effects import Probe

if TYPE_CHECKING:
    from mqbroker.node.amqp.listeners.accepted_peer import AcceptedPeer
    from mqbroker.node.amqp.peers.peer import Peer
    from mqbroker.node.cluster.discovery.discovery import Discovery
    from mqbroker.node.values.base_broker import BaseBroker

LOOK_AGAIN_NS: Final = 50 * NS_PER_MS  # while somebody waits: brokers may be heard that no probe tells of


class Waiting:
    """Connections that wait for a router's quorum. Has a deadline like everybody in node/values/timers.py."""

    def __init__(self, routing: ConnectionRouting) -> None:
        self._routing = routing
        self.peers: dict[AcceptedPeer, tuple[str, int]] = {}  # with their keys, and until when
        self.due_ns = 0
        self.scheduled_ns = 0

    def add(self, peer: AcceptedPeer, key: str, until_ns: int, now_ns: int) -> None:
        """A connection waits for a quorum until `until_ns` at most, in monotonic ns."""
        LOOK.has_touched = True
        self.peers[peer] = key, until_ns
        self.due_ns = min(until_ns, now_ns + LOOK_AGAIN_NS)

    def on_time(self, now_ns: int) -> None:
        """Let go on who need not wait any more, or must not."""
        over = [
            peer
            for peer, (key, until_ns) in self.peers.items()
            if now_ns >= until_ns or peer.connection.is_dead or not self._routing.router_of(peer).must_wait(key, now_ns)
        ]
        LOOK.has_touched = True
        for peer in over:
            del self.peers[peer]
            self._routing.resume(peer)
        first_ns = min((until_ns for _, until_ns in self.peers.values()), default=0)
        self.due_ns = min(first_ns, now_ns + LOOK_AGAIN_NS)


class ConnectionRouting:
    """See the module's docstring. It is the World of its routers."""

    def __init__(
        self, broker: BaseBroker, discovery: Discovery, others: Callable[[str], list[Member]], recovered: Recovered
    ) -> None:
        """`others`: members of the cluster that a cluster connection knows."""
        self._broker, self._discovery, self._others = broker, discovery, others
        self._waiting = Waiting(self)
        self._connectors = {one.name: (one.host, one.port) for one in broker.options.connectors}
        now_ns = broker.at.monotonic_ns
        self.routers = {
            each.name: Router(each, self._pool(each), self, now_ns) for each in broker.options.connection_routers
        }
        self._placeless: dict[str, None] = {}  # members that do not say how clients reach them
        LOOK.has_touched = True
        for router in self.routers.values():
            broker.timers.add(router)
        self._load(recovered)

    def _load(self, recovered: Recovered) -> None:
        """Take over what caches held before the start. What nobody wants any more is dropped."""
        at, journal = self._broker.at, self._broker.store.journal
        for route in sorted(routes.routes_of(recovered), key=lambda each: each.used_ms):
            router = self.routers.get(route.router)
            if router is None or not router.options.cache_persisted:
                routes.drop(journal, route.router, route.key)
            else:
                # A clock that was set back makes nothing younger than now.
                age_ns = max(at.wall_ms - route.used_ms, 0) * NS_PER_MS
                router.restore(route.key, route.target, at.monotonic_ns - age_ns, at.monotonic_ns)

    def look(self) -> None:
        """Members of the cluster are other ones."""
        if not self._broker.is_running:
            return
        names = dict.fromkeys(router.options.cluster_connection for router in self.routers.values())
        members = [member for name in names for member in self._others(name) if not member.clients]
        for member in members:
            if member.node_id not in self._placeless:
                remedy = "set client-connector-ref in its cluster connection: no client is sent there"
                self.tell(Level.WARNING, "router-member-without-place", node=member.name, node_id=member.node_id,
                          remedy=remedy)  # fmt: skip
        LOOK.has_touched = True
        self._placeless = {member.node_id: None for member in members}
        for router in self.routers.values():
            if router.options.cluster_connection:
                router.look()

    def stop(self) -> None:
        """No router probes its targets any more."""
        for router in self.routers.values():
            router.stop()

    def router_of(self, peer: AcceptedPeer) -> Router:
        """The router of its listener, which has one."""
        return self.routers[peer.listener.router]

    def is_waiting(self, peer: Peer) -> bool:
        """Whether a connection is held here."""
        return peer in self._waiting.peers

    def route(self, peer: AcceptedPeer, *, is_late: bool = False) -> RoutingVerdict | None:
        """Where it belongs; None: it has to wait, and comes back as `opening.resume`. `is_late`: it has waited."""
        if not peer.listener.router:
            return STAY
        router, now_ns = self.router_of(peer), self._broker.at.monotonic_ns
        key = router.key_of(_values(peer, router.options.key_type))
        timeout_ns = router.options.quorum_timeout * NS_PER_MS
        LOOK.has_touched = True
        if timeout_ns and not is_late and router.must_wait(key, now_ns):
            self._waiting.add(peer, key, now_ns + timeout_ns, now_ns)
            self._broker.timers.add(self._waiting)
            return None
        return router.route(key, now_ns)

    def resume(self, peer: AcceptedPeer) -> None:
        """A connection has waited long enough for its router."""
        open_answer.resume(peer)

    # -- World ---------------------------------------------------------------------------------------------------------

    def probe(self, router: str, target: RoutingTarget) -> None:
        """Have a target dialled; `probed` follows (RoutingWorld)."""
        effect_id = self._broker.completions.expect(lambda _, why: self.routers[router].probed(target, why))
        LOOK.has_touched = True
        self._broker.effects.append(Probe(effect_id, target.host, target.port))

    def tell(self, level: Level, event: str, **fields: str | int) -> None:
        """Have an event logged, with these fields (RoutingWorld)."""
        self._broker.notice(level, event, **fields)

    def keep(self, router: str, key: str, target_id: str) -> None:
        """Remember in the journal where the key was sent (RoutingWorld)."""
        routes.keep(self._broker.store.journal, routes.RouterRoute(router, key, target_id, self._broker.at.wall_ms))

    def drop(self, router: str, key: str) -> None:
        """Remember no more where the key was sent (RoutingWorld)."""
        routes.drop(self._broker.store.journal, router, key)

    # -- targets -------------------------------------------------------------------------------------------------------

    def _pool(self, options: ConnectionRouterOptions) -> Pool:
        static = tuple(_target(*self._connectors[name]) for name in options.static_connectors)
        group = options.discovery_group_ref
        local = None
        if options.local_target_enabled:
            known = self._connectors.get(options.local_connector_ref)
            local_id = _target(*known).id if known is not None else self._broker.node_id
            local = RoutingTarget(local_id, "", 0, is_local=True)
        members = self._members(options.cluster_connection) if options.cluster_connection else None
        return Pool(static, self._heard(group) if group else None, local, members)

    def _members(self, connection: str) -> RoutingTargets:
        def targets() -> list[RoutingTarget]:
            # Those that are cordoned would send clients on, maybe to where they came from.
            takers = (member for member in self._others(connection) if member.clients and not member.heir)
            reached = [(member.node_id, member.clients[0]) for member in takers]
            return [RoutingTarget(node_id, to.host, to.port) for node_id, to in reached]

        return targets

    def _heard(self, group: str) -> RoutingTargets:
        table = self._discovery.groups[group].table

        def targets() -> list[RoutingTarget]:
            heard = [(entry.announcement, entry.announcement.connectors[0]) for entry in table.entries]
            return [RoutingTarget(said.node_id or f"{to.host}:{to.port}", to.host, to.port) for said, to in heard]

        return targets


def _target(host: str, port: int) -> RoutingTarget:
    return RoutingTarget(f"{host}:{port}", host, port)


def _values(peer: AcceptedPeer, key_type: str) -> Iterator[str]:
    """What of a connection may be its key; only roles are several."""
    if key_type == "SOURCE_IP":
        yield peer.accepted.peer.rpartition(":")[0].strip("[]")
    elif key_type == "CLIENT_ID":
        yield peer.container_id
    elif key_type == "SNI_HOST":
        yield peer.accepted.server_name
    elif key_type == "USER_NAME":
        yield peer.user or ""
    else:
        yield from sorted(peer.actor.roles)
