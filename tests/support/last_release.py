"""The release before this one, as it was: its sources out of the history, its wheel, and brokers that run it.

    environment = broker_environment()
    make_broker(environment=environment)

`last_release.json` says which commit it is. What is built of it is kept in `.build/releases/<commit>`, whole or not at
all, so that tests at the same time and later runs find it.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
NAMED = Path(__file__).with_name("last_release.json")
BUILD_S_MAX = 600


def commit() -> str:
    """The commit of the last release, 40 hex digits."""
    named: str = json.loads(NAMED.read_text())["commit"]
    return named


def broker_environment() -> dict[str, str]:
    """With this a Python that has our dependencies runs `mqbroker` of that release."""
    return {"PYTHONPATH": str(unpacked_wheel())}


@functools.cache
def source() -> Path:
    """The tree of that commit, in a folder of its own."""
    return kept("source", _take_source)


@functools.cache
def wheel() -> Path:
    """The folder with its wheel of the broker, in plain Python."""
    return kept("wheel", lambda folder: build_wheel(source(), folder))


@functools.cache
def unpacked_wheel() -> Path:
    """What the wheel installs, beside what is installed here."""
    return kept("unpacked", _unpack)


@functools.cache
def bundle() -> Path:
    """Its bundle, as its own `mqctl` builds it. Its dependencies come from the index where they are not here yet."""
    (folder,) = kept("bundle", _build_bundle).glob("bundle-*")
    return folder


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """The folder of that name that `make` fills once; another process that wants it meanwhile waits."""
    base = ROOT / ".build" / "releases" / commit()[:12]
    base.mkdir(parents=True, exist_ok=True)
    with _alone(base / f"{name}.lock"):
        place = base / name
        if not place.is_dir():
            with TemporaryDirectory(dir=base) as scratch:
                folder = Path(scratch) / name
                folder.mkdir()
                make(folder)
                os.rename(folder, place)
    return place


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    with place.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _take_source(folder: Path) -> None:
    """Raises AssertionError where the history ends before that commit, as in a clone of little depth."""
    packed = subprocess.run(
        ["git", "archive", commit()], cwd=ROOT, capture_output=True, timeout=BUILD_S_MAX, check=False
    )
    why = packed.stderr.decode()
    assert packed.returncode == 0, f"{why}the history has to reach back to it: git fetch --unshallow"
    subprocess.run(["tar", "x", "-C", folder], input=packed.stdout, timeout=BUILD_S_MAX, check=True)


def build_wheel(tree: Path, folder: Path) -> None:
    """The broker's wheel of a source tree, without an index: what builds it is installed here."""
    words = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder)]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *words, str(tree / "broker")]
    environment = {**os.environ, "MQBROKER_NATIVE": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=BUILD_S_MAX, check=False)
    assert done.returncode == 0, done.stderr


def _unpack(folder: Path) -> None:
    (file,) = wheel().glob("*.whl")
    with zipfile.ZipFile(file) as packed:
        packed.extractall(folder)


def _build_bundle(folder: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(source() / one / "src") for one in ("cli", "broker")),
    }
    words = ["bundle", "build", "--source", str(source()), "--output", str(folder)]
    fetched = sorted((ROOT / ".build/molecule/bundles").glob("wheels-*"))
    for wheels in (*([str(one)] for one in fetched), []):
        given = ["--wheels", *wheels] if wheels else []
        done = subprocess.run(
            [sys.executable, "-m", "mqctl.main", *words, *given],
            env=environment, capture_output=True, text=True, timeout=BUILD_S_MAX, check=False,
        )  # fmt: skip
        if done.returncode == 0:
            return
    raise AssertionError(done.stderr)
