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


def bundle_folder(named: str | None, start: Path) -> Path:
    """The bundle that the user named, else the one that `bundle build` made for this version."""
    if named:
        folder = (start / named).expanduser()
        if not folder.is_dir():
            raise UsageError(f"bundle {folder}: there is no such folder", "mqctl bundle build")
        return folder.resolve()
    root = checkout(start)
    for base in [start, *([root] if root else [])]:
        folder = base / "dist" / f"bundle-{__version__}"
        if folder.is_dir():
            return folder.resolve()
    raise UsageError(f"there is no bundle of {__version__} under dist/", "mqctl bundle build")
