"""`mqctl dev status`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from mqctl.declare import ReaderOptions
from mqctl.dev import state
from mqctl.dev.overview import show
from mqctl.world import World


@dataclass(frozen=True, kw_only=True)
class Options(ReaderOptions):
    """Where the brokers are kept."""

    directory: Annotated[
        Path | None, typer.Option(help="Where everything is kept. [default: ~/.local/state/mqctl/dev]")
    ] = None


def run(world: World, options: Options) -> int:
    """Show the brokers of `mqctl dev`. Exit code 3 if any does not run."""
    return show(world, options.shape, state.folder(world.environ, options.directory))
