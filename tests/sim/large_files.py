"""Simulated files of large messages: what a process sees, and what a power cut leaves of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from mqbroker.node.values.effects import DeleteLarge, FinishLarge, ReadLarge, WriteLarge

SECTOR = 512
LargeEffect = WriteLarge | FinishLarge | ReadLarge | DeleteLarge


@dataclass(slots=True)
class SimFile:
    """`stable` is on disk for certain; `is_named`: its name is too."""

    cached: bytearray = field(default_factory=bytearray)
    stable: bytes = b""
    is_named: bool = False
    has_failed: bool = False


class SimLargeFiles:
    """One directory. `unlinked` are files whose deletion a power cut may undo."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._files: dict[int, SimFile] = {}
        self._unlinked: dict[int, SimFile] = {}
        self.write_error = 0.0
        self.finished_count = 0
        self.observe: Callable[[LargeEffect], None] = lambda effect: None

    @property
    def sizes(self) -> dict[int, int]:
        """What a start finds."""
        return {file: len(content.cached) for file, content in sorted(self._files.items())}

    def content(self, file: int) -> bytes:
        """All of a file."""
        return bytes(self._files[file].cached)

    def carry_out(self, effect: LargeEffect) -> tuple[bytes | None, str]:
        """The result, and why it failed."""
        self.observe(effect)
        match effect:
            case WriteLarge(_, file, offset, chunks):
                return None, self._write(file, offset, b"".join(chunks))
            case FinishLarge(_, file, offset, chunks, sync):
                why = self._write(file, offset, b"".join(chunks)) if chunks else ""
                return None, why or self._finish(file, sync)
            case ReadLarge(_, file, offset, size):
                data = bytes(self._files[file].cached[offset : offset + size])
                assert len(data) == size, "read behind the end"
                return data, ""
            case DeleteLarge(_, file):
                gone = self._files.pop(file, None)
                if gone is not None:
                    self._unlinked[file] = gone
                return None, ""

    def _write(self, file: int, offset: int, data: bytes) -> str:
        if offset == 0:
            assert file not in self._files, "an id was used twice"
            self._files[file] = SimFile()
        found = self._files[file]
        if found.has_failed or self._rng.random() < self.write_error:
            found.has_failed = True
            return "no space left"
        assert len(found.cached) == offset, "written out of order"
        found.cached += data
        return ""

    def _finish(self, file: int, sync: bool) -> str:
        found = self._files[file]
        if found.has_failed:
            return "no space left"
        self.finished_count += 1
        if sync:
            found.stable = bytes(found.cached)
            self._unlinked.clear()
            for each in self._files.values():
                each.is_named = True
        return ""

    def crash(self, *, power_cut: bool) -> None:
        """The process is gone; after a power cut names and sectors that were not synced are there or not."""
        if not power_cut:
            return
        for file, content in self._unlinked.items():
            if content.is_named and self._rng.random() < 0.5:
                self._files[file] = content
        self._unlinked.clear()
        for file, content in list(self._files.items()):
            if not content.is_named and self._rng.random() < 0.5:
                del self._files[file]
                continue
            content.is_named = True
            content.cached = bytearray(self._some_sectors(content))

    def _some_sectors(self, content: SimFile) -> bytes:
        size = self._rng.choice((len(content.stable), len(content.cached)))
        new, old = bytes(content.cached[:size]), content.stable[:size].ljust(size, b"\0")
        kept = [(new if self._rng.random() < 0.5 else old)[at : at + SECTOR] for at in range(0, size, SECTOR)]
        return b"".join(kept)
