"""Large messages of a node: what is under way between their files and the peers, and how much of it there may be.

Bounds: bytes that were handed over and are not written, beyond which connections that upload are not read; reads at a
time, beyond which downloads wait for their turn. Source: docs/adr/0009-large-messages.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from mqbroker.amqp.links import Partials
from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level
from mqbroker.config.slices import LimitOptions
from mqbroker.node.values.completions import Completion
from mqbroker.node.values.effects import DeleteLarge, FinishLarge, ReadLarge, WriteLarge

if TYPE_CHECKING:
    from mqbroker.node.values.base_broker import BaseBroker

UPLOAD_BYTES_MAX = 1 << 20  # of one connection on their way to files
GATHERED_BYTES_MAX = 1 << 20  # of one connection that wait to be written together
KEPT_SHARE = 2  # large messages stay in memory while no more than 1/KEPT_SHARE of it is used
READS_MAX = 8
READ_BYTES = 1280 << 10  # so that a body of 1 MiB is one


class FilePiece(NamedTuple):
    """Bytes on their way into a file."""

    file: int
    offset: int
    size_bytes: int
    chunks: tuple[bytes, ...]


class LargeReader(Protocol):
    """Whoever reads a large message out of its file, a piece at a time."""

    @property
    def conn(self) -> int:
        """The connection that it goes to."""

    def pump(self) -> None:
        """Go on as far as window and transport let."""

    def wanted(self, size_max: int) -> tuple[int, int, int]:
        """File, offset and size of the piece to read."""

    def came(self, data: bytes) -> None:
        """The piece that it asked for was read: its bytes."""


def kept_bytes_max(limits: LimitOptions) -> int:
    """Bytes up to which a large message may stay in memory, and all that a connection has not finished with it."""
    if not 0 <= limits.amqp_min_large_message_size_bytes < limits.max_message_size_bytes:
        return 0
    return min(limits.large_message_in_memory_max_size_bytes, limits.max_message_size_bytes)


class LargeMessages:
    """See the module's docstring."""

    def __init__(self, broker: BaseBroker, files: Mapping[int, int]) -> None:
        self._broker = broker
        self._files = broker.store.large
        LOOK.has_touched = True
        self._files.delete = self._delete
        self._reading_count = 0
        self._reads_due: dict[LargeReader, None] = {}
        self._when_finished: list[Callable[[], None]] = []
        self.writing_bytes = 0
        self.finishing_count = 0
        self.downloads: dict[LargeReader, None] = {}
        self.partials = Partials()
        self.gathered_bytes_max = GATHERED_BYTES_MAX
        for file in self._files.begin_above(files):
            self._delete(file)
        for fault in self._files.given_up.values():
            broker.notice(Level.ERROR, "large-message-given-up", why=str(fault))

    def kept_bytes_max(self) -> int:
        """Bytes up to which a large message stays in memory as any other, by what is there now."""
        return kept_bytes_max(self._broker.options.limits) if self.has_room else 0

    @property
    def has_room(self) -> bool:
        """Whether there is memory for large messages, finished or not."""
        memory = self._broker.store.memory
        return (memory.held_bytes + self.partials.size_bytes) * KEPT_SHARE <= memory.max_bytes

    @property
    def is_behind(self) -> bool:
        """Whether the disk is behind with files."""
        return self.writing_bytes > self._broker.options.journal.disk_pending_bytes_max

    # -- effects -------------------------------------------------------------------------------------------------------

    def write(self, piece: FilePiece, completion: Completion) -> None:
        """Append to a file that is being uploaded."""
        LOOK.has_touched = True
        self.writing_bytes += piece.size_bytes

        def written(result: Any, why: str) -> None:
            LOOK.has_touched = True
            self.writing_bytes -= piece.size_bytes
            completion(result, why)

        effect_id = self._broker.completions.expect(written)
        self._broker.effects.append(WriteLarge(effect_id, piece.file, piece.offset, piece.chunks))

    def finish(self, piece: FilePiece, completion: Completion, *, sync: bool) -> None:
        """Append the rest, and that is all of the file."""
        LOOK.has_touched = True
        self.finishing_count += 1
        self.writing_bytes += piece.size_bytes

        def finished(result: Any, why: str) -> None:
            LOOK.has_touched = True
            self.finishing_count -= 1
            self.writing_bytes -= piece.size_bytes
            completion(result, why)
            if not self.finishing_count:
                actions, self._when_finished = self._when_finished, []
                for action in actions:
                    action()

        effect_id = self._broker.completions.expect(finished)
        self._broker.effects.append(FinishLarge(effect_id, piece.file, piece.offset, piece.chunks, sync))

    def when_finished(self, action: Callable[[], None]) -> None:
        """Do something when every message that has come in whole is published."""
        if self.finishing_count:
            self._when_finished.append(action)
        else:
            action()

    def read(self, download: LargeReader) -> None:
        """Read the next piece for a download, now or when it is its turn."""
        LOOK.has_touched = True
        if self._reading_count >= READS_MAX:
            self._reads_due[download] = None
            return
        self._reading_count += 1

        def came(result: Any, why: str) -> None:
            LOOK.has_touched = True
            self._reading_count -= 1
            if self._reads_due:
                following = next(iter(self._reads_due))
                del self._reads_due[following]
                self.read(following)
            download.came(result)

        file, offset, size_bytes = download.wanted(READ_BYTES)
        effect_id = self._broker.completions.expect(came)
        self._broker.effects.append(ReadLarge(effect_id, file, offset, size_bytes))

    def forget(self, download: LargeReader) -> None:
        """A download has ended: nothing more is read for it."""
        LOOK.has_touched = True
        self.downloads.pop(download, None)
        self._reads_due.pop(download, None)

    def pump(self, touched: Mapping[int, object]) -> None:
        """Downloads of connections that were heard of go on where they can."""
        for download in list(self.downloads):
            if download.conn in touched:
                download.pump()

    def _delete(self, file: int) -> None:
        LOOK.has_touched = True
        self._broker.effects.append(DeleteLarge(self._broker.completions.next_id(), file))
