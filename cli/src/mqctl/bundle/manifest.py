"""The manifest of a bundle: for which Python and platform it is, and the SHA-256 of each of its files.

A bundle is a folder `bundle-<version>-<abi>-<platform>/`, so that those for other hosts lie beside it, with `wheels/`,
`requirements.lock` and `manifest.json`. The name of a release
on a host is `<version>-<first 8 digits of the SHA-256 of the manifest without that name>`: the manifest names every
wheel that is there by its hash, and the Python and the platform, for which the lock may name the same wheels.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mqctl.errors import CommandError, UsageError

SCHEMA = "mqops.bundle/1"
MANIFEST = "manifest.json"
LOCK = "requirements.lock"
WHEELS = "wheels"
PLATFORM = re.compile(r"manylinux_2_(\d+)_(x86_64|aarch64)")
RELEASE = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+!_]*-[0-9a-f]{8}")
GLIBC_MINOR_MIN = {"x86_64": 5, "aarch64": 17}
LEGACY_TAGS = {5: "manylinux1", 12: "manylinux2010", 17: "manylinux2014"}


@dataclass(frozen=True, slots=True)
class File:
    """A file of a bundle, its path relative to the folder."""

    path: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What `manifest.json` says."""

    version: str
    release: str
    python: str
    abi: str
    platform: str
    machine: str
    glibc: str
    requirements_sha256: str
    files: tuple[File, ...]
    native: bool = False  # bundles that do not say are older than native wheels

    def to_json(self) -> str:
        """The same bytes for the same content: sorted keys, no times."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, indent=2, sort_keys=True) + "\n"


@dataclass(frozen=True, slots=True)
class BundleTarget:
    """The hosts that a bundle is for: a version of CPython and the newest glibc that may be needed."""

    python: str
    glibc_minor: int
    machine: str

    @property
    def abi(self) -> str:
        """The ABI tag of CPython, `cp311`."""
        return "cp" + self.python.replace(".", "")

    @property
    def platform(self) -> str:
        """The newest platform tag that the hosts understand."""
        return f"manylinux_2_{self.glibc_minor}_{self.machine}"

    def platform_tags(self) -> list[str]:
        """Every platform tag that runs there, newest first (PEP 600)."""
        tags = []
        for minor in range(self.glibc_minor, GLIBC_MINOR_MIN[self.machine] - 1, -1):
            tags.append(f"manylinux_2_{minor}_{self.machine}")
            if minor in LEGACY_TAGS:
                tags.append(f"{LEGACY_TAGS[minor]}_{self.machine}")
        return [*tags, f"linux_{self.machine}"]


def folder_name(version: str, target: BundleTarget) -> str:
    """What the folder of a bundle is called."""
    return f"bundle-{version}-{target.abi}-{target.platform}"


def parse_target(python: str, platform: str) -> BundleTarget:
    """`3.11` and `manylinux_2_36_x86_64`, checked."""
    if not re.fullmatch(r"3\.\d{1,2}", python):
        raise UsageError(f"--python {python}: must be a minor version of CPython", "--python 3.11")
    matched = PLATFORM.fullmatch(platform)
    if matched is None:
        raise UsageError(
            f"--platform {platform}: must be manylinux_2_<glibc minor>_<x86_64|aarch64>",
            "--platform manylinux_2_36_x86_64",
        )
    return BundleTarget(python, int(matched[1]), matched[2])


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's content, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def describe(folder: Path, version: str, target: BundleTarget) -> Manifest:
    """The manifest of a folder whose wheels and lock are in place."""
    paths = [folder / LOCK, *sorted((folder / WHEELS).iterdir())]
    files = tuple(File(str(one.relative_to(folder)), sha256_of(one), one.stat().st_size) for one in paths)
    lock = files[0].sha256
    nameless = Manifest(
        version=version,
        release="",
        python=target.python,
        abi=target.abi,
        platform=target.platform,
        machine=target.machine,
        glibc=f"2.{target.glibc_minor}",
        requirements_sha256=lock,
        files=files,
        native=any(is_native(Path(one.path).name) for one in files),
    )
    return replace(nameless, release=release_of(nameless))


def release_of(manifest: Manifest) -> str:
    """The name that a manifest gives its release."""
    digest = hashlib.sha256(replace(manifest, release="").to_json().encode()).hexdigest()
    return f"{manifest.version}-{digest[:8]}"


def is_native(wheel: str) -> bool:
    """Whether a file is a wheel of the broker with compiled modules."""
    return wheel.startswith("mqbroker-") and not wheel.endswith("-none-any.whl")


def require_fit(wheel: str, target: BundleTarget) -> None:
    """Refuses a native wheel of the broker that was compiled for other hosts."""
    if is_native(wheel) and not wheel.endswith(tuple(f"-{target.abi}-{tag}.whl" for tag in target.platform_tags())):
        raise UsageError(
            f"--wheel {wheel}: it is compiled for other hosts than CPython {target.python} on {target.platform}",
            "mqctl bundle build --native",
        )


def read(folder: Path) -> Manifest:
    """The manifest of a bundle, without looking at its files."""
    path = folder / MANIFEST
    try:
        content: Any = json.loads(path.read_text())
    except FileNotFoundError:
        raise CommandError(f"{folder} is not a bundle: it has no {MANIFEST}", "mqctl bundle build") from None
    except (OSError, ValueError) as fault:
        raise CommandError(f"{path} cannot be read: {fault}", "mqctl bundle build") from fault
    if not isinstance(content, dict) or content.pop("schema", None) != SCHEMA:
        raise CommandError(f"{path} is not of the form {SCHEMA} that this mqctl reads", "mqctl bundle build")
    try:
        manifest = Manifest(**{**content, "files": tuple(File(**one) for one in content["files"])})
    except (KeyError, TypeError) as fault:
        raise CommandError(f"{path} lacks or has too much: {fault}", "mqctl bundle build") from fault
    # A host that has this name already takes the content for known, and the name is a folder there.
    if manifest.release != release_of(manifest) or not RELEASE.fullmatch(manifest.release):
        why = f"{path} was changed: its release {manifest.release!r} is not the name of what it says"
        raise CommandError(why, "mqctl bundle build")
    return manifest


def read_whole(folder: Path) -> Manifest:
    """The manifest of a bundle whose files are all what it says. Raises CommandError with every difference."""
    manifest = read(folder)
    differences = damage(folder, manifest)
    if differences:
        raise CommandError(f"{folder} is damaged: {'; '.join(differences)}", "mqctl bundle build")
    return manifest


def damage(folder: Path, manifest: Manifest) -> list[str]:
    """Every difference between a folder and its manifest, as sentences; empty if there is none."""
    differences = []
    for one in manifest.files:
        path = folder / one.path
        if not path.is_file():
            differences.append(f"{one.path} is missing")
        elif sha256_of(path) != one.sha256:
            differences.append(f"{one.path} is not what the manifest says")
    known = {one.path for one in manifest.files} | {MANIFEST}
    present = [str(path.relative_to(folder)) for path in sorted(folder.rglob("*")) if path.is_file()]
    return differences + [f"{one} is not in the manifest" for one in present if one not in known]
