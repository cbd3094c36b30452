"""Files that people name: what is no regular file is refused at once, and nothing waits for it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from mqbroker.base.errors import ConfigFault, StorageFault
from mqbroker.io.files import durable_files, regular_files, users_file
from mqbroker.io.files.data_lock import DataLock


def bound(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.bind(str(path))


def test_a_regular_file_is_read_also_by_another_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text")
    (tmp_path / "link").symlink_to("file")
    with regular_files.opened(tmp_path / "link") as stream:
        assert stream.read() == b"text"
    with pytest.raises(FileNotFoundError):
        regular_files.opened(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("make", "kind"),
    [(os.mkfifo, "a FIFO"), (Path.mkdir, "a directory"), (bound, "a socket")],
)
def test_anything_else_is_refused_by_what_it_is(tmp_path: Path, make: Callable[[Path], None], kind: str) -> None:
    place = tmp_path / "place"
    make(place)
    (tmp_path / "link").symlink_to("place")
    before = os.listdir("/proc/self/fd")
    for path in (place, tmp_path / "link"):
        with pytest.raises(OSError, match=f"Is {kind} and no regular file") as caught:
            regular_files.opened(path)
        assert caught.value.filename == str(path)
    assert len(os.listdir("/proc/self/fd")) == len(before), "nothing stays open"


def test_a_device_is_refused() -> None:
    with pytest.raises(OSError, match="Is a device and no regular file"):
        regular_files.opened(Path("/dev/zero"))


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (os.mkfifo, "a FIFO"),
        (Path.mkdir, "a directory"),
        (bound, "a socket"),
        (lambda place: place.symlink_to("file"), "a symbolic link"),
    ],
)
def test_a_lock_is_no_way_out_of_its_directory(tmp_path: Path, make: Callable[[Path], None], kind: str) -> None:
    """Commands run as root in directories in which the broker's user may put what he likes."""
    (tmp_path / "file").write_bytes(b"somebody's")
    make(tmp_path / "lock")
    make(tmp_path / "users.json.lock")
    with pytest.raises(StorageFault, match=f"Is {kind} and no regular file"):
        DataLock(tmp_path)
    with pytest.raises(ConfigFault, match=f"Is {kind} and no regular file"), users_file.locked(tmp_path / "users.json"):
        pass
    assert (tmp_path / "file").read_bytes() == b"somebody's"


def test_a_file_is_replaced_beside_whatever_stands_in_the_place_of_its_next_content(tmp_path: Path) -> None:
    theirs, place = tmp_path / "theirs", tmp_path / f"file.{os.getpid()}.new"
    theirs.write_bytes(b"somebody's")
    for make in (os.mkfifo, lambda place: place.symlink_to(theirs), lambda place: place.hardlink_to(theirs)):
        make(place)
        durable_files.replace(tmp_path / "file", b"ours")
        assert (tmp_path / "file").read_bytes() == b"ours"
    assert theirs.read_bytes() == b"somebody's"
