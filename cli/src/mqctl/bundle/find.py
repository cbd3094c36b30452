"""Where things are on the control node: a checkout, the collection, a bundle that was built before."""

from __future__ import annotations

from pathlib import Path

from mqctl import __version__
from mqctl.errors import UsageError


def checkout(start: Path) -> Path | None:
    """The checkout that `start` is in, else the one that this program runs from, if any."""
    for folder in [start, *start.parents, *Path(__file__).resolve().parents]:
        if (folder / "galaxy.yml").is_file() and (folder / "broker" / "pyproject.toml").is_file():
            return folder
    return None


def is_named(folder: Path) -> bool:
    """Whether it is called like a bundle of this version; those of earlier ones do not say for which hosts they are."""
    return folder.name == f"bundle-{__version__}" or folder.name.startswith(f"bundle-{__version__}-")


def bundle_folder(named: str | None, start: Path) -> Path:
    """The bundle that the user named, else the only one that `bundle build` has made for this version."""
    if named:
        folder = (start / named).expanduser()
        if not folder.is_dir():
            raise UsageError(f"bundle {folder}: there is no such folder", "mqctl bundle build")
        return folder.resolve()
    root = checkout(start)
    for base in [start, *([root] if root else [])]:
        bundles = [
            one for one in sorted((base / "dist").glob(f"bundle-{__version__}*")) if one.is_dir() and is_named(one)
        ]
        if len(bundles) > 1:
            names = ", ".join(one.name for one in bundles)
            raise UsageError(
                f"there are bundles for several kinds of hosts under dist/: {names}", f"name one: {bundles[0]}"
            )
        if bundles:
            return bundles[0].resolve()
    raise UsageError(f"there is no bundle of {__version__} under dist/", "mqctl bundle build")
