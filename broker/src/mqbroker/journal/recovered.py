"""What recovery hands to the core, to the plan and to the disk: values only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mqbroker.base.notice import Notice
from mqbroker.journal.format import FORMAT_VERSION
from mqbroker.journal.places import Slice
from mqbroker.journal.records import Count, Forgone


class Leave(NamedTuple):
    """Which messages recovery may leave on disk: of queues with such attributes, and what is beyond so many bytes."""

    may_leave: Callable[[dict[str, Any]], bool]
    kept_bytes_max: int


@dataclass(slots=True)
class RecoveredRun:
    """One RUN record of which something is live. `frames` points into the segment's buffer and keeps all of it alive.

    `live` maps a queue to its sorted (first id, n). A run that compaction has split has holes that a later run fills:
    whoever wants a queue in order takes `Recovered.queue_contents`.

    `place`: where the record lies, if a queue of it may leave it there (`Leave`); `is_left`: it was left, so `frames`
    are empty; `kept_bytes`: of frames that might have been left.
    """

    first_id: int
    count: int
    frames: memoryview
    segment: int
    live: dict[int, list[tuple[int, int]]]
    arrived_ms: int = 0
    place: Slice | None = None
    is_left: bool = False
    kept_bytes: int = 0


class JournalSegmentUse(NamedTuple):
    """One file: how far it is written, and how much of that are messages (live and dead, counted per queue)."""

    number: int
    size_bytes: int
    used_bytes: int
    run_bytes: int
    stored_refs: int


class StoredId(NamedTuple):
    """A duplicate id of an address, and the segment that holds it."""

    number: int
    duplicate_id: bytes
    segment: int


class Cut(NamedTuple):
    """Overwrite this file with zeros from `offset` on. `is_damage`: keep a copy of it first."""

    segment: int
    offset: int
    is_damage: bool


@dataclass(slots=True)
class Recovered:
    """State at the end of the journal. The defaults are those of a journal that does not exist yet.

    `unproven` is (segment, from, to): entries at the end of which nothing on disk says that they are on disk.
    `term` is that of the last file to which something was written, and `format_version` the highest of them.
    `forgone` are files that are missing and not needed to start, as something was given up: to be said in the journal.
    `unused` are the last files, to which nothing was ever written: one is made ahead of its time.
    """

    queues: dict[int, dict[str, Any]] = field(default_factory=dict)
    addresses: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: list[RecoveredRun] = field(default_factory=list)
    counts: list[Count] = field(default_factory=list)
    duplicates: dict[str, list[StoredId]] = field(default_factory=dict)
    consumed: tuple[int, ...] = ()
    next_id: int = 1
    boot: int = 0
    term: int = 0
    format_version: int = FORMAT_VERSION
    was_clean: bool = True
    last_position: int = 0
    trim: int = 1
    segments: list[JournalSegmentUse] = field(default_factory=list)
    obsolete: list[int] = field(default_factory=list)
    unused: list[int] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    unproven: tuple[int, int, int] | None = None
    set_aside: list[int] = field(default_factory=list)
    forgone: list[Forgone] = field(default_factory=list)
    findings: list[Notice] = field(default_factory=list)

    @property
    def is_gapless(self) -> bool:
        """Whether all files are there that were not deleted because of what is read, or that an earlier start already
        went on without. Else something was given up that said why they could go, and what was moved on from them is
        lost."""
        return not self.forgone

    def queue_contents(self) -> dict[int, list[tuple[int, int, RecoveredRun]]]:
        """For each queue (first id, n, run) in the order of ids."""
        contents: dict[int, list[tuple[int, int, RecoveredRun]]] = {queue_id: [] for queue_id in self.queues}
        for run in self.runs:
            for queue_id, ranges in run.live.items():
                contents[queue_id].extend((first, n, run) for first, n in ranges)
        for ranges_of_queue in contents.values():
            ranges_of_queue.sort(key=lambda item: item[0])
        return contents
