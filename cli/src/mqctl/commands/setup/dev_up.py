"""`mqctl dev up`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from mqctl.declare import ReaderOptions
from mqctl.dev import process, state
from mqctl.dev.overview import show
from mqctl.errors import CommandError, UsageError
from mqctl.progress import counting
from mqctl.world import World

PORT_STEP = 10


@dataclass(frozen=True, kw_only=True)
class Options(ReaderOptions):
    """How many brokers, on which ports, and where they are kept."""

    nodes: Annotated[int, typer.Option("--nodes", "-n", help="How many brokers.", min=1, max=32)] = 1
    port: Annotated[
        int, typer.Option(help=f"Port of the first broker; each further one has {PORT_STEP} more.", min=1, max=65000)
    ] = 5672
    directory: Annotated[
        Path | None, typer.Option(help="Where everything is kept. [default: ~/.local/state/mqctl/dev]")
    ] = None


def run(world: World, options: Options) -> int:
    """Start brokers on loopback for developing an application: real brokers, durable, no root needed.

    Brokers that run already stay as they are; messages of earlier runs are still there.
    """
    place = state.folder(world.environ, options.directory)
    secret = process.password(place)
    wanted = [state.node(place, number) for number in range(1, options.nodes + 1)]
    for number, one in enumerate(wanted):
        _check(one, options.port + number * PORT_STEP)
    with counting(world, "brokers", len(wanted)) as advance:
        for number, one in enumerate(wanted):
            if state.running_pid(one) is None:
                process.prepare(one, options.port + number * PORT_STEP, secret)
                process.start(one)
        for one in wanted:
            process.wait_ready(world, one)
            advance(1)
    world.note(f"user {state.USER}, password in {place / 'password'}; stop with: mqctl dev down")
    return show(world, options.shape, place)


def _check(one: state.DevNode, port: int) -> None:
    if port > 65535:
        raise UsageError(f"{one.name} would have port {port}", "mqctl dev up --port 5672")
    if state.running_pid(one) is None and not process.port_is_free(port):
        raise CommandError(f"port {port} for {one.name} is taken", f"mqctl dev up --port {port + 1000}")
