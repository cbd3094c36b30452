"""Peers' distributions between runs: a directory outside the repository, filled from public registries by their own
clients, which verify checksums or signatures. Archives whose SHA-512 is known here are held to it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.faults import BenchFault

FETCH_TIMEOUT_S = 600
READ_BYTES = 1 << 20
LOCK = ".lock"

# Versions that the benchmark names by default. Other versions rest on the checksums of the registry alone.
SHA512 = {
    "apache-artemis-2.33.0-bin.tar.gz": (
        "984df20fb1bc2d9254fbf9694411f3297937064d2de3d76c987baffa855d115e"
        "23406a97023262d93b2ef4a218f839f7eeffc493fa904a7c566d48ddcc0e5d86"
    ),
    "apache-artemis-2.44.0-bin.tar.gz": (
        "d709eafe1ead38234216d324e9876ee0f66265a2deba36b526f64512de4da1e2"
        "5ae6b5430a03dc002071ed91553c72f3ef01211d7414b14752272cbec66883b4"
    ),
    "apache-activemq-5.18.3-bin.tar.gz": (
        "61abc4a08b9e1db6a5b1062bb1c839171e93bcb571817fd81744dd19874d7138"
        "40bba99c7979d45bcb832d13ea01986b76fb11720f5ec63a0283e7d1934a33cc"
    ),
}


def directory() -> Path:
    """Where distributions are kept, made if need be."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    found = Path(base) / "mqops-bench"
    found.mkdir(parents=True, exist_ok=True)
    return found


def from_maven(artifact: str, version: str) -> Path:
    """The unpacked distribution `org.apache.activemq:<artifact>:<version>`, fetched once."""
    home = directory() / f"{artifact}-{version}"
    return unpacked(home, lambda place: _unpack(_archive(artifact, version), place, home.name))


def unpacked(home: Path, fill: Callable[[Path], Path]) -> Path:
    """`home`, or what `fill` makes in an empty directory beside it: a run that is interrupted leaves no half of one.
    The nodes of a cluster ask for it at the same time, and so may another run: one of them makes it."""
    with _alone(home.with_name(LOCK)):
        if not home.exists():
            with tempfile.TemporaryDirectory(prefix="filling-", dir=home.parent) as filling:
                fill(Path(filling)).rename(home)
    return home


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def verify(archive: Path) -> None:
    """Refuses an archive that is not the one that is known by this name, and removes it."""
    wanted = SHA512.get(archive.name)
    if wanted is None or _sha512(archive) == wanted:
        return
    archive.unlink()
    raise BenchFault(
        f"{archive} had another SHA-512 than the one in bench/peers/cache.py and was removed: run it again"
    )


def _sha512(file: Path) -> str:
    digest = hashlib.sha512()
    with file.open("rb") as stream:
        while block := stream.read(READ_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _unpack(archive: Path, place: Path, folder: str) -> Path:
    with tarfile.open(archive) as tar:
        tar.extractall(place, filter="data")
    return place / folder


def _archive(artifact: str, version: str) -> Path:
    archive = directory() / f"{artifact}-{version}-bin.tar.gz"
    if not archive.exists():
        _fetch(f"org.apache.activemq:{artifact}:{version}:tar.gz:bin", archive)
    verify(archive)
    return archive


def _fetch(coordinate: str, archive: Path) -> None:
    """What is not held to a SHA-512 here is held to the repository's checksums: Maven alone would only warn of a wrong
    one. Some mirrors have none, so those that are known here do without."""
    checksums = "--lax-checksums" if archive.name in SHA512 else "--strict-checksums"
    command = ["mvn", "-q", "-B", checksums, "dependency:copy", f"-Dartifact={coordinate}"]
    done = subprocess.run(
        [*command, f"-DoutputDirectory={archive.parent}"],
        capture_output=True,
        text=True,
        timeout=FETCH_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0 or not archive.exists():
        first = next((line for line in done.stdout.splitlines() if "ERROR" in line), "Maven gave no reason")
        raise BenchFault(f"cannot fetch {coordinate}: {first}\ncheck the version and that Maven reaches its repository")
