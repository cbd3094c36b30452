"""Debian's packages that clients under the system's Python are made of: python -m tests.foreign.debian

Installed as root on Debian, else those that are missing are named, with exit code 1.
"""

from __future__ import annotations

import subprocess
import sys

from tests.foreign.builds import install
from tests.foreign.client import PYTHON

PACKAGES = {
    "python3-qpid-proton": "import proton, proton.reactor",
    "libsasl2-modules": "import ctypes, glob; ctypes.CDLL('libsasl2.so.2'); glob.glob('/usr/lib/*/sasl2/libscram*')[0]",
}


def lacking() -> list[str]:
    """Those that could not be installed either."""
    missing = missing_packages()
    if missing:
        install(missing)
        missing = missing_packages()
    return missing


def missing_packages() -> list[str]:
    """Packages whose contents the system's Python does not find."""
    return [
        name
        for name, probe in PACKAGES.items()
        if subprocess.run([PYTHON, "-c", probe], capture_output=True, timeout=60, check=False).returncode != 0
    ]


def told(missing: list[str]) -> str:
    """What to do."""
    return f"the tests with foreign clients need the Debian packages {', '.join(missing)}: apt install them"


if __name__ == "__main__":
    if found := lacking():
        sys.exit(told(found))
