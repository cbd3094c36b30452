"""What a process has taken of its files, kept where others can look it up: `mqbroker run --record DIRECTORY`.

Invariant: it says what is in force, whoever asked for it and however; what a reload refused is not among it. Digests
are taken before a file is read, so a file that changes at that moment counts as one that was not taken.

    started.toml  the options that the process began with: what needs a restart is as it says
    broker.toml   the options that were taken last: everything else is as it says
    files.json    {"schema": 1, "files": {"/var/lib/mq/default/users.json": "<SHA-256>", ...}}
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from mqbroker.io.files import durable_files, regular_files
from mqbroker.io.loop.log import Log

SCHEMA = 1
FILE_BYTES_MAX = 16 << 20  # as much as the largest of them may have, the file of users


def digests_of(files: Iterable[str]) -> dict[str, str]:
    """File -> SHA-256 of what it holds now. What is not there or cannot be read is left out."""
    digests = {}
    for file in files:
        try:
            with regular_files.opened(Path(file)) as stream:
                digests[file] = hashlib.sha256(stream.read(FILE_BYTES_MAX + 1)).hexdigest()
        except OSError:
            continue
    return digests


class OptionsInForce:
    """The directory. Without one nothing is kept."""

    def __init__(self, directory: Path | None, log: Log) -> None:
        self._directory = directory
        self._log = log

    def begin(self, text: str, files: Mapping[str, str]) -> None:
        """What the process begins with."""
        self._write({"started.toml": text, **_taken(text, files)})

    def keep(self, text: str, files: Mapping[str, str]) -> None:
        """The options and the digests of all other files that are in force. What cannot be written is logged: then the
        record is an old one, and whoever compares finds that a reload is due."""
        self._write(_taken(text, files))

    def _write(self, contents: Mapping[str, str]) -> None:
        if self._directory is None:
            return
        try:
            for name, content in contents.items():
                self._replace(self._directory / name, content)
        except OSError as error:
            self._log.error("record-failed", directory=str(self._directory), why=str(error.strerror or error))

    @staticmethod
    def _replace(file: Path, content: str) -> None:
        """Wholly old or wholly new to whoever reads it, and not synced: it says nothing once the process is gone."""
        new = file.with_name(f"{file.name}.new")
        new.unlink(missing_ok=True)
        descriptor = os.open(
            new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, durable_files.MODE
        )
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as stream:
            stream.write(content)
        new.replace(file)


def _taken(text: str, files: Mapping[str, str]) -> dict[str, str]:
    document = {"schema": SCHEMA, "files": dict(sorted(files.items()))}
    return {"broker.toml": text, "files.json": f"{json.dumps(document, indent=1)}\n"}
