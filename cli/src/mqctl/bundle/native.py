"""Whether the broker's native wheel (docs/adr/0013-native-build.md) can be made here for the hosts of a bundle.

There is no cross compiler: what is compiled fits the Python, the machine and the glibc that it was compiled with.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mqctl.bundle.manifest import BundleTarget
from mqctl.errors import CommandError

ATTEMPT = "mqctl bundle build"  # without --native


@dataclass(frozen=True, slots=True)
class Builder:
    """This machine, as far as it matters to what is compiled on it."""

    python: str
    machine: str
    glibc_minor: int
    compiler: str
    has_compiler: bool
    has_headers: bool


def here(environ: Mapping[str, str]) -> Builder:
    """The machine and the Python that run this."""
    words = (environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
    glibc = (os.confstr("CS_GNU_LIBC_VERSION") or "").removeprefix("glibc ").split(".")
    return Builder(
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        machine=platform.machine(),
        glibc_minor=int(glibc[1]) if len(glibc) > 1 and glibc[1].isdigit() else 0,
        compiler=words[0],
        has_compiler=shutil.which(words[0], path=environ.get("PATH")) is not None,
        has_headers=Path(sysconfig.get_path("include"), "Python.h").is_file(),
    )


def require(builder: Builder, target: BundleTarget) -> None:
    """Refuses what could not be compiled here, or would not run on the hosts."""
    if builder.python != target.python:
        raise CommandError(
            f"--native compiles for the Python that mqctl runs with, {builder.python}, not for {target.python}",
            f"{ATTEMPT} --native with an mqctl of Python {target.python}",
        )
    if builder.machine != target.machine:
        raise CommandError(f"--native compiles for {builder.machine} here, not for {target.machine}", ATTEMPT)
    if not 0 < builder.glibc_minor <= target.glibc_minor:
        glibc = f"has glibc 2.{builder.glibc_minor}" if builder.glibc_minor else "has no glibc"
        raise CommandError(
            f"--native would need the glibc of this machine, which {glibc}; the hosts have 2.{target.glibc_minor}",
            f"{ATTEMPT} --native on a machine like the hosts",
        )
    if not builder.has_compiler:
        raise CommandError(
            f"--native needs a C compiler, and there is no {builder.compiler} here",
            f"apt-get install gcc, or {ATTEMPT} without --native",
        )
    if not builder.has_headers:
        raise CommandError(
            f"--native needs the headers of Python {builder.python}, and there is no Python.h here",
            f"apt-get install python{builder.python}-dev, or {ATTEMPT} without --native",
        )
