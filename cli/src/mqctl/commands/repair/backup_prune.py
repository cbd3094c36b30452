"""`mqctl backup prune`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl.brokers import backups
from mqctl.brokers.backups import BackupFolderOptions
from mqctl.exits import Exit
from mqctl.output import Column, Rows
from mqctl.world import World

COLUMNS = (Column("pruned"), Column("freed_bytes", is_number=True))


@dataclass(frozen=True, kw_only=True)
class Options(BackupFolderOptions):
    """Which folder, and what stays."""

    keep: Annotated[int, typer.Option(min=1, help="So many of each node stay, the newest.")]


def run(world: World, options: Options) -> int:
    """Delete all backups of each node but the newest. No backup needs another one, so those that stay are whole."""
    rows = Rows("mqctl.backup-prune/1", COLUMNS)
    backups.show(world, options, ["prune", options.folder, "--keep", str(options.keep)], rows, lambda pruned: [pruned])
    return Exit.DONE if rows.extra["is_whole"] else Exit.DEGRADED
