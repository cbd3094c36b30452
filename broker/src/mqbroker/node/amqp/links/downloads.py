"""Large messages on their way out of files, to consumers.

The first transfer brings (part of) the head at once. The rest is read a piece at a time, when window and transport have
room, and sent when it comes; what does not fit by then is read again later, so nothing waits in memory. The delivery is
unsettled from its first transfer on, also on a link that sends settled: a link that ends in the middle returns it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqbroker.base.look import LOOK
from mqbroker.core.queue.queue import Queue, Segment
from mqbroker.node.values.open_transaction import segment_of

if TYPE_CHECKING:
    from mqbroker.node.amqp.links.consumer import LinkConsumer
    from mqbroker.wire.large_file import Large


class Download:
    """One delivery of a large message. It holds the file until its end."""

    __slots__ = ("_consumer", "_delivery_id", "_head", "_is_reading", "_large", "_offset", "_queue")

    def __init__(self, consumer: LinkConsumer, queue: Queue, large: Large) -> None:
        self._consumer = consumer
        self._queue = queue
        self._large = large
        self._head = memoryview(b"")  # what of it is not sent yet
        self._offset = 0  # of the file: what is before it was sent
        self._delivery_id = 0
        self._is_reading = False

    @property
    def conn(self) -> int:
        """The connection that it goes to."""
        return self._consumer.peer.conn

    def begin(self, head: bytes, token: tuple[Queue, Segment] | None) -> None:
        """Send the first transfer. The window is open."""
        broker, link = self._consumer.peer.broker, self._consumer.link
        broker.store.large.hold(self._large.file)
        LOOK.has_touched = True
        broker.large.downloads[self] = None
        whole = memoryview(head)
        self._delivery_id, went = link.session.begin_message(link, whole, token)
        self._head = whole[went:]
        self._sent(went)
        self.pump()

    def pump(self) -> None:
        """Go on as far as window and transport let."""
        session = self._consumer.link.session
        if not self._consumer.link.is_attached:
            return
        LOOK.has_touched = True
        if self._head:
            went = session.continue_message(self._consumer.link, self._head, has_more=True)
            self._head = self._head[went:]
            self._sent(went)
        if not self._head and not self._is_reading and session.window and not self._consumer.peer.is_blocked:
            self._is_reading = True
            self._consumer.peer.broker.large.read(self)

    def wanted(self, size_max: int) -> tuple[int, int, int]:
        """File, offset and size of the piece to read."""
        session = self._consumer.link.session
        fitting = max(session.window, 1) * session.room
        return self._large.file, self._offset, min(self._large.size_bytes - self._offset, fitting, size_max)

    def came(self, data: bytes) -> None:
        """A piece was read: send what fits by now."""
        LOOK.has_touched = True
        self._is_reading = False
        peer, link = self._consumer.peer, self._consumer.link
        if self not in peer.broker.large.downloads or not link.is_attached:
            return
        peer.touch()
        has_more = self._offset + len(data) < self._large.size_bytes
        went = link.session.continue_message(link, memoryview(data), has_more=has_more)
        self._offset += went
        self._sent(went)
        if self._offset < self._large.size_bytes:
            self.pump()
            return
        if link.send_settled:
            for taken in link.session.unsettled.take(self._delivery_id, self._delivery_id):
                if taken.token is not None:
                    peer.broker.store.settle(*segment_of(taken))
        self.end()

    def _sent(self, size_bytes: int) -> None:
        peer = self._consumer.peer
        peer.out_bytes += size_bytes
        peer.touch()

    def end(self) -> None:
        """All was sent, or the link is gone."""
        broker = self._consumer.peer.broker
        broker.large.forget(self)
        LOOK.has_touched = True
        self._consumer.download = None
        broker.store.dirty[self._queue] = None
        broker.store.large.release(self._large.file)
