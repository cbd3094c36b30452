"""The temporary folder of a run, and where the collection is.

ansible-runner writes its events, its arguments and its environment into files. They stand in a folder that only the
user may read, in memory where there is such a place, and are removed with it. What a killed run left is swept by the
next one: the folder is locked for as long as its run lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from mqctl.bundle.find import checkout
from mqctl.errors import UsageError

PREFIX = "mqctl-run-"
COLLECTION = Path("ansible_collections/mqops/cluster")
DEFAULT_PATHS = ("~/.ansible/collections", "/usr/share/ansible/collections")


def base(environ: Mapping[str, str]) -> Path:
    """A place in memory if there is one, else the usual one."""
    for one in (environ.get("XDG_RUNTIME_DIR", ""), "/dev/shm"):
        if one and os.path.isdir(one) and os.access(one, os.W_OK):
            return Path(one)
    return Path(environ.get("TMPDIR", tempfile.gettempdir()))


@contextlib.contextmanager
def run_folder(environ: Mapping[str, str]) -> Iterator[Path]:
    """A fresh folder with mode 0700, gone afterwards whatever happens."""
    place = base(environ)
    sweep(place)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def sweep(place: Path) -> None:
    """Remove folders of runs that were killed."""
    for folder in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid != os.geteuid() or folder.is_symlink():
                continue
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def role_takes(environ: Mapping[str, str], start: Path, role: str, variable: str) -> bool:
    """Whether a role of the collection that is found, which may be of another release than mqctl, has this variable."""
    place = Path(collections_path(environ, start).partition(":")[0]) / COLLECTION
    specs = place / "roles" / role / "meta/argument_specs.yml"
    return specs.is_file() and f" {variable}:\n" in specs.read_text(encoding="utf-8")


def collections_path(environ: Mapping[str, str], start: Path) -> str:
    """The value of ANSIBLE_COLLECTIONS_PATH with which the collection is found."""
    named = environ.get("ANSIBLE_COLLECTIONS_PATH", "")
    root = checkout(start)
    candidates = [one for one in named.split(":") if one]
    candidates += [str(root / ".dev")] if root else []
    candidates += [os.path.expanduser(one) for one in DEFAULT_PATHS]
    for one in candidates:
        if (Path(one) / COLLECTION / "playbooks").is_dir():
            return ":".join(dict.fromkeys([one, *candidates]))
    raise UsageError(
        f"the collection mqops.cluster is in none of {' '.join(candidates)}",
        "ansible-galaxy collection install mqops-cluster-….tar.gz",
    )
