"""A bridge: the connection to one other node, from the first attempt to dial it to its end.

Owns when it is dialled, again and again with growing delays, and what its loss means: a node that stopped cleanly is
not dialled until somebody tells of it, one that fell silent is. Invariants: at most one connection at a time; what
belongs to an earlier one changes nothing. Source: docs/adr/0012-cluster-connections.md; Artemis's manual, "Clusters".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level
from mqbroker.base.time import NS_PER_MS
from mqbroker.cluster.discovery.announcement import Connector
from mqbroker.cluster.node_id_conflict import DEPOSED
from mqbroker.node.cluster.membership.bridge_peer import BridgePeer
from mqbroker.node.values.bridge_states import BRIDGE_STATES, BridgeState, BridgeStateEvent
from mqbroker.node.values.effects import CloseConnection, Connect
from mqbroker.node.values.handshake import HandshakeVerdict, Hello, verdict
from mqbroker.node.values.inputs import Connected

if TYPE_CHECKING:
    from mqbroker.node.cluster.membership.cluster_connection import ClusterConnection

UNBOUNDED: Final = -1
# After `topology-scanner-attempts` a listed node that has stopped is dialled on slowly: nobody else may tell of it.
SLOW_SCAN_MS: Final = 30_000
DOUBTS_MIN: Final = 30  # attempts at the full rate where nobody has answered yet, or no name leads any more
REASONS_MAX: Final = 10  # of attempts in vain that are told of before a link stands
ATTEMPTING: Final = (BridgeState.DIALLING, BridgeState.OPENING)
REFUSALS: Final = {
    HandshakeVerdict.NO_NODE: (
        "it answers, but is no node of a cluster; its connector must lead to a listener of kind cluster"
    ),
    HandshakeVerdict.OURSELVES: "it is this node itself",
    HandshakeVerdict.CONFLICT: "it has our node id",
    HandshakeVerdict.ANOTHER: "another node answers there",
}


class Bridge:
    """See the module's docstring. `node_id` is empty until a node that is only known by its place has answered."""

    def __init__(
        self,
        of: ClusterConnection,
        connector: Connector,
        node_id: str = "",
        *,
        is_listed: bool = False,
        is_question: bool = False,
    ) -> None:
        self.of = of
        self.connector = connector
        self.node_id = node_id
        self.boot_id = ""
        self._told_boot_id = ""  # by others
        self.term = 0  # of the process that answered last
        self.is_listed = is_listed  # among the static connectors, or by a name in DNS
        self.is_question = is_question  # tried once, and ended by whatever answers
        self.is_look = False  # tried once, and goes on as any other with whoever answers (listed_places.py)
        self.is_doubtful = False  # a name led there, and nobody has answered yet or none leads there any more
        self.state = BridgeState.IDLE
        self.since_ns = of.broker.at.monotonic_ns
        self.why = ""
        self._told_reasons: set[str] = set()  # of attempts in vain
        self.attempts = 0  # in vain, one after the other
        self.was_up = False
        self.is_scanning = False  # it has stopped cleanly, and may come back where it is listed
        self.is_missed = False  # it is not dialled, though it neither stopped nor gave its place to another node
        self.conn = 0
        self.peer: BridgePeer | None = None
        self.due_ns = 0
        self.scheduled_ns = 0

    @property
    def is_tried_once(self) -> bool:
        """Whether nobody is missing where it fails."""
        return self.is_question or self.is_look

    def _move(self, event: BridgeStateEvent) -> None:
        LOOK.has_touched = True
        self.state = BRIDGE_STATES.after(self.state, event)
        self.since_ns = self.of.broker.at.monotonic_ns

    # -- getting there -------------------------------------------------------------------------------------------------

    def dial(self) -> None:
        """Begin the next attempt to reach the node."""
        broker, connector, options = self.of.broker, self.connector, self.of.options
        self._move(BridgeStateEvent.DIAL)
        LOOK.has_touched = True
        self.due_ns = 0
        self.conn = broker.cluster.next_conn(self)
        listener, local = self.of.cluster.listener, self.of.cluster.local_bind_address
        broker.effects.append(
            Connect(self.conn, connector.host, connector.port, local, connector.scheme == "amqps",
                    "" if listener is None else listener.name, options.call_timeout)
        )  # fmt: skip

    def connected(self, given: Connected) -> None:
        """The transport stands: log in."""
        self._move(BridgeStateEvent.CONNECTED)
        self.peer = BridgePeer(self.of.broker, given, self)
        self.of.broker.peers[given.conn] = self.peer

    def failed(self, why: str) -> None:
        """The attempt came to nothing."""
        self._fail(why)

    def answered(self, hello: Hello | None) -> bool:
        """The other end has said who it is; whether the bridge goes on with it."""
        broker = self.of.broker
        outcome = verdict(self.node_id, hello, broker.node_id, broker.boot_id)
        if hello is not None:
            self.of.listed_places.answered(self.connector, hello.node_id)
        if outcome is not HandshakeVerdict.GOOD or hello is None:
            self._refuse(outcome, hello)
            return False
        if self.of.cluster.is_deposed(hello.node_id, hello.term):
            self._fail(DEPOSED)
            return False
        if self.is_question:
            self._end(REFUSALS[HandshakeVerdict.ANOTHER])
            return False
        LOOK.has_touched = True
        self.term = hello.term
        self.of.cluster.hear_term(hello.node_id, hello.term)
        if not self.of.adopt(self, hello):
            self._end("another link leads to the same node, or there are too many")
            return False
        self.boot_id = hello.boot_id
        return True

    def _refuse(self, outcome: HandshakeVerdict, hello: Hello | None) -> None:
        LOOK.has_touched = True
        why = REFUSALS[outcome]
        if outcome is HandshakeVerdict.NO_NODE:
            self._fail(why)
        elif outcome is HandshakeVerdict.OURSELVES:
            self._end(why)
        elif outcome is HandshakeVerdict.CONFLICT:
            assert hello is not None
            self.of.broker.node_id_conflict.met(hello, self.connector.uri)
            self._fail(why)
        else:
            assert hello is not None
            LOOK.has_touched = True
            self.is_listed = self.is_scanning = False  # what the list says leads to the other one
            self.give_up(f"{why}: {hello.node_id}")
            known = self.of.bridges.get(hello.node_id)
            if known is None or known.state is not BridgeState.UP:  # one that stands is reached as its node says
                self.of.learn(hello.node_id, hello.boot_id, self.connector, hello.term)

    def deposed(self, term: int) -> None:
        """Another process of the node is in this term: who tells of it says next where."""
        if self.term < term and self.state in (*ATTEMPTING, BridgeState.UP):
            self._fail(DEPOSED)

    def up(self) -> None:
        """The session with the other node stands; links follow."""
        self._move(BridgeStateEvent.OPENED)
        LOOK.has_touched = True
        self.attempts, self.was_up, self.is_scanning, self.is_missed = 0, True, False, False
        self.why = ""
        self._told_reasons.clear()
        self._notice(Level.INFO, "bridge-connected", boot_id=self.boot_id, peer=self.connector.uri)
        self.of.link_opened(self)

    # -- the end of a connection ---------------------------------------------------------------------------------------

    def lost(self, peer: BridgePeer, why: str, *, is_stopped: bool) -> None:
        """The connection is gone. `is_stopped`: the other node said that it stops."""
        if peer is not self.peer:
            return
        LOOK.has_touched = True
        self.peer = None
        if self.state not in (BridgeState.OPENING, BridgeState.UP):
            return
        if not self.of.broker.is_running:
            self._end("this node stops")
        elif self.is_tried_once:
            self._tried(why)
        elif is_stopped:
            self._stopped(why)
        else:
            self._fail(why)

    def _stopped(self, why: str) -> None:
        was_up = self.state is BridgeState.UP
        if was_up:
            self._notice(Level.INFO, "bridge-stopped", why=why[:200])
        self.of.link_given_up(self)
        self.why, self.attempts = why, 0
        # Where it is listed, nobody else may ever tell of it.
        self.is_scanning = self.is_listed and self.of.options.topology_scanner_attempts != 0
        if self.is_scanning:
            self._rest(self.of.options.retry_interval)
        else:
            self._move(BridgeStateEvent.GIVE_UP)

    def _fail(self, why: str) -> None:
        if self.state not in (BridgeState.DIALLING, BridgeState.OPENING, BridgeState.UP):
            return
        if self.is_tried_once:
            self._tried(why)
            return
        was_up, is_news = self.state is BridgeState.UP, self._note_reason(why)
        LOOK.has_touched = True
        self.why = why
        self.attempts = 0 if was_up else self.attempts + 1
        if was_up:
            self.of.link_lost(self)
        else:
            self.of.is_still_down(self)
        if 0 <= self._attempts_max <= self.attempts and not self.is_scanning:
            self.is_missed = True
            self.give_up(why)
            return
        if self.is_scanning and self.attempts == self._attempts_max:
            self._notice(Level.WARNING, "topology-incomplete", why=why[:200], retry_ms=self._delay_ms())
        delay_ms = self._delay_ms()
        if was_up or (is_news and not self.is_scanning):
            event = "bridge-disconnected" if was_up else "bridge-failed"
            self._notice(Level.WARNING, event, why=why[:200], retry_ms=delay_ms)
        self._rest(delay_ms)

    def _tried(self, why: str) -> None:
        """The one attempt was in vain."""
        if self.is_look:
            self.of.listed_places.look_failed(self.connector, why)
        self._end(why)

    def _note_reason(self, why: str) -> bool:
        """An attempt was in vain; True: for the first time for this reason. A place may have several, in turn."""
        LOOK.has_touched = True
        is_news = why not in self._told_reasons and len(self._told_reasons) < REASONS_MAX
        if is_news:
            self._told_reasons.add(why)
        return is_news

    @property
    def _attempts_max(self) -> int:
        options = self.of.options
        if self.is_scanning:
            return options.topology_scanner_attempts
        # One attempt more than none, where it has been up: 0 means that it is not tried again.
        return options.reconnect_attempts if self.was_up else options.initial_connect_attempts

    def _delay_ms(self) -> int:
        options = self.of.options
        scans_max = options.topology_scanner_attempts
        if self.is_doubtful and not self.is_scanning and scans_max >= 0:
            scans_max = max(scans_max, DOUBTS_MIN)  # it may be starting just now, with the others
        if (self.is_scanning or self.is_doubtful) and 0 <= scans_max <= self.attempts:
            return max(options.retry_interval, SLOW_SCAN_MS)
        grown = options.retry_interval * options.retry_interval_multiplier ** min(max(self.attempts - 1, 0), 64)
        return int(min(grown, max(options.max_retry_interval, 1)))

    def _rest(self, delay_ms: int) -> None:
        self._move(BridgeStateEvent.REST)
        self._hang_up()
        LOOK.has_touched = True
        self.due_ns = self.of.broker.at.monotonic_ns + delay_ms * NS_PER_MS
        self.of.broker.timers.add(self)

    @property
    def is_missing(self) -> bool:
        """Whether the node should be there: it is listed and has stopped, or was lost and given up."""
        return self.is_scanning or (self.state is BridgeState.GONE and (self.is_listed or self.is_missed))

    def give_up(self, why: str) -> None:
        """There is to be no further attempt before somebody tells of the node."""
        LOOK.has_touched = True
        self.why = why
        self._move(BridgeStateEvent.GIVE_UP)
        self._hang_up()
        self.due_ns = 0
        self._notice(Level.ERROR, "node-lost", why=why[:200])
        self.of.link_given_up(self)

    def end(self, why: str) -> None:
        """The node is not to be linked over this bridge any more."""
        if self.state is not BridgeState.ENDED:
            self._end(why)

    def unlist(self, why: str) -> None:
        """No list has it any more: it ends where nothing else tells of its node."""
        LOOK.has_touched = True
        self.is_listed, self.is_doubtful = False, True
        if not self.node_id or self.is_scanning:
            self.is_scanning = False
            self.end(why)

    def _end(self, why: str) -> None:
        LOOK.has_touched = True
        self.why = why
        self._move(BridgeStateEvent.END)
        self._hang_up()
        self.due_ns = 0
        self.of.ended(self)

    def _hang_up(self) -> None:
        """Close whatever connection there is, in order."""
        LOOK.has_touched = True
        peer, self.peer = self.peer, None
        if peer is not None:
            peer.hang_up()
        elif self.of.broker.cluster.forget(self.conn):
            self.of.broker.effects.append(CloseConnection(self.conn, 0))

    # -- news of the node ----------------------------------------------------------------------------------------------

    def told(self, connector: Connector, boot_id: str) -> None:
        """Somebody told of the node: it may be worth an attempt now."""
        is_restarted = bool(boot_id) and boot_id != self.boot_id
        if is_restarted and self.boot_id and boot_id != self._told_boot_id and self.state in ATTEMPTING:
            # What is under way was begun with the process before, whose host may never answer.
            self._rest(0)
        LOOK.has_touched = True
        self._told_boot_id = boot_id or self._told_boot_id
        is_slow = self.is_scanning or self.is_doubtful
        if self.state is BridgeState.GONE or (self.state is BridgeState.RESTING and (is_slow or is_restarted)):
            self.connector, self.attempts, self.is_scanning = connector, 0, False
            self.dial()
        elif self.state in (BridgeState.RESTING, BridgeState.UP) and connector.host:
            self.connector = connector

    # -- time ----------------------------------------------------------------------------------------------------------

    def on_time(self, now_ns: int) -> None:
        """The rest between two attempts is over, or what the peer waited for is due."""
        LOOK.has_touched = True
        self.due_ns = 0
        if self.state is BridgeState.RESTING:
            self.dial()
        elif self.peer is not None:
            self.peer.forwards.again()

    def again_soon(self) -> None:
        """Something on the link was refused, and may go well later."""
        LOOK.has_touched = True
        if self.state is BridgeState.UP and not self.due_ns:
            self.due_ns = self.of.broker.at.monotonic_ns + self.of.options.retry_interval * NS_PER_MS
            self.of.broker.timers.add(self)

    def _notice(self, level: Level, event: str, **fields: str | int) -> None:
        node = {"node_id": self.node_id} if self.node_id else {"connector": self.connector.uri}
        self.of.broker.notice(level, event, connection=self.of.options.name, **node, **fields)
