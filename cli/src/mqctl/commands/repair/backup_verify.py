"""`mqctl backup verify`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl.brokers import backups
from mqctl.brokers.backups import BackupFolderOptions, FolderArgument
from mqctl.exits import Exit
from mqctl.output import Column, Rows
from mqctl.world import World

COLUMNS = (Column("id"), Column("good"), Column("messages", is_number=True), Column("why"))


@dataclass(frozen=True, kw_only=True)
class Options(BackupFolderOptions):
    """Which backups."""

    folder: FolderArgument
    backup: Annotated[str, typer.Argument(help="Only this backup.")] = ""


def run(world: World, options: Options) -> int:
    """Read backups as a start would: manifest, checksums, journal, large messages. Exit code 3 if one is bad."""
    rows = Rows("mqctl.backup-verify/1", COLUMNS)
    words = ["verify", options.folder, *([options.backup] if options.backup else [])]
    shown = backups.show(world, options, words, rows, lambda verified: list(verified["backups"]))
    is_good = all(row["good"] for row in shown) and rows.extra["is_whole"]
    return Exit.DONE if is_good else Exit.DEGRADED
