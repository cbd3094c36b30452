"""Which build of our broker is measured, and by which Python: the modules of this checkout by the Python that runs the
benchmark, or the native wheel made from them, or either by another Python.

On a host the system's Python runs the broker. A distribution builds it for speed (profile-guided, with libpython inside
the program), and Pythons from elsewhere are often not: the same broker costs a third more by one of those.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

from bench.faults import BenchFault
from bench.peers import mqops

ROOT = Path(__file__).resolve().parents[1]
BUILD_TIME_S_MAX = 900
ASK_TIME_S_MAX = 60
COMMAND = """\
#!{python}
import sys
from mqbroker.app.main import main
sys.exit(main())
"""


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


def use_python(python: Path, directory: Path) -> None:
    """From now on `python` runs the broker, in an environment of its own that borrows the packages of this one.

    Raises BenchFault: packages with compiled parts need the same version of Python.
    """
    version = _asked([str(python), "-c", "import sysconfig; print(sysconfig.get_python_version())"])
    own = sysconfig.get_python_version()
    if version != own:
        raise BenchFault(f"--python: {python} is Python {version}, and the broker's packages here are for {own}")
    home = directory / "python"
    _asked([str(python), "-m", "venv", "--without-pip", str(home)])
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text(f"{ROOT / 'broker' / 'src'}\n{sysconfig.get_path('platlib')}\n")
    command = home / "bin" / "mqbroker"
    command.write_text(COMMAND.format(python=home / "bin" / "python"))
    command.chmod(0o755)
    mqops.use(home / "bin")


def keep_bytecode(directory: Path) -> None:
    """From now on what this process starts keeps the bytecode of its modules there; that of the broker is made.

    An installed package has it, because pip compiles what it installs. A checkout may have none, and a variable may
    forbid to write any: then each start compiles 270 modules, which takes as long as all else that a start does.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(directory / "bytecode")
    _asked([str(mqops.executable()), "run", "--help"])
    _asked([str(mqops.python()), "-c", "import mqbroker.config.file.load"])  # what a start has a fork import


def python() -> str:
    """Version and place of the Python that runs the broker that is measured."""
    return _asked([str(mqops.python()), "-c", "import platform, sys; print(platform.python_version(), sys.executable)"])


def said() -> bool:
    """Whether the broker that is measured says that it is a native build."""
    command = [str(mqops.executable()), "version"]
    answers = [line.removeprefix("native: ") for line in _asked(command).splitlines() if line.startswith("native: ")]
    if answers not in (["yes"], ["no"]):
        raise BenchFault(f"mqbroker version does not say which build it is: {answers}")
    return answers == ["yes"]


def _asked(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ASK_TIME_S_MAX, check=False)
    except OSError as error:
        raise BenchFault(f"{command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        raise BenchFault(f"{' '.join(command)} failed: {(done.stdout + done.stderr).strip()}")
    return done.stdout.strip()
