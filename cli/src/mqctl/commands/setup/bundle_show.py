"""`mqctl bundle show`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl.bundle.find import bundle_folder
from mqctl.bundle.manifest import damage, read
from mqctl.declare import ReaderOptions
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.output import Column, Rows, write
from mqctl.world import World

COLUMNS = (Column("path"), Column("size_bytes", is_number=True), Column("sha256"))


@dataclass(frozen=True, kw_only=True)
class Options(ReaderOptions):
    """Which bundle."""

    folder: Annotated[str, typer.Argument(help="Folder of the bundle. [default: the one of this version in dist]")] = ""


def run(world: World, options: Options) -> int:
    """Show what a bundle holds and for which hosts it is, after every hash in it was checked."""
    folder = bundle_folder(options.folder or None, world.cwd)
    manifest = read(folder)
    faults = damage(folder, manifest)
    if faults:
        raise CommandError(f"{folder}: {'; '.join(faults)}", "mqctl bundle build")
    kind = "native" if manifest.native else "pure Python"
    hosts = f"CPython {manifest.python}, {manifest.platform}"
    world.note(f"{folder}: release {manifest.release}, {kind}, {hosts}, hashes hold")
    rows = [{"path": one.path, "size_bytes": one.size_bytes, "sha256": one.sha256} for one in manifest.files]
    extra = {
        "folder": str(folder),
        "version": manifest.version,
        "release": manifest.release,
        "python": manifest.python,
        "platform": manifest.platform,
        "native": manifest.native,
    }
    write(Rows("mqctl.bundle/1", COLUMNS, rows, extra), options.shape, world.data)
    return Exit.DONE
