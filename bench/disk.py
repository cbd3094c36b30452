"""The disk under the brokers: is it one, and how long does a sync take? Durable figures mean nothing without it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from bench.faults import BenchFault
from bench.stats import spread

PAGE_SIZE_BYTES = 4096
SYNCS = 300
MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs"})


def file_system(path: Path, mounts: str) -> str:
    """Type of the file system that holds `path`, from the text of `/proc/self/mounts`."""
    best, kind = "", "unknown"
    for line in mounts.splitlines():
        _, point, this_kind, *_ = line.split()
        inside = path == Path(point) or Path(point) in path.parents
        if inside and len(point) >= len(best):
            best, kind = point, this_kind
    return kind


def require_disk(path: Path) -> str:
    """The file system's type; refuses memory."""
    kind = file_system(path.resolve(), Path("/proc/self/mounts").read_text())
    if kind in MEMORY_FILE_SYSTEMS:
        raise BenchFault(f"{path} is on {kind}, which never syncs: name a directory on a disk with --work-directory")
    return kind


def sync_us(directory: Path) -> tuple[float, float]:
    """Median and 99th percentile of a page written over and synced with fdatasync."""
    probe = directory / "sync-probe"
    page = os.urandom(PAGE_SIZE_BYTES)
    handle = os.open(probe, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        os.write(handle, bytes(PAGE_SIZE_BYTES * SYNCS))
        os.fsync(handle)
        taken = []
        for number in range(SYNCS):
            began = time.perf_counter()
            os.pwrite(handle, page, number * PAGE_SIZE_BYTES)
            os.fdatasync(handle)
            taken.append((time.perf_counter() - began) * 1e6)
    finally:
        os.close(handle)
        probe.unlink()
    found = spread(taken)
    return found.median, found.quantile(0.99)
