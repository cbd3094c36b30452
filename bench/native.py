"""Which build of our broker is measured: Python's modules of this checkout, or the native wheel made from it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from bench.faults import BenchFault
from bench.peers.mqops import executable

ROOT = Path(__file__).resolve().parents[1]
BUILD_TIME_S_MAX = 900
ASK_TIME_S_MAX = 60


def build(directory: Path) -> Path:
    """Make the native wheel of this checkout; the folder with its content."""
    wheels = directory / "native-wheel"
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run(
        [*command, "--wheel-dir", str(wheels), str(ROOT / "broker")],
        env={**os.environ, "MQBROKER_NATIVE": "1"},
        capture_output=True,
        text=True,
        timeout=BUILD_TIME_S_MAX,
        check=False,
    )
    if done.returncode != 0:
        raise BenchFault(f"the native wheel cannot be built: {done.stderr.strip()}")
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory / "native")
    return directory / "native"


def use(folder: Path) -> None:
    """From now on this process starts the broker of that folder, whose modules come before those of the checkout."""
    others = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(folder) if not others else f"{folder}{os.pathsep}{others}"


def said() -> bool:
    """Whether the broker that is measured says that it is a native build."""
    command = [str(executable()), "version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=ASK_TIME_S_MAX, check=False)
    answers = [line.removeprefix("native: ") for line in done.stdout.splitlines() if line.startswith("native: ")]
    if done.returncode != 0 or answers not in (["yes"], ["no"]):
        raise BenchFault(f"mqbroker version does not say which build it is: {(done.stdout + done.stderr).strip()}")
    return answers == ["yes"]
