"""Large messages of one connection on their way into files.

Pieces are gathered and handed over in order, many in one, because each time costs a change of threads. When the last
one has come, the connection takes nothing more in until the file is finished: only then the message is published, so
neither its order on the link nor the journal's promise depends on when the disk is done. What fails on the way is
refused, and its file deleted: nothing was promised yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mqbroker.amqp.events import Incoming, MessagePiece, Whole
from mqbroker.amqp.links import ReceiverLink
from mqbroker.base.errors import PeerFault
from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level
from mqbroker.node.amqp.peers.large_messages import UPLOAD_BYTES_MAX, FilePiece
from mqbroker.node.amqp.peers.malformed import end_link
from mqbroker.node.values.link_ends import receiving_end
from mqbroker.wire.body_check import BodyCheck
from mqbroker.wire.header_section import section_of
from mqbroker.wire.large import large_run
from mqbroker.wire.large_file import Large
from mqbroker.wire.wellformed import form_of

if TYPE_CHECKING:
    from mqbroker.node.amqp.peers.peer import Peer
    from mqbroker.node.values.ends import ReceivingEndOf


class Upload:
    """One message. `size_bytes`: what was handed over; `failure`: why it cannot be taken in.

    `gathered_bytes` of `chunks` wait to be handed over.
    """

    __slots__ = ("check", "chunks", "failure", "file", "gathered_bytes", "head", "size_bytes")

    def __init__(self, file: int, head: bytes) -> None:
        self.file = file
        self.head = head
        self.check: BodyCheck | None = BodyCheck(len(head))
        self.chunks: list[bytes] = []
        self.gathered_bytes = 0
        self.size_bytes = 0
        self.failure = ""


class Uploads:
    """The large messages that come in on a connection, one for each link."""

    __slots__ = ("_broker", "_by_link", "_conn", "_finishing", "_gathered_bytes", "_writing_bytes", "awaits_group")

    def __init__(self, peer: Peer) -> None:
        self._broker, self._conn = peer.broker, peer.conn
        self._by_link: dict[ReceiverLink, Upload] = {}
        self._finishing: Upload | None = None
        self._gathered_bytes = 0
        self._writing_bytes = 0
        self.awaits_group = False  # a message waits to hear where its group goes (group_gate.py)

    @property
    def _peer(self) -> Peer:
        """Whose they are, while it is there. Looked up, as each of the two would keep the other one for ever."""
        return self._broker.peers[self._conn]

    @property
    def is_finishing(self) -> bool:
        """Whether the connection is held for a message."""
        return self._finishing is not None or self.awaits_group

    @property
    def is_behind(self) -> bool:
        """Whether the connection should not be read."""
        is_much = self._writing_bytes > UPLOAD_BYTES_MAX
        return is_much or self.is_finishing or (self._writing_bytes > 0 and self._broker.large.is_behind)

    def piece(self, event: MessagePiece) -> None:
        """One more piece of a large message has come on a link."""
        upload = self._by_link.get(event.link)
        LOOK.has_touched = True
        if upload is None:
            if not event.link.is_attached:
                return
            upload = Upload(self._broker.store.large.begin(), event.head)
            self._by_link[event.link] = upload
            if not receiving_end(event.link).checks_forms:
                upload.check = None
        if not self._check(upload, event):
            self._end(event.link, upload.failure)
        elif not upload.failure:
            upload.chunks.append(event.data)
            self._gather(upload, len(event.data))

    def _end(self, link: ReceiverLink, why: str) -> None:
        """What comes on the link is no message. Events that tell more of it may be there already."""
        end_link(self._peer, link, why)
        self.drop(link)

    @staticmethod
    def _check(upload: Upload, event: MessagePiece | Whole) -> bool:
        """What has come of it; False: it is malformed, and why is kept."""
        if upload.check is None:
            return True
        try:
            if isinstance(event, Whole):
                upload.check.finish()
            else:
                if event.head:
                    section = section_of(event.head, 0, len(event.head))
                    form_of(event.head, section.size_bytes if section is not None else 0)
                upload.check.feed(event.data)
        except PeerFault as fault:
            upload.failure, upload.check = fault.description, None
            return False
        return True

    def _gather(self, upload: Upload, size_bytes: int) -> None:
        LOOK.has_touched = True
        upload.gathered_bytes += size_bytes
        self._gathered_bytes += size_bytes
        self._broker.large.partials.size_bytes += size_bytes

    def flush(self) -> None:
        """After each read: hand over what has been gathered if that is much, or there is no room for it."""
        if not self._by_link and self._finishing is None:
            return
        large = self._broker.large
        if self._gathered_bytes > large.gathered_bytes_max or not large.has_room:
            for upload in self._by_link.values():
                self._write(upload)
        if self.is_behind:
            self._peer.pause(True)

    def _write(self, upload: Upload) -> None:
        if not upload.chunks:
            return
        piece = self._piece_of(upload)
        LOOK.has_touched = True
        self._writing_bytes += piece.size_bytes

        def written(_: Any, why: str) -> None:
            LOOK.has_touched = True
            self._writing_bytes -= piece.size_bytes
            self._fail(upload, why)
            if (peer := self._broker.peers.get(self._conn)) is not None:
                peer.pause_if_needed()

        self._broker.large.write(piece, written)

    def _piece_of(self, upload: Upload) -> FilePiece:
        """What has been gathered of a message; it is in good hands now."""
        piece = FilePiece(upload.file, upload.size_bytes, upload.gathered_bytes, tuple(upload.chunks))
        LOOK.has_touched = True
        upload.size_bytes += piece.size_bytes
        self._forget(upload)
        return piece

    def _forget(self, upload: Upload) -> None:
        LOOK.has_touched = True
        upload.chunks.clear()
        self._gather(upload, -upload.gathered_bytes)

    def _fail(self, upload: Upload, why: str) -> None:
        LOOK.has_touched = True
        if why and not upload.failure:
            upload.failure = why
            self._forget(upload)
            self._broker.notice(Level.ERROR, "large-message-failed", conn=self._conn, why=why)

    def whole(self, event: Whole) -> None:
        """The last piece of a large message has come on a link."""
        LOOK.has_touched = True
        upload = self._by_link.pop(event.link, None)
        if upload is None:
            self.go_on()
            return
        if not self._check(upload, event):
            self._by_link[event.link] = upload
            self._end(event.link, upload.failure)
            self.go_on()
            return
        self._finishing = upload
        section = section_of(upload.head, 0, len(upload.head))
        is_safe = section is not None and section.is_durable and self._broker.options.journal.journal_sync

        def finished(_: Any, why: str) -> None:
            self._finished(upload, event, why)

        self._broker.large.finish(self._piece_of(upload), finished, sync=is_safe)

    def _finished(self, upload: Upload, event: Whole, why: str) -> None:
        """The file is whole: now it is a message like any other."""
        peer = self._broker.peers.get(self._conn)
        if peer is not None and peer.farewell.puts_off(peer, lambda: self._finished(upload, event, why)):
            return
        self._fail(upload, why)
        run = large_run(upload.head, Large(upload.file, upload.size_bytes))
        incoming = Incoming(event.link, run, event.delivery_id, event.is_settled)
        gate = self._broker.gate if not upload.failure else None
        if gate is None or peer is None or not gate.holds(peer, incoming, lambda: self._take_in(upload, incoming)):
            self._take_in(upload, incoming)

    def _take_in(self, upload: Upload, event: Incoming) -> None:
        peer = self._broker.peers.get(self._conn)
        if peer is not None and not peer.connection.is_dead and event.link.is_attached:
            if upload.failure:
                end: ReceivingEndOf[Peer] = receiving_end(event.link)
                end.not_stored(peer, event, upload.failure)
            else:
                peer.act((event,))
        LOOK.has_touched = True
        self._finishing = None
        self._broker.store.large.release(upload.file)
        if peer is not None and not peer.connection.is_dead:
            self.go_on()

    def go_on(self) -> None:
        """Take in what came meanwhile, perhaps the end of the connection."""
        peer = self._peer
        peer.go_on()
        self.flush()
        peer.pause_if_needed()
        LOOK.has_touched = True
        peer.broker.turns.depart(peer)

    def drop(self, link: ReceiverLink) -> None:
        """A delivery was aborted, or its link is gone: nothing of it stays."""
        LOOK.has_touched = True
        upload = self._by_link.pop(link, None)
        if upload is not None:
            self._forget(upload)
            self._broker.store.large.release(upload.file)
