"""`mqctl backup restore`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl import backups, confirm
from mqctl.asking import the_only_node
from mqctl.backups import BackupFolderOptions, FolderArgument
from mqctl.errors import CommandError, UsageError
from mqctl.exits import Exit
from mqctl.nodes import Node
from mqctl.output import Column, Rows
from mqctl.progress import counting
from mqctl.world import World

COLUMNS = (
    Column("instance"),
    Column("queue"),
    Column("in_backup", is_number=True),
    Column("restored", is_number=True),
    Column("balances"),
    Column("in_backup_digest", wide_only=True),
    Column("restored_digest", wide_only=True),
)


@dataclass(frozen=True, kw_only=True)
class Options(BackupFolderOptions):
    """Which backup, and to which node."""

    folder: FolderArgument
    backup: Annotated[str, typer.Argument(help="The id of the backup, of `mqctl backup list`.")]
    keep_node_id: Annotated[
        bool,
        typer.Option("--keep-node-id", help="The node of the backup is gone for good, and this one is it from now on."),
    ] = False
    as_another_node: Annotated[
        bool,
        typer.Option("--as-another-node", help="The backup is of another node; this one gets its messages."),
    ] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False


def run(world: World, options: Options) -> int:
    """Give a backup to a node whose broker does not run; what it has is put aside. Shows a receipt: each queue.

    The node of the backup goes on under its id, beyond all ids that it gave out since. Another node is refused unless
    it is to get the messages under its own id (--as-another-node) or to be that node (--keep-node-id). Exit code 3 if
    what is there is not what the backup had.
    """
    if options.keep_node_id and options.as_another_node:
        raise UsageError("--keep-node-id and --as-another-node exclude each other", "mqctl backup restore --help")
    node = the_only_node(world, options, options.host)
    confirm.yes(world, f"Restore {options.backup} to {node.name}, and put aside what it has?", is_sure=options.yes)
    words = [*backups.instance_words(node), "--json", *(["--keep-node-id"] if options.keep_node_id else [])]
    words += ["--as-another-node"] if options.as_another_node else []
    receipt = _restored(world, options, node, words)
    rows = Rows("mqctl.backup-restore/1", COLUMNS)
    rows.rows = [{"host": node.host, "instance": node.instance, **row} for row in receipt["queues"]]
    rows.extra = {name: receipt[name] for name in ("backup", "made", "restored", "node_id", "from_node_id", "aside")}
    rows.extra |= {"balances": receipt["balances"], "notes": receipt.get("notes", [])}
    backups.written(world, options, rows, ())
    for note in receipt.get("notes", ()):  # an earlier release has none
        world.note(f"mqctl: {note}")
    world.note(f"restored as node {receipt['node_id']}; put aside: {receipt['aside'] or 'nothing was there'}")
    return Exit.DONE if receipt["balances"] else Exit.DEGRADED


def _restored(world: World, options: Options, node: Node, words: list[str]) -> backups.JsonRow:
    if options.on_hosts:
        target = backups.at(world, node, ["restore", options.folder, options.backup, *words])
    else:
        target = backups.at(world, node, ["take", *words])
    try:
        if options.on_hosts:
            return backups.said(target, may_fail=True)
        source = backups.here(["give", str(world.cwd / options.folder), options.backup])
        with counting(world, f"bytes given to {node.name}", None) as advance:
            return backups.carried(source, target, advance)
    except CommandError as error:
        if target.is_lost:
            why = (
                f"{error.what}; whether it is restored is not known: restored.json in its data directory names the last"
            )
            raise CommandError(why, "mqctl status") from None
        raise
