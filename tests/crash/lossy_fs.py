"""A disk that loses what was not synced: a FUSE file system that can have its power cut, delay any call or fail it.

Run as a process (`python lossy_fs.py MOUNTPOINT STORE`), it holds everything in memory and takes commands as JSON lines
on standard input; `LossyDisk` is the other end. `arm` names one call by kind and number, counted from then on, and what
happens there; after a power cut every call fails, and `leave` writes to the directory STORE what is then on disk: what
was synced, data and names, and by the mode some of the rest. Real processes work on it, and are killed.

Kinds: create open write fsync fsyncdir rename unlink mkdir release truncate. Modes: lost, sectors, error, delay, and
lie: from that call on an fsync does nothing and says that all is well.
"""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import mfusepy

from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
SECTOR_BYTES = 512
START_S = PATIENCE_S


class Inode:
    """One file: what is on disk for certain, and what a reader sees."""

    def __init__(self) -> None:
        self.durable = b""
        self.current = bytearray()


DIRECTORY = Inode()  # stands for all of them, in what became of names


class LossyFs(mfusepy.Operations):
    """Paths are flat strings. Names, of directories too, last with an fsyncdir of the directory that they are in."""

    use_ns = True

    def __init__(self, store: Path) -> None:
        self._store = store
        self._lock = threading.RLock()
        self._directories = {"/"}
        self._names: dict[str, Inode] = {}
        self._durable_names: dict[str, Inode] = {}
        self._changes: list[tuple[str, Inode | None]] = []
        self._open: dict[int, Inode] = {}
        self._next_fh = 1
        self._calls: dict[str, int] = {}
        self._armed: dict[str, Any] = {}
        self._is_off = False

    # -- commands ------------------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Answer commands until the other end is gone."""
        for line in sys.stdin:
            command = json.loads(line)
            answer = getattr(self, "do_" + command.pop("do"))(**command)
            print(json.dumps(answer), flush=True)

    def do_arm(self, **armed: Any) -> bool:
        with self._lock:
            self._armed, self._calls = armed, {}
        return True

    def do_calls(self) -> dict[str, int]:
        return self._calls

    def do_is_off(self) -> bool:
        return self._is_off

    def do_power_cut(self) -> bool:
        with self._lock:
            self._is_off = True
        return True

    def do_leave(self, mode: str, seed: int) -> bool:
        """Write to the store what is on disk after the cut, and begin anew with that and with the power on."""
        with self._lock:
            chance = random.Random(seed)
            kept = 0 if mode == "lost" else chance.randrange(len(self._changes) + 1)
            names = renamed(self._durable_names, self._changes[:kept])
            for path in self._store.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            for name, inode in sorted(names.items()):
                path = self._store / name[1:]
                if not path.parent.is_dir():
                    continue  # its directory was never synced into its own
                if inode is DIRECTORY:
                    path.mkdir()
                    continue
                path.write_bytes(inode.durable if mode == "lost" else some_sectors(inode, chance))
            self._names, self._durable_names, self._changes, self._open = {}, {}, [], {}
            self._directories, self._armed, self._is_off = {"/"}, {}, False
        return True

    # -- the file system -----------------------------------------------------------------------------------------------

    def _call(self, kind: str) -> None:
        """Count, and let happen what was ordered for this call."""
        if self._is_off:
            raise mfusepy.FuseOSError(errno.EIO)
        n = self._calls[kind] = self._calls.get(kind, 0) + 1
        if (kind, n) != (self._armed.get("kind"), self._armed.get("number")) or self._armed["mode"] == "lie":
            return
        if self._armed["mode"] == "delay":
            self._lock.release()
            try:
                time.sleep(self._armed["delay_s"])
            finally:
                self._lock.acquire()
            return
        self._is_off = self._armed["mode"] != "error"
        raise mfusepy.FuseOSError(self._armed.get("code", errno.EIO))

    def _rename(self, name: str, inode: Inode | None) -> None:
        self._changes.append((name, inode))
        self._names.pop(name, None)
        if inode is not None:
            self._names[name] = inode

    def _opened(self, inode: Inode) -> int:
        fh = self._next_fh
        self._next_fh += 1
        self._open[fh] = inode
        return fh

    def _named(self, path: str) -> Inode:
        if path not in self._names:
            raise mfusepy.FuseOSError(errno.ENOENT)
        return self._names[path]

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        with self._lock:
            if path in self._directories:
                return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
            inode = self._open.get(fh or 0) or self._named(path)
            return {"st_mode": stat.S_IFREG | 0o600, "st_nlink": 1, "st_size": len(inode.current)}

    def readdir(self, path: str, fh: int) -> list[str]:
        with self._lock:
            prefix = path.rstrip("/") + "/"
            inside = [name for name in [*self._names, *self._directories] if name.startswith(prefix) and name != "/"]
            return [".", "..", *(name[len(prefix) :] for name in inside if "/" not in name[len(prefix) :])]

    def mkdir(self, path: str, mode: int) -> int:
        with self._lock:
            self._call("mkdir")
            self._directories.add(path)
            self._changes.append((path, DIRECTORY))
            return 0

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        with self._lock:
            self._call("create")
            inode = Inode()
            self._rename(path, inode)
            return self._opened(inode)

    def open(self, path: str, flags: int) -> int:
        with self._lock:
            self._call("open")
            return self._opened(self._named(path))

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        with self._lock:
            return bytes(self._open[fh].current[offset : offset + size])

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        with self._lock:
            inode = self._open.get(fh)
            try:
                self._call("write")
            except mfusepy.FuseOSError:
                if inode is not None and self._is_off and self._armed.get("number") == self._calls.get("write"):
                    overwrite(inode, data[: len(data) // 2], offset)
                raise
            if inode is None:
                raise mfusepy.FuseOSError(errno.EBADF)
            overwrite(inode, data, offset)
            return len(data)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        with self._lock:
            self._call("truncate")
            inode = self._open.get(fh or 0) or self._named(path)
            inode.current[:] = inode.current[:length].ljust(length, b"\0")
            return 0

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        with self._lock:
            self._call("fsync")
            inode = self._open.get(fh)
            if inode is None:
                raise mfusepy.FuseOSError(errno.EBADF)
            if self._armed.get("mode") != "lie" or self._calls["fsync"] < self._armed["number"]:
                inode.durable = bytes(inode.current)
            return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        with self._lock:
            self._call("fsyncdir")
            inside = [change for change in self._changes if os.path.dirname(change[0]) == path]
            self._durable_names = renamed(self._durable_names, inside)
            self._changes = [change for change in self._changes if os.path.dirname(change[0]) != path]
            return 0

    def rename(self, old: str, new: str) -> int:
        with self._lock:
            self._call("rename")
            inode = self._named(old)
            self._rename(new, inode)
            self._rename(old, None)
            return 0

    def unlink(self, path: str) -> int:
        with self._lock:
            self._call("unlink")
            self._named(path)
            self._rename(path, None)
            return 0

    def release(self, path: str, fh: int) -> int:
        with self._lock:
            self._open.pop(fh, None)
            self._call("release")
            return 0


def renamed(names: dict[str, Inode], changes: list[tuple[str, Inode | None]]) -> dict[str, Inode]:
    """What names are there after these changes."""
    found = dict(names)
    for name, inode in changes:
        found.pop(name, None)
        if inode is not None:
            found[name] = inode
    return found


def overwrite(inode: Inode, data: bytes, offset: int) -> None:
    content = inode.current
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def some_sectors(inode: Inode, chance: random.Random) -> bytes:
    """What was not synced got there sector by sector, in any order."""
    new = bytes(inode.current)
    old = inode.durable.ljust(len(new), b"\0")
    share = chance.random()
    return b"".join(
        (new if chance.random() < share else old)[at : at + SECTOR_BYTES] for at in range(0, len(new), SECTOR_BYTES)
    )


class LossyDisk:
    """Mounts the file system, in a process of its own, for as long as the context lasts."""

    def __init__(self, directory: Path) -> None:
        self.mountpoint = directory / "mount"
        self.store = directory / "store"

    def __enter__(self) -> LossyDisk:
        self.mountpoint.mkdir()
        self.store.mkdir()
        command = [sys.executable, "-m", "tests.crash.lossy_fs", str(self.mountpoint), str(self.store)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        deadline_s = time.monotonic() + START_S
        while not os.path.ismount(self.mountpoint):
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                self._process.kill()
                raise RuntimeError("the lossy disk was not mounted: it needs root, /dev/fuse and the package fuse3")
            time.sleep(0.02)
        return self

    def __exit__(self, *error: object) -> None:
        subprocess.run(["fusermount3", "-u", "-z", str(self.mountpoint)], check=False)
        self._process.kill()
        self._process.communicate()

    def order(self, do: str, **arguments: Any) -> Any:
        """One command, its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def arm(self, kind: str, number: int, mode: str, **more: Any) -> None:
        self.order("arm", kind=kind, number=number, mode=mode, **more)

    def power_cut(self) -> None:
        self.order("power_cut")

    def leave(self, mode: str, seed: int) -> Path:
        """The directory as the next boot finds it."""
        self.order("leave", mode=mode, seed=seed)
        return self.store


def main(mountpoint: str, store: str) -> None:
    operations = LossyFs(Path(store))
    threading.Thread(target=operations.serve, daemon=True).start()
    mfusepy.FUSE(operations, mountpoint, foreground=True, fsname="lossy", entry_timeout=0, attr_timeout=0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
