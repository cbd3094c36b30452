"""The folder that backups are kept in: each file once, by its checksum, and a manifest for each backup.

    DIRECTORY/files/3a7b…      files of data directories, named by their SHA-256
    DIRECTORY/backups/ID.json  manifests (manifest.py)
    DIRECTORY/mqbroker-backups.lock  held while anything is written or pruned; says that the folder is one of backups

Nothing else in it is ours: a folder with other things and without that file is not written to and not pruned, and in
files/ only what is named like a checksum is deleted.

A backup is there once its manifest is, and that comes last: after every file of it is on disk and was read as a start
would read it. A file goes when no manifest names it, so no backup depends on another one. Files are read by their owner
only, since messages are private. Methods raise ConfigFault. Source: docs/adr/0030-backup.md.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mqbroker.app.backup import manifest as manifests
from mqbroker.app.backup import reading
from mqbroker.app.backup.manifest import BackupManifest, CopiedFile
from mqbroker.base.errors import ConfigFault
from mqbroker.io.files import durable_files

FILES: Final = "files"
BACKUPS: Final = "backups"
SUFFIX: Final = ".json"
UNFINISHED: Final = ".new"
LOCK: Final = "mqbroker-backups.lock"
NOT_OURS: Final = frozenset({"lost+found"})  # what an empty file system has
SAME_NAME_MAX: Final = 1000
_KEPT_FILE = re.compile(r"[0-9a-f]{64}(\.new)?", re.ASCII)


class BackupFolder:
    """A folder of backups: a manifest for each, and files by their digest, so that none is kept twice.

    `passed`: is told of all that is read once a backup is copied, and waits: the broker may be on the same disk.
    """

    def __init__(self, path: Path, passed: reading.BytesRead = reading.at_will) -> None:
        self.path = path
        self._passed = passed

    def place(self, file: CopiedFile) -> Path:
        """The path at which a file is kept, by its digest."""
        return self.path / FILES / file.sha256

    # -- looking -------------------------------------------------------------------------------------------------------

    def backups(self) -> list[BackupManifest]:
        """All backups, the oldest first. Raises ConfigFault where one manifest cannot be read, too."""
        backups, faults = self.look()
        for fault in faults.values():
            raise fault
        return backups

    def look(self) -> tuple[list[BackupManifest], dict[str, ConfigFault]]:
        """All backups, the oldest first, and by its name why another one cannot be read."""
        try:
            names = sorted(os.listdir(self.path / BACKUPS))
        except OSError as error:
            raise ConfigFault(str(self.path), f"is no folder of backups ({error.strerror})") from None
        backups: list[BackupManifest] = []
        faults: dict[str, ConfigFault] = {}
        for name in names:
            backup_id = name.removesuffix(SUFFIX)
            if backup_id != name:
                try:
                    backups.append(self.get(backup_id))
                except ConfigFault as fault:
                    faults[backup_id] = fault
        return sorted(backups, key=lambda each: (each.made, each.id)), faults

    def get(self, backup_id: str) -> BackupManifest:
        """The manifest of one backup; raises ConfigFault where there is none of this id."""
        if not manifests.is_id(backup_id):
            raise ConfigFault(backup_id, "is no name of a backup")
        path = self._manifest_path(backup_id)
        try:
            text = path.read_bytes()
        except OSError as error:
            raise ConfigFault(str(path), f"there is no such backup ({error.strerror})") from None
        manifest = manifests.parse(text, str(path))
        if manifest.id != backup_id:
            raise ConfigFault(str(path), f"is the manifest of {manifest.id}")
        return manifest

    def verify(self, manifest: BackupManifest) -> None:
        """Read all of a backup. Raises StorageFault as well."""
        reading.check(manifest, self.place)

    # -- writing: only while `locked` ----------------------------------------------------------------------------------

    @contextmanager
    def locked(self, *, may_make: bool = True) -> Iterator[None]:
        """Keep others from writing to it; `may_make`: and make it where it is not there, or is empty."""
        try:
            lock = self._lock(may_make)
        except OSError as error:
            raise ConfigFault(str(error.filename or self.path), f"cannot be made: {error.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for left in self._kept_files():
                if left.name.endswith(UNFINISHED):
                    left.unlink()
            yield
        except BlockingIOError:
            raise ConfigFault(str(self.path), "another command writes there; try again when it is done") from None
        finally:
            os.close(lock)

    def _lock(self, may_make: bool) -> int:
        path = self.path / LOCK
        if not path.exists():
            if not may_make:
                raise ConfigFault(str(self.path), f"is no folder of backups: it has no {LOCK}")
            durable_files.make_directory(self.path)
            if any(name not in NOT_OURS for name in os.listdir(self.path)) and not path.exists():
                why = f"has other things in it and no {LOCK}: it is no folder of backups; name a new or an empty one"
                raise ConfigFault(str(self.path), why)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        for name in (FILES, BACKUPS):  # after it: else a kill would leave a folder that is none
            durable_files.make_directory(self.path / name)
        return lock

    def _kept_files(self) -> list[Path]:
        """What is in files/ and was put there by us."""
        return [path for path in (self.path / FILES).iterdir() if _KEPT_FILE.fullmatch(path.name)]

    def wanted(self, manifest: BackupManifest) -> list[CopiedFile]:
        """What is to be copied: files that are not here, or that are not what they were. Each checksum once."""
        missing: dict[str, CopiedFile] = {}
        for file in manifest.files:
            if file.sha256 not in missing and not self._has(file):
                missing[file.sha256] = file
        return list(missing.values())

    def take(self, file: CopiedFile, content: Iterable[bytes]) -> None:
        """A file, of which `content` is what is used; it is on disk when this returns."""
        path = self.place(file)
        unfinished = path.with_name(path.name + UNFINISHED)
        try:
            write_file(unfinished, file, content)
            unfinished.rename(path)
        except OSError as error:
            raise ConfigFault(str(path), f"cannot be written: {error.strerror}") from None
        finally:
            unfinished.unlink(missing_ok=True)

    def finish(self, manifest: BackupManifest) -> BackupManifest:
        """All files are there: read them, and have the backup. Raises StorageFault as well, and then there is none."""
        kept = manifest.holding(reading.check(manifest, self.place, self._passed))
        try:
            durable_files.sync_directory(self.path / FILES)
            for number in range(1, SAME_NAME_MAX):
                named = kept if number == 1 else kept.called(f"{kept.id}-{number}")
                try:
                    durable_files.create(self._manifest_path(named.id), named.text())
                except FileExistsError:
                    continue
                return named
        except OSError as error:
            raise ConfigFault(str(self.path), f"cannot be written: {error.strerror}") from None
        raise ConfigFault(str(self.path), f"has {SAME_NAME_MAX} backups of {kept.id} already")

    def prune(self, keep: int) -> tuple[list[BackupManifest], int, list[ConfigFault]]:
        """Delete all backups of each node but the newest `keep`, which is above 0, and files that none needs any more:
        these backups, and how many bytes of files. Where a file of those that stay is not there as it was, all of that
        node stay, of which an older one may be the only good one: why, of each such node."""
        backups, faults = self.look()
        for fault in faults.values():
            # Which files it needs is not known, so none may go.
            raise ConfigFault(fault.path, f"{fault.why}; nothing is pruned beside it: remove it where it may go")
        gone, lacks = list[BackupManifest](), list[ConfigFault]()
        for node_id in sorted({each.node_id for each in backups}):
            of_node = [each for each in backups if each.node_id == node_id]
            # By the clock of its host, which may have been wrong, and by how far its journal was: both have to agree.
            by_journal = sorted(of_node, key=lambda each: (each.boot, each.position))
            newest = (*of_node[-keep:], *by_journal[-keep:])
            try:
                self._require_there(newest)
            except ConfigFault as fault:
                lacks.append(fault)
            else:
                gone += [each for each in of_node if each not in newest]
        freed = self._delete(gone, needed={file.sha256 for each in backups if each not in gone for file in each.files})
        return sorted(gone, key=lambda each: (each.made, each.id)), freed, lacks

    def _delete(self, gone: Iterable[BackupManifest], needed: AbstractSet[str]) -> int:
        """These backups, and files beside those that are needed: how many bytes of these."""
        try:
            for each in gone:
                self._manifest_path(each.id).unlink()
            durable_files.sync_directory(self.path / BACKUPS)
            freed = 0
            for path in self._kept_files():
                if path.name not in needed:
                    freed += path.stat().st_blocks * 512
                    path.unlink()
        except OSError as error:
            raise ConfigFault(str(error.filename or self.path), f"cannot be deleted: {error.strerror}") from None
        return freed

    def _require_there(self, kept: Iterable[BackupManifest]) -> None:
        """Each file is there, and of its size. Raises ConfigFault."""
        for sha256, (backup_id, file) in {file.sha256: (each.id, file) for each in kept for file in each.files}.items():
            path = self.path / FILES / sha256
            try:
                size_bytes = path.stat().st_size
            except OSError as error:
                why = f"cannot be read ({error.strerror})"
            else:
                why = "" if size_bytes == file.size_bytes else f"has {size_bytes} bytes and not {file.size_bytes}"
            if why:
                remedy = f"remove {self._manifest_path(backup_id)} where that backup may go"
                kept_for = f"it is {file.name} of {backup_id}; nothing of its node is pruned"
                raise ConfigFault(str(path), f"{why}: {kept_for}, {remedy}")

    def _has(self, file: CopiedFile) -> bool:
        path = self.place(file)
        try:  # at will: the broker holds its files meanwhile, and not for ever
            return path.stat().st_size == file.size_bytes and reading.checksum_of(path) == file.sha256
        except OSError:
            return False

    def _manifest_path(self, backup_id: str) -> Path:
        return self.path / BACKUPS / (backup_id + SUFFIX)


def write_file(path: Path, file: CopiedFile, content: Iterable[bytes]) -> None:
    """A new file, with zeros behind what is used, on disk. Raises OSError, and ConfigFault where it is another one."""
    digest, used_bytes = hashlib.sha256(), 0
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        for piece in content:
            digest.update(piece)
            used_bytes += len(piece)
            stream.write(piece)
        for piece in reading.zeros(file.size_bytes - used_bytes):
            digest.update(piece)
        stream.flush()
        os.ftruncate(descriptor, file.size_bytes)
        os.fsync(descriptor)
    if (used_bytes, digest.hexdigest()) != (file.used_bytes, file.sha256):
        raise ConfigFault(file.name, "changed while it was copied, or on the way; make the backup again")
