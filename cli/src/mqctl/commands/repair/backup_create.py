"""`mqctl backup create`."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl.brokers import backups
from mqctl.brokers.backups import BackupFolderOptions
from mqctl.brokers.requests import nodes_meant
from mqctl.errors import CommandError
from mqctl.nodes import Node
from mqctl.output import Column, Rows
from mqctl.world import World

COLUMNS = (
    Column("instance"),
    Column("id"),
    Column("messages", is_number=True),
    Column("used_bytes", is_number=True),
    Column("copied_bytes", is_number=True),
    Column("files", is_number=True, wide_only=True),
    Column("position", is_number=True, wide_only=True),
    Column("node_id", wide_only=True),
)


@dataclass(frozen=True, kw_only=True)
class Options(BackupFolderOptions):
    """Which nodes, and where to."""

    bytes_per_second: Annotated[int, typer.Option(min=0, help="Read no faster; 0: at will.")] = 0
    hold_minutes: Annotated[
        int, typer.Option(min=1, max=10080, help="A broker keeps its files for so long, then its backup fails.")
    ] = 60


def run(world: World, options: Options) -> int:
    """Copy what running brokers have on disk, each at one moment, into a folder; the brokers go on.

    Files that the folder has are not copied again. Each copy is read as a start would read it before it counts. Exit
    code 3 if a node is missing, 1 if all are.
    """
    nodes, errors = nodes_meant(world, options), list[CommandError]()
    rows = Rows("mqctl.backup-create/1", COLUMNS)
    for node in nodes:  # one after the other: a folder is written to by one
        try:
            manifest = _made(world, options, node)
        except CommandError as error:
            errors.append(error)
            continue
        rows.rows.append({"host": node.host, "instance": node.instance} | _shown(manifest))
    if errors and not rows.rows:
        raise errors[0]
    return backups.written(world, options, rows, errors)


def _made(world: World, options: Options, node: Node) -> backups.JsonRow:
    speed = ["--bytes-per-second", str(options.bytes_per_second), "--hold-minutes", str(options.hold_minutes)]
    # Each file is read for its checksum before anything is copied.
    world.note(f"{node.name}: reads what it has on disk")
    broker = [*speed, *backups.instance_words(node)]
    # Checksums are made in silence, for no longer than files are held. On the host all is read twice more, as slowly.
    silence_s = 3 * options.hold_minutes * 60 + backups.SILENCE_S
    if options.on_hosts:
        with closing(backups.at(world, node, ["create", options.folder, *broker, "--json"], silence_s)) as stream:
            return backups.said(stream)
    with (
        closing(backups.at(world, node, ["send", *broker], silence_s)) as source,
        closing(backups.here(["receive", str(world.cwd / options.folder)], silence_s)) as target,
    ):
        return backups.carried(source, target, backups.copying(world, f"copied from {node.name}"), note=world.note)


def _shown(manifest: backups.JsonRow) -> backups.JsonRow:
    return {one.name: manifest.get(one.name) for one in COLUMNS if one.name != "instance"}
