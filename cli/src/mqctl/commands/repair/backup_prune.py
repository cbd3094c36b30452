"""`mqctl backup prune`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl.brokers import backups
from mqctl.brokers.backups import BackupFolderOptions
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.output import Column, Rows
from mqctl.world import World

COLUMNS = (Column("pruned"), Column("freed_bytes", is_number=True))


@dataclass(frozen=True, kw_only=True)
class Options(BackupFolderOptions):
    """Which folder, and what stays."""

    keep: Annotated[int, typer.Option(min=1, help="So many of each node stay, the newest.")]


def run(world: World, options: Options) -> int:
    """Delete all backups of each node but the newest. No backup needs another one, so those that stay are whole.

    Of a node whose newest backup lacks a file nothing is deleted, and the others are pruned; what was deleted is told
    then, too. Exit code 1 if that is so in all folders that were asked for, 3 if in some, or if a host did not answer.
    """
    rows = Rows("mqctl.backup-prune/1", COLUMNS)
    words = ["prune", options.folder, "--keep", str(options.keep)]
    told = backups.show(world, options, words, rows, lambda pruned: [pruned])
    bad = [f"{row['host'] or backups.HERE}: {why}" for row in told for why in row.get("bad", ())]
    if bad and rows.extra["is_whole"] and all(row.get("bad") for row in told):
        raise CommandError("; ".join(bad), "mqctl backup list")
    for why in bad:
        world.note(f"mqctl: {why}")
    return Exit.DONE if rows.extra["is_whole"] and not bad else Exit.DEGRADED
