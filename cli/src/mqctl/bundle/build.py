"""Makes a bundle: the broker's wheel from its sources, its pinned dependencies from the index that pip is set up for.

Two builds of the same sources are bit-identical: the lock pins each dependency by hash, the wheel's times are
SOURCE_DATE_EPOCH, the manifest has no times. A bundle appears whole or not at all: it is made beside its place and
renamed.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mqctl.bundle import native
from mqctl.bundle.manifest import (
    LOCK,
    MANIFEST,
    WHEELS,
    BundleTarget,
    Manifest,
    describe,
    folder_name,
    require_fit,
    sha256_of,
)
from mqctl.errors import CommandError

SOURCE_DATE_EPOCH = "1577836800"  # 2020-01-01, where the environment does not say otherwise
BUILD_TIME_S_MAX = 900
# Where all of these are installed, pip builds with them; else it fetches what the build needs from its index.
BACK_END = ("hatchling",)
NATIVE_BACK_END = (*BACK_END, "mypyc", "setuptools")


@dataclass(frozen=True, slots=True)
class Recipe:
    """`source` is a checkout; `wheels` are given ones (a folder that pip looks into first instead of the index)."""

    target: BundleTarget
    output: Path
    source: Path | None
    wheel: Path | None
    lock: Path
    wheels: Path | None
    environ: Mapping[str, str]
    is_native: bool = False


Say = Callable[[str], None]


def build(recipe: Recipe, say: Say) -> tuple[Path, Manifest]:
    """Make the bundle; the folder that it is in, and its manifest."""
    if recipe.is_native:
        native.require(native.here(recipe.environ), recipe.target)
    recipe.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".bundle-", dir=recipe.output) as scratch:
        folder = Path(scratch) / "bundle"
        (folder / WHEELS).mkdir(parents=True)
        say("compiling the broker twice, some minutes" if recipe.is_native else "building the broker's wheel")
        wheel = _broker_wheel(recipe, Path(scratch))
        say(f"fetching dependencies for CPython {recipe.target.python} on {recipe.target.platform}")
        _fetch(recipe, folder / WHEELS)
        shutil.copyfile(wheel, folder / WHEELS / wheel.name)
        version = wheel.name.split("-")[1]
        (folder / LOCK).write_text(lock_with_broker(recipe.lock.read_text(), version, sha256_of(wheel)))
        manifest = describe(folder, version, recipe.target)
        (folder / MANIFEST).write_text(manifest.to_json())
        _same_modes(folder)
        place = recipe.output / folder_name(version, recipe.target)
        _put(folder, place)
    return place, manifest


def lock_with_broker(lock: str, version: str, sha256: str) -> str:
    """The lock of the dependencies with the broker itself at its end."""
    return f"{lock.rstrip()}\nmqbroker=={version} \\\n    --hash=sha256:{sha256}\n"


def _broker_wheel(recipe: Recipe, scratch: Path) -> Path:
    if recipe.wheel is not None:
        require_fit(recipe.wheel.name, recipe.target)
        return recipe.wheel
    if recipe.source is None:
        raise CommandError(
            "there is no checkout here to build the broker from", "mqctl bundle build --wheel mqbroker-….whl --lock …"
        )
    out = scratch / "wheel"
    arguments = ["wheel", "--no-deps", "--wheel-dir", str(out)]
    needed = NATIVE_BACK_END if recipe.is_native else BACK_END
    if all(importlib.util.find_spec(one) is not None for one in needed):
        arguments += ["--no-build-isolation", "--no-index"]
    # The sources are copied so that nothing that a build leaves behind lands in the checkout.
    copied = scratch / "broker"
    shutil.copytree(recipe.source / "broker", copied, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    environ = {**recipe.environ, "MQBROKER_NATIVE": "1" if recipe.is_native else "0"}
    _pip([*arguments, str(copied)], environ, "building the broker's wheel")
    (wheel,) = out.glob("mqbroker-*.whl")
    return wheel


def _fetch(recipe: Recipe, folder: Path) -> None:
    target = recipe.target
    arguments = ["download", "--require-hashes", "--only-binary", ":all:", "--no-deps", "--dest", str(folder)]
    arguments += ["--implementation", "cp", "--python-version", target.python, "--abi", target.abi]
    arguments += ["--abi", "abi3", "--abi", "none"]
    for tag in target.platform_tags():
        arguments += ["--platform", tag]
    if recipe.wheels is not None:
        arguments += ["--no-index", "--find-links", str(recipe.wheels)]
    _pip([*arguments, "--requirement", str(recipe.lock)], recipe.environ, "fetching dependencies")


def _pip(arguments: list[str], environ: Mapping[str, str], doing: str) -> None:
    if importlib.util.find_spec("pip") is None:
        raise CommandError(f"{doing} needs pip beside mqctl", f"{sys.executable} -m ensurepip")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    environment = {"SOURCE_DATE_EPOCH": SOURCE_DATE_EPOCH, **environ, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=BUILD_TIME_S_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        raise CommandError(f"{doing} took longer than {BUILD_TIME_S_MAX} s", "mqctl bundle build") from None
    if done.returncode != 0:
        raise CommandError(f"{doing} failed: {complaint(done.stderr)}", "mqctl bundle build --wheels FOLDER")


def complaint(text: str) -> str:
    """What pip complains about, in one line: from its first error on."""
    lines = [one.strip() for one in text.splitlines() if one.strip()]
    errors = [index for index, one in enumerate(lines) if one.startswith("ERROR")]
    return " / ".join(lines[errors[0] :][:4] if errors else lines[-3:])


def _same_modes(folder: Path) -> None:
    """Modes that do not depend on the umask of whoever builds."""
    folder.chmod(0o755)
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _put(folder: Path, place: Path) -> None:
    """Rename into place; what was there is moved away first and deleted last."""
    if place.exists():
        old = folder.parent / "replaced"
        os.rename(place, old)
    os.rename(folder, place)
