"""`mqctl journal import`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from mqctl.brokers import journals
from mqctl.brokers.requests import ActOptions, report, the_node
from mqctl.errors import CommandError, UsageError
from mqctl.output import Column, Rows
from mqctl.progress import counting
from mqctl.world import World

COLUMNS = (Column("queues", is_number=True), Column("messages", is_number=True))


@dataclass(frozen=True, kw_only=True)
class Options(ActOptions):
    """From where, and to which node."""

    file: Annotated[Path, typer.Argument(help="What `mqctl journal export` wrote; - is standard input.")]


def run(world: World, options: Options) -> int:
    """Make the journal of a broker that does not run and has none, out of an export.

    All or nothing: what is not whole to its last row leaves nothing behind. The node keeps its own identity; one that
    has a journal already refuses.
    """
    node = the_node(world, options)
    with (
        _source(world, options.file) as source,
        counting(world, f"bytes imported to {node.name}", None) as advance,
    ):
        answer = journals.bring(world, node, _chunks(source, advance))
    row = {one.name: answer.get(one.name) for one in COLUMNS}
    return report(world, options, node, Rows("mqctl.journal-import/1", COLUMNS, [row]))


@contextmanager
def _source(world: World, file: Path) -> Iterator[BinaryIO]:
    if str(file) == "-":
        yield world.stdin_bytes
        return
    try:
        opened = (world.cwd / file).open("rb")
    except OSError as fault:
        raise UsageError(f"{file} cannot be read: {fault.strerror}", "mqctl journal export") from None
    with opened:
        yield opened


def _chunks(source: BinaryIO, advance: Callable[[int], None]) -> Iterator[bytes]:
    while True:
        try:
            chunk = source.read(journals.CHUNK_BYTES)
        except OSError as fault:
            raise CommandError(f"the export cannot be read: {fault.strerror}") from None
        if not chunk:
            return
        yield chunk
        advance(len(chunk))
