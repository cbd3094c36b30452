"""`mqctl version`."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib import metadata

from mqctl import __version__
from mqctl.declare import ReaderOptions
from mqctl.exits import Exit
from mqctl.output import Column, Rows, write
from mqctl.world import World

LIBRARIES = ("mqbroker", "ansible-core", "ansible-runner", "paramiko", "pydantic", "rich", "typer")
COLUMNS = (Column("name"), Column("version"))


@dataclass(frozen=True, kw_only=True)
class Options(ReaderOptions):
    """Nothing of its own."""


def run(world: World, options: Options) -> int:
    """Show the version of mqctl and of what it works with."""
    rows = [{"name": "mqctl", "version": __version__}, {"name": "python", "version": platform.python_version()}]
    rows += [{"name": one, "version": metadata.version(one)} for one in LIBRARIES]
    write(Rows("mqctl.version/1", COLUMNS, rows, {"version": __version__}), options.shape, world.data)
    return Exit.DONE
