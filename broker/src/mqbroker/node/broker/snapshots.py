"""The files that a backup reads while the node goes on: those of one position, held until they are read.

A snapshot is what a power cut right behind that position would leave. It is listed when the step's append is sealed:
what the core knows then is what the journal says up to there, neither more nor less. Until it is let go no file of it
is deleted or used again: deletions of segments are kept back here, and files of large messages have one holder more.
The journal itself goes on meanwhile, and the reader copies of its last file what was written by then.

Bounded: one at a time, for at most `HOLD_MS_MAX`, no longer than the session that asked for it, and in bytes: what is
kept back was there when the hold began, so it is no more than the backup has. It is let go as well where room on the
disk gets scarce, before publishers are held back, and the reader is told so at its end.
Source: docs/adr/0030-backup.md.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mqbroker.base.errors import Refused
from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level
from mqbroker.base.time import NS_PER_MS
from mqbroker.node.values.effects import DeleteJournalSegment

if TYPE_CHECKING:
    from mqbroker.node.broker.broker import Broker
    from mqbroker.node.values.inputs import AdminRequest

HOLD_MS_MAX: Final = 7 * 24 * 3_600_000
NO_ROOM: Final = "the disk is nearly full, and what is read cannot be deleted"
REFUSED: Final = "amqp:precondition-failed"
NOTHING_HELD: Final = "no backup of this session is under way"


class HeldFiles(NamedTuple):
    """What one session holds: segments up to this number, and files of large messages."""

    session: int
    segment: int
    large: list[int]


class Snapshots:
    """See the module's docstring."""

    def __init__(self, broker: Broker) -> None:
        self.due_ns = self.scheduled_ns = 0
        self._broker = broker
        self.wanted: AdminRequest | None = None  # in this step
        self._is_scarce = False  # room on the disk
        self._held: HeldFiles | None = None
        self._kept_back: deque[int] = deque()  # segments that may be deleted when nothing is held
        self._lost: dict[int, str] = {}  # by session, until it is closed: why its files are held no more

    def ask(self, request: AdminRequest) -> None:
        """Hold the files for this session; the answer lists them once all of it is committed. Raises Refused."""
        if self._held is not None or self.wanted is not None:
            raise Refused(REFUSED, f"{request.operation}: a backup is under way already; try again when it is done")
        if self._is_scarce:
            raise Refused(REFUSED, f"{request.operation}: {NO_ROOM}")
        LOOK.has_touched = True
        self._lost.pop(request.session, None)
        self.wanted = request

    def sealed(self) -> None:
        """This step's append has its place: who has asked in it gets the files of that position."""
        request, broker = self.wanted, self._broker
        if request is None:
            return
        LOOK.has_touched = True
        self.wanted = None
        if self._is_scarce:  # that was heard of in this step
            broker.reply_error(request.id, REFUSED, f"{request.operation}: {NO_ROOM}")
            return
        segments = broker.journal.files
        large = broker.store.large.hold_stored()
        self._held = HeldFiles(request.session, segments[-1][0] if segments else 0, large)
        self.due_ns = broker.at.monotonic_ns + request.arguments["hold_ms"] * NS_PER_MS
        broker.timers.add(self)
        found: dict[str, Any] = {
            "node_id": broker.node_id, "node": broker.options.node.name, "boot": broker.journal.boot,
            "term": broker.term, "position": broker.journal.latest_position,
            "data_directory": broker.options.node.data_directory,
            "segments": [list(segment) for segment in segments], "large": large,
        }  # fmt: skip
        broker.store.decisions.wait_for_earlier(broker.reply, request.id, found)

    def space(self, *, is_scarce: bool) -> None:
        """Whether room on the disk is scarce: then nothing is held."""
        LOOK.has_touched = True
        self._is_scarce = is_scarce
        if is_scarce:
            self.give_up("the disk is nearly full")

    def end(self, request: AdminRequest) -> None:
        """All is read. Raises Refused where the files were not held all the time."""
        if self._held is None or self._held.session != request.session:
            raise Refused(REFUSED, f"{request.operation}: {self._lost.get(request.session, NOTHING_HELD)}")
        self._let_go()

    def closed(self, session: int) -> None:
        """The session of an administrator is over, and with it the backup that it asked for."""
        LOOK.has_touched = True
        self._lost.pop(session, None)
        if self.wanted is not None and self.wanted.session == session:
            self.wanted = None
        if self._held is not None and self._held.session == session:
            self._let_go()

    def give_up(self, why: str) -> None:
        """Hold nothing any more; who reads is told at its end."""
        held = self._held
        if held is None:
            return
        LOOK.has_touched = True
        self._lost[held.session] = f"its files were let go before they were read: {why}"
        self._broker.notice(Level.WARNING, "backup-let-go", why=why)
        self._let_go()

    def on_time(self, now_ns: int) -> None:
        """The time is over for which files may be held."""
        LOOK.has_touched = True
        self.due_ns = 0
        self.give_up("they were held for as long as was asked for")

    def keeps_back(self, segment: int) -> bool:
        """Whether this segment, which nothing else needs any more, is deleted later."""
        if self._held is None or segment > self._held.segment:
            return False
        LOOK.has_touched = True
        self._kept_back.append(segment)
        return True

    def _let_go(self) -> None:
        held = self._held
        assert held is not None
        LOOK.has_touched = True
        self._held = None
        self.due_ns = 0
        for file in held.large:
            self._broker.store.large.release(file)
        self._delete_next()

    def _delete_next(self, result: object = None, why: str = "") -> None:
        """One after the other: commits wait for one deletion and not for hundreds. One that fails is made up for by
        the next start, as all are that a start finds."""
        LOOK.has_touched = True
        if why:
            self._broker.notice(Level.WARNING, "effect-failed", why=why)
        if self._kept_back and self._held is None:
            effect_id = self._broker.completions.expect(self._delete_next)
            self._broker.effects.append(DeleteJournalSegment(effect_id, self._kept_back.popleft()))
