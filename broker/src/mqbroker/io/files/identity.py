"""Identity of a data directory: a random node id made on the host at first install and kept beside the journal.

It is bound to the machine id and to the absolute path of the directory: a copy on another host or at another path is
refused, because two nodes with one id take each other for themselves. Device and inode are written down for people
and never compared: they change at reboots.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from mqbroker.base.errors import ConfigFault, StorageFault, Unusable
from mqbroker.io.files import durable_files, regular_files

FORMAT = 1
FILE_NAME = "identity.json"
JOURNAL_NAME = "journal"
# There while a restore moves things: it was cut off where the file is there and no restore runs.
RESTORE_MARKER = "restore-unfinished.json"
FILE_BYTES_MAX = 64 * 1024
RESTORE = "restore it from a copy, its node id is also in the header of each journal file"
MACHINE_ID_FILE = Path("/etc/machine-id")
MACHINE_ID_UNKNOWN = "unknown"
ASIDE_MAX = 100


class IdentityMismatch(ConfigFault):
    """The data directory was moved or copied. The message names both remedies."""


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """What `identity.json` says."""

    node_id: str
    created: str
    machine_id: str
    data_directory: str
    device: int
    inode: int

    @property
    def node_id_bytes(self) -> bytes:
        """The 16 bytes that journal files carry."""
        return uuid.UUID(self.node_id).bytes


def machine_id(file: Path = MACHINE_ID_FILE) -> str:
    """Id of this machine; `unknown` where it has none, as in some containers: then only the path binds."""
    try:
        text = file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return MACHINE_ID_UNKNOWN
    return text if re.fullmatch(r"[0-9a-f]{32}", text) else MACHINE_ID_UNKNOWN


def load(data_directory: Path) -> NodeIdentity | None:
    """The identity that is written down, whether it matches or not. None: there is none. Raises StorageFault."""
    file = data_directory / FILE_NAME
    try:
        with regular_files.opened(file) as stream:
            content = stream.read(FILE_BYTES_MAX)
    except FileNotFoundError:
        return None
    except regular_files.NotRegular as error:
        raise Unusable(str(file), -1, f"cannot be read: {error.strerror}", RESTORE) from None
    except OSError as error:
        raise StorageFault(
            str(file), -1, f"cannot be read: {error.strerror}", "give the broker's user access"
        ) from None
    return _parsed(file, content)


def _parsed(file: Path, content: bytes) -> NodeIdentity:
    try:
        raw = json.loads(content)
        if raw["format"] != FORMAT:
            why = f"has format {raw['format']!r}, this release reads {FORMAT}"
            raise Unusable(str(file), -1, why, "start the release that wrote it")
        return NodeIdentity(
            node_id=str(uuid.UUID(raw["node_id"])),
            created=str(raw["created"]),
            machine_id=str(raw["machine_id"]),
            data_directory=str(raw["data_directory"]),
            device=int(raw["device"]),
            inode=int(raw["inode"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        raise Unusable(str(file), -1, "is not an identity", RESTORE) from None


def mismatches(identity: NodeIdentity, data_directory: Path, machine: str) -> list[str]:
    """In words, what does not fit between an identity and the place where it is."""
    path = os.path.abspath(data_directory)
    reasons = []
    if identity.machine_id != machine:
        reasons.append(f"it was made on the machine {identity.machine_id} and this is {machine}")
    if identity.data_directory != path:
        reasons.append(f"it was made for {identity.data_directory} and this is {path}")
    return reasons


def check_whole(data_directory: Path) -> None:
    """Raises ConfigFault where a restore was cut off: what is there may be a part, or nothing, of what there was."""
    marker = data_directory / RESTORE_MARKER
    if os.path.lexists(marker):
        raise ConfigFault(
            str(data_directory),
            "a restore was cut off here: repeat it (`mqbroker backup restore`), or move back what the newest "
            f"before-restore-N holds and remove {marker.name}",
        )


def check(data_directory: Path, machine: str) -> NodeIdentity:
    """The identity that a node may run with. Raises ConfigFault (none, or a restore was cut off), IdentityMismatch, or
    StorageFault."""
    check_whole(data_directory)
    return check_place(data_directory, machine)


def check_place(data_directory: Path, machine: str) -> NodeIdentity:
    """The same, also where a restore was cut off."""
    identity = load(data_directory)
    if identity is None:
        raise ConfigFault(
            str(data_directory),
            "has no identity; if this is a new node run `mqbroker identity init`, "
            "else the file system that holds its data is not mounted or was not restored",
        )
    wrong = mismatches(identity, data_directory, machine)
    if wrong:
        raise IdentityMismatch(
            str(data_directory / FILE_NAME),
            f"the data directory of node {identity.node_id} is not where it belongs: {', and '.join(wrong)}; "
            "if it was moved and the original is gone run `mqbroker identity adopt`, "
            "if it was copied run `mqbroker identity new`",
        )
    return identity


def init(data_directory: Path, machine: str) -> tuple[NodeIdentity, bool]:
    """Make an identity unless a fitting one exists; True if made. Raises ConfigFault or StorageFault."""
    check_whole(data_directory)
    if load(data_directory) is not None:
        return check(data_directory, machine), False
    if has_journal(data_directory):
        raise StorageFault(
            str(data_directory / JOURNAL_NAME),
            -1,
            "holds messages and there is no identity beside it",
            "restore identity.json, or set the messages aside with `mqbroker identity new`",
        )
    try:
        durable_files.make_directory(data_directory)
        identity = _made(str(uuid.uuid4()), data_directory, machine)
        durable_files.create(data_directory / FILE_NAME, _text(identity))
    except FileExistsError:
        return check(data_directory, machine), False
    except OSError as error:
        raise ConfigFault(str(data_directory), f"cannot be written: {error.strerror}") from None
    return identity, True


def adopt(data_directory: Path, machine: str) -> tuple[NodeIdentity, bool]:
    """Bind the identity to this machine and path; True if that changed it. Only right if the original is gone."""
    identity = load(data_directory)
    if identity is None:
        raise ConfigFault(str(data_directory), "has no identity to adopt; `mqbroker identity init` makes one")
    if not mismatches(identity, data_directory, machine):
        return identity, False
    place = _made(identity.node_id, data_directory, machine)
    adopted = replace(place, created=identity.created)
    _write(data_directory, adopted)
    return adopted, True


def new(data_directory: Path, machine: str, *, even_if_original: bool = False) -> tuple[NodeIdentity, Path | None]:
    """Make a node of its own out of a copy. Its messages belong to the original, so the journal is set aside, and the
    files of large messages with it.

    Returns the new identity and where the old journal is now. The journal moves before the identity changes: a crash
    in between leaves a directory that is still refused, and `new` again completes it.
    """
    old = load(data_directory)
    if old is not None and not mismatches(old, data_directory, machine) and not even_if_original:
        raise ConfigFault(
            str(data_directory),
            f"is no copy but the original of node {old.node_id}, whose messages would be set aside; "
            "add --even-if-original if that is meant",
        )
    aside = _set_aside(data_directory, old.node_id[:8] if old else "unknown")
    identity = _made(str(uuid.uuid4()), data_directory, machine)
    _write(data_directory, identity)
    return identity, aside


def bound(node_id: str | None, data_directory: Path, machine: str) -> NodeIdentity:
    """An identity for this place, of a node that has its id already, or (None) of a new one; nothing is written."""
    return _made(str(uuid.uuid4()) if node_id is None else node_id, data_directory, machine)


def write(data_directory: Path, identity: NodeIdentity) -> None:
    """Put it in the place of the one that is there. Raises ConfigFault."""
    _write(data_directory, identity)


def has_journal(data_directory: Path) -> bool:
    """Whether there is anything in the journal."""
    try:
        return any((data_directory / JOURNAL_NAME).iterdir())
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ConfigFault(str(data_directory / JOURNAL_NAME), f"cannot be read: {error.strerror}") from None


def _set_aside(data_directory: Path, origin: str) -> Path | None:
    # Queues and all; no other command about identities needs them.
    from mqbroker.core.queue.large import DIRECTORY

    if not has_journal(data_directory):
        return None
    for number in range(1, ASIDE_MAX + 1):
        suffix = "" if number == 1 else f".{number}"
        aside = data_directory / f"{JOURNAL_NAME}.copied-from-{origin}{suffix}"
        if not aside.exists():
            bodies = data_directory / DIRECTORY
            try:
                # First what the journal needs: a start deletes files that its journal does not know.
                if bodies.exists():
                    bodies.rename(data_directory / f"{DIRECTORY}.copied-from-{origin}{suffix}")
                    durable_files.sync_directory(data_directory)
                (data_directory / JOURNAL_NAME).rename(aside)
                durable_files.sync_directory(data_directory)
            except OSError as error:
                raise ConfigFault(str(aside), f"cannot be made: {error.strerror}") from None
            return aside
    raise ConfigFault(str(data_directory), f"holds {ASIDE_MAX} journals of {origin} set aside already; remove some")


def _made(node_id: str, data_directory: Path, machine: str) -> NodeIdentity:
    place = data_directory.stat()
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return NodeIdentity(node_id, created, machine, os.path.abspath(data_directory), place.st_dev, place.st_ino)


def _write(data_directory: Path, identity: NodeIdentity) -> None:
    try:
        durable_files.replace(data_directory / FILE_NAME, _text(identity))
    except OSError as error:
        raise ConfigFault(str(data_directory / FILE_NAME), f"cannot be written: {error.strerror}") from None


def _text(identity: NodeIdentity) -> bytes:
    return (json.dumps({"format": FORMAT, **asdict(identity)}, indent=2) + "\n").encode()
