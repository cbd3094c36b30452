"""A backup back into a data directory in which no broker runs: beside what is there first, and then in its place.

What was there is put aside and never overwritten. Everything is read as a start would read it before anything is moved,
and once more in its place; the receipt says of each queue what the backup had and what is there now.

**The same node** has its node id again, and its journal byte for byte, with one entry more: a start that nobody had,
whose number and whose next message id are beyond all that the node can have given out since the backup. Others know
later starts of it than the backup does, and ids that it would give out once more (docs/adr/0014-message-identity.md).

**Another node**, whose directory has a node id of its own, gets the messages as an import does, under that id, where
that is asked for by name: else a slip in the name of a host would put a node's messages aside for those of another one.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from mqbroker.app.backup import another, reading
from mqbroker.app.backup.folder import BackupFolder, write_file
from mqbroker.app.backup.manifest import BackupManifest, CopiedFile, QueueContents
from mqbroker.app.importing import FiledBodies, put, written
from mqbroker.base.errors import ConfigFault, MqError, StorageFault
from mqbroker.config.slices import JournalOptions
from mqbroker.core.queue.large import DIRECTORY
from mqbroker.core.store.journal_export import rows_of
from mqbroker.io.disk.disk import Disk
from mqbroker.io.disk.files import MappedFiles
from mqbroker.io.disk.journal_directory import UNNAMED_SUFFIX, JournalDirectory
from mqbroker.io.disk.large_directory import LargeDirectory
from mqbroker.io.files import durable_files, identity
from mqbroker.io.files.identity import JOURNAL_NAME, NodeIdentity
from mqbroker.journal.plan import Journal
from mqbroker.journal.records import BOOT_MAX, ID_MAX
from mqbroker.journal.recovered import Recovered

RESTORING: Final = "restoring"
RECEIPT_NAME: Final = "restored.json"
ASIDE: Final = "before-restore"
ASIDE_MAX: Final = 1000
# Far beyond what a node starts, or takes in, between a backup and its restore; and far from what can be counted.
BOOT_JUMP: Final = 1 << 16
ID_JUMP: Final = 1 << 40
# Who asked for the restore from elsewhere lets go of the node by these words alone (mqctl's backups.py).
UNCHANGED: Final = "nothing was changed"
UNFINISHED: Final = (
    "the restore is not finished, and no broker starts before it is done again or what it put aside is moved back"
)


class KeptBackup:
    """A backup in a folder, as a source."""

    def __init__(self, folder: BackupFolder, manifest: BackupManifest) -> None:
        self._folder = folder
        self._manifest = manifest

    def manifest(self) -> BackupManifest:
        """The manifest, as it is kept in the folder."""
        return self._manifest

    def content(self, file: CopiedFile) -> Iterator[bytes]:
        """What is used of a file. Raises ConfigFault."""
        path = self._folder.place(file)
        try:
            yield from reading.pieces(path, file.used_bytes)
        except OSError as error:
            raise ConfigFault(str(path), f"cannot be read: {error.strerror}") from None

    def end(self) -> None:
        """Nobody else writes to what is kept."""


@dataclass(frozen=True, slots=True)
class RestoreReceipt:
    """What became of a restore. `aside`: where is what was there before, nothing where there was nothing. `notes`: what
    the node goes on with that was so when the backup was made."""

    backup: str
    made: str
    restored: str
    from_node_id: str
    node_id: str
    aside: str | None
    boot: int
    next_id: int
    queues: tuple[dict[str, Any], ...]
    notes: tuple[str, ...] = ()

    @property
    def balances(self) -> bool:
        """Whether each queue has what the backup had."""
        return all(row["balances"] for row in self.queues)

    def document(self) -> dict[str, Any]:
        """The receipt as it is written: keys and values of a JSON object."""
        row = {"schema": 1, **asdict(self), "queues": list(self.queues), "notes": list(self.notes)}
        return row | {"balances": self.balances}


class RestoredDirectory:
    """The target of a restore; the data directory is locked by whoever makes this. Methods raise ConfigFault or
    StorageFault.

    `needed`: files that no backup has, and what is to be done where one is not there.
    """

    def __init__(
        self,
        directory: Path,
        options: JournalOptions,
        *,
        keeps_node_id: bool,
        as_another: bool = False,
        needed: Mapping[Path, str] | None = None,
    ) -> None:
        self._directory = directory
        # Whatever the options say of damage and of syncs: what is restored is whole, and on disk.
        self._options = replace(options, journal_sync=True, journal_on_damage="stop")
        self._keeps_node_id = keeps_node_id
        self._as_another = as_another
        self._place = directory / RESTORING
        self._needed = needed or {}
        self._has_moved = False

    @property
    def left(self) -> str:
        """What a restore that failed leaves."""
        return UNFINISHED if self._has_moved or self._is_cut_off() else UNCHANGED

    def close(self) -> None:
        """Leave nothing of what is not in its place."""
        shutil.rmtree(self._place, ignore_errors=True)

    def wanted(self, manifest: BackupManifest) -> list[CopiedFile]:
        """All files of the backup, once of each content: the place is made anew, and nothing is there."""
        if identity.load(self._directory) is not None and not self._keeps_node_id:
            identity.check_place(self._directory, identity.machine_id())
        self._check_meant(manifest)
        shutil.rmtree(self._place, ignore_errors=True)
        try:
            for name in (JOURNAL_NAME, DIRECTORY):
                durable_files.make_directory(self._place / name)
            # Root restores for the broker's own user: what is put in its place is given to the owner of this folder.
            durable_files.give_path_to_owner(self._place)
        except OSError as error:
            raise ConfigFault(str(self._place), f"cannot be made: {error.strerror}") from None
        seen: dict[str, CopiedFile] = {}
        for file in manifest.files:
            seen.setdefault(file.sha256, file)
        self._same = {sha256: [file for file in manifest.files if file.sha256 == sha256] for sha256 in seen}
        return list(seen.values())

    def take(self, file: CopiedFile, content: Iterable[bytes]) -> None:
        """One file, and those that are like it."""
        first, *others = self._same[file.sha256]
        try:
            write_file(self._place / first.name, file, content)
            for other in others:
                pieces = reading.pieces(self._place / first.name, file.used_bytes)
                write_file(self._place / other.name, file, pieces)
        except OSError as error:
            raise ConfigFault(str(error.filename or self._place), f"cannot be written: {error.strerror}") from None

    def finish(self, manifest: BackupManifest) -> RestoreReceipt:
        """All is there: it takes the place of what was there."""
        try:
            recovered = reading.recovered_of(manifest, lambda file: self._place / file.name)
            before, notes = reading.contents_of(recovered), another.notes_of(recovered)
            if manifest.queues is not None and before != manifest.queues:
                raise ConfigFault(manifest.id, "has other messages in its queues than when it was made")
            owner = self._owner(manifest)
            if owner.node_id == manifest.node_id:
                boot, next_id = self._jump(owner)
            else:
                nothing = another.left_out(recovered, manifest.id, owner.node_id)
                del recovered  # its files move
                before = tuple(queue for queue in before if queue.name not in nothing.values())
                notes = ()
                boot, next_id = self._import(manifest, owner, nothing)
            after = reading.contents_of(self._look(self._place, owner))
            aside = self._swap(owner, manifest.id)
            receipt = RestoreReceipt(
                manifest.id, manifest.made, datetime.now(UTC).isoformat(timespec="seconds"), manifest.node_id,
                owner.node_id, None if aside is None else str(aside), boot, next_id, tuple(receipt_rows(before, after)),
                notes + self._lacking(),
            )  # fmt: skip
            # The next restore counts on from it, so it is there before a broker can start.
            durable_files.replace(
                self._directory / RECEIPT_NAME, json.dumps(receipt.document(), indent=2).encode() + b"\n"
            )
            (self._directory / identity.RESTORE_MARKER).unlink()
            durable_files.sync_directory(self._directory)
        except OSError as error:
            raise ConfigFault(str(error.filename or self._place), f"cannot be written: {error.strerror}") from None
        return receipt

    def _lacking(self) -> tuple[str, ...]:
        """What no backup has and a broker may need."""
        return tuple(f"there is no {file}: {why}" for file, why in self._needed.items() if not file.exists())

    def _check_meant(self, manifest: BackupManifest) -> None:
        """Another node's backup is asked for by name. Raises ConfigFault."""
        if self._as_another or self._is_same(manifest):
            return
        owner = self._identity()
        here = f"here is node {owner.node_id}" if owner else "here is none"
        why = (
            f"is of node {manifest.node} ({manifest.node_id}), and {here}; --as-another-node gives its messages to the "
            "node here under that one's id, --keep-node-id makes the node here the one of the backup, which is gone"
        )
        raise ConfigFault(manifest.id, why)

    def _asides(self) -> list[Path]:
        """What was put aside before, the newest first."""
        asides = [path for path in self._directory.glob(f"{ASIDE}-*") if path.name.rpartition("-")[2].isdecimal()]
        return sorted(asides, key=lambda path: int(path.name.rpartition("-")[2]), reverse=True)

    def _identity(self) -> NodeIdentity | None:
        """Whose directory it is, or was before a restore that was cut off put that aside."""
        places = [self._directory, *(self._asides() if self._is_cut_off() else ())]
        return next((identity_there for place in places if (identity_there := identity.load(place)) is not None), None)

    def _is_cut_off(self) -> bool:
        return (self._directory / identity.RESTORE_MARKER).exists()

    def _is_same(self, manifest: BackupManifest) -> bool:
        owner = self._identity()
        return self._keeps_node_id or (owner is not None and owner.node_id == manifest.node_id)

    def _owner(self, manifest: BackupManifest) -> NodeIdentity:
        """Who the directory will be."""
        machine = identity.machine_id()
        if self._is_same(manifest):
            return identity.bound(manifest.node_id, self._directory, machine)
        before = self._identity()
        return identity.bound(None if before is None else before.node_id, self._directory, machine)

    def _journal(self, place: Path, owner: NodeIdentity) -> JournalDirectory:
        return JournalDirectory(place / JOURNAL_NAME, owner.node_id_bytes, self._options, MappedFiles())

    def _look(self, place: Path, owner: NodeIdentity) -> Recovered:
        return self._journal(place, owner).look()

    def _jump(self, owner: NodeIdentity) -> tuple[int, int]:
        """One entry more: a start beyond all that there were. The queues that had consumers had them in it too, since
        what these have seen may come again, and has to say so."""
        place = self._journal(self._place, owner)
        recovered = place.load()
        known = self._known(owner)
        boot = max(recovered.boot, known[0]) + BOOT_JUMP
        next_id = max(recovered.next_id, known[1]) + ID_JUMP
        if boot >= BOOT_MAX or next_id >= ID_MAX:
            raise ConfigFault(str(self._directory), "was restored too often: its ids cannot be counted any further")
        recovered.boot = boot - 1
        journal = Journal(self._options, recovered)
        for queue_id in () if recovered.was_clean else recovered.consumed:
            journal.consumed(queue_id)
        journal.reserve(next_id)
        append = journal.take(sync=True)
        assert append is not None
        faults: list[StorageFault] = []
        disk = Disk(place, recovered, lambda done: None, faults.append)
        disk.submit(append)
        if not disk.close() or faults:
            raise faults[0] if faults else StorageFault(str(place.path), -1, "the disk does not answer", "look at it")
        self._remove_unnamed()
        return boot, next_id

    def _known(self, owner: NodeIdentity) -> tuple[int, int]:
        """The latest start, and the next id, that are known here of this node: of what is put aside, or of the last
        restore. A second restore of a backup would else go on from where the first one did."""
        starts = [(0, 0)]
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            last = json.loads((self._directory / RECEIPT_NAME).read_bytes())
            if last["node_id"] == owner.node_id:
                starts.append((int(last["boot"]), int(last["next_id"])))
        for place in (self._directory, *self._asides()[: self._is_cut_off()]):
            # Of another node, or damaged: it says nothing, and the jump is far all the same.
            with contextlib.suppress(MqError):
                look = self._look(place, owner)
                starts.append((look.boot, look.next_id))
        return max(boot for boot, _ in starts), max(next_id for _, next_id in starts)

    def _import(self, manifest: BackupManifest, owner: NodeIdentity, without: Iterable[int]) -> tuple[int, int]:
        """The messages under another node id: as an export and an import."""
        theirs = self._place / "theirs"
        theirs.mkdir(mode=0o700)
        for name in (JOURNAL_NAME, DIRECTORY):
            (self._place / name).rename(theirs / name)
        recovered = reading.recovered_of(manifest, lambda file: theirs / file.name)
        bodies = LargeDirectory(theirs / DIRECTORY)
        importer = written(
            self._journal(self._place, owner),
            another.for_another(rows_of(recovered, manifest.node_id, bodies.read), without),
            FiledBodies(self._place / DIRECTORY),
        )
        assert importer.is_complete
        self._remove_unnamed()
        made = self._look(self._place, owner)
        return made.boot, made.next_id

    def _remove_unnamed(self) -> None:
        for file in (self._place / JOURNAL_NAME).glob(f"*{UNNAMED_SUFFIX}"):
            file.unlink()

    def _swap(self, owner: NodeIdentity, backup_id: str) -> Path | None:
        """Put aside what is there, and the new in its place. The identity goes first and comes last: no broker starts
        without it, so none starts with a part of one and a part of the other. A marker is there from now on, so nobody
        makes a new identity beside what is cut off, and starts with nothing."""
        directory = self._directory
        there = [name for name in (identity.FILE_NAME, JOURNAL_NAME, DIRECTORY) if (directory / name).exists()]
        aside = self._new_aside() if there else None
        marker = directory / identity.RESTORE_MARKER
        said = {"backup": backup_id, "node_id": owner.node_id, "aside": None if aside is None else str(aside)}
        self._has_moved = True
        durable_files.replace(marker, json.dumps(said).encode() + b"\n")
        if aside is not None:
            for name in there:
                (directory / name).rename(aside / name)
            durable_files.sync_directory(aside)
            durable_files.sync_directory(directory)
        for name in (DIRECTORY, JOURNAL_NAME):
            if (self._place / name).exists():
                put(self._place / name, directory / name)
        identity.write(directory, owner)
        return aside

    def _new_aside(self) -> Path:
        for number in range(1, ASIDE_MAX + 1):
            aside = self._directory / f"{ASIDE}-{number}"
            try:
                aside.mkdir(mode=0o700)
            except FileExistsError:
                continue
            durable_files.give_path_to_owner(aside)
            return aside
        raise ConfigFault(str(self._directory), f"holds {ASIDE_MAX} directories that were put aside; remove some")


def receipt_rows(before: tuple[QueueContents, ...], after: tuple[QueueContents, ...]) -> Iterator[dict[str, Any]]:
    """Of each queue what the backup had, and what is there."""
    had, has = ({queue.name: queue for queue in each} for each in (before, after))
    for name in sorted(had.keys() | has.keys()):
        in_backup, restored = had.get(name), has.get(name)
        row = {
            "queue": name, "in_backup": in_backup.messages if in_backup else 0,
            "in_backup_digest": in_backup.digest if in_backup else None,
            "restored": restored.messages if restored else 0, "restored_digest": restored.digest if restored else None,
        }  # fmt: skip
        yield row | {"balances": (row["in_backup_digest"]) == row["restored_digest"]}
