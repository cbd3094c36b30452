# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Whether an installed release is what its manifest says: every file, down to the last byte.

The manifest names the wheels by their hashes, each wheel its files by theirs (RECORD), and so does what pip wrote when
it installed them, which has the programs in `bin` as well. What none of them names does not belong there: Python would
import it. Bytecode is left out, as Python makes it itself. Source: PEP 376, PEP 427.

Sent to hosts by mqctl and run by the role: standard library of Python 3.9 only, changes nothing.
"""

from __future__ import annotations

import base64
import csv
import glob
import hashlib
import itertools
import json
import os
import stat
import sys
import zipfile
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

# What a release cannot do without; with the first of them an installation ends.
FILES = ("complete", "bundle/manifest.json", "bin/python", "bin/mqbroker")
# What `python -m venv` puts into bin, beside what is called python.
OF_VENV = {"activate", "activate.csh", "activate.fish", "Activate.ps1"}
FAULTS_MAX = 20
PIECE_BYTES = 1 << 20
Hashes = dict[str, str]  # path from the folder of the release -> SHA-256 as RECORD has it; empty where it has none


class ReleasePlace(NamedTuple):
    """Where releases get their Python from, and whose their files are."""

    pythons: str = "/usr/bin"
    owner: int = 0


HOST = ReleasePlace()


def faults(folder: str, place: ReleasePlace = HOST) -> list[str]:
    """What is not as it was installed, at most so many; empty where the release is whole."""
    lost = [f"{one} is gone" for one in FILES if not os.path.exists(os.path.join(folder, one))]
    if lost:
        return lost
    try:
        with open(os.path.join(folder, "bundle/manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        if manifest["release"] != os.path.basename(folder):
            return [f"bundle/manifest.json is of {manifest['release']}"]
        found = _looked_at(folder, manifest, place)
        return list(itertools.islice(found, FAULTS_MAX))
    except (OSError, ValueError, LookupError, TypeError, zipfile.BadZipFile) as fault:
        return [f"it cannot be read: {fault}"]


def _looked_at(folder: str, manifest: dict[str, Any], place: ReleasePlace) -> Iterator[str]:
    wanted = {"bundle/" + one["path"]: one["sha256"] for one in manifest["files"]}
    changed = [one for one, digest in wanted.items() if _sha256(os.path.join(folder, one)) != digest]
    yield from (f"{one} is not what the manifest says" for one in changed)
    python = f"python{manifest['python']}"
    site = f"lib/{python}/site-packages"
    wanted_python = os.path.join(place.pythons, python)
    if os.path.realpath(os.path.join(folder, "bin/python")) != os.path.realpath(wanted_python):
        yield f"bin/python is not {wanted_python}"
    said = _lines(os.path.join(folder, "pyvenv.cfg"))
    if "include-system-site-packages = false" not in said:
        yield "pyvenv.cfg lets in what the system has installed"
    if f"home = {place.pythons}" not in said:
        yield f"pyvenv.cfg takes the standard library from elsewhere than {place.pythons} does"
    installed = _installed(folder, site)
    wheels = [one for one in wanted if one.endswith(".whl") and one not in changed]
    for path, digest in sorted(_of_wheels(folder, site, wheels).items()):
        if installed.get(path) != digest:
            yield f"{path} is not recorded as its wheel has it"
    yield from _differences(folder, installed, place.owner)
    yield from _strangers(folder, site, installed)
    yield from _open_folders(folder, site, place.owner)


def _differences(folder: str, installed: Hashes, owner: int) -> Iterator[str]:
    for path, digest in sorted(installed.items()):
        file = os.path.join(folder, path)
        if not digest and path.endswith(".pyc"):
            continue
        try:
            seen = os.lstat(file)
        except FileNotFoundError:
            yield f"{path} is gone"
            continue
        if not stat.S_ISREG(seen.st_mode) or (digest and _record_hash(file) != digest):
            yield f"{path} has changed"
        elif seen.st_uid != owner or seen.st_mode & stat.S_IWOTH:
            yield f"{path} can be changed by others"


def _strangers(folder: str, site: str, installed: Hashes) -> Iterator[str]:
    """Files that nothing has installed, where Python or a shell would find them."""
    for top in (site, "bin"):
        for place, folders, files in os.walk(os.path.join(folder, top)):
            folders[:] = sorted(one for one in folders if one != "__pycache__")
            links = [one for one in folders if os.path.islink(os.path.join(place, one))]  # these are not walked through
            for name in sorted(files + links):
                path = os.path.relpath(os.path.join(place, name), folder)
                is_of_venv = top == "bin" and (name in OF_VENV or name.startswith("python"))
                if path not in installed and not is_of_venv:
                    yield f"{path} does not belong there"


def _open_folders(folder: str, site: str, owner: int) -> Iterator[str]:
    """Folders that lead elsewhere, or into which others may put what Python would find tomorrow."""
    outer = ["bin", *itertools.accumulate(site.split("/"), os.path.join)]
    inner = [os.path.relpath(one, folder) for one, _folders, _files in os.walk(os.path.join(folder, site))]
    for path in sorted({*outer, *inner}):
        seen = os.lstat(os.path.join(folder, path))
        if not stat.S_ISDIR(seen.st_mode):
            yield f"{path} is no folder"
        elif seen.st_uid != owner or seen.st_mode & stat.S_IWOTH:
            yield f"{path} can be changed by others"


def _installed(folder: str, site: str) -> Hashes:
    """What the records of all packages name, those that the venv itself brought along among them."""
    found: Hashes = {}
    for record in glob.glob(os.path.join(glob.escape(os.path.join(folder, site)), "*.dist-info", "RECORD")):
        with open(record, encoding="utf-8", newline="") as file:
            found.update(_rows(file, site))
    return found


def _of_wheels(folder: str, site: str, wheels: Iterable[str]) -> Hashes:
    """What the wheels name that is installed as it is in them: not what they have for other places."""
    found: Hashes = {}
    for wheel in wheels:
        with zipfile.ZipFile(os.path.join(folder, wheel)) as archive:
            (record,) = (one for one in archive.namelist() if one.endswith(".dist-info/RECORD") and one.count("/") == 1)
            data = record.rpartition(".dist-info/")[0] + ".data/"
            lines = archive.read(record).decode("utf-8").splitlines()
        rows = _rows(lines, "")
        found.update({os.path.join(site, path): digest for path, digest in rows.items()
                      if digest and not path.startswith(data)})  # fmt: skip
    return found


def _rows(lines: Iterable[str], top: str) -> Hashes:
    """Rows of a RECORD. Paths are relative to where packages are."""
    return {os.path.normpath(os.path.join(top, row[0])): row[1] for row in csv.reader(lines) if row}


def _sha256(path: str) -> str:
    """In hex; empty where there is no such file."""
    try:
        return _digest(path).hex()
    except OSError:
        return ""


def _record_hash(path: str) -> str:
    return "sha256=" + base64.urlsafe_b64encode(_digest(path)).rstrip(b"=").decode()


def _digest(path: str) -> bytes:
    made = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(PIECE_BYTES):
            made.update(piece)
    return made.digest()


def _lines(path: str) -> list[str]:
    with open(path, encoding="utf-8") as file:
        return [line.strip() for line in file]


def main() -> None:
    json.dump({one: faults(os.path.realpath(one)) for one in sys.argv[1:]}, sys.stdout)


if __name__ == "__main__":
    main()
