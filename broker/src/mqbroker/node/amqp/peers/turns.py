"""Connections that are behind: what they sent is taken in by turns, so that none of them holds up others.

A connection that is calm is taken in at once: up to `CALM_WORK` in a step, and all of them together up to `STEP_WORK`;
beyond that each still gets `FEW_WORK`, a message, because many who want little belong in one step. Who wants
more, or is about to open, goes into the line and is served round robin; who was there goes through it until it has been
calm for `CALM_NS`, since fifty that each begin anew would be fifty turns before somebody's message.

A step in which somebody calm waits for an answer gives the line `BESIDE_WORK`, and nothing if the step before gave any;
so does one soon after. One in which nobody does gives it `ALONE_WORK`: who is alone pays for few steps.

Invariants: what a peer sent stays in its order; nobody in the line waits for more than one step that had other things
to do; what waits of one connection is bounded, because its socket is not read meanwhile; what one that ended in order
sent before is taken in. Source: docs/adr/0016-turns.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mqbroker.amqp.receive_buffer import ends_in_order
from mqbroker.base.look import LOOK
from mqbroker.base.time import NS_PER_MS
from mqbroker.node.values.effects import PauseReading, Send
from mqbroker.node.values.inputs import ConnectionAccepted

if TYPE_CHECKING:
    from mqbroker.amqp.links import LinkBase
    from mqbroker.core.queue.queue import Queue
    from mqbroker.node.amqp.peers.amqp_broker import AmqpBroker
    from mqbroker.node.amqp.peers.peer import Peer

# In units of amqp/frame_costs.py, in a step.
CALM_WORK: Final = 200
STEP_WORK: Final = 300
FEW_WORK: Final = 60
STEP_WORK_MAX: Final = 50_000  # of all that are calm; then they, too, go into the line
TURN_WORK: Final = 300
BESIDE_WORK: Final = 150
ALONE_WORK: Final = 1500
ADMITTED_WORK: Final = 100  # to make a peer of who has come
LOST_WORK: Final = 2000  # of all that were lost without a close, before the rest of what they sent is dropped,
LOST_BESIDE_WORK: Final = 300  # and where somebody waits or has just waited
RECENT_NS: Final = 20 * NS_PER_MS  # so long after somebody waited, the next one may come in the middle of a step
CALM_NS: Final = 100 * NS_PER_MS
# Of so many that are about to open one is taken in a step: clients that all come back at once have to get in soon.
CROWD: Final = 2
# Where somebody waits: of fewer than twice as many one, which those hardly notice who have connections open and close
# all the time, and of ever more two, or a thousand that come back after a restart would give up before they are in.
CROWD_BESIDE_OTHERS: Final = 64
BESIDE_OTHERS_MAX: Final = 2
UNREAD_BYTES_MAX: Final = 128 << 10  # of one connection; then its socket is not read until half of it is taken in
# What may be made for a peer whose transport is full, as answers to what it sends, before no more of that is taken in.
UNHEARD_BYTES_MAX: Final = 1 << 20
ANSWERS_MAX: Final = 64  # that wait for those to what the connection sent behind,
HELD_NS: Final = 20 * NS_PER_MS  # so long after it was told something, since it may be behind for ever


@dataclass(slots=True)
class Coming:
    """Who has no peer so far: what it said, and whether its socket is not read any more."""

    accepted: ConnectionAccepted
    said: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    is_full: bool = False


class Turns:
    """The line, in the order of the next turns. Bounded by the number of connections."""

    def __init__(self, broker: AmqpBroker) -> None:
        self._broker = broker
        self.left = STEP_WORK  # of this step, for those who are calm
        self.parting: dict[int, Peer] = {}  # links of theirs are over and not all handed back
        self._line: dict[int, None] = {}
        self._coming: dict[int, Coming] = {}
        self._gone: dict[int, str] = {}  # those whose transport is gone, and why, while something of them is to be done
        self._is_put_off = False
        self._had_room = False  # the step before had some for what can wait
        self._waited_ns = -RECENT_NS  # when somebody calm waited last
        self._lost_left = LOST_WORK

    @property
    def is_due(self) -> bool:
        """Whether another step is needed at once."""
        return bool(self._line)

    def is_waiting(self, peer: Peer) -> bool:
        """Whether it said something that was not looked at so far."""
        return peer.conn in self._line

    def is_gone(self, peer: Peer) -> bool:
        """Whether its transport is gone, and only what it sent before is still to be taken in."""
        return peer.conn in self._gone

    # -- what comes ----------------------------------------------------------------------------------------------------

    def accepted(self, accepted: ConnectionAccepted) -> None:
        """A connection that has no peer so far: it is admitted in one of the next turns."""
        self._coming[accepted.conn] = Coming(accepted)
        self._line[accepted.conn] = None

    def admits(self, peer: Peer) -> bool:
        """Whether somebody calm is taken in at once although those before it made all the work that is meant for them.
        Who then wants more than a little is behind."""
        connection = peer.connection
        if self.left <= STEP_WORK - STEP_WORK_MAX or connection.allowance <= 0:
            return False
        connection.allowance = min(connection.allowance, FEW_WORK)
        return True

    def received(self, conn: int, data: bytes) -> None:
        """It says something, and goes through the line. Of a connection that is not known, nothing is kept."""
        coming = self._coming.get(conn)
        peer = self._broker.peers.get(conn)
        if coming is not None:
            coming.said.append(data)
            coming.size_bytes += len(data)
            if coming.size_bytes > UNREAD_BYTES_MAX and not coming.is_full:
                coming.is_full = True
                self._broker.effects.append(PauseReading(conn, True))
        elif peer is not None:
            peer.keep(data)
            self.behind(peer)

    def behind(self, peer: Peer) -> None:
        """There is more to be taken in of what it said, or to be handed back of what it had."""
        connection = peer.connection
        peer.in_turns = True
        if connection.allowance <= 0:
            peer.calm_ns = self._broker.at.monotonic_ns + CALM_NS
        if not peer.is_unhearing:
            self._line[peer.conn] = None
        watch(peer)

    # -- turns ---------------------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Turns, as many as this step has work left for. Who waits for an answer goes first, and not twice."""
        self.left, self._lost_left = STEP_WORK, LOST_WORK
        if not self._line:
            return
        now_ns = self._broker.at.monotonic_ns
        if self._is_somebody_waiting():
            self._waited_ns, self._lost_left = now_ns, LOST_BESIDE_WORK
            self._is_put_off = not self._is_put_off
            if not self._is_put_off:
                self._serve(BESIDE_WORK, self._places_beside_others())
            return
        self._is_put_off = False
        if now_ns < self._waited_ns + RECENT_NS:
            self._lost_left = LOST_BESIDE_WORK
            self._serve(BESIDE_WORK, self._places_beside_others())
        else:
            self._serve(ALONE_WORK, max(1, len(self._line) // CROWD))

    def room(self) -> int:
        """How much a step may do beside of what can wait: as for the line, and not in two steps that follow each other
        while somebody waits."""
        now_ns = self._broker.at.monotonic_ns
        if not self._is_somebody_waiting():
            self._had_room = False
            return BESIDE_WORK if now_ns < self._waited_ns + RECENT_NS else ALONE_WORK
        self._waited_ns = now_ns
        self._had_room = not self._had_room
        return BESIDE_WORK if self._had_room else 0

    def _is_somebody_waiting(self) -> bool:
        """Whether the end of this step brings somebody calm an answer, messages, or nearer to the disk."""
        broker = self._broker
        if broker.store.decisions.is_forming:
            return True
        for peer in broker.touched.values():
            if not peer.in_turns and peer.owes:
                return True
        return any(queue.ready_count for queue in broker.store.dirty)

    def _places_beside_others(self) -> int:
        return min(max(1, len(self._line) // CROWD_BESIDE_OTHERS), BESIDE_OTHERS_MAX)

    def _serve(self, total: int, places: int) -> None:
        """Turns worth `total`, of which each of those that are about to open takes one of so many places."""
        line, left = self._line, total
        opening: set[int] = set()
        while line and left > 0:
            conn = next(iter(line))
            if conn in opening:
                return  # all others had their turn
            peer = self._broker.peers.get(conn)
            is_new = peer is None or peer.is_new
            work = self._take(conn, min(TURN_WORK, left))
            if is_new:
                opening.add(conn)  # a thing of each in a step
                work = max(total // places, 1)
            left -= work

    def _take(self, conn: int, allowance: int) -> int:
        """A turn; the work that it made."""
        del self._line[conn]
        coming = self._coming.pop(conn, None)
        if coming is not None:
            self._admit(coming)
            return ADMITTED_WORK
        peer = self._broker.peers.get(conn)
        if peer is None or peer.is_unhearing:
            return 1
        connection = peer.connection
        connection.allowance = allowance
        peer.received(b"")
        work = max(allowance - connection.allowance, 1)
        if connection.allowance <= 0 or not (connection.is_behind or connection.is_opening):
            peer.is_new = False
        if connection.is_behind:
            self.behind(peer)
            return work
        self.parting.pop(conn, None)
        peer.in_turns = connection.is_opening or self._broker.at.monotonic_ns < peer.calm_ns
        self.depart(peer)
        return work

    def _admit(self, coming: Coming) -> None:
        conn = coming.accepted.conn
        self._broker.admit(coming.accepted)
        peer = self._broker.peers.get(conn)
        if peer is None:
            self._gone.pop(conn, None)
        elif coming.said:
            peer.is_blocked = conn in self._gone
            peer.is_full = peer.is_paused = coming.is_full
            for data in coming.said:
                peer.keep(data)
            self.behind(peer)

    # -- what goes out -------------------------------------------------------------------------------------------------

    def collect(self, peer: Peer) -> Send | None:
        """What goes out to it at the end of a step; None: nothing, or it goes with what else there will be to say."""
        connection, now_ns = peer.connection, self._broker.at.monotonic_ns
        if connection.is_behind:
            self.behind(peer)
            is_soon = now_ns < peer.spoke_ns + HELD_NS
            if is_soon and len(connection.out) < ANSWERS_MAX and not (peer.out_bytes or connection.is_dead):
                return None  # and one write tells it everything
        elif peer.is_full:
            watch(peer)  # what it was held for is done, and took in what waited
        connection.allowance = CALM_WORK
        connection.flush()
        if not connection.out:
            return None
        if peer.is_blocked:
            self.unheard(peer)
        send = Send(peer.conn, connection.out)
        connection.out = []
        peer.spoke_ns = now_ns
        return send

    # -- those who do not read -----------------------------------------------------------------------------------------

    def unheard(self, peer: Peer) -> None:
        """Something is about to be sent to it although its transport is full."""
        peer.unheard_bytes += sum(map(len, peer.connection.out))
        if peer.unheard_bytes > UNHEARD_BYTES_MAX and not peer.is_unhearing and peer.conn not in self._gone:
            peer.is_unhearing = peer.in_turns = True
            self._line.pop(peer.conn, None)

    def heard(self, peer: Peer) -> None:
        """It reads again what it is told."""
        peer.unheard_bytes = 0
        if peer.is_unhearing:
            peer.is_unhearing = False
            self.behind(peer)

    # -- links that wait to be handed back -----------------------------------------------------------------------------

    def parts(self, peer: Peer) -> None:
        """Not all of its links that are over were handed back at once."""
        LOOK.has_touched = True
        self.parting[peer.conn] = peer

    def part_namesake(self, peer: Peer, link: LinkBase) -> None:
        """A link is being attached: the one of its container, name and role that is over lets go of what it had."""
        for other in list(self.parting.values()):
            if (other.user, other.container_id) == (peer.user, peer.container_id):
                other.part_with(link)

    def part_consumers(self, queue: Queue) -> None:
        """Somebody asks who consumes, to do so as well or to end the queue: those that are over count no more, and
        what they hold of it is back. The queue may be gone after that, if it was to go with them.
        """
        if not self.parting:
            return
        for peer in list(self.parting.values()):
            peer.transactions.end_parted()
        for consumer in list(queue.consumers):
            if consumer.client is not None:
                consumer.client.part()

    # -- those that are gone -------------------------------------------------------------------------------------------

    def gone(self, conn: int, why: str) -> bool:
        """Its transport is gone; False: nobody knows it.

        A peer that ends in order is owed what it sent. One that is lost may be back already, and what it sent before
        must not come behind what it sends now: it is taken in at once, up to a bound, and the rest is dropped, since
        nothing of it was promised.
        """
        coming = self._coming.get(conn)
        if coming is not None:
            if ends_in_order(coming.said):
                self._gone[conn] = why
                return True
            del self._coming[conn], self._line[conn]
            self._admit(coming)
        peer = self._broker.peers.get(conn)
        if peer is None:
            return False
        self._gone[conn] = why
        if peer.is_unhearing or peer.connection.is_behind:
            peer.is_unhearing = False
            self.behind(peer)
        peer.is_blocked = True  # it gets nothing more
        if peer.connection.is_dead and peer.connection.is_behind:
            return True  # all that it sent is taken in, and what it had is handed back by turns
        is_waiting = conn in self._line
        if (is_waiting or peer.uploads.is_finishing) and peer.connection.is_close_waiting:
            return True
        while conn in self._line and self._lost_left > 0:
            self._lost_left -= self._take(conn, TURN_WORK)
        if conn in self._gone:
            self._end(peer)
        return True

    def depart(self, peer: Peer) -> None:
        """If it is gone, and all that it sent is taken in, that is its end."""
        if peer.conn in self._gone and not (peer.uploads.is_finishing or peer.connection.is_behind):
            self._end(peer)

    def _end(self, peer: Peer) -> None:
        """Nothing more comes of it; its links may take a while to be handed back."""
        connection = peer.connection
        connection.allowance = max(connection.allowance, TURN_WORK)
        peer.lost(self._gone[peer.conn])
        if connection.is_parting:
            self.behind(peer)
            return
        conn = peer.conn
        self._line.pop(conn, None)
        self._gone.pop(conn, None)
        self.parting.pop(conn, None)
        self._broker.forget(peer)


def watch(peer: Peer) -> None:
    """Have its socket read, or not, by what of it waits for its turn."""
    connection = peer.connection
    unread_bytes_max = UNREAD_BYTES_MAX // 2 if peer.is_full else UNREAD_BYTES_MAX
    is_full = peer.in_turns and connection.unread_bytes > unread_bytes_max
    if is_full != peer.is_full:
        peer.is_full = is_full
        peer.pause_if_needed()
