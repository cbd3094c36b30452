"""The node as connections, their links and their messages see it: peers, whose turn it is, and room for messages."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from mqbroker.base.look import LOOK
from mqbroker.node.amqp.peers.containment import Containment
from mqbroker.node.amqp.peers.turns import Turns
from mqbroker.node.values.base_broker import BaseBroker
from mqbroker.node.values.link_ends import sending_end

if TYPE_CHECKING:
    from mqbroker.amqp.connection import Connection
    from mqbroker.amqp.links import LinkBase, ReceiverLink, SenderLink
    from mqbroker.amqp.session import Session
    from mqbroker.base.time import At
    from mqbroker.config.slices import BrokerOptions
    from mqbroker.core.queue.queue import Queue
    from mqbroker.journal.recovered import Recovered
    from mqbroker.node.amqp.peers.gate import Gate
    from mqbroker.node.amqp.peers.large_messages import LargeMessages
    from mqbroker.node.amqp.peers.peer import Peer
    from mqbroker.node.values.effects import CloseConnection
    from mqbroker.node.values.ends import SendingEndOf
    from mqbroker.node.values.inputs import ConnectionAccepted


class AmqpBroker(BaseBroker):
    """See the module's docstring."""

    large: LargeMessages

    def __init__(self, options: BrokerOptions, recovered: Recovered, ids: tuple[str, str, bytes], at: At) -> None:
        super().__init__(options, recovered, ids, at)
        self.peers: dict[int, Peer] = {}
        self.touched: dict[int, Peer] = {}  # to whom something may have to go at the end of the step
        self.closing: dict[int, CloseConnection] = {}
        self.starved: dict[ReceiverLink, Peer] = {}  # that get credit when there is room
        self.draining: dict[SenderLink, Peer] = {}
        self.next_turn: dict[Queue, None] = {}  # queues whose consumers got all that one step may give
        self.gate: Gate | None = None  # where senders may have to wait
        self.is_answering = False  # connections are closed once what was taken in is answered: nothing more is
        self.containment, self.turns = Containment(self), Turns(self)

    # -- peers ---------------------------------------------------------------------------------------------------------

    @abstractmethod
    def admit(self, accepted: ConnectionAccepted) -> None:
        """A connection came to a listener: it is a peer from now on, or is closed again."""

    @abstractmethod
    def holds_back(self, peer: Peer) -> bool:
        """Whether it is not answered so far, since it is not known where it belongs. It is not read meanwhile."""

    @abstractmethod
    def link_detached(self, peer: Peer, link: LinkBase) -> None:
        """A link is over, and its end knows it."""

    @abstractmethod
    def scope_ended(self, peer: Peer, scope: Session | Connection) -> None:
        """A session or a connection is over, and all of its links."""

    def forget(self, peer: Peer) -> None:
        """A connection is gone, and all that it sent was taken in."""
        LOOK.has_touched = True
        del self.peers[peer.conn]
        self.touched.pop(peer.conn, None)
        self.closing.pop(peer.conn, None)

    def end_drains(self) -> None:
        """Consumers that asked for what there is, and have it by now, are told that this was all (AMQP 1.0 §2.6.7)."""
        LOOK.has_touched = True
        for link in list(self.draining):
            end: SendingEndOf[Peer] | None = sending_end(link)
            if not link.is_attached or not link.is_draining:
                del self.draining[link]
            elif end is not None and end.is_drained:
                peer = self.draining.pop(link)
                link.drained()
                peer.touch()  # in a step in which only the disk had something to say

    # -- room ----------------------------------------------------------------------------------------------------------

    @property
    def takes_in(self) -> bool:
        """Whether anything is taken in at all: the disk keeps up, and the node goes on."""
        return not self.is_disk_full and self.is_running

    @property
    def may_grant(self) -> bool:
        """Whether publishers may be given credit. Where an address pages, that needs no room in memory."""
        return self.store.memory.has_room and self.takes_in

    def relieve(self) -> None:
        """Give credit to those who waited for room."""
        LOOK.has_touched = True
        if self.starved and self.may_grant:
            starved, self.starved = self.starved, {}
            for link, peer in starved.items():
                peer.grant(link)

    def relieve_addresses(self) -> None:
        """The same for those who waited for room at one address."""
        LOOK.has_touched = True
        roomy, self.store.meters.roomy = self.store.meters.roomy, {}
        for meter in roomy:
            waiting, meter.waiting = meter.waiting, {}
            for link, peer in waiting.items():
                peer.grant(link)
