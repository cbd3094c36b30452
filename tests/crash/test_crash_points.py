"""The journal killed at numbered calls, in every way: what was acknowledged is there, whole, in order, nothing else."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import random
from pathlib import Path
from typing import Any

import pytest
from mqbroker.base.errors import StorageFault
from mqbroker.io.disk.disk import Disk
from mqbroker.io.disk.files import Files
from mqbroker.io.disk.journal_directory import JournalDirectory, OpenJournalSegment
from mqbroker.journal.entry import Chunk, frame_entry
from mqbroker.journal.format import decode_file_header, encode_file_header
from mqbroker.journal.plan import Journal

from tests.sim.days import DAY, share_of_today
from tests.support.journal_model import Model

from .faulty_files import MODES, FaultyFiles, Point
from .lives import NODE_ID, Life, LooseOracle, Oracle

STEPS = 60
POINTS_MIN = 40  # different ones, each in every mode

# (kind of call, number). Creations, renames and their syncs belong to the begin of segments: small files, many of them.
# Renames are also the end of segments, and files that are used again are opened, sized and overwritten.
POINTS = (
    [("write", number) for number in (1, 2, 3, 5, 8, 12, 17, 23, 30, 40, 52, 66)]
    + [("sync", number) for number in (1, 2, 3, 4, 6, 9, 13, 18, 24, 31, 50, 70)]
    + [("create", number) for number in (1, 2, 4, 7, 15)]
    + [("rename", number) for number in (1, 2, 3, 6, 12, 17, 18, 22, 23)]
    + [("open", number) for number in (1, 2, 3, 4, 7)]
    + [("size", number) for number in (1, 3)]
    + [("named_again", number) for number in (1, 2, 3)]
    + [("sync_directory", number) for number in (1, 2, 3, 4, 7, 15)]
    + [("unlink", number) for number in (1, 2, 4, 7)]
    + [("close", number) for number in (1, 2, 4, 9)]
)
ERRORS = [Point(kind, number, "error", errno.EIO) for kind, number in POINTS] + [
    Point(kind, number, "error", errno.ENOSPC) for kind, number in POINTS if kind in ("write", "create", "sync")
]


def power_cuts(path: Path, point: Point, oracle: Oracle | None = None) -> None:
    """Three lives; the first two lose power at the point, loading or working. The oracle raises AssertionError."""
    seed = hash_of(point)
    model, oracle = Model(seed, body_bytes=200), oracle or Oracle()
    for life in range(2):
        files = FaultyFiles(path, point, seed + life)
        try:
            Life(path, model, oracle, files).run(STEPS)
        except StorageFault:
            if not files.is_off:
                raise
        assert files.is_off or files.calls[point.kind] < point.number
        files.leave(point.mode)
    assert Life(path, model, oracle, FaultyFiles(path, None, 0)).run(10)
    assert Life(path, model, oracle, Files()).run(1)


def unsynced_power_cuts(path: Path, point: Point) -> None:
    """The same without `journal-sync`: whatever is lost, what is left is a beginning, and nothing refuses to start."""
    power_cuts(path, point, LooseOracle())


def failed_call(path: Path, point: Point) -> None:
    """One call fails; the machine stays up for the next life, which acknowledges on top of it and then loses power."""
    seed = hash_of(point)
    model, oracle = Model(seed, body_bytes=200), Oracle()
    files = FaultyFiles(path, point, seed)
    with contextlib.suppress(StorageFault):  # while loading: that is no life at all
        life = Life(path, model, oracle, files)
        life.run(STEPS)
        assert len(life.faults) <= 1
    files = FaultyFiles(path, None, seed, before=files)
    assert Life(path, model, oracle, files).run(3)
    files.leave("lost")
    assert Life(path, model, oracle, FaultyFiles(path, None, 0)).run(10)


def modes_at(points: list[tuple[str, int]], mode_count: int) -> list[tuple[str, int, str]]:
    """Each point in so many modes, in others each day and at the point before it; in all of them with CRASH_SEED."""
    count = len(MODES) if os.environ.get("CRASH_SEED") else mode_count
    return [
        (*point, MODES[(number + DAY * count + turn) % len(MODES)])
        for number, point in enumerate(points)
        for turn in range(count)
    ]


@pytest.mark.parametrize(("kind", "number", "mode"), modes_at(POINTS, 2))
def test_power_cut(tmp_path: Path, kind: str, number: int, mode: str) -> None:
    power_cuts(tmp_path / "journal", Point(kind, number, mode))


# Without `journal-sync` a file is synced when it is made, when it is full, and before something is deleted.
UNSYNCED_POINTS = (
    [("write", number) for number in (2, 5, 12, 23, 40, 66)]
    + [("sync", number) for number in (2, 4, 6, 9, 13, 18)]
    + [("rename", number) for number in (2, 6, 12)]
    + [("sync_directory", number) for number in (2, 4, 7)]
    + [("unlink", number) for number in (1, 4)]
)


@pytest.mark.option("journal.journal-sync")
@pytest.mark.parametrize(("kind", "number", "mode"), modes_at(UNSYNCED_POINTS, 2))
def test_power_cut_without_syncs(tmp_path: Path, kind: str, number: int, mode: str) -> None:
    unsynced_power_cuts(tmp_path / "journal", Point(kind, number, mode))


@pytest.mark.parametrize(
    "point", ERRORS, ids=lambda point: f"{point.kind}-{point.number}-{errno.errorcode[point.code]}"
)
def test_one_call_fails(tmp_path: Path, point: Point) -> None:
    failed_call(tmp_path / "journal", point)


def only_rename(directory: JournalDirectory, segment: OpenJournalSegment) -> None:
    directory.files.rename(directory._unnamed_path(segment.number), directory.path_of(segment.number))


def believe_everything_is_synced(journal: Journal, position: int) -> None:
    journal._synced = 1 << 60


def write_only(disk: Disk, fd: int, chunks: list[Chunk]) -> None:
    disk._files.write(fd, chunks, disk._offset)


def retire_without_sync(directory: JournalDirectory, number: int) -> Path:
    directory.files.rename(directory.path_of(number), directory._unnamed_path(number))
    return directory._unnamed_path(number)


def wipe_without_sync(directory: JournalDirectory, fd: int, start: int, stop: int) -> None:
    directory.files.write(fd, (bytes(stop - start),), start)


def reuse_without_sync(directory: JournalDirectory, path: Path, number: int) -> OpenJournalSegment:
    directory.files.rename(path, directory._unnamed_path(number))
    fd = directory.files.open(directory._unnamed_path(number))
    content = encode_file_header(number, directory.standard_bytes, NODE_ID)
    directory.files.write(fd, (content,), 0)
    header = decode_file_header(content)
    assert header is not None
    return OpenJournalSegment(number, fd, header.seed)


def frame_proving_all(chunks: Any, size_bytes: int, place: tuple[int, int], seed: int) -> Any:
    return frame_entry(chunks, size_bytes, (place[0], place[0] - 1), seed)


# What is patched, and with what: bugs that somebody could write. The points above must find each of them.
BUGS: dict[str, list[tuple[str, Any]]] = {
    "acknowledge before the sync": [("mqbroker.io.disk.disk.Disk._write_synced", write_only)],
    "no sync of the directory": [("mqbroker.io.disk.journal_directory.JournalDirectory.name", only_rename)],
    "a reused file is named before its zeros are synced": [
        ("mqbroker.io.disk.journal_directory.JournalDirectory.wipe", wipe_without_sync),
        ("mqbroker.io.disk.journal_directory.JournalDirectory.reuse", reuse_without_sync),
    ],
    "a file is overwritten before the loss of its name is on disk": [
        ("mqbroker.io.disk.journal_directory.JournalDirectory.retire", retire_without_sync),
    ],
    "a failed sync is forgotten": [
        ("mqbroker.io.disk.journal_directory.JournalDirectory._write_again", lambda directory, unproven: None)
    ],
    "a torn tail is left": [("mqbroker.io.disk.journal_directory.JournalDirectory._cut", lambda directory, cut: None)],
    "checksums are not looked at": [("mqbroker.journal.recover.has_whole_payload", lambda *place: True)],
    "without journal-sync, an entry says that what is before it is on disk": [
        ("mqbroker.io.disk.disk.frame_entry", frame_proving_all)
    ],
    "without journal-sync, a file is not synced when it is full": [
        ("mqbroker.io.disk.disk.Disk._complete", lambda disk, segment, position: None)
    ],
    "without journal-sync, a file is deleted while that is in memory only": [
        ("mqbroker.io.disk.journal_directory.JournalDirectory.sync", lambda directory, number: None)
    ],
    "deletion before its TRIM is on disk": [("mqbroker.journal.plan.Journal.synced", believe_everything_is_synced)],
}

# The disk has a thread, so what a power cut finds differs from run to run: one round of all points may miss a rare one.
SEEDS_MAX = 5


@pytest.mark.parametrize("bug", share_of_today(BUGS))
def test_seeded_bugs_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    for target, value in BUGS[bug]:
        monkeypatch.setattr(target, value)
    runs = [(power_cuts, Point(kind, number, mode)) for mode in MODES for kind, number in POINTS]
    if bug == "a failed sync is forgotten":
        runs = [(failed_call, point) for point in ERRORS if point.kind == "sync"]
    if bug.startswith("without journal-sync"):
        runs = [(unsynced_power_cuts, Point(kind, number, mode)) for mode in MODES for kind, number in UNSYNCED_POINTS]
    random.Random(1).shuffle(runs)
    for count, (seed, (run, point)) in enumerate(itertools.product(range(SEEDS_MAX), runs)):
        monkeypatch.setenv("CRASH_SEED", f"{seed or ''}")
        try:
            run(tmp_path / str(count), point)
        except Exception:  # whatever it is turns the tests above red: garbage read as records breaks anywhere
            return
    pytest.fail(f"{bug}: {len(runs)} runs did not notice, with {SEEDS_MAX} seeds each")


def hash_of(*parts: object) -> int:
    """A number that stays the same for the same parts. CRASH_SEED makes it another one: `make soak` sets it."""
    text = repr(parts) + os.environ.get("CRASH_SEED", "")
    return int(sum(ord(letter) * 31**at for at, letter in enumerate(text)) % 2**31)


def test_points_are_reached(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path, None, 0)
    model, oracle = Model(1, body_bytes=200), Oracle()
    assert Life(tmp_path, model, oracle, files).run(STEPS)
    for kind, number in POINTS:
        assert files.calls[kind] >= number, f"{kind} is called {files.calls[kind]} times only"
    assert len(set(POINTS)) >= POINTS_MIN


@pytest.mark.parametrize("seed", range(4))
def test_files_are_used_again(tmp_path: Path, seed: int) -> None:
    files = FaultyFiles(tmp_path, None, seed)
    assert Life(tmp_path, Model(seed, body_bytes=200), Oracle(), files).run(STEPS)
    assert files.calls["named_again"] >= 3
