"""Files of large messages killed at numbered calls, in every way: what was finished with a sync is there, whole."""

from __future__ import annotations

import contextlib
import errno
import random
from pathlib import Path
from typing import Any

import pytest
from mqbroker.io.disk import large_directory
from mqbroker.io.disk.large_directory import LargeDirectory

from .faulty_files import MODES, FaultyFiles, Point

POINTS = [
    (kind, number)
    for kind, numbers in {
        "create": (1, 4, 9),
        "write": (1, 2, 7, 15, 31),
        "sync": (1, 3, 8, 12),
        "sync_directory": (1, 2, 5, 9),
        "unlink": (1, 4),
        "close": (2, 6),
    }.items()
    for number in numbers
]


class Uploads:
    """Some at a time, most of them finished, some deleted again. `whole` is what may be relied on."""

    def __init__(self, directory: LargeDirectory, seed: int) -> None:
        self.whole: dict[int, bytes] = {}
        self._directory = directory
        self._random = random.Random(seed)
        self._open: dict[int, bytes] = {}
        self._next = 1

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._random.choice((self._begin, self._go_on, self._go_on, self._finish, self._delete))()

    def _begin(self) -> None:
        file, self._next = self._next, self._next + 1
        self._open[file] = b""
        self._write(file)

    def _go_on(self) -> None:
        if self._open:
            self._write(self._random.choice(list(self._open)))

    def _write(self, file: int) -> None:
        data = self._random.randbytes(self._random.choice((10, 600, 2000)))
        at = len(self._open[file])
        self._open[file] += data
        try:
            self._directory.write(file, at, (data,))
        except OSError:
            self._give_up(file)

    def _finish(self) -> None:
        if self._open:
            file = next(iter(self._open))
            try:
                self._directory.finish(file, sync=True)
            except OSError:
                self._give_up(file)
            else:
                self.whole[file] = self._open.pop(file)

    def _delete(self) -> None:
        if len(self.whole) > 2:
            file = self._random.choice(list(self.whole))
            del self.whole[file]  # from here on nobody relies on it
            with contextlib.suppress(OSError):
                self._directory.delete(file)

    def _give_up(self, file: int) -> None:
        del self._open[file]
        with contextlib.suppress(OSError):
            self._directory.delete(file)


def run_to(path: Path, point: Point) -> tuple[Uploads, FaultyFiles]:
    path.mkdir(exist_ok=True)
    files = FaultyFiles(path, point, point.number)
    directory = LargeDirectory(path, files)
    directory.sizes()
    uploads = Uploads(directory, point.number)
    uploads.run(120)
    return uploads, files


def check(path: Path, uploads: Uploads) -> None:
    directory = LargeDirectory(path)
    sizes = directory.sizes()
    for file, content in uploads.whole.items():
        assert sizes.get(file) == len(content), f"file {file} is gone or cut"
        assert directory.read(file, 0, len(content)) == content


@pytest.mark.parametrize("open_max", [2, 64])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("kind", "number"), POINTS)
def test_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, number: int, mode: str, open_max: int
) -> None:
    monkeypatch.setattr(large_directory, "OPEN_MAX", open_max)
    uploads, files = run_to(tmp_path / "large-messages", Point(kind, number, mode))
    assert files.is_off or kind in ("close", "unlink"), "the point is never reached"
    files.leave(mode)
    check(tmp_path / "large-messages", uploads)


@pytest.mark.parametrize("open_max", [2, 64])
@pytest.mark.parametrize(("kind", "number"), POINTS)
def test_one_call_fails_and_then_the_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, number: int, open_max: int
) -> None:
    monkeypatch.setattr(large_directory, "OPEN_MAX", open_max)
    uploads, files = run_to(tmp_path / "large-messages", Point(kind, number, "error", errno.EIO))
    assert uploads.whole
    files.leave("lost")
    check(tmp_path / "large-messages", uploads)


def without_directory(self: LargeDirectory, file: int, *, sync: bool) -> None:
    fd = self._descriptor(file, is_new=False)
    self._files.sync(fd)


def without_sync(self: LargeDirectory, file: int, *, sync: bool) -> None:
    self._files.sync_directory(self.path)


# Bugs that somebody could write. The points above must find each of them.
BUGS: dict[str, Any] = {"no sync of the directory": without_directory, "no sync of the file": without_sync}


@pytest.mark.parametrize("bug", BUGS)
def test_bugs_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    monkeypatch.setattr(LargeDirectory, "finish", BUGS[bug])
    for number in range(5, 15):
        path = tmp_path / str(number)
        uploads, files = run_to(path, Point("write", number, "lost"))
        files.leave("lost")
        try:
            check(path, uploads)
        except AssertionError:
            return
    pytest.fail(f"not found: {bug}")
