"""`mqctl dev down`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from mqctl.declare import CommonOptions
from mqctl.dev import process, state
from mqctl.dev.state import remove
from mqctl.exits import Exit
from mqctl.fanout import on_each
from mqctl.world import World


@dataclass(frozen=True, kw_only=True)
class Options(CommonOptions):
    """Where the brokers are kept, and whether their messages stay."""

    directory: Annotated[
        Path | None, typer.Option(help="Where everything is kept. [default: ~/.local/state/mqctl/dev]")
    ] = None
    discard: Annotated[bool, typer.Option("--discard", help="Delete messages, identities and the password too.")] = (
        False
    )


def run(world: World, options: Options) -> int:
    """Stop the brokers of `mqctl dev`. Messages stay for the next time, unless --discard is given."""
    place = state.folder(world.environ, options.directory)
    nodes = state.nodes(place)
    stopped = [one.name for one, was_running in on_each(nodes, lambda one: process.stop(world, one)) if was_running]
    world.note(f"stopped: {' '.join(stopped) or 'nothing ran'}")
    if options.discard:
        remove(place)
        world.note(f"deleted: {place}")
    return Exit.DONE
