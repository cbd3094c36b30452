"""What a backup consists of: the files of one node at one position, each with its checksum. Pure.

    {"schema": "mqbroker.backup/1", "id": "mq1-20261127T101500Z", "node": "mq1", "node_id": …, "made": …,
     "release": …, "boot": 3, "term": 0, "position": 4711,
     "files": [{"name": "journal/journal-0000000007.mqj", "size_bytes": …, "used_bytes": …, "sha256": …}, …],
     "queues": [{"name": "orders", "address": "orders", "messages": 12, "digest": …}, …], "checksum": …}

A file is `used_bytes` of what was read, and zeros up to `size_bytes`; `sha256` is of all of it. `queues` are there once
the copy was read, `checksum` is of all the rest. Names are those below a data directory, and no others: a manifest that
somebody changed writes nowhere else. Source: docs/adr/0030-backup.md.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from mqbroker.base.errors import ConfigFault
from mqbroker.core.queue.large import DIRECTORY
from mqbroker.io.files.identity import JOURNAL_NAME
from mqbroker.journal.format import file_name

SCHEMA: Final = "mqbroker.backup/1"
ID_SIZE_MAX: Final = 200
SIZE_MAX: Final = 1 << 40
MANIFEST_BYTES_MAX: Final = 256 << 20
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_SEGMENT = re.compile(rf"{JOURNAL_NAME}/journal-([0-9]{{10,20}})\.mqj", re.ASCII)
_LARGE = re.compile(rf"{DIRECTORY}/(0|[1-9][0-9]{{0,19}})\.msg", re.ASCII)


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """One file of a data directory."""

    name: str
    size_bytes: int
    used_bytes: int
    sha256: str

    @property
    def segment(self) -> int | None:
        """The number of a segment; None for the file of a large message."""
        match = _SEGMENT.fullmatch(self.name)
        return int(match[1]) if match else None

    @property
    def large(self) -> int | None:
        """The id of the file of a large message."""
        match = _LARGE.fullmatch(self.name)
        return int(match[1]) if match else None


@dataclass(frozen=True, slots=True)
class QueueContents:
    """How many messages are in a queue, and their ids by digest (core/cluster/id_digest.py)."""

    name: str
    address: str
    messages: int
    digest: str


@dataclass(frozen=True, slots=True)
class BackupManifest:
    """See the module's docstring. `queues` is None before the copy was read."""

    id: str
    node: str
    node_id: str
    made: str
    release: str
    boot: int
    term: int
    position: int
    files: tuple[CopiedFile, ...]
    queues: tuple[QueueContents, ...] | None = None

    @property
    def node_id_bytes(self) -> bytes:
        """As the headers of journal files have it."""
        return uuid.UUID(self.node_id).bytes

    @property
    def messages(self) -> int:
        """In all queues; a message that is in several counts in each."""
        return sum(queue.messages for queue in self.queues or ())

    @property
    def used_bytes(self) -> int:
        """How many bytes of all its files are used, which is what is copied."""
        return sum(file.used_bytes for file in self.files)

    def called(self, backup_id: str) -> BackupManifest:
        """The same under another id."""
        return replace(self, id=backup_id)

    def holding(self, queues: tuple[QueueContents, ...]) -> BackupManifest:
        """With what was found in the copy."""
        return replace(self, queues=queues)

    def text(self) -> bytes:
        """As it is kept and sent: one line."""
        document = {"schema": SCHEMA, **asdict(self)}
        return json.dumps(document | {"checksum": _checksum(document)}).encode() + b"\n"


def parse(text: bytes, where: str) -> BackupManifest:
    """The way back. Raises ConfigFault for what is no manifest, is of another release, or was changed."""
    try:
        document = json.loads(text)
        if document["schema"] != SCHEMA:
            why = f"has schema {document['schema']!r}, this release reads {SCHEMA!r}"
            raise ConfigFault(where, why)
        checksum = document.pop("checksum")
        if checksum != _checksum(document):
            raise ConfigFault(where, "is not what was written: its checksum differs")
        del document["schema"]
        files = tuple(CopiedFile(**each) for each in document.pop("files"))
        queues = document.pop("queues")
        manifest = BackupManifest(
            files=files, queues=None if queues is None else tuple(QueueContents(**each) for each in queues), **document
        )
        uuid.UUID(manifest.node_id)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ConfigFault(where, "is no manifest of a backup") from None
    if why := _fault_of(manifest):
        raise ConfigFault(where, why)
    return manifest


def segment_name(number: int) -> str:
    """Of a journal file, below the data directory."""
    return f"{JOURNAL_NAME}/{file_name(number)}"


def large_name(file: int) -> str:
    """Of the file of a large message."""
    return f"{DIRECTORY}/{file}.msg"


def id_of(node: str, made: str) -> str:
    """A name for a backup: `made` is a time in ISO 8601."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", node).strip("-._") or "node"
    return f"{name[: ID_SIZE_MAX // 2]}-{re.sub(r'[^0-9TZ]', '', made.replace('+00:00', 'Z'))}"


def is_id(text: str) -> bool:
    """Whether it may be the name of a backup, and so of a file."""
    return len(text) <= ID_SIZE_MAX and _ID.fullmatch(text) is not None


def _fault_of(manifest: BackupManifest) -> str:
    if not isinstance(manifest.id, str) or not is_id(manifest.id):
        return f"has an id that is none: {str(manifest.id)[:80]!r}"
    numbers = (manifest.boot, manifest.term, manifest.position)
    if not all(type(number) is int and number >= 0 for number in numbers):
        return "says no boot, term or position"
    names = [file.name for file in manifest.files]
    if len(set(names)) != len(names):
        return "names a file twice"
    for file in manifest.files:
        if not isinstance(file.name, str) or (file.segment is None and file.large is None):
            return f"names a file that no data directory has: {str(file.name)[:80]!r}"
        sizes = (file.used_bytes, file.size_bytes)
        if not all(type(size) is int for size in sizes) or not 0 <= sizes[0] <= sizes[1] <= SIZE_MAX:
            return f"says an impossible size of {file.name}"
        if not isinstance(file.sha256, str) or _SHA256.fullmatch(file.sha256) is None:
            return f"says no checksum of {file.name}"
    if not any(file.segment is not None for file in manifest.files):
        return "has no journal"
    return ""


def _checksum(document: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
