"""`mqctl backup list`."""

from __future__ import annotations

from dataclasses import dataclass

from mqctl import backups
from mqctl.backups import BackupFolderOptions
from mqctl.exits import Exit
from mqctl.output import Column, Rows
from mqctl.world import World

COLUMNS = (
    Column("id"),
    Column("node"),
    Column("made"),
    Column("messages", is_number=True),
    Column("used_bytes", is_number=True),
    Column("files", is_number=True),
    Column("release", wide_only=True),
    Column("position", is_number=True, wide_only=True),
    Column("node_id", wide_only=True),
)


@dataclass(frozen=True, kw_only=True)
class Options(BackupFolderOptions):
    """Which folder."""


def run(world: World, options: Options) -> int:
    """List the backups of a folder, the oldest first. With -o json each has its queues."""
    rows = Rows("mqctl.backup-list/1", COLUMNS)
    backups.show(world, options, ["list", options.folder], rows, lambda found: list(found["backups"]))
    return Exit.DONE if rows.extra["is_whole"] else Exit.DEGRADED
