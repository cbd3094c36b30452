"""`mqctl bundle build`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from mqctl.bundle.build import Recipe, build
from mqctl.bundle.find import checkout
from mqctl.bundle.manifest import parse_target
from mqctl.declare import CommonOptions
from mqctl.errors import UsageError
from mqctl.exits import Exit
from mqctl.world import World


@dataclass(frozen=True, kw_only=True)
class Options(CommonOptions):
    """What to build, for whom, from what."""

    python: Annotated[str, typer.Option(help="Minor version of CPython on the hosts.")] = "3.11"
    platform: Annotated[
        str, typer.Option(help="Newest platform tag that the hosts understand; Debian 12 has glibc 2.36.")
    ] = "manylinux_2_36_x86_64"
    output: Annotated[Path, typer.Option("--output", help="Folder that the bundle is put into.")] = Path("dist")
    source: Annotated[Path | None, typer.Option(help="Checkout to build from. [default: the one around here]")] = None
    wheel: Annotated[Path | None, typer.Option(help="Wheel of mqbroker to take instead of building one.")] = None
    lock: Annotated[Path | None, typer.Option(help="Pinned dependencies. [default: requirements/broker.lock]")] = None
    native: Annotated[
        bool, typer.Option("--native", help="Compile the broker; needs a C compiler and a machine like the hosts.")
    ] = False
    wheels: Annotated[
        Path | None, typer.Option(help="Folder with the wheels of all dependencies; no index is asked then.")
    ] = None


def run(world: World, options: Options) -> int:
    """Build the folder that a rollout copies to the hosts: the broker and all it needs, as wheels with hashes."""
    target = parse_target(options.python, options.platform)
    source = options.source or checkout(world.cwd)
    lock = options.lock or (source / "requirements" / "broker.lock" if source else None)
    if lock is None or not lock.is_file():
        raise UsageError("there is no lock file of dependencies", "mqctl bundle build --source CHECKOUT")
    if options.wheel is not None and not options.wheel.is_file():
        raise UsageError(f"--wheel {options.wheel}: there is no such file", "mqctl bundle build")
    if options.native and options.wheel is not None:
        raise UsageError("--native builds the broker's wheel, but --wheel gives one", "mqctl bundle build")
    recipe = Recipe(
        target, world.cwd / options.output, source, options.wheel, lock, options.wheels, world.environ, options.native
    )
    with world.err.status("bundle") as status:
        place, manifest = build(recipe, lambda text: status.update(text))
    size_mib = sum(one.size_bytes for one in manifest.files) / 2**20
    kind = "native bundle" if manifest.native else "bundle"
    world.note(f"{kind} {manifest.release}: {len(manifest.files)} files, {size_mib:.1f} MiB")
    world.data.print(str(place), soft_wrap=True)
    return Exit.DONE
