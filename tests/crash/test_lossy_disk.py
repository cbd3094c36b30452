"""Power cuts under a real process on a real mount: the journal on a FUSE disk that keeps only what was synced."""

from __future__ import annotations

import errno
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mqbroker.base.errors import StorageFault
from mqbroker.io.disk.files import Files
from mqbroker.io.disk.large_directory import LargeDirectory
from mqbroker.io.files import durable_files

from tests.support.journal_model import Model
from tests.support.patience import PATIENCE_S

from .lives import Life
from .lossy_fs import LossyDisk
from .writer import read_notes

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]
STEPS = 50

# (kind of call of the file system, number, mode of loss).
POINTS = [
    (kind, number, mode)
    for mode in ("lost", "sectors")
    for kind, numbers in {
        "write": (2, 7, 20, 45),
        "fsync": (1, 3, 10, 25),
        "fsyncdir": (1, 3, 5),
        "rename": (2,),
        "create": (3,),
        "unlink": (2,),
    }.items()
    for number in numbers
]


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LossyDisk]:
    with LossyDisk(tmp_path_factory.mktemp("lossy")) as disk:
        yield disk


def start(disk: LossyDisk, notes: Path, seed: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.crash.writer", str(disk.mountpoint / "journal"), str(notes)]
    return subprocess.Popen([*command, str(seed), str(STEPS)], cwd=ROOT, stderr=subprocess.DEVNULL)


def check(disk: LossyDisk, notes: Path, mode: str, seed: int) -> None:
    """The next boot: everything that was acknowledged is there, and a new life works on it."""
    oracle = read_notes(notes)
    assert oracle.synced > 0 or seed <= 3, "the point is too early to show anything"
    journal = disk.leave(mode, seed) / "journal"
    model = Model(seed, body_bytes=200)
    model.next_queue = 100
    assert Life(journal, model, oracle, Files()).run(5)
    assert Life(journal, model, oracle, Files()).run(1)


@pytest.mark.parametrize(("kind", "number", "mode"), POINTS)
def test_power_cut(disk: LossyDisk, tmp_path: Path, kind: str, number: int, mode: str) -> None:
    notes = tmp_path / "notes"
    disk.arm(kind, number, mode)
    writer = start(disk, notes, seed=number)
    writer.wait(60)
    assert disk.order("is_off"), f"never reached: {disk.order('calls')}"
    assert writer.returncode != 0
    check(disk, notes, mode, number)


def test_a_large_message_that_is_finished_is_there_after_a_power_cut(disk: LossyDisk) -> None:
    """Its bytes, its name, and the directory, which is made for the first of them."""
    directory = LargeDirectory(disk.mountpoint / "large-messages")
    for file in (1, 2):
        directory.write(file, 0, [b"a" * 3000])
        directory.write(file, 3000, [b"b" * 500])
        directory.finish(file, sync=True)
    disk.power_cut()
    left = LargeDirectory(disk.leave("lost", 1) / "large-messages")
    assert left.sizes() == {1: 3500, 2: 3500}
    assert left.read(2, 2998, 4) == b"aabb"


def test_a_directory_that_was_made_is_there_after_a_power_cut(disk: LossyDisk) -> None:
    """With those above it, so nothing that is synced in it is nowhere."""
    durable_files.make_directory(disk.mountpoint / "var" / "data")
    disk.power_cut()
    assert (disk.leave("lost", 1) / "var" / "data").is_dir()


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
@pytest.mark.parametrize(("kind", "number"), [("write", 30), ("fsync", 12)])
def test_a_failed_call_and_then_a_power_cut(disk: LossyDisk, tmp_path: Path, kind: str, number: int, code: int) -> None:
    notes = tmp_path / "notes"
    disk.arm(kind, number, "error", code=code)
    writer = start(disk, notes, seed=number)
    writer.wait(60)
    disk.power_cut()
    check(disk, notes, "lost", number)


@pytest.mark.parametrize("number", [5, 15])
def test_killed_while_a_sync_hangs(disk: LossyDisk, tmp_path: Path, number: int) -> None:
    notes = tmp_path / "notes"
    disk.arm("fsync", number, "delay", delay_s=1.5)
    writer = start(disk, notes, seed=number)
    deadline_s = time.monotonic() + PATIENCE_S
    while disk.order("calls").get("fsync", 0) < number and time.monotonic() < deadline_s:
        time.sleep(0.01)
    synced = read_notes(notes).synced
    writer.kill()
    writer.wait(PATIENCE_S)
    assert read_notes(notes).synced == synced, "nothing is acknowledged while its sync hangs"
    disk.power_cut()
    check(disk, notes, "sectors", number)


def test_a_disk_that_lies_about_a_sync_is_noticed(disk: LossyDisk, tmp_path: Path) -> None:
    """The check of the checks: here acknowledged messages are really lost."""
    notes = tmp_path / "notes"
    disk.arm("fsync", 20, "lie")
    writer = start(disk, notes, seed=4)
    assert writer.wait(60) == 0
    disk.power_cut()
    with pytest.raises((AssertionError, StorageFault)):
        check(disk, notes, "lost", 4)
