"""`mqctl journal export`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from mqctl.brokers import journals
from mqctl.brokers.requests import the_only_node
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.nodes import NodeCommandOptions
from mqctl.output import counted
from mqctl.progress import counting
from mqctl.world import World


@dataclass(frozen=True, kw_only=True)
class Options(NodeCommandOptions):
    """Which node, and where to."""

    file: Annotated[Path | None, typer.Argument(help="New file to write to. [default: standard output]")] = None
    host: Annotated[str, typer.Option(help="The node: a host, or host/instance; needed where there are several.")] = ""


def run(world: World, options: Options) -> int:
    """Write queues and messages of a broker that does not run as lines of JSON; the journal stays as it is.

    `mqctl journal import` makes a journal of them. The file must be new; it is for its owner only, and is whole when
    this command succeeds: what an export left that failed is removed.
    """
    node = the_only_node(world, options, options.host)
    with (
        _place(world, options.file) as write_chunk,
        counting(world, f"bytes exported from {node.name}", None) as advance,
    ):
        size, last = journals.take(world, node, lambda chunk: (write_chunk(chunk), advance(len(chunk))))
    queues, messages = (counted(last.get(name, 0), name[:-1]) for name in ("queues", "messages"))
    world.note(f"{queues} and {messages} exported from {node.name}: {size} bytes")
    return Exit.DONE


@contextmanager
def _place(world: World, file: Path | None) -> Iterator[Callable[[bytes], Any]]:
    """Where the bytes go."""
    if file is None:
        world.out.flush()
        yield world.out.buffer.write
        world.out.flush()
        return
    path = world.cwd / file
    try:
        # Messages are private, and a file that is there is somebody's.
        opened = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")
    except OSError as fault:
        raise CommandError(f"{file} cannot be made: {fault.strerror}", "mqctl journal export with a new file") from None
    try:
        with opened:
            yield opened.write
            opened.flush()
            os.fsync(opened.fileno())
    except BaseException as fault:
        path.unlink(missing_ok=True)
        if isinstance(fault, OSError):
            what = f"{file} cannot be written: {fault.strerror}"
            raise CommandError(what, "mqctl journal export to where there is room") from None
        raise
