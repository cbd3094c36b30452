"""`mqctl backup list`."""

from __future__ import annotations

from dataclasses import dataclass

from mqctl.brokers import backups
from mqctl.brokers.backups import BackupFolderOptions
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
    Column("why", wide_only=True),
)


@dataclass(frozen=True, kw_only=True)
class Options(BackupFolderOptions):
    """Which folder."""


def run(world: World, options: Options) -> int:
    """List the backups of a folder, the oldest first. With -o json each has its queues. Exit code 3 if one is bad."""
    rows = Rows("mqctl.backup-list/1", COLUMNS)
    shown = backups.show(world, options, ["list", options.folder], rows, _rows_of)
    bad = [row for row in shown if row.get("why")]
    for row in bad:
        world.note(f"mqctl: {row['id']} is bad: {row['why']}")
    return Exit.DEGRADED if bad or not rows.extra["is_whole"] else Exit.DONE


def _rows_of(listed: backups.JsonRow) -> list[backups.JsonRow]:
    nothing = dict.fromkeys(column.name for column in COLUMNS)
    bad = listed.get("bad", ())  # earlier releases say nothing of it
    return [*listed["backups"], *(nothing | each for each in bad)]
