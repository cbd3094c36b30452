"""Foreign clients that are no Python: built once into .build/foreign/<name>, and again when their sources change.

What they depend on is pinned to its bytes: jars by tests/foreign/jms/jars.sha256, others by their lock files.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = Path(__file__).parent
BUILT = ROOT / ".build" / "foreign"
BUILD_S_MAX = 300
COPY_JARS = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


class BuildFailed(AssertionError):
    """The client cannot be built here; the text says what is missing or went wrong."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a client is made from its sources, and what starts it in its folder."""

    name: str
    programs: dict[str, str]  # program: the Debian package that has it
    make: Callable[[Path, Path], None]  # from sources to folder
    command: Callable[[Path], list[str]]
    # Folders with its sources, where they are not in tests/foreign/<name>; the first has the program.
    elsewhere: tuple[Path, ...] = ()

    @property
    def sources(self) -> tuple[Path, ...]:
        return self.elsewhere or (SOURCES / self.name,)


def built(recipe: Recipe) -> list[str]:
    """The command that starts the client. Raises BuildFailed."""
    _need(recipe)
    folder = BUILT / recipe.name
    folder.mkdir(parents=True, exist_ok=True)
    wanted = _digest_of(recipe.sources)
    stamp = folder / "stamp"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests may run in several processes
        if not stamp.exists() or stamp.read_text() != wanted:
            stamp.unlink(missing_ok=True)
            recipe.make(recipe.sources[0], folder)
            stamp.write_text(wanted)
    return recipe.command(folder)


def install(packages: Iterable[str]) -> None:
    """Try to install Debian packages: only root on Debian, where the names are known to be right."""
    if os.geteuid() != 0 or not Path("/etc/debian_version").exists():
        return
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    apt = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=300"]  # somebody else may be installing
    for words in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        subprocess.run([*apt, *words], env=quiet, capture_output=True, timeout=600, check=False)


def _need(recipe: Recipe) -> None:
    def missing() -> dict[str, str]:
        return {name: package for name, package in recipe.programs.items() if shutil.which(name) is None}

    if missing():
        install(missing().values())
    if missing():
        lacking = ", ".join(f"{name} (Debian: {package})" for name, package in missing().items())
        raise BuildFailed(f"the tests with the foreign client {recipe.name!r} need {lacking}: install it")


def _digest_of(folders: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in (file for folder in folders for file in sorted(folder.iterdir())):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def run(command: list[str], folder: Path, **environment: str) -> None:
    """One step of a build. Raises BuildFailed with what it printed."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BUILD_S_MAX,
        check=False,
    )
    if done.returncode != 0:
        raise BuildFailed(f"{' '.join(command[:3])} … in {folder} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


# -- Qpid JMS ----------------------------------------------------------------------------------------------------------


def _make_jms(sources: Path, folder: Path) -> None:
    jars = folder / "jars"
    shutil.rmtree(jars, ignore_errors=True)
    maven = ["mvn", "-q", "-B", "-ntp", "--strict-checksums", "-f", str(sources / "pom.xml"), COPY_JARS]
    run([*maven, "-DincludeScope=runtime", f"-DoutputDirectory={jars}"], folder)
    _verify(jars, sources / "jars.sha256")
    classes = folder / "classes"
    shutil.rmtree(classes, ignore_errors=True)
    compiler = ["javac", "--release", "17", "-Xlint:all", "-Werror", "-cp", f"{jars}/*", "-d", str(classes)]
    run([*compiler, str(sources / "JmsClient.java")], folder)


def _verify(jars: Path, sums: Path) -> None:
    """Exactly these files with exactly these bytes."""
    wanted = {name: digest for digest, name in (line.split() for line in sums.read_text().splitlines())}
    found = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in jars.iterdir()}
    odd = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    if odd:
        raise BuildFailed(f"not as {sums} says, or not there: {', '.join(odd)}")


def _jms_command(folder: Path) -> list[str]:
    path = f"{folder / 'classes'}:{folder / 'jars'}/*"
    # It starts faster without the second compiler, and a test never runs long enough to need that.
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"]
    return ["java", *quick, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", path, "JmsClient"]


JAVA = {"java": "default-jdk-headless", "javac": "default-jdk-headless", "mvn": "maven"}
JMS = Recipe("jms", JAVA, _make_jms, _jms_command)


# -- rhea --------------------------------------------------------------------------------------------------------------


def _make_rhea(sources: Path, folder: Path) -> None:
    for name in ("package.json", "package-lock.json", "client.js"):
        shutil.copy(sources / name, folder / name)
    # `ci` takes what the lock file says, and nothing whose hash is another.
    run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder)


def _rhea_command(folder: Path) -> list[str]:
    return ["node", str(folder / "client.js")]


RHEA = Recipe("rhea", {"node": "nodejs", "npm": "npm"}, _make_rhea, _rhea_command)


# -- go-amqp -----------------------------------------------------------------------------------------------------------


def _make_go_amqp(sources: Path, folder: Path) -> None:
    # The compiler that is there, no other one that Go would fetch; and no C compiler.
    said = {"GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
    run(["go", "build", "-mod=readonly", "-trimpath", "-o", str(folder / "client"), "."], sources, **said)


def _go_amqp_command(folder: Path) -> list[str]:
    return [str(folder / "client")]


GO_AMQP = Recipe("go_amqp", {"go": "golang-go"}, _make_go_amqp, _go_amqp_command)


# -- all of them, before their tests need them -------------------------------------------------------------------------


def main() -> int:
    """Build what is not built yet, all or those that are named; those that cannot be are named."""
    code = 0
    wanted = sys.argv[1:]
    for recipe in (JMS, RHEA, GO_AMQP):
        if wanted and recipe.name not in wanted:
            continue
        try:
            built(recipe)
        except BuildFailed as failed:
            print(failed, file=sys.stderr)
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
